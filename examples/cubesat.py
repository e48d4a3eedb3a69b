"""Stop a tumbling cubesat, point its panels at the Sun, and say how probable that is.

    python examples/cubesat.py [--members 10000] [--updates 40]

A cubesat of three units in a polar orbit of 500 km tumbles at 10 degrees per second. Magnetic coils
of 0.2 A m^2 slow it down by the B-dot law. When it turns by less than 0.7 degrees per second in
sunlight, a Kalman filter (``estimation.mekf``) starts from the Sun sensors and the magnetometer,
and three wheels turn the panels to the Sun, while the coils take the momentum out of the wheels. In
the Earth's shadow there is no Sun sensor: the gyroscope and the magnetometer keep the attitude.
Field, Sun and shadow are those of ``jq.environment``.

The members of an ensemble differ in inertia, residual dipole, biases and noises of the sensors, and
start. The program prints the probability that the panels point at the Sun, to 3 degrees, within two
orbits, and fits the gains to the 90th percentile of the pointing error. The picture is cubesat.png.
Without the extra ``fused`` the scan engine takes ten times as long.
"""

import argparse
import datetime
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import jaxquat as jq
from jaxquat import environment, estimation, plot, quaternion

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPOCH = datetime.datetime(2026, 3, 20, 12)
RADIUS, MU = 6.878e6, 3.986004418e14  # m, m^3/s^2
ORBIT = environment.kepler_orbit(RADIUS, np.deg2rad(97.4), ascending_node=0.6)
PERIOD = 2 * np.pi * np.sqrt(RADIUS**3 / MU)  # s
BODY = jq.Body.box(4.0, jnp.array([0.1, 0.1, 0.34]))  # kg, m
PANEL = jnp.array([1.0, 0.0, 0.0])  # normal of the panels, body axes
COIL, MOTOR, WHEELS = 0.2, 1e-3, jnp.eye(3)  # A m^2, N m: limits; axes
SAMPLE, STEPS = 2.0, 4  # s, steps in it
TUMBLE, SLEW = np.deg2rad(10.0), np.deg2rad(0.3)  # rad/s, at the start
BDOT, SLOW = 1e5, np.deg2rad(0.7)  # A m^2 s/T; rad/s, below which the wheels take over
GAINS = jnp.log(jnp.array([1e-4, 3e-3, 1e-3]))  # N m, N m s, 1/s: stiffness, damping, unloading
FIELD_NOISE, SUN_NOISE = 1e-7, 0.01  # T, rad, of a reading
RATE_NOISE, UNIT = 1e-4, jnp.array([1.0, 0.0, 0.0, 0.0])  # rad/s/sqrt(Hz)
SETTINGS = estimation.MekfSettings(vectors=jnp.array([0.015, 0.01]), start_bias=5e-3)


class Surroundings(NamedTuple):
    """The field (3,) [T], directions of the Sun and up (3,), and the light, in inertial axes."""

    field: jax.Array
    sun: jax.Array
    light: jax.Array
    up: jax.Array


class Member(NamedTuple):
    """The properties that differ between cubesats."""

    body: jq.Body
    dipole: jax.Array  # (3,) A m^2, residual
    gyro_bias: jax.Array  # (3,) rad/s
    field_bias: jax.Array  # (3,) T
    start: jq.State
    noise: jax.Array  # key


class Memory(NamedTuple):
    """The controller's memory from sample to sample."""

    key: jax.Array
    field: jax.Array  # (3,) T, the last reading
    before: jax.Array  # (4,), the last attitude, for the gyroscope's mean rate
    caught: jax.Array  # whether the wheels have taken over
    filter: tuple


def surroundings(t):
    """Return the surroundings on the orbit at a time [s]."""
    place, sun = ORBIT(t)[0], environment.sun_direction(EPOCH, t)
    field = environment.magnetic_field(EPOCH, t, place)
    return Surroundings(field, sun, environment.sunlight(EPOCH, t, place), place / RADIUS)


def draw(key, rate=TUMBLE):
    """Draw a cubesat that turns at this rate [rad/s]."""
    keys = jax.random.split(key, 7)
    theta = BODY.parameters + 0.03 * jax.random.normal(keys[0], (6,))
    dipole, gyro, field, spin = (jax.random.normal(key, (3,)) for key in keys[1:5])
    omega = rate * spin / jnp.linalg.norm(spin)
    start = jq.State(quaternion.random(keys[5]), omega, aux=jnp.zeros(3))
    body = jq.Body.from_parameters(theta)
    return Member(body, 0.01 * dipole, 2e-3 * gyro, 2e-7 * field, start, keys[6])


