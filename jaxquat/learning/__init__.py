"""Fits of parameters by gradient descent, and the covariance of what was fitted."""
