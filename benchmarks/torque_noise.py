"""Measure the orders of schemes with random torques: the table of docs/noise.md.

    python benchmarks/torque_noise.py [--paths 500] [--write]

``--write`` puts the table into the page. The errors are explained in
examples/validation/torque_noise.py.
"""

import argparse
import re
from functools import partial
from pathlib import Path

import jax

import jaxquat as jq
from examples.validation.torque_noise import LENGTHS, along_paths, of_the_mean, slope

PAGE = Path(__file__).parents[1] / "docs" / "noise.md"


def rows(paths):
    """Return the rows of the table."""
    steps = " | ".join(f"{1e3 * dt:.0f} ms" for dt in LENGTHS)
    lines = [f"| scheme | torque | error | {steps} | order |", "|---|---|---|---|---|---|---|---|"]
    for scheme in (jq.rkmk4, jq.no_squish):
        for kind in ("white", "Gauss-Markov"):
            measures = {"along a path": partial(along_paths, paths=paths), "mean": of_the_mean}
            for name, measure in measures.items():
                errors = measure(kind, scheme)
                numbers = " | ".join(f"{error:.1e}" for error in errors)
                order = f"{slope(errors):.2f}"
                lines.append(f"| `{scheme.name}` | {kind} | {name} | {numbers} | {order} |")
    return lines


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", type=int, default=500)
    parser.add_argument("--write", action="store_true", help="put the table into docs/noise.md")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    table = "\n".join(rows(options.paths))
    print(table)
    if options.write:
        header = re.compile(r"\| scheme \| torque \|[^\n]*(?:\n\|[^\n]*)*")
        PAGE.write_text(header.sub(lambda match: table, PAGE.read_text(), count=1))


if __name__ == "__main__":
    main()
