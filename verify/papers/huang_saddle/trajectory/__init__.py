"""A run of anybody's solver: what was recorded, what is true there, and the rules and lemmas that it should obey."""
