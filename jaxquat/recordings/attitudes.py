"""Attitudes of files as quaternions, in float64, from Euler angles."""

from __future__ import annotations

import numpy as np

# scipy is imported where it is used, because that takes 0.1 s.


def of_euler_angles(angles: np.ndarray, order: str) -> np.ndarray:
    """Return attitudes (N, 4), scalar first, from intrinsic angles (N, 3) [deg], as "ZXZ"."""
    from scipy.spatial.transform import Rotation

    return np.roll(Rotation.from_euler(order, angles, degrees=True).as_quat(), 1, axis=1)


def of_euler_rates(angles: np.ndarray, rates: np.ndarray, order: str) -> np.ndarray:
    """Return angular velocities (N, 3) in body axes, in the unit of the rates of the angles."""
    from scipy.spatial.transform import Rotation

    last = Rotation.from_euler(order[2], angles[:, 2:], degrees=True)
    last_two = Rotation.from_euler(order[1:], angles[:, 1:], degrees=True)
    first, second, third = (np.eye(3)["XYZ".index(letter)] for letter in order)
    turning = last_two.inv().apply(first), last.inv().apply(second), third
    return sum((rates[:, k, None] * axes for k, axes in enumerate(turning)), np.zeros(3))
