"""What the claims about the tube measure."""
