"""Identify the inertia of a tumbling body from its noisy rate telemetry and its torque commands.

    python examples/identify_inertia.py [TELEMETRY.csv HELD_OUT.csv] [--seed 0]

The program prints the six entries of the inertia with their standard errors, predicts the manoeuvre
of the second file, and draws identify_inertia.png.

The files have the columns t [s], rate_x, rate_y, rate_z [rad/s], torque_x, torque_y, torque_z [N
m], and a row every 0.02 s. The torque of a row acts until the next row. Without files the program
makes two, telemetry.csv and held_out.csv: 60 s, rates with noise of 1e-3 rad/s, simulated by
another scheme with a step ten times finer than that of the fit.

The fit has two parts:

1. Gradient descent fits the inertia, in a chart in which every value is physical, to windows of
   1 s. Each window starts from its own measured rate. Short predictions do not lose their phase,
   so this works from a poor guess.
2. The Gauss-Newton method fits one trajectory, including its first rate, to all of the telemetry.

The first rate of the held-out manoeuvre is estimated from only 5 s of noisy telemetry. That limits
the prediction: the true inertia is hardly better.
"""

import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ENTRIES = ("xx", "yy", "zz", "xy", "xz", "yz")
TRUE = np.array([0.62, 0.95, 1.21, 0.07, -0.14, 0.05])  # kg m^2
GUESS = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
NOISE = 1e-3  # rad/s
PERIOD = 0.02  # s
SEEN = 251  # samples of the held-out manoeuvre that determine its first rate: 5 s
COLUMNS = ("t", "rate_x", "rate_y", "rate_z", "torque_x", "torque_y", "torque_z")


class Telemetry(NamedTuple):
    """N samples."""

    t: np.ndarray  # (N,) [s]
    rate: np.ndarray  # (N, 3) measured, body axes [rad/s]
    torque: np.ndarray  # (N, 3) commanded from each time on, body axes [N m]


# The model.


def matrix(entries):
    """Return the inertia (3, 3) with these six entries."""
    xx, yy, zz, xy, xz, yz = entries
    return jnp.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).reshape(3, 3)


def rates(body, omega, torque, dt, scheme=jq.rkmk4, finer=1):
    """Return body rates (N, 3) at the times of N commanded torques (N, 3), from the first rate."""
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), omega)
    steps = finer * (len(torque) - 1)
    grid = jq.grid(0.0, dt / finer, steps, sample_every=finer, save_every=finer)
    path = jq.rollout(scheme, body, jq.torques.commanded, start, grid, inputs=torque[:-1])
    return path.state.omega


# The data.


