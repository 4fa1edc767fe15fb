"""The implicit formulas: the blocks of f and g, the lower-level solution, derivatives of Phi."""
