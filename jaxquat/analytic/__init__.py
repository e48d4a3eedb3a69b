"""Exact motions of rigid bodies, and the elliptic functions that they need."""
