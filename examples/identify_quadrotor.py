"""Identify a small quadrotor from logs of its motor commands, gyroscope and accelerometer.

    python examples/identify_quadrotor.py [FILE[@START] ...] [--judge FILE ...]

A log is a CSV file with the columns t [s], gyr_x, gyr_y, gyr_z [rad/s], acc_x, acc_y, acc_z [m/s^2,
specific force] and motor_1 .. motor_4 (commands between 0 and 1), body axes forward-left-up. The
craft counts as flying in stretches of more than 2 s without half a second of zero commands, from
half a second after the take-off to 0.4 s before the motors stop. The part after START [s], or the
last fifth of the samples in flight, is HELD OUT: no fit sees it. Files after --judge are held out
completely. The rest phase before the take-off gives the bias of the gyroscope. Without files the
program uses the three flights below.

The model is a rigid body with four rotors (``jq.rotors``): commands arrive late, and rotor speeds
follow them with a lag. Besides thrust and drag there are the reaction of rotors that change their
speed, damping by the air, and the moment of air that flows in from the side. The fit
(``jq.least_squares``) compares windows of 0.25 s with gyroscope and accelerometer. Each window
starts with its first measured rate and with the rotor speeds that follow from all earlier commands.
It starts level and at rest relative to the air, because the log does not have attitude and
velocity. So the fitted parameters are those that predict best from such starts; they absorb some
effects that the log does not show, above all the drift of the craft.

The evaluation starts in the same way and predicts from the commands alone. It prints the root mean
squared length of the error over all windows for the first sample held constant, the authors'
parameters, the fitted parameters without the lag, and the fitted parameters. The last line pools
the flights that rotate, in which the error of the held rate is more than 2 rad/s at 0.25 s.

Flights: J. Eschmann, D. Albani, G. Loianno, Data-Driven System Identification of Quadrotors Subject
to Motor Delays, 2024, github.com/arplaboratory/data-driven-system-identification (MIT), converted
to these columns. Their parameters, and those of J. Foerster (System Identification of the Crazyflie
2.0 Nano Quadrocopter, ETH Zurich, 2015), are printed beside the fitted ones.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import actuators, forces, plot, rotors, torques

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "crazyflie"
FLIGHTS = [
    f"{FOLDER}/crazyflie_{name}.csv.gz@{start}"
    for name, start in {"roll_pitch": 70.0, "yaw": 35.8, "thrust": 51.5}.items()
]
COLUMNS = {
    "t": "t",
    "gyro": ("gyr_x", "gyr_y", "gyr_z"),
    "accelerometer": ("acc_x", "acc_y", "acc_z"),
    "motors": ("motor_1", "motor_2", "motor_3", "motor_4"),
}
MASS = 0.027  # kg
HUBS = 0.028 * np.array([[1.0, -1.0, 0], [-1.0, -1.0, 0], [-1.0, 1.0, 0], [1.0, 1.0, 0]])  # m
SPINS = np.array([1.0, -1.0, 1.0, -1.0])
EVERY = 4  # stamps per step of the simulation
WINDOW, STRIDE = 0.25, 0.1  # s, of the fit
HORIZONS = (0.1, 0.25, 0.5)  # s, of the evaluation
COMPARED = np.arange(1, 11) * WINDOW / 10  # s after the start of a window of the fit
ROTATES = 2.0  # rad/s: the last line pools flights whose held rate is off by more at 0.25 s


class Quadrotor(NamedTuple):
    """The parameters. Rotor speeds are in units of the speed at a command of 1."""

    lag: Any  # () [s] time constant of the motors
    latency: Any  # () [s] from a command to the motors, delay of the gyroscope included
    thrust: Any  # (3,) [N] of a rotor, coefficients of 1, w, w^2
    spread: Any  # (3,) [kg m^2] of the mass along x, y, z: Ixx is spread[1] + spread[2]
    drag: Any  # () [m] drag torque over thrust
    reaction: Any  # () [N m s] momentum of a rotor at full speed
    offset: Any  # (2,) [m] centre of mass from the middle of the hubs, x and y
    damping: Any  # (3,) [N m s] torque of the air against the rate
    flow: Any  # () [N s] moment per speed of air from the side
    trim: Any  # (3,) [N m] constant torque


START = Quadrotor(
    lag=0.05,
    latency=0.01,
    thrust=np.array([0.02, 0.0, 0.12]),
    spread=np.array([1.2e-5, 1.2e-5, 0.2e-5]),
    drag=5e-3,
    reaction=5e-5,
    offset=np.zeros(2),
    damping=np.array([5e-5, 5e-5, 2e-5]),
    flow=1e-4,
    trim=np.zeros(3),
)
LOWER = Quadrotor(0.02, 0.0, None, 1e-8, 1e-3, 0.0, None, 0.0, 0.0, None)
UPPER = Quadrotor(0.15, 0.02, None, 1e-4, 3e-2, 5e-4, None, 5e-4, 5e-3, None)
AUTHORS = START._replace(
    lag=0.0716,
    latency=0.0,
    thrust=np.array([0.02127, -0.01117, 0.12013]),
    spread=0.5e-5 * np.array([2.031, 1.879, 0.179]),  # of their moments
    drag=4.5e-3,
    reaction=0.0,
    damping=np.zeros(3),
    flow=0.0,
)
FOERSTER = {"moments": [1.66e-5, 1.66e-5, 2.93e-5], "thrust": [5.48e-4, 6.77e-2, 9.15e-2]}


# The model.


def moments(p):
    """Return the principal moments (3,) [kg m^2]; none exceeds the sum of the other two."""
    return jnp.sum(p.spread) - p.spread


def plant(p):
    """Return body and torque of the quadrotor; the aux states are the speeds (4,)."""
    body = jq.Body.from_principal(moments(p), mass=MASS)
    hubs = HUBS - jnp.append(p.offset, 0.0)[None]
    axes = jnp.tile(jnp.array([0.0, 0.0, 1.0]), (4, 1))
    rotor = rotors.Rotors(jnp.asarray(hubs), axes, jnp.asarray(SPINS), p.thrust, p.drag * p.thrust)

    def air(t, state, params, command):
        """Return the torque of reaction, damping, flow from the side and trim."""
        reaction = -p.reaction * jnp.dot(SPINS, (command - state.aux) / p.lag)
        x, y, _ = jq.quaternion.rotate(jq.quaternion.conjugate(state.q), state.velocity)
        moment = jnp.stack([p.flow * y, -p.flow * x, reaction])
        return moment - p.damping * state.omega + p.trim, jnp.zeros(4)

    return body, torques.total(forces.gravity(body), rotors.lag(rotor, p.lag), air)


def predict(p, log, windows):
    """Return rates and specific forces, each (W, R, 3), from the first rates of windows."""
    stamps, motors, (body, torque) = windows.channels["stamps"], log["motors"], plant(p)
    commands = actuators.delay_record(log.t, motors, p.latency, stamps)
    speeds = actuators.lag_record(log.t, motors, p.lag, stamps[:, 0], delay=p.latency)

    def window(times, commands, omega, w):
        level, zero = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
        start = jq.State(level, omega, w, zero, zero)
        path = jq.rollout(jq.rkmk2, body, torque, start, jq.grid_at(times), inputs=commands)
        return path.state.omega, path.state.aux

    omega, w = jax.vmap(window)(windows.t, commands, windows.channels["gyro"][:, 0], speeds)
    lift = jnp.sum(p.thrust[0] + p.thrust[1] * w + p.thrust[2] * w**2, axis=-1) / MASS
    return omega, jnp.stack([jnp.zeros_like(lift), jnp.zeros_like(lift), lift], axis=-1)


# The data.


class Flight(NamedTuple):
    """A flight in the log. ``fitted`` and ``held_out`` are (K, 2): start and end of pieces [s]."""

    name: str
    fitted: np.ndarray
    held_out: np.ndarray
    bias: np.ndarray  # (3,) [rad/s] of the gyroscope at rest, 0 without a rest
    bias_error: float  # [rad/s]
    noise: float  # [rad/s] of one sample at rest


def flying(t, commands):
    """Return the start and end of each piece in flight, (K, 2) [s]."""
    on = np.flatnonzero(np.any(commands > 0, axis=1))
    pieces = []
    for rows in np.split(on, np.flatnonzero(np.diff(t[on]) > 0.5) + 1):
        if rows.size and t[rows[-1]] - t[rows[0]] > 2.0:
            stops = rows[-1] < len(t) - 1
            pieces.append((t[rows[0]] + 0.5, t[rows[-1]] - (0.4 if stops else 0.0)))
    if not pieces:
        raise ValueError("wanted two seconds of flight, got none")
    return np.array(pieces)


def inside(t, pieces):
    """Return whether each of the times (N,) lies in one of the pieces (K, 2), as (N,)."""
    return np.any((pieces[:, 0] <= t[:, None]) & (t[:, None] < pieces[:, 1]), axis=1)


def check(log):
    """Raise ValueError, with the columns, for missing samples and commands outside 0 to 1."""
    for name in log.names:
        missing = np.flatnonzero(~log.present(name))
        if missing.size:
            got = f"none in {missing.size} rows, the first at t = {log.t[missing[0]]:g} s"
            raise ValueError(f"columns {', '.join(COLUMNS[name])}: wanted numbers, got {got}")
    for column, commands in zip(COLUMNS["motors"], log["motors"].T, strict=True):
        if commands.min() < 0.0 or commands.max() > 1.0:
            got = f"{commands.min():g} to {commands.max():g}"
            raise ValueError(f"column {column}: wanted commands between 0 and 1, got {got}")


def read(names, judged=()):
    """Return one log of all flights, with 10 s between them, and its parts."""
    recordings, flights, now = [], [], 0.0
    for name in [*names, *judged]:
        path, _, start = str(name).partition("@")
        log = jq.recordings.read(path, COLUMNS)
        try:
            check(log)
            pieces = flying(log.t, log["motors"])
            split = float(start or np.quantile(log.t[inside(log.t, pieces)], 0.8))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        split = pieces[0, 0] if name in judged else split
        if np.diff(np.maximum(pieces, split)).max() < HORIZONS[-1] + 0.1:
            raise ValueError(f"{path}: wanted {HORIZONS[-1]:g} s of flight that is held out")
        resting = log.gyro[: max(0, np.argmax(np.any(log["motors"] > 0, axis=1)) - 100)]
        known = len(resting) > 100
        bias, noise = (resting.mean(axis=0), resting.std(axis=0)) if known else np.zeros((2, 3))
        shift = now - log.t[0]
        recordings.append((log.t + shift, log.gyro - bias, log.accelerometer, log["motors"]))
        parts = np.minimum(pieces, split) + shift, np.maximum(pieces, split) + shift
        title = Path(path).name.removesuffix(".gz").removesuffix(".csv")
        error = noise.max() / np.sqrt(max(1, len(resting)))
        flights.append(Flight(title, *parts, bias, error, noise.mean()))
        now = log.t[-1] + shift + 10.0  # the rotors have come to rest
    t, gyro, force, motors = (np.concatenate(x) for x in zip(*recordings, strict=True))
    log = jq.recordings.Recording(t, gyro, accelerometer=force, channels={"motors": motors})
    return log, flights


def cut(log, pieces, duration, stride):
    """Return complete windows of pieces (K, 2), of the rows that are steps of the simulation."""
    rows = np.flatnonzero(inside(log.t, pieces))[::EVERY]
    channels = {"stamps": log.t[rows], "force": log.accelerometer[rows]}
    steps = jq.recordings.Recording(log.t[rows], log.gyro[rows], channels=channels)
    windows = jq.recordings.windows_by_time(steps, duration + 0.01, stride)
    complete = windows.t[:, -1] > duration
    return jax.tree.map(lambda x: x[complete], windows)


def after(windows, seconds, *channels):
    """Return values (W, len(seconds), ...) of channels these seconds after each window's start."""
    rows = np.abs(windows.t[..., None] - np.asarray(seconds)).argmin(axis=1)
    return [jnp.take_along_axis(jnp.asarray(x), rows[..., None], axis=1) for x in channels]


