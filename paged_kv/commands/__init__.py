"""What ``paged-kv`` does besides grading: one subcommand a file."""
