"""Measure what changes when code moves here from scipy, jaxlie, MJX or a loop by hand.

    SCIPY_ARRAY_API=1 python benchmarks/migration.py [--write]

It prints a row for each thing measured: how far values and derivatives are from what is right,
there and here, in float64 unless said. ``--write`` puts the tables into docs/migration.md. The row
of MJX needs ``mujoco-mjx`` and is left out without it.
"""

import argparse
import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from certificates import averaged_rk4
from scipy.spatial.transform import Rotation

import jaxquat as jq
from examples.validation import problems

ROOT = Path(__file__).parents[1]
jax.config.update("jax_enable_x64", True)

HEAD = "| from | what | there | here |\n|---|---|---|---|"
ZERO, IDENTITY = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0])
HALF = jnp.vstack([jnp.zeros(3), 0.5 * jnp.eye(3)])  # d exp/du at 0, scalar first
HERE_EXP, HERE_LOG = jq.quaternion.exp, jq.quaternion.log


# Rows.


def off(compute, right):
    """Return the largest difference from what is right, "NaN", or the name of the error."""
    try:
        difference = np.max(np.abs(np.asarray(compute()) - np.asarray(right)))
    except Exception as error:
        return type(error).__name__
    return "NaN" if np.isnan(difference) else f"{difference:.1e}"


def compare(peer, what, there, here, right):
    """Return a row: how far either is from what is right."""
    return f"| {peer} | {what} | {off(there, right)} | {off(here, right)} |"


def finite(peer, what, there, here, at):
    """Return a row where no derivative is right: whether either is finite."""
    words = []
    for function in (there, here):
        slopes = np.asarray(jax.jacfwd(function)(at))
        words.append("finite" if np.isfinite(slopes).all() else "NaN or infinite")
    return f"| {peer} | {what} | {words[0]} | {words[1]} |"


# What is right.


def exact_exp(u):
    """Return exp(u) in long double."""
    u = np.asarray(u, np.longdouble)
    angle = np.linalg.norm(u.astype(float), axis=1)[:, None].astype(np.longdouble)
    squared = np.sum(u * u, axis=1, keepdims=True)
    angle = (angle + squared / angle) / 2  # one Newton step to long double
    return np.concatenate([np.cos(angle / 2), np.sin(angle / 2) / angle * u], axis=1)


def exact_left_jacobian(u):
    """Return the left Jacobian by its series in float64: enough for small u."""
    x, y, z = np.asarray(u, float)
    hat = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + hat / 2 + hat @ hat / 6 + hat @ hat @ hat / 24


# The peers.


def by_scipy():
    """Return the rows of scipy's exponential and logarithm."""
    u = np.random.default_rng(0).uniform(-1.5, 1.5, (10_000, 3))
    q = np.asarray(HERE_EXP(u))
    scalar_last = jnp.array([0.0, 0.0, 0.0, 1.0])

    def exp(v):
        return Rotation.from_rotvec(v).as_quat()

    def log(q):
        return Rotation.from_quat(q).as_rotvec()

    return [
        compare(
            "scipy",
            "rotation vector to quaternion, 10,000",
            lambda: np.roll(exp(u), 1, 1),
            lambda: q,
            exact_exp(u),
        ),
        compare("scipy", "and back", lambda: log(np.roll(q, -1, 1)), lambda: HERE_LOG(q), u),
        compare(
            "scipy, JAX arrays",
            "derivative of `from_rotvec` at 0",
            lambda: jnp.roll(jax.jacfwd(exp)(ZERO), 1, axis=0),
            lambda: jax.jacfwd(HERE_EXP)(ZERO),
            HALF,
        ),
        compare(
            "scipy, JAX arrays",
            "derivative of `as_rotvec` at the identity with respect to x, y, z",
            lambda: jax.jacfwd(log)(scalar_last)[:, :3],
            lambda: jax.jacfwd(HERE_LOG)(IDENTITY)[:, 1:],
            2.0 * np.eye(3),
        ),
    ]


