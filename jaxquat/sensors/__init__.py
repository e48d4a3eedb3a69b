"""Sensors of three axes: what they measure, their calibration, and their noise at rest."""
