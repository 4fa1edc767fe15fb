"""Proved digits at a point."""
