"""How far a gyroscope drifts: its attitude by integration against a reference, raw and with the bias of the rest phase removed.

    python examples/gyro_attitude.py RECORDING.csv.gz

prints a table and draws gyro_attitude.png. The file has the columns t, gyr_x, gyr_y, gyr_z [s, rad/s], q_w, q_x, q_y, q_z
(attitude, sensor to world; empty where the reference was lost) and movement (0 while the sensor rests at the start, 1 when it
moves). Without a file it makes one, recording.csv.gz, by a simulated gyroscope on a tumbling body.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def simulated(path):
    """Write the recording of a cheap gyroscope: 10 s at rest, then a free body tumbles for 60 s."""
    dt, rest, steps = 0.004, 2500, 15000
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([1.0, 0.4, -0.7]))
    motion = jax.jit(
        lambda: jq.rollout(jq.rkmk4, body, jq.torques.zero, start, jq.grid(0.0, dt, steps))
    )().state
    q, omega = (
        jnp.concatenate([jnp.tile(start.q, (rest, 1)), motion.q]),
        jnp.concatenate([jnp.zeros((rest, 3)), motion.omega]),
    )
    gyro = jq.gyro.Gyro(
        bias=jnp.array([4e-3, -2e-3, 3e-3]),  # rad/s
        scale=jnp.array([2e-3, -1e-3, 1e-3]),
        misalignment=1e-3 * jnp.array([1.0, -2.0, 1.0, 0.5, -1.0, 2.0]),  # rad
        noise=jnp.array(1e-4),  # rad/s/sqrt(Hz)
        walk=jnp.array(2e-5),  # rad/s^2/sqrt(Hz)
    )
    measured = jq.gyro.measure(gyro, omega, dt, jax.random.key(0))
    t = dt * np.arange(len(q))
    jq.recordings.write(
        path, jq.recordings.Recording(t, np.asarray(measured), np.asarray(q), t >= rest * dt)
    )


def main():
    """Read, integrate twice, compare, print, draw."""
    path = sys.argv[1] if len(sys.argv) > 1 else "recording.csv.gz"
    if len(sys.argv) < 2:
        print(f"no file given: simulating a gyroscope into {path}")
        simulated(path)
    try:
        recording = jq.recordings.read(path)
        dt = recording.spacing()
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}" if path not in str(error) else str(error))
    seen = ~np.isnan(recording.q[:, 0])
    if not np.any(recording.movement & seen):
        sys.exit(f"{path}: no sample of the movement phase has a reference attitude")
    first = int(np.argmax(recording.movement & seen))
    rest = ~recording.movement[: int(np.argmax(recording.movement))]
    if not rest.any():
        sys.exit(f"{path}: no rest phase before the movement, so no bias to remove")
    bias = recording.gyro[: len(rest)].mean(axis=0)
    last = first + int(np.argmin(np.append(recording.movement[first:], False)))
    t, gyro, q, seen = (
        recording.t[first:last] - recording.t[first],
        recording.gyro[first:last],
        recording.q[first:last],
        seen[first:last],
    )

    print(
        f"{path}: {len(recording.t)} samples every {1e3 * dt:.4g} ms; rest {len(rest) * dt:.1f} s, movement {t[-1]:.1f} s"
    )
    print(
        f"bias at rest {np.round(np.rad2deg(bias), 4)} deg/s; reference lost in {np.sum(~seen)} samples of the movement"
    )
    with jax.enable_x64(True):
        integrate = jax.jit(lambda omega: jq.kinematics.integrate(q[0], omega, dt, order=4))
        error = {
            name: np.rad2deg(np.asarray(jq.quaternion.distance(integrate(omega), jnp.asarray(q))))
            for name, omega in (("raw", gyro), ("bias removed", gyro - bias))
        }
    times = [s for s in (10, 20, 30, 40, 50, 60, 90, 120) if s <= t[-1]]
    print("\nattitude error [deg] against the reference, from the start of the movement\n")
    print(f"{'after [s]':14s}" + "".join(f"{s:8d}" for s in times) + "     rms")
    for name, degrees in error.items():
        at = [degrees[np.flatnonzero(seen)[np.argmin(np.abs(t[seen] - s))]] for s in times]
        print(
            f"{name:14s}"
            + "".join(f"{x:8.2f}" for x in at)
            + f"{np.sqrt(np.mean(degrees[seen] ** 2)):8.2f}"
        )

    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    for (name, degrees), colour in zip(error.items(), ("tab:orange", "tab:blue"), strict=True):
        axis.plot(t, degrees, label=name, color=colour, linewidth=1.0)
    axis.set(
        xlabel="time since the start of the movement [s]",
        ylabel="attitude error [deg]",
        ylim=(0, None),
        xlim=(0, t[-1]),
    )
    axis.set_title("Drift of the integrated gyroscope against the reference (gaps: reference lost)")
    axis.legend()
    figure.savefig("gyro_attitude.png", dpi=120)
    print("\ndrawn to gyro_attitude.png")


if __name__ == "__main__":
    main()
