"""The tape: f and g as one graph with exact constants, differentiated there, and run in four arithmetics."""
