"""Candidates with a knob: how their errors shrink as it is turned."""
