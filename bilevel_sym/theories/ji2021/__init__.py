"""The rates of BA, AID-BiO and ITD-BiO: labels, constants, and the step sizes and inner steps of the theorems."""
