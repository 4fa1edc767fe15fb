"""Arrays that are proved to hold the truth: float64 with a radius for matrices, balls of any precision for vectors."""
