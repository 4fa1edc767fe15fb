"""Formulas and algorithms written down once more, independently of what is shipped."""
