"""What a right solution does, one property each; run by `examine`."""
