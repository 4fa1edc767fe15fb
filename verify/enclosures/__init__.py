"""Proved bounds over boxes: interval matrices, affine forms, norms, branch and bound, and Phi over boxes."""