# The fit.


def fit(log, flights):
    """Fit the parameters to the pieces that are not held out.

    Errors of rates are divided by the error of the held rate at the same time after the start, so
    that 25 ms and 250 ms have equal weight. Errors of the lift are divided by its standard
    deviation.

    Returns:
        The result of jq.least_squares, and the rate error (10,) [rad/s] that counts as 1.
    """
    windows = cut(log, np.concatenate([f.fitted for f in flights]), WINDOW, STRIDE)
    gyro, force = windows.channels["gyro"], windows.channels["force"]
    rate, lift = after(windows, COMPARED, gyro, force[..., 2:])
    scale = rms(gyro[:, :1] - rate) / np.sqrt(3.0), np.std(force[:, 0, 2])

    def residuals(p):
        omega, specific = predict(p, log, windows)
        omega, specific = after(windows, COMPARED, omega, specific[..., 2:])
        error = (omega - rate) / scale[0][None, :, None], (specific - lift) / scale[1]
        return jnp.concatenate(error, axis=-1).ravel()

    params, bounds = jax.tree.map(jnp.asarray, START), (LOWER, UPPER)
    options = jq.LeastSquaresOptions(max_steps=40, ftol=1e-5)
    return jq.least_squares(residuals, params, bounds=bounds, options=options), scale[0]


