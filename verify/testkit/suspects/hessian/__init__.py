"""What may be wrong with a Hessian."""
