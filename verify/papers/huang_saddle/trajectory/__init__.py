"""A run of a user's solver: what was recorded, what is true there, and the rules and lemmas that it should obey."""