def printed(p):
    """Return the parameters that are printed, by name, including the moments."""
    return {"spread": p.spread, "moments": moments(p)} | p._asdict()


def standard_errors(result):
    """Return standard errors of the printed parameters, by name.

    They count one residual per axis in a quarter of a second, not 25. The residuals are persistent
    errors of the model; treated as white noise, they would give too small standard errors.
    """
    inflation = np.sqrt(len(COMPARED) * WINDOW / STRIDE)
    errors = result.predict(printed).standard_errors
    return {name: inflation * np.asarray(x) for name, x in errors.items()}


def print_fit(result, scale, flights):
    """Print each parameter, its standard error and others' values, and the residuals."""
    print(f"{'parameter':12s} {'fitted':>11s}  {'error':>8s} {'authors':>11s} {'Foerster':>10s}")
    errors, authors = standard_errors(result), printed(AUTHORS)
    for name, values in printed(result.params).items():
        values = np.ravel(values)
        columns = errors[name], authors[name], FOERSTER.get(name, np.full(len(values), np.nan))
        for k, row in enumerate(zip(values, *map(np.ravel, columns), strict=True)):
            bounds = (getattr(x, name, None) for x in (LOWER, UPPER))
            at = any(x is not None and np.isclose(row[0], x, rtol=0.01) for x in bounds)
            label = name if len(values) == 1 else f"{name}[{k}]"
            cells = "{:11.4g}  {:8.2g} {:11.4g} {:10.3g}".format(*row)
            print(f"{label:12s} {cells}{'   at its bound' if at else ''}")
    for f in flights:
        print(f"gyro bias of {f.name}: {f.bias.round(6)} +- {f.bias_error:.0e} rad/s, at rest")
    r = result.residuals.reshape(-1, len(COMPARED), 4)[..., :3] * scale[:, None]
    noise = np.mean([f.noise for f in flights])
    near = np.corrcoef(r[:, :-1].ravel(), r[:, 1:].ravel())[0, 1]
    apart = np.corrcoef(r[:-1, -1].ravel(), r[1:, -1].ravel())[0, 1]
    print(f"\n{result.reason}, after {result.jacobians} Jacobians")
    print(f"residuals of the rate: rms {np.sqrt(np.mean(r**2)):.2f} rad/s an axis; noise at rest")
    print(f"{noise:.1e} rad/s, so that chi^2 is {np.mean(r**2) / noise**2:.1e} per datum.")
    print(f"Correlation 25 ms apart {near:.2f}, from one window to the next {apart:.2f}")


