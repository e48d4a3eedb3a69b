"""Rotations without dynamics: quaternions, rotation matrices and vectors, Euler angles."""
