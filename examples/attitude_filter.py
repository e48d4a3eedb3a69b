"""Tune an attitude filter on real recordings by gradient, and compare it with VQF on others.

    python examples/attitude_filter.py --train FILES --test FILES [--swap] [--prior 0.025]

Seven settings of ``estimation.ahrs`` and the latency of the gyroscope are fitted. The fit
minimizes the error of the filter on TRAIN, and differentiates its scan in forward mode. The
smoother has the same settings. A prior keeps them near their defaults, within a factor of 1.5:
without it (``--prior 0``) the fit makes the total score of recordings that it did not see worse.

Recordings are .npz files: ``imu_gyr`` [rad/s], ``imu_acc`` [m/s^2] and ``imu_mag``, (N, 3), sensor
axes; ``opt_quat`` (N, 4), a reference, sensor to east, north and up, NaN where it was lost;
``movement`` (N,), 1 where errors count; ``sampling_rate`` [Hz]. The recordings of BROAD (D. Laidig
et al., Data 6(7), 2021, doi 10.3390/data6070072, CC BY 4.0) can be converted to this format.

The score of a recording is BROAD's: with e = q q_ref*, the root mean square over the movement of
the angle of e (total), of its turn about the vertical (heading) and of the remaining turn
(inclination). The reference does not use magnetic north, so there is also an aligned score, from
which the mean error of the heading is removed. Scores are averaged over recordings.

VQF (D. Laidig and T. Seel, Information Fusion 91, 2023; the package vqf) runs with its default
settings. To show the effect of the latency, the scores of VQF's attitudes turned on by the latency
fitted on TRAIN are printed, too. The picture is attitude_filter.png.

With ``--swap`` the program also fits on TEST and scores TRAIN; the scores then cover all
recordings. docs/benchmarks/attitude_filter.txt has such scores, and docs/validation.md their means.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import jaxquat as jq
from jaxquat import estimation, plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EVERY = 20  # samples are merged for the fit
UPDATES = 10
SPREAD = 0.4  # standard deviation of the prior of a setting's logarithm
LATENCY = 0.01  # s, standard deviation of the prior of the latency
PRIOR = 0.025  # added to the loss by a setting at one standard deviation
SCALES = jnp.array([2.0, 0.7, 1.3])  # deg: units of the errors: total, inclination, aligned
FITTED = (
    "start_heading",
    "start_response",
    "velocity_by_motion",
    "heading",
    "heading_gate",
    "declination",
    "rest_bias",
)
COLUMNS = ("vqf", "online", "offline_vqf", "smoothed")


class Recording(NamedTuple):
    """Samples of the sensors and the reference; with a leading axis, several recordings."""

    samples: estimation.ImuSample
    reference: jax.Array  # (N, 4), NaN where errors do not count


# The data.


def read(path):
    """Return the recording in a .npz file, float32; exit with one line if it is invalid."""
    try:
        with np.load(path) as file:
            data = {name: np.asarray(file[name], np.float32) for name in file.files}
        n = len(data["imu_gyr"])
        dt = np.float32(1.0 / data["sampling_rate"])
        sensors = (data[name].reshape(n, 3) for name in ("imu_gyr", "imu_acc", "imu_mag"))
        counts = data["movement"].reshape(n, 1) > 0
        reference = np.where(counts, data["opt_quat"].reshape(n, 4), np.float32(np.nan))
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"{path}: {error}")
    if np.isnan(reference).all():
        sys.exit(f"{path}: no sample of the movement has a reference")
    intervals = estimation.Interval(jnp.full(n, dt))
    samples = estimation.ImuSample(intervals, *map(jnp.asarray, sensors))
    return Recording(samples, jnp.asarray(reference))


def merged(recording, every):
    """Return the recording with merged samples, and the reference at their ends."""
    n = len(recording.reference) // every * every
    groups = jax.tree.map(lambda x: x[:n], recording)
    return Recording(estimation.merge(groups.samples, every), groups.reference[every - 1 :: every])


def padded(recordings):
    """Return recordings of equal length, padded at the end with samples of length 0."""
    longest = max(len(recording.reference) for recording in recordings)

    def one(recording):
        rows = longest - len(recording.reference)
        end = jax.tree.map(lambda x: jnp.full((rows, *x.shape[1:]), jnp.nan, x.dtype), recording)
        empty = estimation.Interval(jnp.zeros(rows, jnp.float32))
        end = end._replace(samples=end.samples._replace(dt=empty))
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), recording, end)

    return [one(recording) for recording in recordings]


# The score.


def scores(q, reference):
    """Return total, heading, inclination [deg], then aligned ones. (N, 4), (N, 4) -> (6,)."""
    counts = ~jnp.any(jnp.isnan(reference), axis=1)
    start = jnp.zeros_like(reference).at[:, 0].set(1.0)
    q, reference = (jnp.where(counts[:, None], x, start) for x in (q, reference))
    error = jq.quaternion.multiply(q, jq.quaternion.conjugate(reference))
    heading = 2.0 * jnp.arctan2(error[:, 3], error[:, 0])
    mean = jnp.arctan2(jnp.sum(jnp.sin(heading)), jnp.sum(jnp.where(counts, jnp.cos(heading), 0.0)))
    back = jq.quaternion.exp(jnp.zeros_like(q[0, :3]).at[2].set(-mean))
    aligned = jq.quaternion.multiply(back[None], error)
    return jnp.concatenate([rms_of(x, counts) for x in (error, aligned)])


def rms_of(error, counts):
    """Return the root mean squares [deg] of an error's angle, heading and inclination."""
    w, x, y, z = jnp.moveaxis(error, -1, 0)
    tilt, turn = x * x + y * y, w * w + z * z
    halves = (
        jnp.arctan2(root(tilt + z * z), jnp.abs(w)),
        jnp.arctan2(z * jnp.sign(w), jnp.abs(w)),
        jnp.arctan2(root(tilt), root(turn)),
    )
    count = jnp.sum(counts, dtype=w.dtype)
    means = [jnp.sum(jnp.where(counts, x * x, 0.0)) / count for x in halves]
    return jnp.rad2deg(2.0 * jnp.sqrt(jnp.stack(means)))


