"""Identify a small quadrotor from logs of its motor commands, gyroscope and accelerometer.

    python examples/identify_quadrotor.py [FILE[@START] ...] [--judge FILE ...]

A log is a CSV file with the columns t [s], gyr_x, gyr_y, gyr_z [rad/s], acc_x, acc_y, acc_z
[m/s^2, specific force] and motor_1 .. motor_4 (commands between 0 and 1), body axes
forward-left-up. Its flying time is made of all stretches of 2 s without half a second of zero
commands; half a second after the take-off and 0.4 s before the motors stop are left out. What comes
after START [s], or the last fifth of the flying time, is HELD OUT: no fit sees it. Files after
--judge are held out as a whole. Without files the program takes the flights below, held out from
70, 35.8 and 51.5 s on. The rest before the take-off gives the bias of the gyroscope.

The model is a rigid body with four rotors (``jq.rotors``): the commands arrive late, the speeds
follow them with a lag, and beside thrust and drag there are the reaction of rotors that change
their speed, damping by the air, and the moment of air that flows in from the side. The fit
(``jq.least_squares``) compares windows of 0.25 s with the gyroscope and the accelerometer. Each
window starts from its first rate and from the speeds that all commands before it have led to,
level and at rest in the air, because the log does not tell better. So the parameters are those that
predict best from there; they take up some of what is not seen, and the drift of the craft most.

The judgement starts in the same way and predicts from the commands alone. It is the root of the
mean squared length of the error over all windows, beside the first sample held, the authors'
parameters, and the fitted ones without the lag. The last line pools the flights that rotate: those
in which the held rate errs by more than 2 rad/s at 0.25 s.

Flights: J. Eschmann, D. Albani, G. Loianno, Data-Driven System Identification of Quadrotors Subject
to Motor Delays, 2024, github.com/arplaboratory/data-driven-system-identification (MIT), converted
to these columns; their parameters are printed beside the fitted ones, and those of J. Foerster,
System Identification of the Crazyflie 2.0 Nano Quadrocopter, ETH Zurich, 2015.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import forces, rotors, torques

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "crazyflie"
DEFAULT = {"roll_pitch": 70.0, "yaw": 35.8, "thrust": 51.5}  # held out from here on [s]
COLUMNS = {
    "t": "t",
    "gyro": ("gyr_x", "gyr_y", "gyr_z"),
    "accelerometer": ("acc_x", "acc_y", "acc_z"),
    "motors": ("motor_1", "motor_2", "motor_3", "motor_4"),
}
MASS = 0.027  # kg
HUBS = 0.028 * np.array([[1.0, -1.0, 0], [-1.0, -1.0, 0], [-1.0, 1.0, 0], [1.0, 1.0, 0]])  # m
SPINS = np.array([1.0, -1.0, 1.0, -1.0])
EVERY = 4  # of the stamps, every fourth is a step of the simulation
WINDOW, STRIDE = 0.25, 0.1  # s, of the fit
HORIZONS = (0.1, 0.25, 0.5)  # s, of the judgement
COMPARED = np.arange(1, 11) * WINDOW / 10  # s after the start of a window of the fit
ROTATES = 2.0  # rad/s: a flight counts in the last line if its held rate is off by more at 0.25 s


class Quadrotor(NamedTuple):
    """The parameters. Speeds are in units of the one that a command of 1 leads to."""

    lag: Any  # () [s] time constant of the motors
    latency: Any  # () [s] from a command to the motors, delay of the gyroscope included
    thrust: Any  # (3,) [N] of a rotor, coefficients of 1, w, w^2
    spread: Any  # (3,) [kg m^2] of the mass along x, y, z: Ixx is that along y plus that along z
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
    """Return the principal moments (3,) [kg m^2]: positive, and none beyond the sum of two."""
    return jnp.sum(p.spread) - p.spread


def plant(p):
    """Return body and torque of the quadrotor; the aux states are the speeds (4,)."""
    body = jq.Body.from_principal(moments(p), mass=MASS)
    hubs = HUBS - jnp.append(p.offset, 0.0)[None]
    axes = jnp.tile(jnp.array([0.0, 0.0, 1.0]), (4, 1))
    rotor = rotors.Rotors(jnp.asarray(hubs), axes, jnp.asarray(SPINS), p.thrust, p.drag * p.thrust)

    def air(t, state, params, command):
        """Reaction of the rotors, damping, moment of the flow from the side, trim."""
        reaction = -p.reaction * jnp.dot(SPINS, (command - state.aux) / p.lag)
        x, y, _ = jq.quaternion.rotate(jq.quaternion.conjugate(state.q), state.velocity)
        other = jnp.stack([p.flow * y, -p.flow * x, reaction])
        return other - p.damping * state.omega + p.trim, jnp.zeros(4)

    return body, torques.total(forces.gravity(body), rotors.lagging(rotor, p.lag), air)


def late(log, latency):
    """Return the mean command (N - 1, 4) in each interval of the steps, after the latency."""

    def integral(x):
        return jnp.interp(log.t - latency, log.stamps, x)

    held = log.commands[:-1] * np.diff(log.stamps)[:, None]
    sums = np.concatenate([np.zeros((1, 4)), np.cumsum(held, axis=0)])
    at = jax.vmap(integral, in_axes=1, out_axes=1)(jnp.asarray(sums))
    return jnp.diff(at, axis=0) / np.diff(log.t)[:, None]


def speeds(log, lag, commands):
    """Return the speeds (N, 4) that follow the commands (N - 1, 4) from rest: exact."""
    decay = jnp.exp(-jnp.diff(jnp.asarray(log.t)) / lag)[:, None] * jnp.ones((1, 4))

    def join(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    steps = (decay, (1.0 - decay) * commands)
    return jnp.concatenate([jnp.zeros((1, 4)), jax.lax.associative_scan(join, steps)[1]])


def predict(p, log, starts, rows):
    """Return rates and specific forces, each (W, rows, 3), in the windows that begin at starts."""
    commands = late(log, p.latency)
    w0 = speeds(log, p.lag, commands)[starts]
    body, torque = plant(p)
    numbers = starts[:, None] + np.arange(rows)
    times = log.t[numbers] - log.t[starts][:, None]

    def window(times, commands, omega, w):
        level, zero = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
        start = jq.State(level, omega, w, zero, zero)
        path = jq.rollout(jq.rkmk2, body, torque, start, jq.grid_at(times), inputs=commands)
        return path.state.omega, path.state.aux

    omega, w = jax.vmap(window)(times, commands[numbers[:, :-1]], log.gyro[starts], w0)
    lift = jnp.sum(p.thrust[0] + p.thrust[1] * w + p.thrust[2] * w**2, axis=-1) / MASS
    return omega, jnp.stack([jnp.zeros_like(lift), jnp.zeros_like(lift), lift], axis=-1)


# The data.


class Log(NamedTuple):
    """Flights one after the other."""

    stamps: np.ndarray  # (M,) [s], of the commands
    commands: np.ndarray  # (M, 4), each holds until the next stamp
    t: np.ndarray  # (N,) [s], of the steps
    gyro: np.ndarray  # (N, 3) [rad/s], without the bias
    force: np.ndarray  # (N, 3) [m/s^2]


class Flight(NamedTuple):
    """A flight in a Log. Parts are arrays (K, 2) of seconds from, to."""

    name: str
    fitted: np.ndarray
    held_out: np.ndarray
    bias: np.ndarray  # (3,) [rad/s] of the gyroscope at rest, 0 without a rest
    bias_error: np.ndarray  # (3,) [rad/s]
    noise: float  # [rad/s] of one sample at rest


def flying(t, commands):
    """Return from when to when the craft flies, (K, 2) [s]."""
    on = np.flatnonzero(np.any(commands > 0, axis=1))
    stretches = np.split(on, np.flatnonzero(np.diff(t[on]) > 0.5) + 1)
    pieces = []
    for rows in stretches:
        if rows.size and t[rows[-1]] - t[rows[0]] > 2.0:
            stops = rows[-1] < len(t) - 1
            pieces.append((t[rows[0]] + 0.5, t[rows[-1]] - (0.4 if stops else 0.0)))
    if not pieces:
        raise ValueError("wanted two seconds of flight, got none")
    return np.array(pieces)


def last_fifth(pieces):
    """Return the time [s] after which the last fifth of the flying time lies."""
    rest = np.diff(pieces).sum() / 5
    for begin, end in pieces[::-1]:
        if end - begin > rest:
            return end - rest
        rest -= end - begin
    return pieces[0, 0]


def read(names, judged=()):
    """Return all logs one after the other, and what they are."""
    parts, flights, now = [], [], 0.0
    for name in [*names, *judged]:
        path, _, start = str(name).partition("@")
        recording = jq.recordings.read(path, COLUMNS)
        t, commands, gyro = recording.t, recording["motors"], recording.gyro
        try:
            pieces = flying(t, commands)
            split = float(start) if start else last_fifth(pieces)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        split = pieces[0, 0] if name in judged else split
        rest = gyro[: max(0, np.argmax(np.any(commands > 0, axis=1)) - 100)]
        known = len(rest) > 100
        bias, spread = (rest.mean(axis=0), rest.std(axis=0)) if known else np.zeros((2, 3))
        error = spread / np.sqrt(max(1, len(rest)))
        shift = now - t[0]
        parts.append((t + shift, commands, gyro - bias, recording.accelerometer))
        before, after_it = np.minimum(pieces, split) + shift, np.maximum(pieces, split) + shift
        title = Path(path).name.removesuffix(".gz").removesuffix(".csv")
        flights.append(Flight(title, before, after_it, bias, error, float(spread.mean())))
        now = parts[-1][0][-1] + 10.0  # the rotors have come to rest
    t, commands, gyro, force = (np.concatenate(x) for x in zip(*parts, strict=True))
    steps = slice(None, None, EVERY)
    log = Log(t, commands, t[steps], gyro[steps], force[steps])
    for flight in flights:
        if not len(windows(log, flight.held_out, HORIZONS[-1], 0.05)):
            raise ValueError(f"{flight.name}: wanted {HORIZONS[-1]:g} s of flight that is held out")
    return log, flights


def windows(log, parts, length, stride):
    """Return the rows (W,) at which windows of this length begin in parts of the log."""
    times = [np.arange(begin, end - length - 0.02, stride) for begin, end in parts]
    return np.searchsorted(log.t, np.concatenate(times))


def after(log, starts, seconds):
    """Return the row (W, len(seconds)) nearest to so many seconds after each start."""
    wanted = log.t[starts][:, None] + np.asarray(seconds)
    right = np.searchsorted(log.t, wanted)
    return right - (log.t[right] - wanted > wanted - log.t[right - 1])


# The fit.


def fit(log, flights):
    """Fit the parameters to the parts that are not held out.

    Errors of rates count as fractions of the error that the held rate has as long after the start,
    so that 25 ms and 250 ms weigh alike; those of the lift as fractions of its spread.

    Returns:
        The result of jq.least_squares, and the rate error (10,) [rad/s] that counts as 1.
    """
    starts = windows(log, np.concatenate([f.fitted for f in flights]), WINDOW, STRIDE)
    rows = after(log, starts, COMPARED)
    measured = log.gyro[rows], log.force[rows][..., 2]
    held = rms(log.gyro[starts][:, None] - measured[0])
    scale = held / np.sqrt(3.0), np.std(log.force[starts, 2])
    local = rows - starts[:, None]

    def residuals(p):
        omega, force = predict(p, log, starts, local.max() + 1)
        omega = jnp.take_along_axis(omega, local[..., None], axis=1)
        lift = jnp.take_along_axis(force[..., 2], local, axis=1)
        rate_error = (omega - measured[0]) / scale[0][None, :, None]
        lift_error = (lift - measured[1]) / scale[1]
        return jnp.concatenate([rate_error, lift_error[..., None]], axis=-1).ravel()

    params = jax.tree.map(jnp.asarray, START)
    bounds = (LOWER, UPPER)
    result = jq.least_squares(residuals, params, bounds=bounds, ftol=1e-5, max_steps=40)
    return result, scale[0]


def print_fit(result, scale, flights):
    """Print each parameter with its standard error beside those of others, and the residuals."""
    estimate, error = printed(result.params), standard_errors(result)
    print(f"{'parameter':12s} {'fitted':>11s}  {'error':>8s} {'authors':>11s} {'Foerster':>10s}")
    for name in estimate:
        values, spread, theirs = (
            np.atleast_1d(x[name]) for x in (estimate, error, printed(AUTHORS))
        )
        foerster = FOERSTER.get(name, [np.nan] * len(values))
        for k, row in enumerate(zip(values, spread, theirs, foerster, strict=True)):
            label = name if len(values) == 1 else f"{name}[{k}]"
            bounds = (getattr(x, name, None) for x in (LOWER, UPPER))
            at = any(x is not None and np.isclose(row[0], x, rtol=0.01) for x in bounds)
            others = f"{row[2]:11.4g} {row[3]:10.3g}{'   at its bound' if at else ''}"
            print(f"{label:12s} {row[0]:11.4g}  {row[1]:8.2g} {others}")
    for f in flights:
        bias, spread = 1e3 * f.bias, 1e3 * f.bias_error.max()
        print(f"gyro bias of {f.name}: {bias.round(3)} +- {spread:.1g} mrad/s, from the rest")
    r = result.residuals.reshape(-1, len(COMPARED), 4)[..., :3] * scale[:, None]
    noise = np.mean([f.noise for f in flights])
    near, apart = (np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in pairs(r))
    print(f"\n{result.reason}, after {result.jacobians} Jacobians")
    print(f"residuals of the rate: rms {np.sqrt(np.mean(r**2)):.2f} rad/s an axis; with the noise")
    print(
        f"of the gyroscope at rest, {noise:.1e} rad/s, chi^2 is {np.mean(r**2) / noise**2:.1e} per"
    )
    print(f"datum. Correlation 25 ms apart {near:.2f}, from one window to the next {apart:.2f}")


def pairs(r):
    """Return residuals (W, K, 3) beside the next in a window, and beside the next window."""
    return (r[:, :-1], r[:, 1:]), (r[:-1, -1], r[1:, -1])


def standard_errors(result):
    """Return standard errors of what is printed, by name.

    They count one residual an axis in a quarter of a second, not 25. The residuals are errors of
    the model, which last; as white noise they would claim too much.
    """
    inflation = np.sqrt(len(COMPARED) * WINDOW / STRIDE)
    errors = result.predict(printed).standard_errors
    return {name: inflation * np.asarray(x) for name, x in errors.items()}


def printed(p):
    """Return the parameters that are printed, by name: moments instead of the spread of mass."""
    return {"spread": p.spread, "moments": moments(p)} | p._asdict()


# The judgement.


def judge(params, log, part):
    """Return the errors of rates and forces, each (W, len(HORIZONS), 3), by model; the starts."""
    starts = windows(log, part, HORIZONS[-1], 0.05)
    rows = after(log, starts, HORIZONS)
    local = (rows - starts[:, None])[..., None]
    errors = {}
    for name, p in params.items():
        p = jax.tree.map(jnp.asarray, p)
        predicted = jax.jit(lambda p: predict(p, log, starts, local.max() + 1))(p)
        at = [np.take_along_axis(np.asarray(x), local, axis=1) for x in predicted]
        errors[name] = at[0] - log.gyro[rows], at[1] - log.force[rows]
    held = (x[starts][:, None] - x[rows] for x in (log.gyro, log.force))
    return {"held": tuple(held)} | errors, starts


def rms(errors):
    """Return the root of the mean squared length of vectors (W, H, 3), (H,)."""
    return np.sqrt(np.mean(np.sum(errors**2, axis=-1), axis=0))


def print_errors(judged):
    """Print the errors of each flight and those of all flights that rotate, pooled."""
    at = HORIZONS.index(0.25)
    pool = {k: e for k, e in judged.items() if rms(e["held"][0])[at] > ROTATES}
    ahead = "".join(f"{h:8g}" for h in HORIZONS)
    print("\nheld out: rms errors            rate [rad/s] after    specific force [m/s^2] after")
    print(f"{'':31s}{ahead} {ahead} s")
    lines = dict(judged)
    if pool:
        names = next(iter(pool.values()))
        lines[f"pooled ({len(pool)} that rotate)"] = {
            name: tuple(np.concatenate([e[name][k] for e in pool.values()]) for k in (0, 1))
            for name in names
        }
    for flight, errors in lines.items():
        for name, (rate, force) in errors.items():
            cells = "".join(f"{x:8.2f}" for x in (*rms(rate), *rms(force)))
            print(f"{flight[-22:]:22s} {name:8s}{cells[:24]} {cells[24:]}")
            flight = ""
    last = lines[next(reversed(lines))]
    short = {name: rms(rate)[at] for name, (rate, _) in last.items()}
    names = ("held", "authors", "fitted")
    return "rms_rad_s " + " ".join(f"{name}={short[name]:.3f}" for name in names)


def draw(log, params, judged, starts, result, file):
    """Draw the worst and a typical window, and parameters beside those of others."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    flight = max(judged, key=lambda k: rms(judged[k]["held"][0])[1])
    size = np.linalg.norm(judged[flight]["fitted"][0][:, 1], axis=-1)
    chosen = {"typical": np.argsort(size)[len(size) // 2], "worst": np.argmax(size)}
    for axis, (name, k) in zip(axes[:2], chosen.items(), strict=True):
        start = starts[flight][k : k + 1]
        rows = round(WINDOW / np.median(np.diff(log.t))) + 1
        t = log.t[start[0] : start[0] + rows] - log.t[start[0]]
        omega = np.asarray(predict(params["fitted"], log, start, rows)[0][0])
        for i, colour in enumerate(("tab:blue", "tab:orange", "tab:green")):
            measured = log.gyro[start[0] : start[0] + rows, i]
            wide = {"color": colour, "linewidth": 3.5, "alpha": 0.35}
            axis.plot(t, measured, label=f"measured {'xyz'[i]}", **wide)
            axis.plot(t, omega[:, i], color=colour, linewidth=1.2, label=f"predicted {'xyz'[i]}")
        axis.set(xlabel="time since the start [s]", ylabel="rate [rad/s]")
        axis.set_title(f"{flight}: {name} window")
    axes[0].legend(ncols=2, fontsize=8)
    draw_parameters(axes[2], result)
    figure.savefig(file, dpi=110)


def draw_parameters(axis, result):
    """Draw fitted parameters as multiples of the authors', with two standard errors."""
    estimates = printed(result.params), standard_errors(result), printed(AUTHORS)
    labels = [("lag", None), ("drag", None), *(("moments", k) for k in range(3))]
    for y, (name, k) in enumerate(labels):
        value, spread, theirs = (x[name] for x in estimates)
        if k is not None:
            value, spread, theirs = value[k], spread[k], theirs[k]
            axis.plot(FOERSTER["moments"][k] / theirs, y, "s", color="tab:green")
        bar = {"fmt": "o", "color": "tab:blue", "capsize": 3}
        axis.errorbar(value / theirs, y, xerr=2 * spread / theirs, **bar)
    axis.axvline(1.0, color="tab:grey", label="authors")
    axis.plot([], [], "o", color="tab:blue", label="fitted, two standard errors")
    axis.plot([], [], "s", color="tab:green", label="Foerster 2015")
    axis.set_yticks(range(5), ["motor lag", "drag torque", "Ixx", "Iyy", "Izz"])
    axis.set(xlabel="multiple of the authors' value", title="Parameters", xlim=(0, None))
    axis.legend(fontsize=8)


# The program.


def arguments():
    """Return the files to fit and those to judge alone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE[@START]")
    parser.add_argument("--judge", nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    if options.files:
        return options.files, options.judge
    paths = {FOLDER / f"crazyflie_{name}.csv.gz": start for name, start in DEFAULT.items()}
    missing = [path for path in paths if not path.exists()]
    if missing:
        wanted = ", ".join(path.name for path in missing)
        where = "convert the flights of arplaboratory/data-driven-system-identification"
        sys.exit(f"wanted logs: {wanted} are not in {FOLDER}; {where} to the columns of --help")
    return [f"{path}@{start}" for path, start in paths.items()], options.judge


def main():
    """Read, fit, judge, print, draw."""
    names, judged_only = arguments()
    try:
        log, flights = read(names, judged_only)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    result, scale = fit(log, flights[: len(names)])
    print_fit(result, scale, flights[: len(names)])
    slow = result.params._replace(lag=EVERY * 1e-3)  # no lag but a step
    params = {"authors": AUTHORS, "no lag": slow, "fitted": result.params}
    judged, starts = {}, {}
    for f in flights:
        judged[f.name], starts[f.name] = judge(params, log, f.held_out)
    last = print_errors(judged)
    draw(log, params, judged, starts, result, "identify_quadrotor.png")
    print("\ndrawn to identify_quadrotor.png")
    print(last)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
