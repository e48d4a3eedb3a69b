"""Measure ellipsoids in a viscous flow against closed forms.

    python benchmarks/jeffery.py [--bodies 10000] [--only "Falling"] [--write]

It prints four tables; ``--write`` puts that of bodies with inertia into docs/noise.md. All is in
float64, in a shear flow ``u_x = g y`` with g = 1/s. The orbit constant of a spheroid of aspect
ratio r with its axis along (x, y, z) is
``sqrt(x^2 + r^2 y^2)/(r |z|)`` (L. G. Leal and E. J. Hinch, J. Fluid Mech. 46, 1971, 685-703).
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pages import put

import jaxquat as jq
from jaxquat import flow, kinematics, quaternion

jax.config.update("jax_enable_x64", True)

PAGE = Path(__file__).parents[1] / "docs" / "noise.md"
SHEAR = jnp.zeros((3, 3)).at[0, 1].set(1.0)  # 1/s
ALONG = jnp.array([0.0, 0.0, 1.0])  # the axis of the spheroid, body axes
RATIOS = (0.05, 0.1, 0.3, 0.9, 1.5, 3.0, 5.0, 10.0, 20.0)
TURNS = 20
VISCOSITY = 1.0  # Pa s


def spheroid(ratio):
    """Return the semi-axes [m] of a spheroid with its axis along body z."""
    return jnp.array([1.0, 1.0, ratio])


def axis(q):
    """Return the axis of the spheroid in the world."""
    return quaternion.rotate(q, ALONG)


def orbit_constant(q, ratio):
    """Return the constant of Jeffery's orbit through this attitude."""
    x, y, z = jnp.moveaxis(axis(q), -1, 0)
    return jnp.sqrt(x * x + (ratio * y) ** 2) / (ratio * jnp.abs(z))


def starts(n, seed=5):
    """Return n attitudes, uniform on the sphere."""
    keys = jax.random.split(jax.random.key(seed), n)
    return jax.vmap(quaternion.random)(keys)


# Without inertia.


