"""Identify the inertia of a tumbling body by ``jq.least_squares`` and by SciPy, side by side.

    python benchmarks/least_squares.py [--write] [--seeds 16]

For 20 s, known torques of 0.1 N m push a body with a random inertia about each axis, at 0.3, 0.7
and 1.1 Hz. At 200 Hz its attitude is measured with noise of 0.5 degrees, a small random rotation,
and its rates with a bias of 0.02 rad/s and noise of 0.01 rad/s. One trajectory is fitted to all
of it, from the known start: six parameters of the inertia and three biases. The fit begins with
each axis of the mass distribution 30 % off. A trajectory of 20 s then loses its phase, so the fit
goes over the first tenth of it (``horizon``).
``scipy.optimize.least_squares`` (method "lm", which is MINPACK) gets all of it at once,
with the same compiled residuals, and their Jacobian by ``jax.jacfwd``. Where
"SciPy's cost differs by" is not small, SciPy has ended in another minimum. The last columns are
those of ``optimistix.least_squares`` with ``LevenbergMarquardt`` and the same Jacobian, one program
on the device; its steps are counted, and they end after 100.

Times are those of a call after everything has been compiled. ``--write`` puts the table into
docs/fitting.md.
"""

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax import Array
from jax.flatten_util import ravel_pytree
from scipy import optimize

import jaxquat as jq

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fitting.md"
RATE = 200  # Hz
NOISE = np.deg2rad(0.5), 0.01  # rad, rad/s
BIAS = np.array([0.02, -0.02, 0.02])  # rad/s
TOLERANCE = 1e-10
HORIZON = (0.1,)


class Case(NamedTuple):
    """A simulated measurement, and where its fit begins."""

    truth: Any
    guess: Any
    data: Any  # attitudes (N, 4), rates (N, 3), the first State


def torque(t: Array, state: jq.State, params: Any) -> Array:
    """Return the known torque [N m]."""
    return 0.1 * jnp.sin(2.0 * jnp.pi * jnp.array([0.3, 0.7, 1.1], state.q.dtype) * t)


def flight(theta: Array, start: jq.State, samples: int) -> jq.State:
    """Return the motion at the times of so many samples."""
    body, grid = jq.Body.from_parameters(theta), jq.grid(0.0, 1.0 / RATE, samples - 1)
    return jq.rollout(jq.rkmk4, body, torque, start, grid).state


def residuals(params: Any, data: Any) -> Array:
    """Return what is measured minus what is predicted, in standard deviations."""
    q, omega, start = data
    predicted = flight(params["theta"], start, len(q))
    turn = jq.quaternion.log(jq.quaternion.relative(predicted.q, q))
    rates = omega - predicted.omega - params["bias"][None]
    return jnp.ravel(jnp.concatenate([turn / NOISE[0], rates / NOISE[1]], axis=1))


def case(seed: int, seconds: float = 20.0) -> Case:
    """Return the measurement with this seed, in JAX's default precision."""
    rng, samples = np.random.default_rng(seed), round(seconds * RATE) + 1
    body = jq.Body.random(jax.random.key(seed))
    start = jq.State(
        jq.quaternion.random(jax.random.key(seed + 100)), jnp.array(rng.normal(size=3))
    )
    start = start._replace(omega=start.omega.astype(start.q.dtype))
    truth = {"theta": body.parameters, "bias": jnp.asarray(BIAS)}
    exact = jax.jit(flight, static_argnums=2)(truth["theta"], start, samples)
    turn, noise = (jnp.asarray(x * rng.normal(size=(samples, 3))) for x in NOISE)
    q = jq.quaternion.multiply(exact.q, jq.quaternion.exp(turn))
    guess = {"theta": off_by_30_percent(body, rng), "bias": jnp.zeros(3)}
    return Case(truth, guess, (q, exact.omega + truth["bias"][None] + noise, start))


def off_by_30_percent(body: jq.Body, rng: np.random.Generator) -> Array:
    """Return parameters of a body whose mass lies 30 % off: second moments of 0.7 or 1.3."""
    stretched = np.sqrt(rng.choice([0.7, 1.3], 3))
    inertia = np.asarray(body.inertia, float)
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia  # the integral of x x^T dm
    second = second * np.outer(stretched, stretched)
    return jq.Body(jnp.asarray(np.trace(second) * np.eye(3) - second)).parameters


