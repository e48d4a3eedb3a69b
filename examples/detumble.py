"""Stop the tumbling of cubesats with magnetic coils, then point them at the Earth with wheels.

    python examples/detumble.py [--members 64] [--orbits 3]

Cubesats of 4 kg leave the launcher with random rates of up to 12 degrees per second. Every second a
controller reads the magnetometer. First it drives the coils against the change of the field in body
axes, the B-dot law (A. C. Stickler and K. T. Alfriend, J. Spacecraft Rockets 13, 1976, 282-287).
When a cubesat turns by less than 0.5 degrees per second, three wheels turn it to face the Earth,
and the coils take the momentum out of the wheels.

Attitude and orbit are one rollout. The orbit is circular at first, 550 km high, under the gravity
of a point mass, which also turns the body; the field is a dipole that turns with the Earth
(coefficients of IGRF-13 for 2020). The program prints when the cubesats have stopped, how well they
point, and the momentum of their wheels, and draws detumble.png.
"""

import argparse
import os
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

jax.config.update("jax_enable_x64", True)

MU = 3.986004418e14  # m^3/s^2
EARTH, TURN = 6.371e6, 7.292115e-5  # m, rad/s: radius and rate of the Earth
DIPOLE = 1e-9 * jnp.array([-1450.9, 4652.5, -29404.8])  # T: g11, h11, g10
RADIUS, INCLINATION = EARTH + 550e3, np.deg2rad(97.5)
RATE = np.sqrt(MU / RADIUS**3)  # rad/s, of the orbit
PERIOD = 2 * np.pi / RATE

INERTIA = jnp.array([[0.041, 0.0004, -0.0002], [0.0004, 0.039, 0.0003], [-0.0002, 0.0003, 0.007]])
BODY = jq.Body(INERTIA, mass=4.0)  # kg m^2, kg
COILS, MOTORS = jnp.full(3, 0.2), jnp.full(3, 1e-3)  # A m^2, N m: limits
WHEELS = jnp.eye(3)  # axes of the wheels
BDOT, UNLOAD = 4e4, 1e-3  # A m^2 s/T, 1/s
SLOW = np.deg2rad(0.5)  # rad/s, below which the wheels take over
GAINS = jq.control.Gains(damping=0.07 * jnp.diag(INERTIA), stiffness=0.0025 * jnp.diag(INERTIA))
NOISE = 5e-8  # T, of a reading of the magnetometer
DT, SAMPLE = 0.25, 4  # s, steps per sample


def magnetic_field(t, position):
    """Return the field of the dipole at a position, world axes [T]."""
    c, s = jnp.cos(TURN * t), jnp.sin(TURN * t)
    x, y, z = DIPOLE
    dipole = jnp.stack([c * x - s * y, s * x + c * y, z])
    r = jnp.sqrt(position @ position)
    up = position / r
    return (EARTH / r) ** 3 * (3 * (dipole @ up) * up - dipole)


def acting(t, state, params, command):
    """Return the torque of coils and wheels, and the rate of the wheels' momentum."""
    dipole, motor = command
    field = jq.quaternion.rotate_inverse(state.q, magnetic_field(t, state.position))
    wheels = jq.actuators.wheel_torque(WHEELS, state, state.aux, motor)
    return jnp.cross(dipole, field) + wheels, motor


def facing_the_earth(state):
    """Return the attitude with body z down and body x ahead, and its rate."""
    down = -state.position / jnp.sqrt(state.position @ state.position)
    across = jnp.cross(down, state.velocity)
    across = across / jnp.sqrt(across @ across)
    attitude = jnp.stack([jnp.cross(across, down), across, down], axis=1)
    rate = jnp.array([0.0, -RATE, 0.0])
    return jq.control.Reference(jq.quaternion.from_matrix(attitude), rate, jnp.zeros(3))


PLANT = jq.torques.total(
    acting, jq.forces.point_mass(BODY, MU), jq.torques.gravity_gradient(BODY, MU)
)


class Memory(NamedTuple):
    """The controller's memory from sample to sample."""

    key: jax.Array
    field: jax.Array  # (3,) T, the last reading
    caught: jax.Array  # whether the wheels have taken over


def begin(start, key):
    """Return the memory before the first sample; there is no reading yet."""
    return Memory(key, jnp.full(3, jnp.nan), jnp.asarray(False))


def update(t, state, memory, params, _):
    """Return the dipole of the coils and the torques of the motors."""
    key, now = jax.random.split(memory.key)
    field = jq.quaternion.rotate_inverse(state.q, magnetic_field(t, state.position))
    field = field + NOISE * jax.random.normal(now, (3,))
    change = (field - memory.field) / (SAMPLE * DT)
    change = jnp.where(jnp.isnan(change), 0.0, change)
    caught = memory.caught | (state.omega @ state.omega < SLOW**2)

    unload = UNLOAD * jnp.cross(state.aux, field) / (field @ field)
    dipole = jnp.clip(jnp.where(caught, unload, -BDOT * change), -COILS, COILS)
    pointing = jq.control.tracking_law(state, GAINS, facing_the_earth(state), BODY)
    motor = jq.actuators.allocate(WHEELS, pointing, MOTORS)
    motor = jnp.where(caught, motor, 0.0)
    return (dipole, motor), Memory(key, field, caught)


