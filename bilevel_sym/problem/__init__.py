"""Bilevel problems: what users state, in SymPy, text or files."""
