"""Fits of parameters by gradient descent and by least squares, and their covariance."""
