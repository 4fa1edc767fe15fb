"""Certified constants of sums of functions of affine forms, from their structure: of any size, without a search."""