class Row(NamedTuple):
    """The values that are saved each minute."""

    rate: jax.Array  # rad/s
    error: jax.Array  # rad, from facing the Earth
    momentum: jax.Array  # N m s, of the wheels
    position: jax.Array  # (3,) m


def observe(t, state, params, command):
    """Return the values to save."""
    target = facing_the_earth(state)
    return Row(
        jnp.sqrt(state.omega @ state.omega),
        jq.quaternion.distance(state.q, target.q),
        jnp.sqrt(state.aux @ state.aux),
        state.position,
    )


def tipped_off(key):
    """Return a cubesat's state as it leaves the launcher: any attitude, up to 12 deg/s."""
    turn, spin = jax.random.split(key)
    return jq.State(
        jq.quaternion.random(turn),
        jnp.deg2rad(12.0) * jax.random.ball(spin, 3),
        aux=jnp.zeros(3),
        position=jnp.array([RADIUS, 0.0, 0.0]),
        velocity=RATE * RADIUS * jnp.array([0.0, np.cos(INCLINATION), np.sin(INCLINATION)]),
    )


def fly(key, minutes):
    """Return the path of one cubesat, with a row each minute."""
    first, second = jax.random.split(key)
    per_minute = round(60 / DT)
    return jq.rollout(
        jq.rkmk4,
        BODY,
        PLANT,
        tipped_off(first),
        jq.grid(0.0, DT, minutes * per_minute, sample_every=SAMPLE, save_every=per_minute),
        second,
        controller=jq.Controller(begin, update),
        options=jq.RolloutOptions(save=observe),
    )


def print_result(t, rows):
    """Print when the cubesats stop, and the errors and momenta at the end."""
    stopped = t[np.argmax(rows.rate < SLOW, axis=1)] / 60
    late = np.median(stopped), stopped.max()
    share = np.mean(rows.rate[:, -1] < SLOW)
    print(f"stopped: {share:.0%}, in the median after {late[0]:.0f} min, the last after", end=" ")
    print(f"{late[1]:.0f} min, which is {late[1] * 60 / PERIOD:.2f} orbits")
    error, momentum = np.rad2deg(rows.error[:, -60:]), 1e3 * rows.momentum[:, -60:]
    print("the last hour, median and largest of all:")
    print(f"  pointing error  {np.median(error):8.4f} {error.max():8.4f} deg")
    print(f"  wheel momentum  {np.median(momentum):8.4f} {momentum.max():8.4f} mN m s")
    radius = np.linalg.norm(rows.position[0], axis=-1)
    print(f"height of the orbit: {(radius.min() - EARTH) / 1e3:.3f} to", end=" ")
    print(f"{(radius.max() - EARTH) / 1e3:.3f} km")


def draw(t, rows, file):
    """Draw rates, pointing errors and wheels against time."""
    figure, axes = plt.subplots(3, 1, figsize=(6.4, 6.2), sharex=True, layout="constrained")
    orbits = t / PERIOD
    shown = (np.rad2deg(rows.rate), np.rad2deg(rows.error), 1e3 * rows.momentum)
    names = ("rate [deg/s]", "pointing error [deg]", "momentum of the\nwheels [mN m s]")
    for ax, values, name in zip(axes, shown, names, strict=True):
        ax.plot(orbits, values.T, color=plot.COLOURS[3], linewidth=0.7, alpha=0.3)
        ax.plot(orbits, np.median(values, axis=0), color="black", linewidth=1.8, label="median")
        ax.set_ylabel(name)
        ax.grid(alpha=0.3)
    axes[0].axhline(np.rad2deg(SLOW), color=plot.COLOURS[1], label="the wheels take over")
    axes[0].set(yscale="log", title=f"{len(rows.rate)} cubesats: coils stop them, wheels turn them")
    axes[1].set(yscale="log")
    axes[2].set(xlabel="orbits", xlim=(0, orbits[-1]))
    axes[0].legend(loc="upper right")
    figure.savefig(file, dpi=130)


def main():
    """Simulate, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--orbits", type=float, default=3.0)
    options = parser.parse_args()
    minutes = round(options.orbits * PERIOD / 60)
    began = time.perf_counter()
    keys = jax.random.split(jax.random.key(1957), options.members)
    path = jax.jit(jax.vmap(lambda key: fly(key, minutes)))(keys)
    t, rows = np.asarray(path.t[0]), jax.tree.map(np.asarray, path.saved)
    steps = options.members * minutes * 60 / DT
    print(f"{options.members} cubesats, {minutes} min: {steps:.2e} steps", end=" ")
    print(f"in {time.perf_counter() - began:.1f} s, compilation included")
    print_result(t, rows)
    draw(t, rows, "detumble.png")
    print("drawn to detumble.png")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
