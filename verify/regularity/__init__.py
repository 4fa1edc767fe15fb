"""Certified constants and smoothness of a problem over a box."""
