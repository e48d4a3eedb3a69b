"""A flight of a multirotor whose rates answer as known, as a log of PX4."""

import struct

import numpy as np

DT = 0.004  # s, of the controller
P, I, D = 0.15, 0.2, 0.003  # of the rate controllers


def simulated(seed, seconds=30.0, k=60.0, lag=0.04, delay=0.012, noise=0.01, amplitude=1.5):
    """Return times, commands and rates of an axis, ``rate' = k v``, ``lag v' = u(t - delay) - v``.

    The pilot wants another rate every 0.5 s; a torque of 1 rad/s^2/sqrt(Hz) disturbs, and the
    gyroscope has white noise [rad/s]. The plant takes four steps in a sample.
    """
    rng, samples, late = np.random.default_rng(seed), round(seconds / DT), round(delay / DT)
    u, y = np.zeros(samples + late), np.zeros(samples)
    share = 2 * np.pi * 30.0 * DT / (1 + 2 * np.pi * 30.0 * DT)
    rate = v = integral = filtered = smooth = goal = 0.0
    for n in range(samples):
        goal = amplitude * rng.normal() if n % 125 == 0 else goal
        smooth += DT / 0.1 * (goal - smooth)
        y[n] = rate + noise * rng.normal()
        now = filtered + share * (y[n] - filtered)
        u[n + late] = P * (smooth - y[n]) + integral - D * (now - filtered) / DT
        filtered, integral = now, integral + DT * I * (smooth - y[n])
        for _ in range(4):
            v += (u[n] - v) * -np.expm1(-DT / 4 / lag)
            rate += DT / 4 * k * v + np.sqrt(DT / 4) * rng.normal()
    return DT * np.arange(samples), u[late:], y


def write(path, t, command, rate, thrust=0.5):
    """Write commands and rates (N, 3) and the gains as a log of PX4."""

    def message(kind, content):
        return struct.pack("<HB", len(content), ord(kind)) + content

    def topic(number, name, values):
        text = f"{name}:uint64_t timestamp;float[3] xyz;"
        stamps = np.round(1e6 * t).astype(int) + 1_000_000
        rows = zip(stamps, values, strict=True)
        data = [message("D", struct.pack("<HQ3f", number, s, *row)) for s, row in rows]
        added = struct.pack("<BH", 0, number) + name.encode()
        return message("F", text.encode()), message("A", added), b"".join(data)

    up = np.broadcast_to([0.0, 0.0, -thrust], command.shape)
    names = "vehicle_torque_setpoint", "vehicle_angular_velocity", "vehicle_thrust_setpoint"
    values = command, rate, up
    topics = [topic(n, *pair) for n, pair in enumerate(zip(names, values, strict=True))]
    formats, added, data = map(b"".join, zip(*topics, strict=True))
    gains = b""
    for axis in ("ROLL", "PITCH", "YAW"):
        for term, value in zip("PID", (P, I, D), strict=True):
            key = f"float MC_{axis}RATE_{term}".encode()
            gains += message("P", struct.pack("<B", len(key)) + key + struct.pack("<f", value))
    header = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0) + message("B", bytes(40))
    path.write_bytes(header + formats + gains + added + data)


AXES = ({"k": 60.0, "lag": 0.04}, {"k": 90.0, "lag": 0.03}, {"k": 15.0, "amplitude": 0.0})


def three_axes(path):
    """Write a log of three axes as in ``AXES``, the last without a wish of the pilot."""
    flights = [simulated(seed, **axis) for seed, axis in enumerate(AXES)]
    command, rate = (np.stack([flight[n] for flight in flights], axis=1) for n in (1, 2))
    write(path, flights[0][0], command, rate)
