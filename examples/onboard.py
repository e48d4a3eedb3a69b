"""Tune an attitude filter on a recording, write it as one file of C, and run that over another log.

    python examples/onboard.py

Two settings of ``estimation.ahrs`` are tuned on a simulated minute of a gyroscope, an accelerometer
and a magnetometer at 100 Hz: the noise of the gyroscope, and how far the velocity of a moved body
may be from 0. The best of 49 pairs is found by one ``jax.vmap`` of the filter over all of them. The
body does not travel, so the error falls with the second setting down to the smallest one.

The tuned filter becomes ahrs.c: ``jq.export.c`` writes the start from the first sample and the step
as one function. main.c reads a log of another minute, prints the attitude after each sample, and
includes only the declarations of ahrs.c. If gcc is on the path, both are compiled and run, and the
attitudes are compared with those of ``estimation.run``: they are the same, bit for bit. The picture
is onboard.png.
"""

import shutil
import subprocess
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import estimation, plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DT, SECONDS = 0.01, 60.0
GRAVITY, FIELD = (0.0, 0.0, 9.80665), (0.0, 18.0, -45.0)  # m/s^2, uT: east, north, up
FACTORS = np.logspace(-2.5, 0.5, 7)  # of the default settings
OPTIONS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off"]

MAIN = """\
#define AHRS_DECLARATIONS
#include "ahrs.c"
#include <stdio.h>
#include <time.h>

int main(void)
{
    static ahrs_memory memory;
    ahrs_sample x;
    float q[4];
    double seconds = 0.0;
    long count = 0;
    while (scanf("%g,%g,%g,%g,%g,%g,%g,%g,%g,%g", &x.dt_seconds, &x.gyro[0], &x.gyro[1],
                 &x.gyro[2], &x.accelerometer[0], &x.accelerometer[1], &x.accelerometer[2],
                 &x.magnetometer[0], &x.magnetometer[1], &x.magnetometer[2]) == 10) {
        clock_t start = clock();
        ahrs(count == 0, &memory, &x, &memory, q);
        seconds += (double)(clock() - start) / CLOCKS_PER_SEC;
        printf("%.9g,%.9g,%.9g,%.9g\\n", q[0], q[1], q[2], q[3]);
        count++;
    }
    fprintf(stderr, "%.1f us a sample\\n", 1e6 * seconds / (double)count);
    return 0;
}
"""


def recorded(seed):
    """Return the samples of a body that turns and is shaken, and its attitudes (N, 4)."""
    rng, n = np.random.default_rng(seed), int(SECONDS / DT)
    t = DT * np.arange(1, n + 1)
    phase = rng.uniform(0.0, 2.0 * np.pi, (2, 3))
    moving = (np.sin(2.0 * np.pi * t / 20.0) > -0.5)[:, None]
    rate = moving * 2.0 * np.sin(np.array([2.1, 1.3, 0.7]) * t[:, None] + phase[0])
    shaken = moving * 1.5 * np.sin(np.array([3.0, 4.1, 2.2]) * t[:, None] + phase[1])
    q = jq.kinematics.integrate(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.float32(rate), DT)
    gyro = rate + [0.01, -0.02, 0.015] + 0.02 * rng.normal(size=(n, 3))
    force = jq.quaternion.rotate_inverse(q, jnp.float32(np.array(GRAVITY) + shaken))
    field = jq.quaternion.rotate_inverse(q, jnp.float32([FIELD]))
    seen = (x + noise * rng.normal(size=(n, 3)) for x, noise in ((force, 0.05), (field, 0.5)))
    sensors = (jnp.float32(x) for x in (gyro, *seen))
    return estimation.ImuSample(estimation.Interval(jnp.full(n, DT)), *sensors), q


def errors(settings, samples, q):
    """Return the angle [deg] between estimate and truth at each sample."""
    keep = lambda estimate: estimate.q  # noqa: E731
    estimates = estimation.run(estimation.ahrs(settings), samples, save=keep)[1]
    return jnp.rad2deg(jax.vmap(jq.quaternion.distance)(estimates, q))