def by_jaxlie():
    """Return the rows of jaxlie."""
    half_turn = jnp.array([np.pi, 0.0, 0.0])
    pitched = jnp.sqrt(0.5) * jnp.array([1.0, 0.0, 1.0, 0.0])
    small, still = jnp.array([2e-3, -1e-3, 1.5e-3], jnp.float32), jnp.zeros(3, jnp.float32)

    def round_trip(exp, log):
        return jax.jacfwd(lambda v: log(exp(v)))(half_turn)[0, 0]

    def translation(v):
        return jaxlie.SE3.exp(jnp.concatenate([v, small])).translation()

    def aircraft(q):
        angles = jaxlie.SO3(q).as_rpy_radians()
        return jnp.stack([angles.yaw, angles.pitch, angles.roll])

    return [
        compare(
            "jaxlie",
            "derivative of log(exp(u)) along u at a half turn",
            lambda: round_trip(jaxlie.SO3.exp, lambda r: r.log()),
            lambda: round_trip(HERE_EXP, HERE_LOG),
            1.0,
        ),
        compare(
            "jaxlie",
            "left Jacobian at 2.7e-3 rad, float32 (in `SE3.exp`)",
            lambda: jax.jacfwd(translation)(still),
            lambda: jax.jacfwd(lambda v: jq.so3.dexp(small, v, "world"))(still),
            exact_left_jacobian(small),
        ),
        finite(
            "jaxlie",
            "derivative of yaw, pitch, roll at 90 degrees of pitch",
            aircraft,
            lambda q: jq.euler.from_quaternion(q, "ZYX"),
            pitched,
        ),
    ]


def by_hand():
    """Return the row of an exponential as it is often written."""

    def exp(u):
        angle = jnp.linalg.norm(u)
        axis = jnp.where(angle > 0, u / angle, 0.0)
        return jnp.concatenate([jnp.cos(0.5 * angle)[None], jnp.sin(0.5 * angle) * axis])

    what = "derivative at 0 of an exponential that divides by the angle under a `where`"
    there, here = lambda: jax.jacfwd(exp)(ZERO), lambda: jax.jacfwd(HERE_EXP)(ZERO)
    return [compare("by hand", what, there, here, HALF)]


def by_mjx():
    """Return the row of MJX's quaternion update, differentiated by a rate of 0, if it is there."""
    if importlib.util.find_spec("mujoco") is None:
        return []
    from mujoco.mjx._src.math import quat_integrate  # pyright: ignore[reportMissingImports]

    dt = 0.1

    def update(v):
        return jq.quaternion.multiply(IDENTITY, HERE_EXP(dt * v))

    return [
        compare(
            "MJX",
            "derivative of `quat_integrate` with respect to a rate of 0, dt = 0.1",
            lambda: jax.jacfwd(lambda v: quat_integrate(IDENTITY, v, dt))(ZERO),
            lambda: jax.jacfwd(update)(ZERO),
            np.vstack([np.zeros(3), 0.05 * np.eye(3)]),
        )
    ]


def versions():
    """Return a sentence that names what was measured."""
    names = ["jax", "scipy", "jaxlie"]
    names += ["mujoco-mjx"] if importlib.util.find_spec("mujoco") else []
    return "With " + ", ".join(f"{name} {metadata.version(name)}" for name in names) + "."


def conversions():
    """Return the table of values and derivatives beside the peers."""
    rows = [HEAD, *by_scipy(), *by_jaxlie(), *by_hand(), *by_mjx()]
    return "\n".join(rows) + f"\n\n{versions()}"


# Loops and differences.


def euler_and_normalise(body, torque, t, state, dt, params):
    """Step as everybody writes it first."""
    alpha = jq.dynamics.derivative(body, torque, t, state, params).omega
    rate = jnp.concatenate([jnp.zeros(1), state.omega])
    q = state.q + 0.5 * dt * jq.quaternion.multiply(state.q, rate)
    return jq.State(q / jnp.linalg.norm(q), state.omega + dt * alpha)


