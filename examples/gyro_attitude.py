"""Integrate a gyroscope and see how far its attitude drifts from a reference.

    python examples/gyro_attitude.py RECORDING.csv.gz

The rates are integrated twice: raw, and with the bias of the rest phase removed. The table has the
attitude errors, the picture is gyro_attitude.png.

The file has these columns:

- t [s], gyr_x, gyr_y, gyr_z [rad/s];
- q_w, q_x, q_y, q_z: the attitude, sensor to world; empty where the reference was lost;
- movement: 0 while the sensor rests at the start, 1 when it moves.

Without a file the program simulates one, recording.csv.gz: a gyroscope on a tumbling body.
"""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt


class Movement(NamedTuple):
    """The movement phase of a recording, from its first reference attitude on."""

    t: np.ndarray  # (N,) [s], 0 at the start
    gyro: np.ndarray  # (N, 3) [rad/s]
    q: np.ndarray  # (N, 4), NaN where the reference was lost
    seen: np.ndarray  # (N,), whether there is a reference


def simulate(path):
    """Write the recording of a cheap gyroscope: 10 s at rest, then 60 s on a free tumbling body."""
    dt, rest, steps = 0.004, 2500, 15000
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([1.0, 0.4, -0.7]))
    grid = jq.grid(0.0, dt, steps)
    motion = jax.jit(lambda: jq.rollout(jq.rkmk4, body, jq.torques.zero, start, grid))().state
    q = jnp.concatenate([jnp.tile(start.q, (rest, 1)), motion.q])
    omega = jnp.concatenate([jnp.zeros((rest, 3)), motion.omega])
    gyro = jq.gyro.Gyro(
        bias=jnp.array([4e-3, -2e-3, 3e-3]),  # rad/s
        scale=jnp.array([2e-3, -1e-3, 1e-3]),
        misalignment=1e-3 * jnp.array([1.0, -2.0, 1.0, 0.5, -1.0, 2.0]),  # rad
        noise=jnp.array(1e-4),  # rad/s/sqrt(Hz)
        bias_random_walk=jnp.array(2e-5),  # rad/s^2/sqrt(Hz)
    )
    measured = np.asarray(jq.gyro.measure(jax.random.key(0), gyro, omega, dt))
    t = dt * np.arange(len(q))
    recording = jq.recordings.Recording(t, measured, np.asarray(q), t >= rest * dt)
    jq.recordings.write(path, recording)


def read(path):
    """Return the recording, its bias at rest [rad/s] and its movement.

    Exit with one line if the file cannot be used.
    """
    try:
        recording = jq.recordings.read(path)
        if not {"gyro", "q", "movement"} <= {*recording.names}:
            raise ValueError(f"wanted gyro, q and movement, got {', '.join(recording.names)}")
        recording.spacing()
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}" if path not in str(error) else str(error))
    seen = ~np.isnan(recording.q[:, 0])
    if not np.any(recording.movement & seen):
        sys.exit(f"{path}: no sample of the movement phase has a reference attitude")
    rest = int(np.argmax(recording.movement))
    if rest == 0:
        sys.exit(f"{path}: no rest phase before the movement, so no bias to remove")
    first = int(np.argmax(recording.movement & seen))
    last = first + int(np.argmin(np.append(recording.movement[first:], False)))
    t, gyro, q = recording.t[first:last], recording.gyro[first:last], recording.q[first:last]
    movement = Movement(t - t[0], gyro, q, seen[first:last])
    return recording, recording.gyro[:rest].mean(axis=0), movement


def drift(movement, bias, dt):
    """Return the error angles (N,) [deg] of the integrated rates, raw and without the bias."""
    q, gyro = movement.q, movement.gyro
    with jax.enable_x64(True):
        integrate = jax.jit(lambda omega: jq.kinematics.integrate(q[0], omega, dt, order=4))
        angles = {
            name: jq.quaternion.distance(integrate(omega), jnp.asarray(q))
            for name, omega in (("raw", gyro), ("bias removed", gyro - bias))
        }
        return {name: np.rad2deg(np.asarray(angle)) for name, angle in angles.items()}


def print_table(movement, errors):
    """Print the errors at some times, and their root mean squares."""
    t, seen = movement.t, movement.seen
    times = [s for s in (10, 20, 30, 40, 50, 60, 90, 120) if s <= t[-1]]
    print("\nattitude error [deg] against the reference, from the start of the movement\n")
    print(f"{'after [s]':14s}" + "".join(f"{s:8d}" for s in times) + "     rms")
    for name, degrees in errors.items():
        at = [degrees[np.flatnonzero(seen)[np.argmin(np.abs(t[seen] - s))]] for s in times]
        cells = "".join(f"{x:8.2f}" for x in at)
        print(f"{name:14s}{cells}{np.sqrt(np.mean(degrees[seen] ** 2)):8.2f}")


def draw(t, errors, file):
    """Draw the errors against time."""
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, degrees), colour in zip(errors.items(), plot.COLOURS[1::-1], strict=True):
        axis.plot(t, degrees, label=name, color=colour, linewidth=1.5)
    axis.set(xlabel="time since the start of the movement [s]", ylabel="attitude error [deg]")
    axis.set(ylim=(0, None), xlim=(0, t[-1]))
    axis.set_title("Drift of the integrated gyroscope")
    axis.legend()
    figure.savefig(file, dpi=150)


def main():
    """Read, integrate twice, compare, print, draw."""
    path = sys.argv[1] if len(sys.argv) > 1 else "recording.csv.gz"
    if len(sys.argv) < 2:
        print(f"no file given: simulating a gyroscope into {path}")
        simulate(path)
    recording, bias, movement = read(path)
    dt, samples = recording.spacing(), len(recording.t)
    rest, moving = int(np.argmax(recording.movement)) * dt, movement.t[-1]
    lengths = f"rest {rest:.1f} s, movement {moving:.1f} s"
    print(f"{path}: {samples} samples every {1e3 * dt:.4g} ms; {lengths}")
    lost = np.sum(~movement.seen)
    print(f"bias at rest {np.round(np.rad2deg(bias), 4)} deg/s")
    print(f"reference lost in {lost} samples of the movement")
    errors = drift(movement, bias, dt)
    print_table(movement, errors)
    draw(movement.t, errors, "gyro_attitude.png")
    print("\ndrawn to gyro_attitude.png")


if __name__ == "__main__":
    main()
