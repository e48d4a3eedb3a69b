"""What changes in values and derivatives when code moves here from scipy, jaxlie, MJX or a loop by hand: docs/migration.md.

    SCIPY_ARRAY_API=1 python benchmarks/migration.py [--write]

prints a row for each thing measured, in float64 unless said, beside what is right; ``--write`` puts the table into the page. The
row of MJX needs ``mujoco-mjx`` and is left out without it.
"""

import argparse
import importlib.util
import os
import re
import sys
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from scipy.spatial.transform import Rotation

import jaxquat as jq

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
sys.path.append(str(ROOT / "tests"))
import problems  # noqa: E402  # pyright: ignore[reportMissingImports]
from certificates import averaged_rk4  # noqa: E402  # pyright: ignore[reportMissingImports]

jax.config.update("jax_enable_x64", True)

HEAD = "| from | what | there | here |\n|---|---|---|---|"


def off(found, wanted):
    """Largest difference, "NaN" if there is one, "error" if it raises."""
    try:
        difference = np.max(np.abs(np.asarray(found()) - np.asarray(wanted)))
    except Exception as error:
        return type(error).__name__
    return "NaN" if np.isnan(difference) else f"{difference:.1e}"


def compare(peer, what, there, here, wanted):
    """A row: how far either is from what is right."""
    return f"| {peer} | {what} | {off(there, wanted)} | {off(here, wanted)} |"