def inertia_of(params: Any) -> Array:
    """Return the inertia [kg m^2]."""
    return jq.Body.from_parameters(params["theta"]).inertia


def scipy_fit(measured: Case) -> Callable[[], Any]:
    """Return SciPy's fit as a function without arguments, everything compiled."""
    start, unravel = ravel_pytree(measured.guess)
    data = measured.data
    value = jax.jit(lambda x, data: residuals(unravel(x), data))
    jacobian = jax.jit(jax.jacfwd(lambda x, data: residuals(unravel(x), data)))

    derivative: Any = lambda x: np.asarray(jacobian(x, data))  # noqa: E731

    def fitted() -> Any:
        return optimize.least_squares(
            lambda x: np.asarray(value(x, data)),
            np.asarray(start),
            derivative,
            method="lm", x_scale="jac", ftol=TOLERANCE, xtol=TOLERANCE,
        )  # fmt: skip

    fitted()
    return fitted


def optimistix_fit(measured: Case) -> Callable[[], Any]:
    """Return optimistix' fit as a function without arguments, everything compiled."""
    start, unravel = ravel_pytree(measured.guess)
    solver = optx.LevenbergMarquardt(rtol=TOLERANCE, atol=TOLERANCE)

    @jax.jit
    def fitted(x: Array, data: Any) -> tuple[Array, Array]:
        f = lambda x, data: residuals(unravel(x), data)  # noqa: E731
        options = {"jac": "fwd"}
        found = optx.least_squares(f, solver, x, data, options=options, max_steps=100, throw=False)
        return 0.5 * jnp.sum(f(found.value, data) ** 2), found.stats["num_steps"]

    call = lambda: jax.block_until_ready(fitted(start, measured.data))  # noqa: E731
    call()
    return call


def row(seed: int) -> str:
    """Return a row of the table."""
    measured = case(seed)
    tolerances = {"ftol": TOLERANCE, "xtol": TOLERANCE, "gtol": TOLERANCE}
    arguments = (residuals, measured.guess, measured.data)
    options = {"sigma": 1.0, "horizon": HORIZON, "progress": False, **tolerances}
    jq.least_squares(*arguments, **options)
    theirs_of, third_of = scipy_fit(measured), optimistix_fit(measured)
    began = time.perf_counter()
    ours = jq.least_squares(*arguments, **options)
    middle = time.perf_counter()
    theirs = theirs_of()
    ended = time.perf_counter()
    with jax.numpy_rank_promotion("allow"):
        third, steps = third_of()
    last = time.perf_counter()
    inertia = ours.predict(inertia_of)
    errors = inertia.value - inertia_of(measured.truth)
    largest = float(jnp.max(jnp.abs(errors / inertia.standard_errors)))
    difference = abs(ours.cost - theirs.cost) / ours.cost
    verdict = "" if ours.converged else f", not converged: {ours.reason}"
    counts = f"{ours.evaluations}, {ours.jacobians}{verdict}"
    own = f"{ours.cost:.2f} | {largest:.1f} | {counts} | {middle - began:.2f}"
    second = f"{difference:.0e} | {theirs.nfev}, {theirs.njev} | {ended - middle:.2f}"
    other = f"{abs(float(third) - ours.cost) / ours.cost:.0e} | {int(steps)} | {last - ended:.2f}"
    return f"| {seed} | {own} | {second} | {other} |"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/fitting.md")
    parser.add_argument("--seeds", type=int, default=16, help="how many measurements")
    arguments = parser.parse_args()
    table = [
        "| seed | cost | largest error [standard errors] | evaluations, Jacobians | seconds "
        "| SciPy's cost differs by | evaluations, Jacobians | seconds "
        "| optimistix' cost differs by | steps | seconds |",
        "|---" * 11 + "|",
    ]
    for seed in range(arguments.seeds):
        table.append(row(seed))
        print(table[-1], flush=True)
    if arguments.write:
        begin, end = "<!-- least squares -->", "<!-- end of least squares -->"
        pattern = re.compile(f"{begin}.*?{end}", re.DOTALL)
        new = "\n".join([begin, *table, end])
        PAGE.write_text(pattern.sub(lambda _: new, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