def acting(member):
    """Return the torque of coils, residual dipole, wheels and gravity gradient."""

    def torque(t, state, gains, command):
        (dipole, motor), around = command
        field = quaternion.rotate_inverse(state.q, around.field)
        up = quaternion.rotate_inverse(state.q, around.up)
        wheels = jq.actuators.wheel_torque(WHEELS, state, state.aux, motor)
        gravity = 3 * MU / RADIUS**3 * jnp.cross(up, member.body.inertia @ up)
        return jnp.cross(dipole + member.dipole, field) + wheels + gravity, motor

    return torque


def measured(member, state, memory, around):
    """Return the readings of gyroscope, magnetometer and Sun sensor, and the next key."""
    key, now = jax.random.split(memory.key)
    noise = jax.random.normal(now, (3, 3))
    mean = quaternion.log(quaternion.relative(memory.before, state.q)) / SAMPLE
    rate = mean + member.gyro_bias + RATE_NOISE / SAMPLE**0.5 * noise[0]
    field = quaternion.rotate_inverse(state.q, around.field) + member.field_bias
    sun = quaternion.rotate_inverse(state.q, around.sun) + SUN_NOISE * noise[1]
    sun = jnp.where(around.light > 0.5, sun / jnp.linalg.norm(sun), jnp.nan)
    return rate, field + FIELD_NOISE * noise[2], sun, key


def triad(vectors):
    """Return right-handed axes, as columns, of two vectors (H. D. Black, AIAA Journal 2, 1964)."""
    y = jnp.cross(vectors[1], vectors[0])
    x, y = vectors[1] / jnp.linalg.norm(vectors[1]), y / jnp.linalg.norm(y)
    return jnp.stack([x, y, jnp.cross(x, y)], axis=1)


def controller(member):
    """Return the controller of one cubesat: B-dot, then filter, wheels and unloading."""
    mekf = estimation.mekf(UNIT, SETTINGS)

    def sample(rate, field, sun, around):
        dt, size = estimation.Interval(jnp.asarray(SAMPLE)), jnp.linalg.norm(around.field)
        body, world = jnp.stack([field / size, sun]), jnp.stack([around.field / size, around.sun])
        return estimation.VectorSample(dt, rate, body, world, jnp.full(4, jnp.nan))

    def begin(start, gains):
        around = Surroundings(PANEL, PANEL, jnp.zeros(()), PANEL)  # for the shapes alone
        first = mekf.init(sample(jnp.zeros(3), PANEL, PANEL, around))
        return Memory(member.noise, jnp.full(3, jnp.nan), start.q, jnp.asarray(False), first)

    def update(t, state, memory, gains, around):
        stiffness, damping, unloading = jnp.exp(gains)
        rate, field, sun, key = measured(member, state, memory, around)
        reading = sample(rate, field, sun, around)
        lit = around.light > 0.5
        q = quaternion.from_matrix(triad(reading.references) @ triad(reading.vectors).T)
        fresh = estimation.mekf(jnp.where(lit, q, UNIT), SETTINGS).init(reading)
        known = jax.tree.map(lambda a, b: jnp.where(memory.caught, a, b), memory.filter, fresh)
        known, estimate = mekf.step(known, reading)
        is_slow = ~jnp.isnan(memory.field[0]) & (rate @ rate < SLOW**2)  # the first rate is 0
        caught = memory.caught | (lit & is_slow)

        to_sun = quaternion.rotate_inverse(estimate.q, around.sun)
        tau = stiffness * jnp.cross(PANEL, to_sun) - damping * (rate - estimate.bias)
        motor = jnp.where(caught, jq.actuators.allocate(WHEELS, tau, MOTOR), 0.0)
        change = jnp.nan_to_num((field - memory.field) / SAMPLE)
        unload = unloading * jnp.cross(state.aux, field) / (field @ field)
        dipole = jnp.clip(jnp.where(caught, unload, -BDOT * change), -COIL, COIL)
        return ((dipole, motor), around), Memory(key, field, state.q, caught, known)

    return jq.Controller(begin, update)


def observe(t, state, gains, command):
    """Return rate [rad/s], angle from panels to Sun [rad], wheels' momentum [N m s] and light."""
    around, normal = command[1], quaternion.rotate(state.q, PANEL)
    error = jnp.arctan2(jnp.linalg.norm(jnp.cross(normal, around.sun)), normal @ around.sun)
    rate, momentum = jnp.linalg.norm(state.omega), jnp.linalg.norm(state.aux)
    return jnp.stack([rate, error, momentum, around.light])


