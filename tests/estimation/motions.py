"""Simulated motions of vehicles and people, and what their sensors measure, without jaxquat.

Every motion starts at rest. Velocities are smooth random processes, and the attitude is
the one that the motion needs: a multirotor tilts to accelerate and against the wind, and an
aeroplane banks to turn.
"""

import numpy as np
from scipy.signal import lfilter
from scipy.spatial.transform import Rotation

GRAVITY = 9.80665
REST = 10.0  # s


def low_passed(x, dt, time):
    keep = np.exp(-dt / time)
    return lfilter([1.0 - keep], [1.0, -keep], x, axis=0)


def wandering(draw, count, dt, deviation, time, columns, smooth=0.3):
    """A stationary random process (count, columns) with this deviation and correlation time."""
    keep = np.exp(-dt / time)
    noise = deviation * np.sqrt(1.0 - keep**2) * draw(size=(count, columns))
    return low_passed(lfilter([1.0], [1.0, -keep], noise, axis=0), dt, smooth)


def turned(order, *angles):
    """The attitudes, body to world, with these Euler angles (N,)."""
    return Rotation.from_euler(order, np.stack(angles, axis=1))


def mean_rates(attitude, dt):
    """The mean rates (N, 3) between attitudes, 0 in the first row; ``dt`` is () or (N - 1, 1)."""
    turns = (attitude[:-1].inv() * attitude[1:]).as_rotvec()
    return np.concatenate([np.zeros((1, 3)), turns / dt])


def hover(draw, t, moving):
    """A multirotor holds its place in wind."""
    dt = t[1]
    velocity = wandering(draw, len(t), dt, 0.6, 3.0, 2) * moving[:, None]
    wind = wandering(draw, len(t), dt, 1.5, 3.0, 2) + np.array([3.0, 1.0])
    acceleration = np.gradient(velocity, dt, axis=0)
    push = acceleration + 0.25 * (velocity - wind) * moving[:, None]
    yaw = wandering(draw, len(t), dt, 0.05, 2.0, 1)[:, 0] * moving
    x, y = -push[:, 1] / GRAVITY, push[:, 0] / GRAVITY
    return turned("XYZ", x, y, yaw), acceleration


def walk(draw, t, moving):
    """A person walks with the sensor in a pocket, 1.9 steps a second."""
    dt, phase = t[1], 2 * np.pi * 1.9 * t
    yaw = np.cumsum(wandering(draw, len(t), dt, 0.4, 3.0, 1, 0.5)[:, 0] * moving) * dt
    velocity = 1.3 * moving[:, None] * np.stack([np.cos(yaw), np.sin(yaw)], axis=1)
    steps = np.stack([1.5 * np.sin(phase + 0.3), np.sin(phase / 2)], axis=1) * moving[:, None]
    posture = wandering(draw, len(t), dt, 0.2, 5.0, 2, 0.5) + np.array([0.3, -0.5])
    posture = posture + 0.12 * np.stack([np.sin(phase / 2), np.sin(phase + 1.0)], axis=1)
    x, y = (posture * moving[:, None]).T
    return turned("ZXY", yaw, x, y), np.gradient(velocity, dt, axis=0) + steps


def drive(draw, t, moving):
    """A car drives at 8 to 16 m/s through bends."""
    dt = t[1]
    speed = (12.0 + wandering(draw, len(t), dt, 4.0, 15.0, 1, 2.0)[:, 0]) * moving
    rate = wandering(draw, len(t), dt, 0.15, 6.0, 1, 1.0)[:, 0] * moving
    yaw = np.cumsum(rate) * dt
    velocity = speed[:, None] * np.stack([np.cos(yaw), np.sin(yaw)], axis=1)
    x, y = (wandering(draw, len(t), dt, 0.02, 5.0, 2, 0.5) * moving[:, None]).T
    return turned("ZXY", yaw, x, y), np.gradient(velocity, dt, axis=0)


def fly(draw, t, moving):
    """An aeroplane flies at 20 m/s through coordinated turns of 20 degrees of bank and more."""
    dt, speed = t[1], 20.0
    bank = wandering(draw, len(t), dt, 0.4, 8.0, 1, 1.0)[:, 0] * moving
    yaw = np.cumsum(GRAVITY * np.tan(bank) / speed * moving) * dt
    velocity = speed * moving[:, None] * np.stack([np.cos(yaw), np.sin(yaw)], axis=1)
    pitch = (0.05 + wandering(draw, len(t), dt, 0.03, 3.0, 1, 0.5)[:, 0]) * moving
    return turned("ZYX", yaw, -pitch, -bank), np.gradient(velocity, dt, axis=0)


def recorded(motion, seed, seconds, rate, rest=REST):
    """Rotation matrices (N, 3, 3), rates and specific forces (N, 3) of the sensors.

    The gyroscope has a bias of 5 mrad/s, a response that is wrong by 0.1 %, and white noise of
    1e-3 rad/s/sqrt(Hz); the accelerometer vibrates by 0.4 m/s^2 during the motion.
    """
    draw = np.random.default_rng(seed).normal
    t = np.arange(round(seconds * rate)) / rate
    moving = np.clip((t - rest) / 5.0, 0.0, 1.0)
    attitude, acceleration = motion(draw, t, moving)
    gyro = mean_rates(attitude, 1 / rate) @ (np.eye(3) + 1e-3 * draw(size=(3, 3))) + [
        0.004,
        -0.003,
        0.005,
    ]
    gyro = gyro + 1e-3 * np.sqrt(rate) * draw(size=gyro.shape)
    vertical = GRAVITY + 0.3 * draw(size=(len(t), 1)) * moving[:, None]
    force = attitude.inv().apply(np.concatenate([acceleration, vertical], axis=1))
    vibration = 0.4 * np.maximum(moving, 0.05)[:, None] * draw(size=force.shape)
    return attitude.as_matrix(), gyro, force + vibration