# The evaluation.


def judge(params, log, windows):
    """Return errors of rates and forces, each (W, len(HORIZONS), 3), by model."""
    measured = windows.channels["gyro"], windows.channels["force"]
    predicted = {"held": [np.broadcast_to(x[:, :1], x.shape) for x in measured]}
    run = jax.jit(lambda p: predict(p, log, windows))
    predicted |= {name: run(jax.tree.map(jnp.asarray, p)) for name, p in params.items()}
    return {
        name: [np.asarray(x) for x in after(windows, HORIZONS, *map(np.subtract, x, measured))]
        for name, x in predicted.items()
    }


def rms(errors):
    """Return the root mean squared length (H,) of vectors (W, H, 3)."""
    return np.sqrt(np.mean(np.sum(errors**2, axis=-1), axis=0))


def print_errors(judged):
    """Print errors of each flight and of the pooled flights that rotate; return the last line."""
    at = HORIZONS.index(0.25)
    pool = [errors for errors in judged.values() if rms(errors["held"][0])[at] > ROTATES]
    if pool:
        pooled = {
            name: [np.concatenate(x) for x in zip(*(errors[name] for errors in pool), strict=True)]
            for name in pool[0]
        }
        judged = judged | {f"pooled ({len(pool)} that rotate)": pooled}
    ahead = "".join(f"{h:8g}" for h in HORIZONS)
    print("\nheld out: rms errors            rate [rad/s] after    specific force [m/s^2] after")
    print(f"{'':31s}{ahead} {ahead} s")
    for flight, errors in judged.items():
        for k, (name, both) in enumerate(errors.items()):
            rate, force = ("".join(f"{x:8.2f}" for x in rms(error)) for error in both)
            print(f"{flight[-22:] if k == 0 else '':22s} {name:8s}{rate} {force}")
    last = list(judged.values())[-1]
    cells = (f"{name}={rms(last[name][0])[at]:.3f}" for name in ("held", "authors", "fitted"))
    return "rms_rad_s " + " ".join(cells)


