"""What pytest and Hypothesis load in every session of every user: next to nothing."""