def without_inertia(ratio, steps=8000):
    """Return the errors of the period and of the orbit constant after 20 turns, both relative.

    The axis at the end, seen as a point (x, r y) of its ellipse, has turned by 20 times 2 pi.
    """
    rate, period = flow.jeffery_rate(spheroid(ratio), SHEAR), 2 * np.pi * (ratio + 1 / ratio)
    grid = jq.grid_at(np.linspace(0.0, TURNS * period, 8 * TURNS + 1), steps // 8)

    def orbit(q):
        return kinematics.rollout_of_attitude(rate, q, grid, order=6).q

    q = jax.jit(jax.vmap(orbit))(starts(4))
    constants = np.asarray(orbit_constant(q, ratio))
    x, y, _ = np.moveaxis(np.asarray(axis(q[:, :: 8 * TURNS])), -1, 0)
    phase = np.diff(np.arctan2(x, ratio * y), axis=1)[:, 0]
    late = (phase + np.pi) % (2 * np.pi) - np.pi
    return (
        np.max(np.abs(late)) / (2 * np.pi * TURNS),
        np.max(np.abs(constants / constants[:, :1] - 1)),
    )


def orbits():
    """Return the rows of orbits without inertia."""
    rows = ["| aspect ratio | period, relative error | orbit constant, relative error |"]
    rows += ["|---|---|---|"]
    for ratio in RATIOS:
        period, constant = without_inertia(ratio)
        rows.append(f"| {ratio:g} | {period:.1e} | {constant:.1e} |")
    return rows


# With inertia.


def heavy(relaxation, ratio=5.0):
    """Return the body whose slower turns relax in this time [s], and the damping [N m s]."""
    damping = flow.rotational_resistance(spheroid(ratio), VISCOSITY)
    square = spheroid(ratio) ** 2
    moments = jnp.sum(square) - square
    moments = moments * relaxation * damping[0] / moments[0]
    return jq.Body.from_principal(moments), damping


def drift(relaxation, bodies, steps, reference=None, ratio=5.0):
    """Return the relative changes of the orbit constants in a turn, and the seconds it took.

    The bodies start at the rate of a body without inertia. Steps of the splitting with exact drag,
    or of the ``reference`` scheme with Jeffery's torque.
    """
    body, damping = heavy(relaxation, ratio)
    rate, period = flow.jeffery_rate(spheroid(ratio), SHEAR), 2 * np.pi * (ratio + 1 / ratio)
    torque = jq.torques.zero
    if reference:
        torque = lambda t, state, params: damping * (rate(t, state) - state.omega)  # noqa: E731
    scheme = reference or jq.schemes.damp(jq.symmetric_top, damping, toward=rate)
    grid = jq.grid(0.0, period / steps, steps, save_every=steps)

    def turn(q):
        start = jq.State(q, rate(0.0, q))
        path = jq.rollout(scheme, body, torque, start, grid)
        return orbit_constant(path.final.q, ratio) / orbit_constant(q, ratio) - 1

    run, q = jax.jit(jax.vmap(turn)), starts(bodies)
    run(q).block_until_ready()
    began = time.perf_counter()
    changes = np.asarray(run(q))
    return changes, time.perf_counter() - began


def drifts(bodies):
    """Return the rows of orbits with inertia."""
    rows = [
        "| relaxation × shear | drift in a turn, median | its error: 1000 steps | 4000 steps "
        "| of the reference | seconds, 4000 steps |",
        "|---|---|---|---|---|---|",
    ]
    few = min(bodies, 100)
    for relaxation in (0.1, 0.03, 0.01):
        fine = int(40_000 * 0.03 / min(relaxation, 0.03))
        finest, _ = drift(relaxation, few, 2 * fine, jq.rkmk4)
        half, _ = drift(relaxation, few, fine, jq.rkmk4)
        off = []
        for steps in (1000, 4000):
            changes, seconds = drift(relaxation, bodies, steps)
            off.append(np.max(np.abs(changes[:few] - finest) / (1 + np.abs(finest))))
        own = np.max(np.abs(half - finest))
        median = 100 * np.median(changes)
        rows.append(
            f"| {relaxation:g} | {median:.2f} % | {off[0]:.1e} | {off[1]:.1e} | {own:.1e} "
            f"| {seconds:.2f} |"
        )
    return rows


# Falling.


def happel_brenner(ratio):
    """Return force per velocity [N s/m] along the axis and across it, per viscosity.

    Closed forms of J. Happel and H. Brenner, Low Reynolds Number Hydrodynamics, 1965, for the
    semi-axes 1, 1 and ``ratio`` [m].
    """
    if ratio == 1:
        return 6 * np.pi, 6 * np.pi
    if ratio > 1:
        e = np.sqrt(1 - 1 / ratio**2)
        log = np.log((1 + e) / (1 - e))
        scale = 16 * np.pi * ratio * e**3
        return scale / ((1 + e * e) * log - 2 * e), 2 * scale / (2 * e + (3 * e * e - 1) * log)
    e = np.sqrt(1 - ratio**2)
    along = e * ratio - (1 - 2 * e * e) * np.arcsin(e)
    across = (1 + 2 * e * e) * np.arcsin(e) - e * ratio
    return 8 * np.pi * e**3 / along, 16 * np.pi * e**3 / across


def falls(ratio, tilt):
    """Return the velocity [m/s] at which a spheroid ends that falls with its axis tilted [rad]."""
    weight = jnp.array([0.0, 0.0, -3.0])  # N, without buoyancy
    resistance = flow.translational_resistance(spheroid(ratio), VISCOSITY)
    body = jq.Body.from_principal(jnp.ones(3), mass=2.0)

    def load(t, state, params):
        relative = quaternion.rotate_inverse(state.q, state.velocity)
        drag = quaternion.rotate(state.q, resistance * relative)
        return jq.Wrench(jnp.zeros(3), weight - drag)

    q = quaternion.exp(jnp.array([tilt, 0.0, 0.0]))
    start = jq.State(q, jnp.zeros(3), (), jnp.zeros(3), jnp.zeros(3))
    grid = jq.grid(0.0, 0.01, 1000)  # 40 relaxation times and more
    return np.asarray(jax.jit(lambda: jq.rollout(jq.rkmk4, body, load, start, grid).final)()[4])


def falling():
    """Return the rows of falling bodies."""
    rows = ["| body | terminal velocity [m/s] | Happel and Brenner | relative error |"]
    rows += ["|---|---|---|---|"]
    cases = [("sphere", 1.0, 0.0)]
    for name, ratio in (("prolate, 5 : 1", 5.0), ("oblate, 1 : 5", 0.2)):
        ends, sides = ("edge-on", "broadside") if ratio > 1 else ("broadside", "edge-on")
        cases += [(f"{name}, {ends}", ratio, 0.0), (f"{name}, {sides}", ratio, np.pi / 2)]
        cases += [(f"{name}, axis at 45 degrees", ratio, np.pi / 4)]
    for name, ratio, tilt in cases:
        along, across = happel_brenner(ratio)
        direction = np.array([0.0, -np.sin(tilt), np.cos(tilt)])  # of the axis
        part = direction * direction[2] * -3.0
        wanted = part / along + (np.array([0.0, 0.0, -3.0]) - part) / across
        got = falls(ratio, tilt)
        error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
        shown = [f"{-v[2]:.9f} down" + f", {abs(v[1]):.9f} aside" * (0.1 < tilt < 1.5)
                 for v in (got, wanted)]  # fmt: skip
        rows.append(f"| {name} | {shown[0]} | {shown[1]} | {error:.0e} |")
    return rows


# Fitting.


def seen_axes(logarithm, grid):
    """Return the axis at all times of the grid, of a spheroid with this logarithm of its ratio."""
    rate = flow.jeffery_rate(spheroid(jnp.exp(logarithm)), SHEAR)
    q = quaternion.exp(jnp.array([0.3, -0.4, 0.0]))
    return axis(kinematics.rollout_of_attitude(rate, q, grid).q)


def fits(ratio=5.0, noise=0.01):
    """Return the rows of fits of the aspect ratio from nine first guesses."""
    guesses = (1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0)
    rows = ["| turns | `prefixes=` | of 9 guesses end at the right ratio | evaluations, median |"]
    rows += ["|---|---|---|---|"]
    for turns in (1, 3, 5):
        period = 2 * np.pi * (ratio + 1 / ratio)
        grid = jq.grid(0.0, period / 100, 100 * turns)
        right = seen_axes(jnp.log(ratio), grid)
        seen = right + noise * np.random.default_rng(0).normal(size=right.shape)

        def residuals(logarithm, seen, grid=grid):
            return jnp.ravel(seen_axes(logarithm, grid) - seen)

        for prefixes in ((), (0.05,), (0.05, 0.2)):
            ends = [
                jq.least_squares(residuals, jnp.log(guess), seen, prefixes=prefixes)
                for guess in guesses
            ]
            home = sum(abs(float(jnp.exp(fit.params)) - ratio) < 0.01 * ratio for fit in ends)
            count = np.median([fit.evaluations for fit in ends])
            rows.append(f"| {turns} | `{prefixes}` | {home} | {count:.0f} |")
    return rows


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--only", help="the title of one table")
    parser.add_argument("--write", action="store_true", help="put a table into docs/noise.md")
    options = parser.parse_args()
    tables = {
        "Without inertia": orbits,
        "With inertia": lambda: drifts(options.bodies),
        "Falling": falling,
        "Fitting an aspect ratio": fits,
    }
    if options.only:
        tables = {options.only: tables[options.only]}
    for title, measure in tables.items():
        table = "\n".join(measure())
        print(f"\n{title}\n\n{table}", flush=True)
        if options.write and title == "With inertia":
            begin, end = "<!-- spheroids with inertia -->", "<!-- end of spheroids with inertia -->"
            put(PAGE, begin, end, table)


if __name__ == "__main__":
    main()
