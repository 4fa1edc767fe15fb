"""Index notation: vectors, matrices and data. Knows nothing of bilevel problems."""
