"""Verdicts on the statements of the theory, for a problem of ``bilevel_sym``."""

__all__: list[str] = []
