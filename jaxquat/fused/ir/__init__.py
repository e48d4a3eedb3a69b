"""Scalar programs: their operations, how they are built and written, and numerics made of them."""
