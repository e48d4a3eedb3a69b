"""Fit the same problems by ``jq.least_squares``, SciPy and optimistix.

    python benchmarks/least_squares.py [--write] [--seeds 64] [--small 200]

For 20 s, known torques of 0.1 N m push a body with a random inertia about each axis, at 0.3, 0.7
and 1.1 Hz. At 200 Hz its attitude is measured with noise of 0.5 degrees, a small random rotation,
and its rates with a bias of 0.02 rad/s and noise of 0.01 rad/s. One trajectory is fitted to all
of it, from the known start: six parameters of the inertia and three biases. The fit begins with
each axis of the mass distribution 30 % off. A trajectory of 20 s then loses its phase, so every
engine fits the first tenth of it first, until the cost changes by less than a tenth (``prefixes``).
"bounded" is the same with the biases between -0.01 and 0.01 rad/s, so that they end at bounds.

All engines get the same compiled residuals and Jacobian (forward mode), the same tolerances, and
at most 100 steps in each part. SciPy's methods scale by the Jacobian (``x_scale="jac"``); "lm",
which is MINPACK, and optimistix' ``LevenbergMarquardt`` have no bounds. A fit is right if its cost
is the lowest that any engine reached, to a millionth, and a verdict is wrong if it is "converged"
elsewhere.

"zeros" are small problems of seven families with exact data, one or more of whose true parameters
are 0. There a fit is right if its parameters are, to the root of the dtype's epsilon, and a verdict
is wrong if it says otherwise.

Times are those of a call after everything has been compiled. ``--write`` puts the rows of "free"
and "bounded" into docs/fitting.md.
"""

import argparse
import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax import Array
from jax.flatten_util import ravel_pytree
from pages import put
from scipy import optimize

import jaxquat as jq
from examples.validation.fits import case, residuals, zeros

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fitting.md"
TOLERANCE = 1e-10
HORIZON = (0.1,)


class Ending(NamedTuple):
    """Where an engine ended, and what it says of that."""

    x: np.ndarray
    cost: float
    evaluations: int
    jacobians: int
    converged: bool


