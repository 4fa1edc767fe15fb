"""One stationary point: its box, its balls, its exact arithmetic, and the end of a domain."""
