"""Whether an accelerometer feels the weight of its body, as ``ahrs`` takes for granted.

The specific force is f = a + g up, in world axes. Its mean over a time T is g up + dv/T, with the
change dv of the velocity, and the mean of its length is no shorter. A mean length below g by more
than V/T says that the body fell faster by V at the end, whatever its attitude, or that gravity was
subtracted. The median has no such bound: it is 0 for a body that jumps more than half of the time.
"""

from __future__ import annotations

import numpy as np

_GRAVITY = 9.80665  # m/s^2
_FALL = 300.0  # m/s, nearly the speed of sound
_SCALE = 0.85  # an accelerometer has errors: 5 % of gain and 1 m/s^2
_GAP = 1.0  # s: longer intervals say nothing of the force


def check_weight(name: str, dt: np.ndarray, force: np.ndarray) -> None:
    """ValueError if specific forces (N, 3), at these intervals (N,) [s], are too short on average.

    In half a minute every body may fall freely, and nothing is refused.
    """
    present = np.isfinite(force).all(axis=1)
    t = np.cumsum(np.asarray(dt, np.float64))[present]
    intervals = np.minimum(np.diff(t), _GAP)
    total = float(np.sum(intervals))
    if not total > _FALL / _GRAVITY:
        return
    lengths = np.linalg.norm(np.asarray(force, np.float64)[present], axis=1)
    mean = float(np.sum(intervals * 0.5 * (lengths[1:] + lengths[:-1]))) / total
    least = min(_SCALE * _GRAVITY, _GRAVITY - _FALL / total)
    if mean < least:
        wanted = f"specific forces of a mean length of {least:.3g} m/s^2 or more in {total:.3g} s"
        got = f"{mean:.3g} m/s^2; is gravity subtracted? For free fall and orbits use mekf"
        raise ValueError(f"{name}: wanted {wanted}, got {got}")
