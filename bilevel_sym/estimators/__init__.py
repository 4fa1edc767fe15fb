"""Estimators of the hypergradient."""