def root(x):
    """Return the square root of x >= 0, with a derivative at 0."""
    return jnp.sqrt(x + jnp.finfo(x.dtype).tiny ** 0.5)


# The filter and its fit.


def settings_of(params):
    """Return the settings with parameters z (n + 1,); z = 0 gives the defaults."""
    default = estimation.AhrsSettings()
    shifted = {
        name: getattr(default, name) * jnp.exp(SPREAD * z)
        for name, z in zip(FITTED, params[:-1], strict=True)
    }
    return default._replace(**shifted, latency=LATENCY * params[-1])


def filtered(settings, samples):
    """Return the attitudes (N, 4) of the filter."""
    return estimation.run(estimation.ahrs(settings), samples)[1].q


def smoothed(settings, samples):
    """Return the attitudes (N, 4) of the smoother."""
    return estimation.smooth(estimation.ahrs(settings), samples).q


def fit(recordings, prior=PRIOR):
    """Return the settings fitted to recordings with a prior, and the history of the loss."""
    data = padded([merged(recording, EVERY) for recording in recordings])
    data = jax.tree.map(lambda *x: jnp.stack(x), *data)

    def error(params, recording):
        q = filtered(settings_of(params), recording.samples)
        return jnp.sum(scores(q, recording.reference)[jnp.array([0, 2, 3])] / SCALES)

    def loss(params, batch, key):
        errors = jax.vmap(error, (None, 0))(params, batch)
        return jnp.mean(errors) + prior * jnp.sum(params**2)

    optimizer = optax.adam(optax.cosine_decay_schedule(0.4, UPDATES))
    start = jnp.zeros(len(FITTED) + 1)
    key, options = jax.random.key(0), jq.FitOptions(mode="forward")
    result = jq.fit(loss, start, optimizer, data, steps=UPDATES, key=key, options=options)
    return settings_of(result.params), result.history


# What is printed.


def vqf(samples):
    """Return the attitudes (N, 4) of VQF, online and offline."""
    try:
        from vqf import VQF, offlineVQF
    except ImportError:
        sys.exit("wanted the package vqf, got none: pip install vqf")
    dt = float(samples.dt.seconds[0])
    gyr, acc, mag = (np.ascontiguousarray(x, np.float64) for x in samples[1:])
    return VQF(dt).updateBatch(gyr, acc, mag)["quat9D"], offlineVQF(gyr, acc, mag, dt)["quat9D"]


def turned_on(q, gyro, latency):
    """Return the attitudes (N, 4) turned on by their rates (N, 3) for ``latency`` [s]."""
    return jq.quaternion.multiply(q, jq.quaternion.exp(latency * gyro))


