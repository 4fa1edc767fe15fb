"""Algorithm 1 in compiled code (extra ``fast``)."""