def tuned(samples, q):
    """Return the settings with the least root mean square error after the first five seconds."""

    def score(gyro, velocity):
        settings = estimation.AhrsSettings()
        settings = settings._replace(
            gyro=settings.gyro * gyro, velocity_by_motion=settings.velocity_by_motion * velocity
        )
        late = errors(settings, samples, q)[int(5.0 / DT) :]
        return jnp.sqrt(jnp.mean(late**2)), settings

    pairs = jnp.float32(np.stack(np.meshgrid(FACTORS, FACTORS), -1).reshape(-1, 2))
    scores, settings = jax.jit(jax.vmap(score))(*pairs.T)
    best = int(jnp.argmin(scores))
    gyro, velocity = pairs[best]
    print(f"best: gyro times {gyro:.2g}, velocity_by_motion times {velocity:.2g}")
    print(f"on the log of the tuning: {scores[best]:.2f} deg")
    return jax.tree.map(lambda x: float(np.broadcast_to(x, len(pairs))[best]), settings)


def in_c(settings):
    """Return the filter as C: the attitude after a sample, which may be the first one."""
    ahrs = estimation.ahrs(settings)

    def step(first, memory, sample):
        start = ahrs.init(sample)
        memory = jax.tree.map(lambda x, y: jnp.where(first, x, y), start, memory)
        memory, estimate = ahrs.step(memory, sample)
        return memory, estimate.q

    x = jnp.ones(3, jnp.float32)
    sample = estimation.ImuSample(estimation.Interval(x[0]), x, x, x)
    arguments = np.bool_(True), jax.eval_shape(ahrs.init, sample), sample
    return jq.export.c(step, arguments, name="ahrs")


def run_in_c(samples):
    """Compile ahrs.c and main.c, and return the attitudes of a log."""
    subprocess.run(["gcc", *OPTIONS, "ahrs.c", "main.c", "-o", "ahrs", "-lm"], check=True)
    rows = np.column_stack([np.asarray(x, np.float32) for x in jax.tree.leaves(samples)])
    np.savetxt("log.csv", rows, "%.9g", ",")
    done = subprocess.run(
        "./ahrs < log.csv", shell=True, capture_output=True, text=True, check=True
    )
    print(f"the filter in C took {done.stderr.strip()}")
    return np.array([line.split(",") for line in done.stdout.split()], np.float32)


def draw(before, after, file):
    """Draw the errors with the default settings and with the tuned ones."""
    figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    t = DT * np.arange(1, len(before) + 1)
    axis.semilogy(t, before, color=plot.COLOURS[1], linewidth=0.9, label="default settings")
    axis.semilogy(t, after, color=plot.COLOURS[0], linewidth=0.9, label="tuned, in C")
    axis.set(xlabel="time [s]", ylabel="error of the attitude [deg]", xlim=(0, SECONDS))
    axis.legend(loc="upper right")
    figure.savefig(file, dpi=150)


def main():
    """Tune, write, compile, run, compare, draw."""
    settings = tuned(*recorded(1))
    began = time.perf_counter()
    text = in_c(settings)
    Path("ahrs.c").write_text(text)
    Path("main.c").write_text(MAIN)
    lines, seconds = text.count("\n"), time.perf_counter() - began
    print(f"ahrs.c: {lines} lines, written in {seconds:.1f} s")

    samples, q = recorded(2)
    before, after = (
        np.asarray(jax.jit(errors)(x, samples, q)) for x in (estimation.AhrsSettings(), settings)
    )
    late = np.s_[int(5.0 / DT) :]
    size = lambda x: np.sqrt(np.mean(x[late] ** 2))  # noqa: E731
    print(f"on another log: {size(before):.2f} deg before, {size(after):.2f} deg tuned")
    if shutil.which("gcc") is None:
        print("gcc is not on the path: ahrs.c was not compiled")
    else:
        keep = lambda estimate: estimate.q  # noqa: E731
        run = jax.jit(lambda x: estimation.run(estimation.ahrs(settings), x, save=keep)[1])
        here, there = np.asarray(run(samples)), run_in_c(samples)
        print(f"{np.sum(here == there)} of {here.size} numbers are those of estimation.run")
        after = np.rad2deg(np.asarray(jax.vmap(jq.quaternion.distance)(jnp.asarray(there), q)))
    draw(before, after, "onboard.png")
    print("drawn to onboard.png")


if __name__ == "__main__":
    main()
