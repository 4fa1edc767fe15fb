"""Functions in pieces: where a formula changes, and up to which order both sides agree there."""
