"""What the claims measure: runs, samples, regions, exact expansions and moments, and how a family is judged."""
