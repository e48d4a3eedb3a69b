"""Rebuild the scores that BROAD published for two filters: a table of docs/validation.md.

    python benchmarks/broad.py RECORDINGS PUBLISHED [--write]

RECORDINGS is a folder of .npz files as in examples/attitude_filter.py, PUBLISHED the folder
``example_code/out`` of the repository dlaidig/broad, which has the scores of each recording. They
are those of D. Laidig et al., Data 6(7), 2021, with one gain for all recordings: Madgwick
(report, University of Bristol, 2010) with beta = 0.12 and Mahony, Hamel and Pflimlin (IEEE Trans.
Autom. Control 53, 2008, 1203-1218) with kP = 0.74 and kI = 0.0012. Axes are north, west, up.

The published numbers come out with two properties of the published programs. They start with the
inverse of an attitude whose x axis points to magnetic south, which Mahony's filter has not
forgotten when the movement begins. And Madgwick's program takes half of the magnetic reference. The
last row of a filter is without these.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pages import put

jax.config.update("jax_enable_x64", True)

from examples.validation.broad import example, scored  # noqa: E402

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "validation.md"
CORRECTED = {"madgwick": "with the whole reference", "mahony": "from the right attitude"}


def scores(folder, published):
    """Return the table."""
    kinds = ("total", "heading", "inclination")
    rows = [f"| mean of n recordings [deg] | n | {' | '.join(kinds)} | largest difference |"]
    rows += ["|" + "---|" * 6]
    files = sorted(folder.glob("*.npz"))
    recordings = [jax.tree.map(jnp.float64, example.read(file)) for file in files]
    for name, corrected in CORRECTED.items():
        trials = json.loads((published / f"results_{name}_average_rmse.json").read_text())["trials"]
        theirs = np.array([[trials[file.stem]["tagp_parameters"][f"{kind}_rmse_deg"]
                            for kind in kinds] for file in files])  # fmt: skip
        title = name.capitalize()
        rows.append(row(f"{title}, published", theirs, ""))
        for as_published in (True, False):
            ours = np.array([scored(name, as_published, *one) for one in recordings])
            label = f"{title}, {'rebuilt' if as_published else corrected}"
            rows.append(row(label, ours, f"{np.abs(ours - theirs).max():.4f}"))
    return rows


def row(label, values, last):
    """Return a row of means."""
    means = " | ".join(f"{mean:.3f}" for mean in values.mean(axis=0))
    return f"| {label} | {len(values)} | {means} | {last} |"


def main():
    """Run the filters, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", type=Path)
    parser.add_argument("published", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    text = "\n".join(scores(options.recordings, options.published))
    print(text)
    if options.write:
        begin, end = "<!-- published: broad -->", "<!-- end of broad -->"
        put(PAGE, begin, end, text)


if __name__ == "__main__":
    main()
