"""Arrays in files: .npy, .npz and .csv beside a problem file, and what is written there.

A file from outside is looked at before anything is allocated: where it lies, what it is, how much it claims to hold.
Numbers alone are read, and nothing in a file is ever run.
"""

from bilevel_sym.arrays.files.found import is_array_file, read_array
from bilevel_sym.arrays.files.npy import npy_pieces
from bilevel_sym.arrays.files.npz import sparse_npz

__all__ = ["is_array_file", "npy_pieces", "read_array", "sparse_npz"]
