"""Exact formulas: derivation, closed forms, display, source code."""
