"""Run NASA's check cases of rigid bodies in flight beside NASA's own simulators.

    python benchmarks/check_cases.py [FOLDER] [--write] [--case TABLE.json]

NASA Engineering and Safety Center, Check-Cases for Verification of 6-Degree-of-Freedom Flight
Vehicle Simulations, TM-2015-218675. FOLDER has the published histories, one file per case and
simulator, ``nesc_atmos_01_..._sim_01.csv.gz``. ``--write`` puts a summary into docs/validation.md
and all tables into docs/benchmarks/check_cases.txt.

A case is a table (``Case``): where the body starts, how fast, and what it is. ``--case`` reads one
more from a JSON file with the fields of ``Case``, those with a default as wanted.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import numpy as np
from pages import put

from examples.validation.check_cases import CASES, Case, compared, history, published

jax.config.update("jax_enable_x64", True)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "validation.md"
FILE = ROOT / "docs" / "benchmarks" / "check_cases.txt"
SUMMARISED = ("altitude", "velocity", "Euler angles")


def table_of(rows):
    """Return the lines of a table in Markdown."""
    numbers = sorted({number for row in rows for number in row.ours})
    head = [
        "quantity",
        *(f"sim {n}" for n in numbers),
        "median",
        "its nearest",
        "farthest",
        "ratio",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        ours = [f"{row.ours[n]:.1e}" if n in row.ours else "" for n in numbers]
        cells = [f"{row.quantity.name} [{row.quantity.unit}]", *ours, f"sim {row.median}"]
        cells += [f"{row.nearest:.1e}", f"{row.farthest:.1e}", f"{row.ratio:.2g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def summary_of(cases):
    """Return a table of the motion in all cases, given as pairs of a Case and its rows."""
    head = ["case", "quantity", "jaxquat to the median", "nearest peer to it", "farthest two"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for case, rows in cases:
        for row in rows:
            if case.against == "inertial" and row.quantity.name in SUMMARISED:
                name = f"{row.quantity.name} [{row.quantity.unit}]"
                distances = row.ours[row.median], row.nearest, row.farthest
                cells = [case.number, name, *(f"{x:.1e}" for x in distances)]
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def table_of_the_air(case, folder):
    """Return a table of the simulators: their speeds of sound at the start, and how far off.

    The speed has the digits that tell what was rounded. "Off by" is relative to jaxquat's, for the
    density the largest over all times.
    """
    ours, theirs = history(case), published(folder, case)
    lines = [
        "| | speed of sound at the start [ft/s] | off by | density off by |",
        "|---|---|---|---|",
    ]
    sound, density = "speedOfSound_ft_s", "airDensity_slug_ft3"
    for name, columns in {"jaxquat": ours, **{f"sim {n}": x for n, x in theirs.items()}}.items():
        first = columns[sound][0]
        stamps = np.round(10 * columns["time"]).astype(int)
        off = np.abs(columns[density] / ours[density][stamps] - 1).max()
        relative = abs(first / ours[sound][0] - 1)
        cells = "| | |" if columns is ours else f"| {relative:.1e} | {off:.1e} |"
        lines.append(f"| {name} | {first:.6f} {cells}")
    return lines


def main():
    """Run the cases, print the tables, write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = ROOT.parent / "shared" / "data" / "nesc"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", type=Path)
    options = parser.parse_args()
    if not options.folder.is_dir():
        sys.exit(f"{options.folder}: no such folder; it wants the histories of TM-2015-218675")
    cases = CASES if options.case is None else (Case(**json.loads(options.case.read_text())),)
    lines, results = [], [(case, compared(case, options.folder)) for case in cases]
    for case, rows in results:
        lines += [f"### Case {case.number}: {case.title}", "", *table_of(rows), ""]
    if options.case is None:  # the last case starts at sea level
        lines += ["### The air in case 09", "", *table_of_the_air(cases[-1], options.folder), ""]
    text = "\n".join(lines)
    print(text)
    if options.write:
        put(PAGE, "<!-- tables -->", "<!-- end of the tables -->", "\n".join(summary_of(results)))
        head = "benchmarks/check_cases.py: the largest differences from jaxquat over 30 s."
        FILE.write_text(f"{head}\n\n{text.rstrip()}\n", "utf-8")


if __name__ == "__main__":
    main()
