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
import runpy
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from pages import put

jax.config.update("jax_enable_x64", True)

from jaxquat import quaternion  # noqa: E402

ROOT = Path(__file__).parents[1]
# A module of the same name is beside this one.
example = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "attitude_filter.py")))

PAGE = ROOT / "docs" / "validation.md"
UP = jnp.array([0.0, 0.0, 1.0])
EAST = quaternion.exp(0.5 * jnp.pi * UP)  # from axes north, west, up to east, north, up
BETA, K_P, K_I = 0.12, 0.74, 0.0012
CORRECTED = {"madgwick": "with the whole reference", "mahony": "from the right attitude"}


def unit(x):
    """Return a vector of length 1."""
    return x / jnp.linalg.norm(x)


def rotation(q):
    """Return the matrix of q; its derivative by a q that is not unit is that of the programs."""
    w, x, y, z = q
    rows = [
        [0.5 - y * y - z * z, x * y - w * z, x * z + w * y],
        [x * y + w * z, 0.5 - x * x - z * z, y * z - w * x],
        [x * z - w * y, y * z + w * x, 0.5 - x * x - y * y],
    ]
    return 2.0 * jnp.array(rows)


def reference(q, mag):
    """Return the field in the world, turned about the vertical to the north."""
    field = rotation(q) @ mag
    return jnp.stack([jnp.hypot(field[0], field[1]), jnp.zeros_like(field[2]), field[2]])


def turned(q, omega, dt):
    """Return the change of q in Euler's step of ``q' = 1/2 q omega``."""
    return 0.5 * dt * quaternion.multiply(q, jnp.concatenate([jnp.zeros(1), omega]))


def madgwick(as_published, carry, sample):
    """Take a step along the gradient of the squared errors of both directions."""
    (q, bias), (dt, gyro, acc, mag) = carry, sample
    north = (0.5 if as_published else 1.0) * reference(q, mag)

    def misfit(q):
        errors = UP @ rotation(q) - acc, north @ rotation(q) - mag
        return 0.5 * sum(jnp.sum(error**2) for error in errors)

    q = unit(q + turned(q, gyro, dt) - dt * BETA * unit(jax.grad(misfit)(q)))
    return (q, bias), q


def mahony(carry, sample):
    """Take a step of the explicit complementary filter with a bias."""
    (q, bias), (dt, gyro, acc, mag) = carry, sample
    error = jnp.cross(acc, UP @ rotation(q)) + jnp.cross(mag, reference(q, mag) @ rotation(q))
    bias = bias + dt * K_I * error
    q = unit(q + turned(q, gyro + K_P * error + bias, dt))
    return (q, bias), q


@partial(jax.jit, static_argnums=(0, 1))
def scored(name, as_published, samples, seen):
    """Return total, heading and inclination [deg] of a filter on a recording."""
    acc, mag = (jax.vmap(unit)(x) for x in (samples.accelerometer, samples.magnetometer))
    west = unit(jnp.cross(acc[0], mag[0]))
    axes = jnp.stack([jnp.cross(west, acc[0]), west, acc[0]])
    if as_published:
        axes = (jnp.array([[-1.0], [-1.0], [1.0]]) * axes).T
    step = mahony if name == "mahony" else partial(madgwick, as_published)
    start = quaternion.from_matrix(axes), jnp.zeros(3)
    q = jax.lax.scan(step, start, (samples.dt, samples.gyro, acc, mag))[1]
    return example.scores(quaternion.multiply(EAST, q), seen)[:3]


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