class Engine:
    """Fits of one family of problems by each engine, everything compiled once."""

    def __init__(self, function: Callable[[Any, Any], Array], like: Any, data: Any) -> None:
        """``like`` and ``data`` are parameters and data of the shapes of all problems."""
        flat, unravel = ravel_pytree(like)
        of_flat = lambda x, data: function(unravel(x), data)  # noqa: E731
        self.function, self.unravel, self.dtype = function, unravel, flat.dtype
        self.value, self.jacobian = jax.jit(of_flat), jax.jit(jax.jacfwd(of_flat))
        self.number = jax.eval_shape(of_flat, flat, data).size

        def optimistix(x: Array, data: Any, tolerance: float, number: int) -> tuple[Array, ...]:
            part = lambda x, data: of_flat(x, data)[:number]  # noqa: E731
            solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
            options = {"jac": "fwd"}
            end = optx.least_squares(part, solver, x, data, options, max_steps=100, throw=False)
            cost = 0.5 * jnp.sum(part(end.value, data) ** 2)
            return end.value, cost, end.stats["num_steps"], end.result == optx.RESULTS.successful

        self._optimistix = jax.jit(optimistix, static_argnums=(2, 3))

    def ours(
        self, guess: Any, data: Any, bounds: Any, prefixes: tuple[float, ...], tolerance: float
    ) -> Ending:
        """Fit by ``jq.least_squares``."""
        sides = None if bounds is None else tuple(self.unravel(jnp.asarray(x)) for x in bounds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a chi-squared that is too large: the cost says so
            tolerances = dict.fromkeys(("ftol", "xtol", "gtol"), tolerance)
            fit = jq.least_squares(
                self.function, guess, data, sigma=1.0, bounds=sides, prefixes=prefixes,
                options=jq.LeastSquaresOptions(**tolerances, progress=False),
            )  # fmt: skip
        x = np.asarray(ravel_pytree(fit.params)[0], float)
        return Ending(x, fit.cost, fit.evaluations, fit.jacobians, fit.converged)

    def scipy(
        self,
        method: Any,
        guess: Any,
        data: Any,
        bounds: Any,
        prefixes: tuple[float, ...],
        tolerance: float,
    ) -> Ending:
        """Fit by ``scipy.optimize.least_squares``."""
        x, evaluations, jacobians, end = np.asarray(ravel_pytree(guess)[0], float), 0, 0, None
        options: dict[str, Any] = {"gtol": tolerance} if method == "lm" else {"gtol": None}
        if bounds is not None:
            options["bounds"] = bounds
        for part in (*prefixes, 1.0):
            number = round(part * self.number)
            value = functools.partial(self._first, self.value, data, number)
            derivative: Any = functools.partial(self._first, self.jacobian, data, number)
            end = optimize.least_squares(
                value, x, derivative, method=method, x_scale="jac", max_nfev=100,
                ftol=tolerance if part == 1.0 else 0.1, xtol=tolerance, **options,
            )  # fmt: skip
            x, evaluations, jacobians = end.x, evaluations + end.nfev, jacobians + end.njev
        assert end is not None
        return Ending(x, float(end.cost), evaluations, jacobians, bool(end.success))

    def _first(self, program: Any, data: Any, number: int, x: np.ndarray) -> np.ndarray:
        """Return the first rows of residuals or Jacobian."""
        return np.asarray(program(jnp.asarray(x, self.dtype), data), float)[:number]

    def optimistix(
        self, guess: Any, data: Any, bounds: Any, prefixes: tuple[float, ...], tolerance: float
    ) -> Ending:
        """Fit by ``optimistix.least_squares``; each step has one Jacobian."""
        del bounds
        x, count, cost, done = ravel_pytree(guess)[0], 0, np.inf, False
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            for part in (*prefixes, 1.0):
                accuracy = tolerance if part == 1.0 else 0.1
                number = round(part * self.number)
                x, cost, steps, done = self._optimistix(x, data, accuracy, number)
                count += 1 + int(steps)
        return Ending(np.asarray(x, float), float(cost), count, count, bool(done))

    def named(self, *, bounded: bool) -> dict[str, Callable[..., Ending]]:
        """The engines by the names that the table has."""
        engines: dict[str, Callable[..., Ending]] = {"`jq.least_squares`": self.ours}
        for method in ("trf", "dogbox") if bounded else ("trf", "dogbox", "lm"):
            engines[f"SciPy `{method}`"] = functools.partial(self.scipy, method)
        if not bounded and self.dtype == jnp.float64:  # in float32 it raises where float64 is on
            engines["optimistix"] = self.optimistix
        return engines


def zero_verdict(end: Ending, truth: np.ndarray, dtype: Any) -> tuple[bool, bool]:
    """Return whether a fit of exact data is right, and whether it says so."""
    limit = float(jnp.sqrt(jnp.finfo(dtype).eps))
    return bool(np.max(np.abs(end.x - truth)) <= limit), end.converged


class Row(NamedTuple):
    """What one engine did with one problem."""

    end: Ending
    seconds: float


def timed(engine: Callable[..., Ending], *arguments: Any) -> Row:
    """Return how an engine ended, and its seconds."""
    began = time.perf_counter()
    end = engine(*arguments)
    return Row(end, time.perf_counter() - began)


def line(problem: str, name: str, rows: list[Row], right: np.ndarray, wrong: int) -> str:
    """Return a row of the table."""
    evaluations = np.mean([row.end.evaluations for row in rows])
    milliseconds = 1e3 * np.mean([row.seconds for row in rows])
    share = f"{np.sum(right)} of {len(rows)} | {wrong}"
    return f"| {problem} | {name} | {share} | {evaluations:.1f} | {milliseconds:.0f} |"


def tumbling(seeds: int, *, bounded: bool) -> list[str]:
    """Return the rows of the tumbling body."""
    first = case(0)
    engine = Engine(residuals, first.guess, first.data)
    bounds = None
    if bounded:
        upper = {"theta": jnp.full(6, jnp.inf), "bias": jnp.full(3, 0.01)}
        side = np.asarray(ravel_pytree(upper)[0])
        bounds = -side, side
    rows: dict[str, list[Row]] = {name: [] for name in engine.named(bounded=bounded)}
    for seed in range(seeds):
        measured = case(seed)
        arguments = measured.guess, measured.data, bounds, HORIZON, TOLERANCE
        for name, fitted in engine.named(bounded=bounded).items():
            if not seed:
                fitted(*arguments)  # compiles
            rows[name].append(timed(fitted, *arguments))
    costs = {name: np.array([row.end.cost for row in rows[name]]) for name in rows}
    lowest = np.min(list(costs.values()), axis=0)
    table = []
    for name, ends in rows.items():
        right = costs[name] <= lowest * (1.0 + 1e-6)
        verdicts = np.array([row.end.converged for row in ends])
        wrong = int(np.sum(verdicts & ~right))
        table.append(line("bounded" if bounded else "free", name, ends, right, wrong))
    return table


def small(number: int, dtype: Any) -> list[str]:
    """Return the rows of the problems with zeros."""
    tolerance = float(jnp.finfo(dtype).eps) ** (2.0 / 3.0)
    engines: dict[Any, Engine] = {}
    rows: dict[str, list[Row]] = {}
    verdicts: dict[str, list[tuple[bool, bool]]] = {}
    for seed in range(number):
        function, measured = zeros(seed, dtype)
        arguments = measured.guess, measured.data, None, (), tolerance
        new = function not in engines
        if new:
            engines[function] = Engine(function, *arguments[:2])
        for name, fitted in engines[function].named(bounded=False).items():
            if new:
                fitted(*arguments)  # compiles
            row = timed(fitted, *arguments)
            rows.setdefault(name, []).append(row)
            verdict = zero_verdict(row.end, measured.truth, dtype)
            verdicts.setdefault(name, []).append(verdict)
    title = f"zeros, {jnp.dtype(dtype).name}"
    table = []
    for name, ends in rows.items():
        right, said = np.array(verdicts[name]).T
        table.append(line(title, name, ends, right, int(np.sum(right != said))))
    return table


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/fitting.md")
    parser.add_argument("--seeds", type=int, default=64, help="how many tumbling bodies")
    parser.add_argument("--small", type=int, default=200, help="how many problems with zeros")
    arguments = parser.parse_args()
    head = [
        "| problems | engine | right | wrong verdicts | evaluations, mean | ms, mean |",
        "|---" * 6 + "|",
    ]
    print("\n".join(head))
    for dtype in (jnp.float64, jnp.float32):
        print("\n".join(small(arguments.small, dtype)), flush=True)
    table = head
    for bounded in (False, True):
        table += (rows := tumbling(arguments.seeds, bounded=bounded))
        print("\n".join(rows), flush=True)
    if arguments.write:
        begin, end = "<!-- least squares -->", "<!-- end of least squares -->"
        put(PAGE, begin, end, "\n".join(table))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
