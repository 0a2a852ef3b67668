"""Pieces that two or more algorithms share, each named for what it is."""
