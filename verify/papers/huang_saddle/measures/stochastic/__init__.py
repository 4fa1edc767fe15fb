"""What the claims about stochastic problems measure."""
