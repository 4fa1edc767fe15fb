"""Programs run in several arithmetics: NumPy, compiled code, mpmath, balls, intervals. Nothing here is bilevel."""