def loops():
    """Return the table of DRIVEN (examples/validation/problems.py) by loops written by hand."""
    torque, q0, q, _ = problems.REFERENCE["DRIVEN"]
    body, start = problems.reference_body(), jq.State(jnp.asarray(q0), jnp.asarray(problems.OMEGA0))
    schemes = {
        "explicit Euler, then normalise": euler_and_normalise,
        "averaged rates, one exponential (as MJX's RK4)": averaged_rk4,
        "RK4 of the four components, then normalise": jq.schemes.formulation2,
        "`rkmk4`": jq.rkmk4,
    }
    lines = ["| loop | error at h = 0.05 [rad] | at h = 0.025 | order |", "|---|---|---|---|"]
    for name, scheme in schemes.items():
        march = problems.marcher(scheme, torque)
        ends = [march(body, start, 0.0, 10.0, n) for n in (200, 400)]
        errors = [float(jq.quaternion.distance(end.q, jnp.asarray(q))) for end in ends]
        order = np.log2(errors[0] / errors[1])
        lines.append(f"| {name} | {errors[0]:.1e} | {errors[1]:.1e} | {order:.1f} |")
    return "\n".join(lines)


def differences():
    """Return the table of the gradient of a rollout's last angle by two gains.

    It compares differences of the rollout with automatic differentiation.
    """
    body, grid = problems.reference_body(), jq.grid(0.0, 0.01, 500, save_every=500)
    start = jq.State(jnp.asarray(problems.TILTED), jnp.asarray(problems.OMEGA0))

    def law(t, state, gains):
        return -gains[0] * state.q[1:] - gains[1] * state.omega

    @jax.jit
    def last(gains):
        options = jq.RolloutOptions(engine="scan")
        path = jq.rollout(jq.rkmk4, body, law, start, grid, gains, options=options)
        return jq.quaternion.squared_distance(path.final.q, IDENTITY)

    at = jnp.array([2.0, 0.4])
    forward, reverse = jax.jit(jax.jacfwd(last))(at), jax.jit(jax.grad(last))(at)
    size = float(jnp.max(jnp.abs(forward)))
    lines = ["| gradient of 500 steps with respect to two gains | relative error |", "|---|---|"]
    for h in (1e-4, 1e-6, 1e-8):
        one = np.array([(last(at + h * e) - last(at)) / h for e in jnp.eye(2)])
        two = np.array([(last(at + h * e) - last(at - h * e)) / (2 * h) for e in jnp.eye(2)])
        for kind, slopes in (("one-sided", one), ("central", two)):
            error = np.max(np.abs(slopes - forward)) / size
            lines.append(f"| {kind} differences, {h:.0e} | {error:.0e} |")
    error = float(jnp.max(jnp.abs(forward - reverse))) / size
    lines.append(f"| forward against reverse mode | {error:.0e} |")
    return "\n".join(lines)


# The program.


def write(tables):
    """Put the tables between their markers in docs/migration.md."""
    page = ROOT / "docs" / "migration.md"
    text = page.read_text()
    for title, table in tables.items():
        place = rf"(<!-- {title} -->\n).*?(<!-- end -->)"
        text, count = re.subn(place, rf"\g<1>\n{table}\n\n\g<2>", text, flags=re.S)
        if count != 1:
            raise ValueError(f"{page}: wanted one place for the table {title}, got {count}")
    page.write_text(text)


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args()
    if os.environ.get("SCIPY_ARRAY_API") != "1":
        reason = "scipy does not take JAX arrays without it"
        parser.error(f"wanted SCIPY_ARRAY_API=1 in the environment: {reason}")
    tables = {"Measured": conversions(), "Loops": loops(), "Differences": differences()}
    print(*tables.values(), sep="\n\n")
    if options.write:
        write(tables)


if __name__ == "__main__":
    main()
