"""Claims about the stochastic algorithm."""
