"""What sources are written with: names, expressions, solves, and what is the same in every module."""
