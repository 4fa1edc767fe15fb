"""What the claims about derivatives of y* and Phi measure."""
