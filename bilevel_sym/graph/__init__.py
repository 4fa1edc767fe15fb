"""Expressions: nodes with exact constants, conversion, differentiation, programs. Nothing here is bilevel."""
