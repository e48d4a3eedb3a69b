"""Predict half a second of the flight of a nano-quadrotor from its motor speeds: tables of errors.

    python benchmarks/nanodrone.py --train FILES --model FILE     # fits and writes a model
    python benchmarks/nanodrone.py --test FILES [--model FILE]    # prints the tables

A file is an .npz with t [s] at 100 Hz, position [m], velocity [m/s] in the world, q (w, x, y, z),
omega [rad/s] in body axes and motors [rad/s] of the rotors 1 to 4. Windows begin at every sample. A
prediction uses samples up to its start, and after it the motor speeds alone. Errors are lengths,
averaged over all windows, after 1, 10 and 50 steps of 10 ms and summed over 1 to 50 steps.

"physics" is fitted to short windows of fast flights, "physics, long windows" to half a second of
the others, "memory" adds low-passed signals, and "estimated start" corrects the first rates from
the samples before. "authors" has the constants of S. Busetto, E. Cereda et al., Control Engineering
Practice 172, 2026 (arXiv 2512.14450), whose published program holds the rates. The data are theirs.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from nanodrone_fit import constant, fit
from nanodrone_model import MASS, SPEED, UP, errors, first_guess, predict, read, run, windows
from pages import put

import jaxquat as jq

STORED = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "logs.md"
QUANTITIES = {"rates": "rad/s", "attitude": "rad", "velocity": "m/s", "position": "m"}
THRUST, GRAVITY = 3.72e-8 * SPEED**2, 9.81  # N at SPEED, m/s^2, of the authors
BATCH = 1024


def authors(window):
    """Return the prediction of the authors' program: thrust of at most twice the weight."""

    def wrench(t, state, params, row):
        lift = jnp.minimum(THRUST * jnp.sum(row[:4] ** 2), 2.0 * MASS * GRAVITY)
        force = jq.quaternion.rotate(state.q, lift * jnp.array(UP))
        return jq.Wrench(jnp.zeros(3), force - MASS * GRAVITY * jnp.array(UP))

    body = jq.Body.sphere(jnp.float32(MASS), jnp.float32(0.02))  # keeps its rates
    start = jq.State(
        window["q"], window["omega"], position=window["position"], velocity=window["velocity"]
    )
    return run(wrench, body, start, None, window["motors"])


def mean_errors(prediction, batches):
    """Return the mean length (50,) of each error over all windows."""

    @jax.jit
    def lengths(window):
        found = jax.vmap(lambda x: errors(prediction(x), x["truth"]))(window)
        return {name: jnp.linalg.norm(x, axis=-1) for name, x in found.items()}

    parts = []
    for window in batches:
        short = BATCH - len(window["q"])
        full = jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], short, 0)]), window)  # noqa: B023
        parts.append(jax.tree.map(lambda x: np.asarray(x)[: BATCH - short], lengths(full)))  # noqa: B023
    return {name: np.concatenate([x[name] for x in parts]).mean(0) for name in QUANTITIES}


def evaluated(file, models):
    """Return a title and the mean errors of every prediction of a flight."""
    flight = read(file)
    count = len(flight["t"]) - 50
    batches = [
        windows(flight, np.arange(first, min(first + BATCH, count)))
        for first in range(0, count, BATCH)
    ]
    rows = {"hold": mean_errors(constant, batches), "authors": mean_errors(authors, batches)}
    for name, model in models.items():
        rows[name] = mean_errors(lambda x, m=model: predict(m, x), batches)
    return f"{file.stem}, {count} windows, motors {flight['delay'][-1] * 1e3:.0f} ms early", rows


def tables(rows):
    """Return a table of each quantity, in lines."""
    lines = []
    for name, unit in QUANTITIES.items():
        title, hold = f"{name} [{unit}]", rows["hold"][name]
        lines += ["", f"| {title} | 1 | 10 | 50 | sum | to hold at 10 | at 50 | sum |"]
        lines += ["|---|" + "---|" * 7]
        for row, found in rows.items():
            x = found[name]
            cells = [f"{v:.4f}" for v in x[[0, 9, 49]]] + [f"{x.sum():.3f}"]
            ratios = [x[9] / hold[9], x[49] / hold[49], x.sum() / hold.sum()]
            lines.append(f"| {row} | {' | '.join(cells + [f'{v:.3f}' for v in ratios])} |")
    return lines


def summary(rows):
    """Return one table of ratios to holding, in lines."""
    titles = ["rates after 0.1 s", "0.5 s", "sum", "attitude", "velocity", "position"]
    lines = [f"| error, as a part of that of hold | {' | '.join(titles)} |", "|---|" + "---|" * 6]
    for row, found in rows.items():
        parts = {name: found[name] / rows["hold"][name] for name in QUANTITIES}
        sums = {name: found[name].sum() / rows["hold"][name].sum() for name in QUANTITIES}
        cells = [parts["rates"][9], parts["rates"][49], *sums.values()]
        lines.append(f"| {row} | {' | '.join(f'{x:.2f}' for x in cells)} |")
    return lines


def store(models, file):
    """Write models as text."""
    text = {name: [float(f"{x:.6g}") for x in ravel_pytree(m)[0]] for name, m in models.items()}
    file.write_text(json.dumps(text) + "\n", "utf-8")


def stored(file):
    """Return the stored models by name."""
    numbers = json.loads(file.read_text("utf-8"))
    unravel = ravel_pytree(first_guess())[1]
    return {name: unravel(jnp.array(x, jnp.float32)) for name, x in numbers.items()}


def parser_of(description, both=True):
    """Return a parser of the flights to fit and to test; ``both``: whether each must be given."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--train", "--test"):
        parser.add_argument(name, type=Path, nargs="+", default=[], required=both)
    parser.add_argument("--write", action="store_true", help="put the last table into the page")
    return parser


def main():
    """Fit or test."""
    parser = parser_of(__doc__, both=False)
    parser.add_argument("--model", type=Path, default=STORED, help="default: the stored one")
    options = parser.parse_args()
    if options.train:
        models = {}

        def report(name, model, result):
            print(f"{name}: {result}", flush=True)
            models[name] = model
            store(models, options.model)

        fit([read(file) for file in options.train], report)
    begin = time.perf_counter()
    models = stored(options.model) if options.test else {}
    for file in options.test:
        title, rows = evaluated(file, models)
        print("\n".join([title, *tables(rows), "", *summary(rows)]), flush=True)
        print(f"({time.perf_counter() - begin:.0f} s since the start)\n")
        if options.write:
            text = "\n".join(summary(rows))
            put(PAGE, "<!-- nanodrone -->", "<!-- end of nanodrone -->", text)


if __name__ == "__main__":
    main()
