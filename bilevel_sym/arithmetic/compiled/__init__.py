"""Float64 in compiled code (extra ``fast``): an interpreter of programs, for many points or one."""
