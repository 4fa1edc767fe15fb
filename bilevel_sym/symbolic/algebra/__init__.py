"""Exact algebra: fields of formulas, proofs that one vanishes, linear and scalar equations, branches."""
