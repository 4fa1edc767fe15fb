"""Suspects: what a candidate with a known defect returns. The hypotheses that diagnosis fits to an error."""