def judge(settings, recording):
    """Return the scores (6,) of every estimate of a padded recording, by name."""
    samples, reference = recording
    n = int(jnp.sum(samples.dt.seconds > 0))
    vqf_attitudes = vqf(jax.tree.map(lambda x: x[:n], samples))
    end = jnp.zeros((len(reference) - n, 4), reference.dtype)  # does not count
    online, offline = (jnp.concatenate([jnp.asarray(q, end.dtype), end]) for q in vqf_attitudes)
    attitudes = {"vqf": online, "offline_vqf": offline}
    for name, values in (("untuned", estimation.AhrsSettings()), ("", settings)):
        values = jax.tree.map(jnp.float32, values)
        attitudes[f"online {name}".strip()] = ONLINE(values, samples)
        attitudes[f"smoothed {name}".strip()] = SMOOTHED(values, samples)
    latency = jnp.float32(settings.latency)
    for name in ("vqf", "offline_vqf"):
        attitudes[f"{name} turned on"] = turned_on(attitudes[name], samples.gyro, latency)
    return {name: np.asarray(SCORES(q, reference)) for name, q in attitudes.items()}


ONLINE, SMOOTHED, SCORES = jax.jit(filtered), jax.jit(smoothed), jax.jit(scores)


def print_settings(settings):
    """Print the default and fitted settings."""
    print("| setting | default | fitted |\n|---|---|---|")
    for name, default in estimation.AhrsSettings()._asdict().items():
        if name in FITTED or name == "latency":
            print(f"| {name} | {default:.3g} | {float(getattr(settings, name)):.3g} |")


def print_scores(names, table):
    """Print totals and aligned scores for each recording, and all means."""
    print(
        "\n| total / aligned [deg] | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS)
    )
    for name, row in zip(names, table, strict=True):
        cells = (f"{row[column][0]:.2f} / {row[column][3]:.2f}" for column in COLUMNS)
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| mean [deg] | total | heading | inclination | aligned | aligned heading |")
    print("|---|---|---|---|---|---|")
    for name in table[0]:
        mean = np.mean([row[name] for row in table], axis=0)
        print(f"| {name} | {' | '.join(f'{x:.2f}' for x in mean[:5])} |")
    for word, k in (("rms_deg", 0), ("aligned_deg", 3)):
        means = (f"{name}={np.mean([row[name][k] for row in table]):.3f}" for name in COLUMNS)
        print(word, *means)


def draw(names, table, file):
    """Draw the aligned scores of each recording."""
    figure, axes = plt.subplots(figsize=(7.2, 1.0 + 0.42 * len(names)), layout="constrained")
    places = np.arange(len(names))
    for k, column in enumerate(COLUMNS):
        widths = [row[column][3] for row in table]
        axes.barh(places + 0.2 * (k - 1.5), widths, 0.2, label=column, color=plot.COLOURS[k])
    axes.set_yticks(places, [name.replace("_", " ") for name in names])
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.grid(axis="x", alpha=0.3)
    axes.set(xlabel="aligned rms error [deg]", title="Recordings that the fit did not see")
    axes.legend()
    figure.savefig(file, dpi=110)


def main():
    """Fit on TRAIN and score TEST; with --swap also the other way round."""
    parser = argparse.ArgumentParser(description="Tune an attitude filter and judge it.")
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--test", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--swap", action="store_true", help="also fit on TEST, judge on TRAIN")
    text = f"weight of the prior, default {PRIOR}; without it (0) TEST may become worse"
    parser.add_argument("--prior", type=float, default=PRIOR, metavar="WEIGHT", help=text)
    arguments = parser.parse_args()
    if not arguments.prior >= 0.0:
        parser.error(f"--prior: wanted a weight of at least 0, got {arguments.prior}")
    halves = arguments.train, arguments.test
    recordings = {path: read(path) for half in halves for path in half}
    of_one_length = dict(zip(recordings, padded(recordings.values()), strict=True))
    scored = {}
    for train, test in (halves, halves[::-1])[: 1 + arguments.swap]:
        settings, history = fit([recordings[path] for path in train], arguments.prior)
        print(f"{len(train)} recordings, {UPDATES} updates: ", end="")
        print(f"loss {history[0]:.3f} to {history.min():.3f}\n")
        print_settings(settings)
        scored |= {Path(path).stem: judge(settings, of_one_length[path]) for path in test}
    names = sorted(scored)
    table = [scored[name] for name in names]
    draw(names, table, "attitude_filter.png")
    print_scores(names, table)


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