def draw(log, windows, errors, title, result):
    """Draw a typical and the worst window, and the parameters with others' values."""
    figure = plt.figure(figsize=(7, 6.4), layout="constrained")
    axes = list(figure.subplot_mosaic("ab;cc", height_ratios=[3, 2]).values())
    size = np.linalg.norm(errors["fitted"][0][:, HORIZONS.index(WINDOW)], axis=-1)
    omega = predict(result.params, log, windows)[0]
    chosen = {"typical": np.argsort(size)[len(size) // 2], "worst": np.argmax(size)}
    for axis, (name, k) in zip(axes[:2], chosen.items(), strict=True):
        rows = windows.t[k] <= WINDOW
        t, measured, model = (x[k][rows] for x in (windows.t, windows.channels["gyro"], omega))
        for i, colour in enumerate(plot.COLOURS[:3]):
            wide = {"color": colour, "linewidth": 3.5, "alpha": 0.35}
            axis.plot(t, measured[:, i], label=f"measured {'xyz'[i]}", **wide)
            axis.plot(t, model[:, i], color=colour, linewidth=1.2, label=f"predicted {'xyz'[i]}")
        axis.set(xlabel="time since the start [s]", ylabel="rate [rad/s]")
        axis.set_title(f"{title}: {name} window", fontsize=10)
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper center", ncols=3)
    nothing = {"lag": np.nan, "drag": np.nan}
    columns = printed(result.params), standard_errors(result), printed(AUTHORS), FOERSTER | nothing
    drawn = (np.hstack([x["lag"], x["drag"], x["moments"]]) for x in columns)
    estimate, error, theirs, foerster = drawn
    places = np.arange(5)
    bars = {"fmt": "o", "color": plot.COLOURS[0], "capsize": 3}
    bars["label"] = "fitted, two standard errors"
    axes[2].errorbar(estimate / theirs, places, xerr=2 * error / theirs, **bars)
    axes[2].plot(foerster / theirs, places, "s", color=plot.COLOURS[3], label="Foerster 2015")
    axes[2].axvline(1.0, color="0.5", label="authors")
    axes[2].set_yticks(places, ["motor lag", "drag torque", "Ixx", "Iyy", "Izz"])
    axes[2].set(xlabel="parameter, multiple of the authors' value", xlim=(0, None))
    axes[2].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    figure.savefig("identify_quadrotor.png", dpi=110)


# The program.


def main():
    """Read, fit, evaluate, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE[@START]", default=FLIGHTS)
    parser.add_argument("--judge", nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    names = options.files
    try:
        log, flights = read(names, options.judge)
    except (OSError, ValueError) as error:
        sys.exit(f"{error}; --help says what the columns are and where the flights come from")
    result, scale = fit(log, flights[: len(names)])
    print_fit(result, scale, flights[: len(names)])
    no_lag = result.params._replace(lag=EVERY * 1e-3)  # one step
    params = {"authors": AUTHORS, "no lag": no_lag, "fitted": result.params}
    windows = {f.name: cut(log, f.held_out, HORIZONS[-1], 0.05) for f in flights}
    judged = {name: judge(params, log, w) for name, w in windows.items()}
    last = print_errors(judged)
    most = max(judged, key=lambda name: rms(judged[name]["held"][0])[1])
    draw(log, windows[most], judged[most], most, result)
    errors = standard_errors(result)
    unknown = [name for name in Quadrotor._fields if not np.all(np.isfinite(errors[name]))]
    if unknown:
        print(f"\nthese flights do not determine {', '.join(unknown)}: fly with changing commands")
    print("\ndrawn to identify_quadrotor.png")
    print(last)


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    jax.config.update("jax_enable_x64", True)
    main()