def simulated(seed, seconds=60.0):
    """Return the telemetry of a tumbling body under torques that jump every half second."""
    rng = np.random.default_rng(seed)
    samples, hold = round(seconds / PERIOD) + 1, round(0.5 / PERIOD)
    torque = np.repeat(rng.normal(0.0, 0.2, (samples // hold + 1, 3)), hold, axis=0)[:samples]
    torque -= torque.mean(axis=0)
    omega = jnp.asarray(rng.normal(0.0, 0.8, 3))
    fine = jax.jit(partial(rates, dt=PERIOD, scheme=jq.schemes.rkmk5, finer=10))
    rate = np.asarray(fine(jq.Body(matrix(TRUE)), omega, jnp.asarray(torque)))
    noise = rng.normal(0.0, NOISE, rate.shape)
    return Telemetry(PERIOD * np.arange(samples), rate + noise, torque)


def write(path, telemetry):
    """Write a file for ``read``."""
    table, header = np.column_stack(telemetry), ",".join(COLUMNS)
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.9g")


def read(path):
    """Return the telemetry in a CSV file."""
    with open(path, encoding="utf-8") as file:
        names = file.readline().strip().split(",")
    if tuple(names) != COLUMNS:
        raise ValueError(f"{path}: wanted the columns {','.join(COLUMNS)}, got {','.join(names)}")
    table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    if not np.allclose(np.diff(table[:, 0]), PERIOD, atol=1e-6):
        raise ValueError(f"{path}: wanted samples {PERIOD} s apart, got t = {table[:3, 0]} ...")
    return Telemetry(table[:, 0], table[:, 1:4], table[:, 4:7])


# The fit.


def descend(telemetry, steps=400, window=50):
    """Estimate the six entries (6,) by gradient descent on windows."""
    count = (len(telemetry.t) - 1) // window

    def cut(x):
        windows = [x[k * window : (k + 1) * window + 1] for k in range(count)]
        return jnp.asarray(np.stack(windows))

    def loss(theta, windows, key):
        body = jq.Body.from_parameters(theta)
        predicted = jax.vmap(lambda rate, torque: rates(body, rate[0], torque, PERIOD))(*windows)
        return jnp.mean((predicted - windows[0]) ** 2)

    theta = jq.Body(matrix(GUESS)).parameters
    optimizer = optax.adam(optax.cosine_decay_schedule(0.2, steps))
    data = (cut(telemetry.rate), cut(telemetry.torque))
    fit = jq.fit(loss, theta, optimizer, data, steps=steps, key=jax.random.key(0))
    inertia = jq.Body.from_parameters(fit.params).inertia
    return jnp.stack([inertia["xyz".index(a), "xyz".index(b)] for a, b in ENTRIES])


def gauss_newton(residuals, x, rows):
    """Return the minimum of |residuals(x)|^2 from nearby, residuals (N, 3).

    Iteration k uses the first ``rows[k]`` residuals: at first so few that the prediction has not
    lost its phase.
    """
    linearized = jax.jit(lambda x: (residuals(x), jax.jacfwd(residuals)(x)))
    for count in rows:
        residual, jacobian = linearized(x)
        x = x - jnp.linalg.lstsq(jacobian[:count].reshape(-1, x.size), residual[:count].ravel())[0]
    return x


def identify(telemetry):
    """Return the entries of the inertia and the first rate, with their covariance.

    The covariance uses the noise estimated from the residuals.
    """
    torque, measured = jnp.asarray(telemetry.torque), jnp.asarray(telemetry.rate)

    def residuals(params):
        body = jq.Body(matrix(params["inertia"]))
        return rates(body, params["first rate"], torque, PERIOD) - measured

    start, unravel = ravel_pytree({"inertia": descend(telemetry), "first rate": measured[0]})
    n = len(measured)
    x = gauss_newton(lambda x: residuals(unravel(x)), start, 3 * [n // 4] + 3 * [n // 2] + 4 * [n])
    return jq.fit_covariance(lambda params: jnp.ravel(residuals(params)), unravel(x))


def predict(entries, telemetry):
    """Return rates (N, 3) over a whole manoeuvre, from a first rate fitted to its first 5 s."""
    body = jq.Body(matrix(entries))
    torque, measured = jnp.asarray(telemetry.torque), jnp.asarray(telemetry.rate)

    def residuals(omega):
        return rates(body, omega, torque[:SEEN], PERIOD) - measured[:SEEN]

    omega = gauss_newton(residuals, measured[0], 4 * [SEEN])
    return np.asarray(jax.jit(partial(rates, dt=PERIOD))(body, omega, torque))


# The program.


def print_entries(estimate, known):
    """Print the entries with their standard errors, and their true errors if these are known."""
    entries = np.asarray(estimate.params["inertia"])
    errors = np.asarray(estimate.standard_errors["inertia"])
    truth, off = ("true        ", "   error [sigma]   error [%]") if known else ("", "")
    print(f"entry  {truth}estimate     standard error{off}")
    for name, true, value, sigma in zip(ENTRIES, TRUE, entries, errors, strict=True):
        if known:
            relative = 100 * (value - true) / true
            truth = f"{true:+.6f}   "
            off = f"       {(value - true) / sigma:+6.2f}       {relative:+8.4f}"
        print(f"I{name}  {truth}{value:+.6f}    {sigma:.6f} kg m^2{off}")


def rms(rate, telemetry):
    """Return the rms error of a prediction [rad/s], after the samples that gave its first rate."""
    return np.sqrt(np.mean((rate - telemetry.rate)[SEEN:] ** 2))


def draw(telemetry, predictions, file):
    """Draw the held-out manoeuvre: one rate, and the error of its prediction."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.6), layout="constrained")
    t = telemetry.t - telemetry.t[0]
    left.plot(t, telemetry.rate[:, 2], color="black", linewidth=3.0, alpha=0.3, label="telemetry")
    for name, colour in (("first guess", plot.COLOURS[1]), ("identified", plot.COLOURS[0])):
        rate = predictions[name]
        error = np.linalg.norm(rate - telemetry.rate, axis=1)
        left.plot(t, rate[:, 2], color=colour, linewidth=1.2, label=name)
        label = f"{name}: rms {rms(rate, telemetry):.3g} rad/s"
        right.semilogy(t, error, color=colour, linewidth=0.8, label=label)
    noise = {"color": plot.COLOURS[2], "linestyle": "--", "linewidth": 1.2}
    right.axhline(np.sqrt(3) * NOISE, label="noise alone", **noise)
    right.axvspan(0, t[SEEN], color="0.9", zorder=0, label="gives the first rate")
    left.set(xlim=(0, t[-1]), ylabel="rate about body z [rad/s]", title="Held-out manoeuvre")
    right.set(xlim=(0, t[-1]), ylabel="error of the rate [rad/s]")
    above = {"fontsize": "small", "ncols": 2, "frameon": False}
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), **above)
    left.legend(fontsize="small", loc="lower left")
    for axis in (left, right):
        axis.set_xlabel("time [s]")
    figure.savefig(file, dpi=150)


def files():
    """Return the names of the two files, and whether this program simulated them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="TELEMETRY.csv HELD_OUT.csv")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated manoeuvres")
    arguments = parser.parse_args()
    if len(arguments.files) not in (0, 2):
        parser.error(f"wanted no files or TELEMETRY.csv HELD_OUT.csv, got {len(arguments.files)}")
    if arguments.files:
        return arguments.files, False
    print("no files given: simulating telemetry.csv and held_out.csv")
    names = ["telemetry.csv", "held_out.csv"]
    for k, name in enumerate(names):
        write(name, simulated(2 * arguments.seed + k))
    return names, True


def main():
    """Simulate or read, identify, predict, print, draw."""
    paths, known = files()
    telemetry, held_out = map(read, paths)
    estimate = identify(telemetry)
    samples, seconds = len(telemetry.t), telemetry.t[-1] - telemetry.t[0]
    noise = f"noise by the residuals {estimate.sigma:.3e} rad/s"
    print(f"{samples} samples over {seconds:g} s; {noise}")
    hidden = len(estimate.unidentifiable)
    print(f"directions of the nine parameters that the telemetry does not show: {hidden}\n")
    print_entries(estimate, known)

    inertias = {"first guess": GUESS, "identified": np.asarray(estimate.params["inertia"])}
    inertias |= {"true inertia": TRUE} if known else {}
    predictions = {name: predict(inertia, held_out) for name, inertia in inertias.items()}
    print("\nheld-out manoeuvre, predicted from the inertia and the first 5 s:")
    print("rms error of the rate after them, noise included [rad/s]")
    for name, rate in predictions.items():
        print(f"{name:12s} {rms(rate, held_out):.5f}")
    draw(held_out, predictions, "identify_inertia.png")
    print("\ndrawn to identify_inertia.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