def conversions():
    """Rows of scipy's and jaxlie's exponentials and logarithms, values and derivatives."""
    u = np.random.default_rng(0).uniform(-1.5, 1.5, (10_000, 3))
    zero, one, identity = (
        jnp.zeros(3),
        jnp.array([0.0, 0.0, 0.0, 1.0]),
        jnp.array([1.0, 0.0, 0.0, 0.0]),
    )
    half = jnp.vstack([jnp.zeros(3), 0.5 * jnp.eye(3)])  # d exp/du at 0, scalar first
    q = np.asarray(jq.quaternion.exp(u))
    turned = jnp.array([np.pi, 0.0, 0.0])
    pitched = jnp.sqrt(0.5) * jnp.array([1.0, 0.0, 1.0, 0.0])

    def round_trip(exp, log):
        return jax.jacfwd(lambda v: log(exp(v)))(turned)[0, 0]

    def scipy_exp(v):
        return Rotation.from_rotvec(v).as_quat()

    def scipy_log(q):
        return Rotation.from_quat(q).as_rotvec()

    def aircraft(q):
        angles = jaxlie.SO3(q).as_rpy_radians()
        return jnp.stack([angles.yaw, angles.pitch, angles.roll])

    def by_hand(u):
        angle = jnp.linalg.norm(u)
        axis = jnp.where(angle > 0, u / angle, 0.0)
        return jnp.concatenate([jnp.cos(0.5 * angle)[None], jnp.sin(0.5 * angle) * axis])

    small, still = jnp.array([2e-3, -1e-3, 1.5e-3], jnp.float32), jnp.zeros(3, jnp.float32)
    return [
        compare(
            "scipy",
            "rotation vector to quaternion, 10,000",
            lambda: np.roll(scipy_exp(u), 1, 1),
            lambda: q,
            exact_exp(u),
        ),
        compare(
            "scipy",
            "and back",
            lambda: scipy_log(np.roll(q, -1, 1)),
            lambda: jq.quaternion.log(q),
            u,
        ),
        compare(
            "scipy, JAX arrays",
            "derivative of `from_rotvec` at 0",
            lambda: jnp.roll(jax.jacfwd(scipy_exp)(zero), 1, axis=0),
            lambda: jax.jacfwd(jq.quaternion.exp)(zero),
            half,
        ),
        compare(
            "scipy, JAX arrays",
            "derivative of `as_rotvec` at the identity, by x, y, z",
            lambda: jax.jacfwd(scipy_log)(one)[:, :3],
            lambda: jax.jacfwd(jq.quaternion.log)(identity)[:, 1:],
            2.0 * np.eye(3),
        ),
        compare(
            "jaxlie",
            "derivative of log(exp(u)) along u at a half turn",
            lambda: round_trip(jaxlie.SO3.exp, lambda r: r.log()),
            lambda: round_trip(jq.quaternion.exp, jq.quaternion.log),
            1.0,
        ),
        compare(
            "jaxlie",
            "left Jacobian at 2.7e-3 rad, float32 (in `SE3.exp`)",
            lambda: jax.jacfwd(lambda v: jaxlie.SE3.exp(jnp.concatenate([v, small])).translation())(
                still
            ),
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
        compare(
            "by hand",
            "derivative at 0 of an exponential that divides by the angle under a `where`",
            lambda: jax.jacfwd(by_hand)(zero),
            lambda: jax.jacfwd(jq.quaternion.exp)(zero),
            half,
        ),
    ]


def finite(peer, what, there, here, at):
    """A row where no derivative is right: is what comes finite?"""
    words = [
        "finite" if np.isfinite(np.asarray(jax.jacfwd(f)(at))).all() else "NaN or infinite"
        for f in (there, here)
    ]
    return f"| {peer} | {what} | {words[0]} | {words[1]} |"


def exact_exp(u):
    """In long double."""
    u = np.asarray(u, np.longdouble)
    angle = np.linalg.norm(u.astype(float), axis=1)[:, None].astype(np.longdouble)
    angle = (
        angle + np.sum(u * u, axis=1, keepdims=True) / angle
    ) / 2  # one Newton step to long double
    return np.concatenate([np.cos(angle / 2), np.sin(angle / 2) / angle * u], axis=1)


def exact_left_jacobian(u):
    """By its series in float64: enough for small u."""
    x, y, z = np.asarray(u, float)
    hat = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + hat / 2 + hat @ hat / 6 + hat @ hat @ hat / 24


def integrate_by_mjx():
    """A row if MJX is there: the derivative of its quaternion update by a rate of 0."""
    if importlib.util.find_spec("mujoco") is None:
        return []
    from mujoco.mjx._src.math import quat_integrate  # pyright: ignore[reportMissingImports]

    q, dt = jnp.array([1.0, 0.0, 0.0, 0.0]), 0.1
    return [
        compare(
            "MJX",
            "derivative of `quat_integrate` by a rate of 0, dt = 0.1",
            lambda: jax.jacfwd(lambda v: quat_integrate(q, v, dt))(jnp.zeros(3)),
            lambda: jax.jacfwd(lambda v: jq.quaternion.multiply(q, jq.quaternion.exp(dt * v)))(
                jnp.zeros(3)
            ),
            np.vstack([np.zeros(3), 0.05 * np.eye(3)]),
        )
    ]


def euler_and_normalise(body, torque, t, state, dt, params):
    """The loop that everybody writes first."""
    alpha = jq.dynamics.derivative(body, torque, t, state, params)[0]
    q = state.q + 0.5 * dt * jq.quaternion.multiply(
        state.q, jnp.concatenate([jnp.zeros(1), state.omega])
    )
    return jq.State(q / jnp.linalg.norm(q), state.omega + dt * alpha)


def loops():
    """Rows: DRIVEN (tests/problems.py) by loops as they are written by hand."""
    torque, q0, q, _ = problems.REFERENCE["DRIVEN"]
    body, start = problems.reference_body(), jq.State(jnp.asarray(q0), jnp.asarray(problems.OMEGA0))
    steps = {
        "explicit Euler, then normalise": euler_and_normalise,
        "averaged rates, one exponential (as MJX's RK4)": averaged_rk4,
        "RK4 of the four components, then normalise": jq.formulation2,
        "`rkmk4`": jq.rkmk4,
    }
    lines = ["| loop | error at h = 0.05 [rad] | at h = 0.025 | order |", "|---|---|---|---|"]
    for name, step in steps.items():
        march = problems.marcher(step, torque)
        errors = [
            float(jq.quaternion.distance(march(body, start, 0.0, 10.0, n).q, jnp.asarray(q)))
            for n in (200, 400)
        ]
        lines.append(
            f"| {name} | {errors[0]:.1e} | {errors[1]:.1e} | {np.log2(errors[0] / errors[1]):.1f} |"
        )
    return "\n".join(lines)


def differences():
    """The gradient of a rollout's last angle by two gains: differences of the loop's end against automatic differentiation."""
    body, start = (
        problems.reference_body(),
        jq.State(jnp.asarray(problems.TILTED), jnp.asarray(problems.OMEGA0)),
    )

    def law(t, state, gains):
        return -gains[0] * state.q[1:] - gains[1] * state.omega

    def last(gains):
        path = jq.rollout(
            jq.rkmk4, body, law, start, jq.grid(0.0, 0.01, 500), gains, save_every=500
        )
        return jq.quaternion.squared_distance(path.state.q[-1], jnp.array([1.0, 0.0, 0.0, 0.0]))

    last, at = jax.jit(last), jnp.array([2.0, 0.4])
    forward, reverse = jax.jit(jax.jacfwd(last))(at), jax.jit(jax.grad(last))(at)
    size = float(jnp.max(jnp.abs(forward)))
    lines = ["| gradient of 500 steps by two gains | relative error |", "|---|---|"]
    for h in (1e-4, 1e-6, 1e-8):
        one = np.array([(last(at + h * e) - last(at)) / h for e in jnp.eye(2)])
        two = np.array([(last(at + h * e) - last(at - h * e)) / (2 * h) for e in jnp.eye(2)])
        lines.append(
            f"| one-sided differences, {h:.0e} | {np.max(np.abs(one - forward)) / size:.0e} |"
        )
        lines.append(
            f"| central differences, {h:.0e} | {np.max(np.abs(two - forward)) / size:.0e} |"
        )
    lines.append(
        f"| forward against reverse mode | {float(jnp.max(jnp.abs(forward - reverse))) / size:.0e} |"
    )
    return "\n".join(lines)


def versions():
    """What was measured, as a sentence."""
    names = [
        "jax",
        "scipy",
        "jaxlie",
        *(["mujoco-mjx"] if importlib.util.find_spec("mujoco") else []),
    ]
    return "With " + ", ".join(f"{name} {metadata.version(name)}" for name in names) + "."


def main():
    """Measure, print, and where asked write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    if os.environ.get("SCIPY_ARRAY_API") != "1":
        parser.error(
            "wanted SCIPY_ARRAY_API=1 in the environment, or scipy does not take JAX arrays"
        )
    tables = {
        "Measured": "\n".join([HEAD, *conversions(), *integrate_by_mjx()]) + f"\n\n{versions()}",
        "Loops": loops(),
        "Differences": differences(),
    }
    print(*tables.values(), sep="\n\n")
    if write:
        page = ROOT / "docs" / "migration.md"
        text = page.read_text()
        for title, table in tables.items():
            text, found = re.subn(
                rf"(<!-- {title} -->\n).*?(<!-- end -->)",
                lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}",
                text,
                flags=re.S,
            )
            if found != 1:
                raise ValueError(
                    f"docs/migration.md: wanted one place for the table {title}, found {found}"
                )
        page.write_text(text)


if __name__ == "__main__":
    main()
