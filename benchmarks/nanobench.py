"""Attitudes of the trefoil flights of NanoBench: the library's filters beside the onboard one.

    python benchmarks/nanobench.py FILES... [--write]

FILES are the 28 CSVs in ``benchmarks/task3_stateEst/*_trefoil`` of the repository
syediu/nanobench-iros2026. ``examples/validation/nanobench.py`` says what is wrong with them.

The first table has the published errors of the onboard estimator, and the motion capture's own
angles in the same formula. The second table has errors without both mistakes, on recorded rows: the
root of the mean square over samples and angles, averaged over flights. "Tilt" is over roll and
pitch without their mean differences in a flight, because the markers' axes are not those of the
sensors, by up to 3 degrees. Without a magnetometer the heading is not observable, so each flight's
mean heading difference is removed, for all estimators.

The onboard estimator uses the motion capture's positions and its own sensors; the others have the
sensors as they arrived by radio. ``ahrs`` and VQF have default settings. "Positions" is ``mekf``
with the second difference of the positions of the last 0.12 s as reference for the mean specific
force of the same time, with settings chosen here.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pages import put
from scipy.spatial.transform import Rotation
from vqf import VQF

jax.config.update("jax_enable_x64", True)

from examples.validation import nanobench  # noqa: E402
from jaxquat import estimation  # noqa: E402

PAGE, SPEEDS = Path(__file__).parents[1] / "docs" / "validation.md", ("slow", "medium", "fast")
SPAN, UP = 12, np.array([0.0, 0.0, 9.80665])  # rows, m/s^2
RADIO = estimation.AhrsSettings(gyro=0.03)  # rad/s/sqrt(Hz): rates as they arrive by radio
POSITIONS = estimation.MekfSettings(
    gyro=0.1, bias_random_walk=1e-4, vectors=1.0, start_attitude=0.05, acceleration=10.0
)


@jax.jit
def run_ahrs(settings, samples):
    """Return the attitudes of ``ahrs``."""
    return estimation.run(estimation.ahrs(settings), samples)[1].q


@jax.jit
def run_mekf(q, samples):
    """Return the attitudes of ``mekf`` from the attitude q."""
    return estimation.run(estimation.mekf(q, POSITIONS), samples)[1].q


def by_ahrs(settings):
    """Return a function from a log to the attitudes of ``ahrs``."""
    settings = jax.tree.map(jnp.float64, settings)
    return lambda log: run_ahrs(settings, estimation.imu_samples(log))


def by_vqf(log):
    """Return the attitudes of VQF."""
    sensors = (np.ascontiguousarray(x) for x in (log.gyro, log.accelerometer))
    return VQF(float(np.median(np.diff(log.t)))).updateBatch(*sensors)["quat6D"]


def by_positions(log):
    """Return the attitudes of ``mekf`` with the motion capture's accelerations."""
    dt = np.diff(log.t)
    means = 0.5 * (log.gyro[1:] + log.gyro[:-1])
    turns = [Rotation.identity()]
    for turn in Rotation.from_rotvec(means * dt[:, None]):
        turns.append(turns[-1] * turn)
    turned = Rotation.concatenate(turns)  # by the rates alone, from the first attitude
    offsets = (np.arange(SPAN + 1) - SPAN / 2) * np.median(dt)
    parabola = np.stack([np.ones(SPAN + 1), offsets, 0.5 * offsets**2], axis=1)
    second = np.linalg.pinv(parabola)[2]  # weights of positions
    weights = np.cumsum(np.cumsum(second))[:-1]  # of the accelerations that they measure
    forces = filtered(turned.apply(log.accelerometer), np.append(0.0, weights / weights.sum()))
    samples = estimation.VectorSample(
        estimation.imu_samples(log).dt,
        jnp.asarray(log.gyro),
        jnp.asarray(turned.inv().apply(forces))[:, None],
        jnp.asarray(filtered(log["position"], second) + UP)[:, None],
        jnp.full((len(log.t), 4), jnp.nan),
    )
    start = log.accelerometer[:20].mean(axis=0)
    level = Rotation.from_rotvec(np.cross(start, UP) / np.linalg.norm(start) / UP[2])  # nearly
    heading = Rotation.from_euler("z", log["angles"][0, 2])
    return run_mekf(jnp.asarray((heading * level).as_quat(scalar_first=True)), samples)


def filtered(signals, weights):
    """Return weighted sums (n, k) of each row and those before it; NaN where these are missing."""
    later = [np.convolve(column, weights[::-1], "valid") for column in signals.T]
    return np.vstack([np.full((len(weights) - 1, signals.shape[1]), np.nan), np.stack(later, 1)])


ESTIMATORS = {
    "onboard, with positions": lambda log: log["onboard"],
    "`ahrs`, default settings": by_ahrs(estimation.AhrsSettings()),
    "`ahrs`, `gyro=0.03`": by_ahrs(RADIO),
    "VQF, default settings": by_vqf,
    "`mekf`, with positions": by_positions,
}


def tables(files):
    """Return both tables in lines; every flight counts, also those that are there twice."""
    formula = {"onboard": {}, "the true attitude": {}}
    found = {name: {} for name in ESTIMATORS}
    for file in files:
        log = nanobench.everything(file)
        true = np.rad2deg(log["angles"]) * [1, -1, 1]  # with the onboard sign
        formula["onboard"][file] = [nanobench.published(log)]
        log.channels["onboard angles"][:] = true
        formula["the true attitude"][file] = [nanobench.published(log)]
        log = nanobench.read(file)
        for name, estimator in ESTIMATORS.items():
            found[name][file] = nanobench.scores(np.asarray(estimator(log)), log.q)

    def row(name, values):
        means = [np.mean([values[f] for f in files if f"_{s}_" in f.name], axis=0) for s in SPEEDS]
        return f"| {name} | {' | '.join(f'{x:.2f}' for x in np.stack(means).T.ravel())} |"

    def head(*titles):
        return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]

    lines = [*head("formula as published [deg]", *SPEEDS), *(row(*x) for x in formula.items())]
    both = SPEEDS + tuple(f"tilt, {speed}" for speed in SPEEDS)
    return [*lines, "", *head("corrected [deg]", *both), *(row(*x) for x in found.items())]


def main():
    """Print the tables and, where asked, write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args()
    text = "\n".join(tables(options.files))
    print(text)
    if options.write:
        put(PAGE, "<!-- NanoBench: attitudes -->", "<!-- end of attitudes -->", text)


if __name__ == "__main__":
    main()
