"""Common parts of sensors with three axes: their errors, and the fit of an ellipsoid."""
