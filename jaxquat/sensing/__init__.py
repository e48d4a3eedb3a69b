"""What sensors with three axes share: their errors, and the fit of an ellipsoid."""