def fly(member, gains, rows):
    """Return what ``observe`` saves each minute for one cubesat, in these surroundings."""
    n = STEPS * len(rows.light)
    grid = jq.grid(0.0, SAMPLE / STEPS, n, sample_every=STEPS, save_every=30 * STEPS)
    return jq.rollout(
        jq.rkmk4, member.body, acting(member), member.start, grid, gains,
        controller=controller(member), inputs=rows, options=jq.RolloutOptions(save=observe),
    ).saved  # fmt: skip


def percentile(keys, gains, rows):
    """Return the 90th percentile of the error [rad] of cubesats 5 to 10 minutes into a slew."""
    error = jax.vmap(lambda key: fly(draw(key, SLEW), gains, rows)[5:, 1])(keys)
    return jnp.quantile(jnp.sqrt(jnp.mean(error**2, axis=1)), 0.9)


def interval(share, n):
    """Return the 95 % interval of a share of n (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    z = 1.96
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return centre - half, min(centre + half, 1.0)


def draw_picture(rows, share, n):
    """Draw the rates, errors and wheels of 64 cubesats against time."""
    figure, axes = plt.subplots(3, 1, figsize=(6.4, 6.2), sharex=True, layout="constrained")
    orbits = 60.0 * np.arange(rows.shape[1]) / PERIOD
    shown = np.rad2deg(rows[..., 0]), np.rad2deg(rows[..., 1]), 1e3 * rows[..., 2]
    names = "rate [deg/s]", "panels to the Sun [deg]", "momentum of the\nwheels [mN m s]"
    for ax, values, name in zip(axes, shown, names, strict=True):
        ax.plot(orbits, values.T, color=plot.COLOURS[3], linewidth=0.7, alpha=0.3)
        ax.plot(orbits, np.median(values, axis=0), color="black", linewidth=1.8, label="median")
        bars = {"color": "0.5", "alpha": 0.25, "transform": ax.get_xaxis_transform()}
        ax.fill_between(orbits, 0, 1, rows[0, :, 3] < 0.5, label="shadow", **bars)
        ax.set_ylabel(name)
        ax.grid(alpha=0.3)
    title = f"{100 * share:.1f} % of {n:,} point at the Sun to 3 degrees in the last hour"
    axes[0].set(yscale="log", title=title)
    axes[1].set_yscale("log")
    axes[2].set(xlabel="orbits", xlim=(0, orbits[-1]))
    axes[0].legend(loc="upper right")
    figure.savefig("cubesat.png", dpi=90)


def main():
    """Simulate, fit, print and draw."""
    parser = argparse.ArgumentParser(description=f"{__doc__}".split("\n")[0])
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=40)
    options = parser.parse_args()
    times = SAMPLE * jnp.arange(30 * round(2 * PERIOD / 60), dtype=jnp.float32)
    around = jax.jit(jax.vmap(surroundings))(times)
    dark = jnp.mean(around.light < 0.5)
    print(f"two orbits of {PERIOD / 60:.1f} min, {dark:.0%} of them in shadow")

    def points(member):  # to 3 degrees, throughout the last hour, which has the second shadow
        return 1.0 * jnp.all(fly(member, GAINS, around)[-60:, 1] < jnp.deg2rad(3.0))

    began, mean = time.perf_counter(), jq.ensembles.mean()
    key, n = jax.random.key(1), options.members
    found = jq.ensembles.run(key, draw, points, n, reduce=mean, progress=False).result
    share = float(found.mean)
    low, high = (100 * x for x in interval(share, n))
    print(f"{n} members in {time.perf_counter() - began:.0f} s, compilation included")
    print(f"to 3 degrees in the last hour: {100 * share:.2f} %, ", end="")
    print(f"95 % interval {low:.2f} to {high:.2f} %")
    print(f"fitting the gains by {options.updates} updates", flush=True)
    first, others = jax.tree.map(lambda x: x[:300], around), jax.random.split(jax.random.key(2), 64)
    fitted = jq.fit(
        lambda gains, batch, key: percentile(jax.random.split(key, 32), gains, first),
        GAINS, optax.adam(0.1), steps=options.updates, key=jax.random.key(7),
        options=jq.FitOptions(progress=False),
    ).params  # fmt: skip
    print("90th percentile of the error 5 to 10 minutes into a slew, other cubesats:")
    for name, gains in (("by hand", GAINS), ("fitted", fitted)):
        worst = np.rad2deg(jax.jit(percentile)(others, gains, first))
        print(f"{name:8} {worst:.3f} deg, gains", *(f"{x:.1e}" for x in jnp.exp(gains)))
    rows = jax.jit(jax.vmap(lambda key: fly(draw(key), GAINS, around)))(others)
    draw_picture(np.asarray(rows), share, n)
    print("drawn to cubesat.png")


if __name__ == "__main__":
    main()
