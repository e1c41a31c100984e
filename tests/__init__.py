"""Tests of the course; a package, so that no other `tests` takes its place."""
