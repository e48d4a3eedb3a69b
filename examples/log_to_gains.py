"""Read a flight log, identify how the rates answer to commands, and propose better gains.

    pip install "jaxquat[examples,logs]"
    python examples/log_to_gains.py LOG.ulg [--inertia IX IY IZ] [--mass M] [--disk 0.9]

LOG is from a multirotor with PX4 (.ulg) or ArduPilot (.bin). For each axis, the response from the
command u (-1 to 1) to the rate is ``rate' = k v + b``, ``lag v' = u(t - delay) - v``, with a torque
b that drifts at random. The parameters minimise the errors of predicting each sample from those
before it, which allows for feedback (L. Ljung, System Identification, 1999, 13.4). A log reveals
only k, torque over inertia, unless ``--inertia`` is given [kg m^2]. An axis is left out, with the
reason, where the log does not determine k, or lag and delay together. The controller of the log, in
samples of 4 ms, then closes the loop. Better gains minimise the error after a step of the rate and
a push, with a disk margin of at least ``--disk`` and at most 1.5 times the gain on noise. The page
LOG_gains.html has all of it.

Standard errors count noise alone. In simulated flights with less motion than is wanted here, k was
up to 70 % too small: commands between the rows of a log are missing, and noise is taken for motion.
So log at the full rate, with sharp turns, and try new gains with care.
"""

import argparse
import base64
import html
import itertools
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from pymavlink import DFReader
from pyulog import ULog
from scipy.optimize import minimize

import jaxquat as jq

jax.config.update("jax_enable_x64", True)

AXES, DT, LONGEST = ("roll", "pitch", "yaw"), 0.004, 0.3  # s: sample, largest delay
ERROR, MOTION = 0.15, 10.0  # largest relative error, least motion over error of the prediction
CENTI = 18000 / np.pi / 4500  # command per rad/s of a unit gain before ArduPilot 3.4
BODY = jq.Body.from_principal(jnp.ones(3))  # everything is per inertia
REST = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), jnp.zeros(3))


def first_of(read, path, *fields, **options):
    """Return times and values of the first of these fields that a log has."""
    for field in fields:
        try:
            found = read(path, {"x": field}, **options)
        except ValueError:
            continue
        return found.t, found["x"]
    raise SystemExit(f"{path}: wanted {fields[0]} or the like, got no such messages")


def px4(path):
    """Return the flight of a log of PX4."""
    read, old = jq.recordings.read_ulog, [f"actuator_controls_0.control[{k}]" for k in range(4)]
    command = first_of(read, path, "vehicle_torque_setpoint.xyz", old[:3])
    setpoint = "vehicle_thrust_setpoint.xyz[2]", old[3], "vehicle_rates_setpoint.thrust_body[2]"
    status = [f"rate_ctrl_status.{axis}speed" for axis in AXES]
    sensors = "vehicle_angular_velocity.xyz", "sensor_combined.gyro_rad", status
    rates, thrust = first_of(read, path, *sensors), first_of(read, path, *setpoint)
    get = ULog(str(path), message_name_filter_list=[]).initial_parameters.get
    names = [f"MC_{axis.upper()}RATE_" for axis in AXES]
    gains = [[get(x + term, np.nan) * get(x + "K", 1.0) for term in "PID"] for x in names]
    cutoff = get("IMU_DGYRO_CUTOFF", get("MC_DTERM_CUTOFF", 30.0)) or 30.0
    return flight(command, rates, thrust, gains, [cutoff] * 3)


def ardupilot(path):
    """Return the flight of a log of ArduPilot."""
    read = partial(jq.recordings.read_dataflash, skip_damaged=True)
    command = first_of(read, path, ["RATE.ROut", "RATE.POut", "RATE.YOut"])
    rates = first_of(read, path, ["RATE.R", "RATE.P", "RATE.Y"], units={"x": "deg/s"})
    thrust = first_of(read, path, "RATE.AOut")
    log, values = DFReader.DFReader_binary(str(path)), {}
    while (message := log.recv_match(type="PARM")) is not None:
        values[message.Name] = message.Value
    prefix, unit = ("ATC_RAT", 1.0) if "ATC_RAT_RLL_P" in values else ("RATE", CENTI)
    names = [f"{prefix}_{axis}_" for axis in ("RLL", "PIT", "YAW")]
    gains = [[unit * values.get(x + term, np.nan) for term in "PID"] for x in names]
    filters = [[values.get(x + y) for y in ("FLTD", "FILT", "FILT_HZ")] for x in names]
    return flight(command, rates, thrust, gains, [next(filter(None, x), 20.0) for x in filters])


def flight(command, rates, thrust, gains, cutoff):
    """Return all of these at even times of the longest flight without gaps."""
    (t, u), (t_rate, rate) = command, rates
    h, level = np.median(np.diff(t)), np.interp(t, thrust[0], np.abs(thrust[1]))
    changes = (np.diff(t) > 4 * h) | (np.diff(level > 0.1) != 0)
    ends = itertools.pairwise([0, *(np.flatnonzero(changes) + 1), len(t)])
    pieces = [(a, b) for a, b in ends if level[a] > 0.1 and b - a > 100]
    if not pieces:
        raise SystemExit("the log has no flight: 100 commands with a thrust above 10 %")
    a, b = max(pieces, key=lambda piece: t[piece[1] - 1] - t[piece[0]])
    even = np.arange(t[a], t[b - 1], h)
    u, rate = (
        np.stack([np.interp(even, time, x) for x in values.T], axis=1)
        for time, values in ((t, u), (t_rate, rate))
    )
    return even, u, rate, np.interp(even, t, level), np.array(gains), np.array(cutoff)


def innovations(params, data):
    """Return by how much each rate differs from its prediction, (N,) [rad/s]."""
    (k, lag), (delay, gain, drift, trim), (u, y, h) = jnp.exp(params[:2]), params[2:], data
    place = jnp.arange(1.0 * len(u))
    late = jnp.interp(place - delay / h, place, u)  # held: the next command knows the next rate
    matrix = jnp.zeros((4, 4)).at[0, 1].set(k * h).at[0, 2].set(h)
    matrix = jax.scipy.linalg.expm(matrix.at[1, 1].set(-h / lag).at[1, 3].set(h / lag))[:3]
    gains = jnp.stack([jax.nn.sigmoid(gain), 0.0 * k, jnp.exp(drift)])

    def step(x, row):
        error = row[0] - x[0]
        return matrix[:, :3] @ (x + gains * error) + matrix[:, 3] * row[1], error

    rows, start = jnp.stack([y, late], axis=1), jnp.stack([y[0], late[0], -k * trim])
    return jax.lax.scan(step, start, rows)[1]


def identified(u, y, h):
    """Return k, lag, delay, their standard errors and that of lag + delay; and why not, or ""."""
    if np.std(u) < 1e-4 or np.std(y) < 1e-3:
        return np.full(7, np.nan), f"u varies by {np.std(u):.1g}, the rate by {np.std(y):.1g}"
    start = np.array([[60, 0.03, 0.01], [60, 0.03, 0.06], [15, 0.1, 0.03]])
    start = np.hstack([np.log(start[:, :2]), start[:, 2:], np.zeros((3, 3))])
    start[:, 5] = np.mean(u)
    lower = np.array([0.0, np.log(2e-3), 0.0, -6.0, -7.0, -2.0])
    upper = np.array([9.0, 0.0, LONGEST, 6.0, 7.0, 2.0])
    options, bounds = jq.LeastSquaresOptions(progress=False), (lower, upper)
    fits = [
        jq.least_squares(innovations, x, (u, y, h), bounds=bounds, options=options) for x in start
    ]
    fit = min(fits, key=lambda fit: fit.cost)
    units = np.append(np.exp(fit.params[:2]), 1.0)
    c = fit.covariance.covariance[:3, :3] * np.outer(units, units)
    k, lag, delay = units[0], units[1], float(fit.params[2]) + 0.5 * (h - DT)  # rows are held
    both, motion = np.sqrt(np.sum(c[1:, 1:])), np.std(y) / np.std(fit.residuals)
    reason = ""
    if not np.sqrt(c[0, 0]) < ERROR * k or motion < MOTION:
        reason = f"k = {k:.3g} +- {np.sqrt(c[0, 0]):.2g} rad/s^2, and the rate varies by "
        reason += f"{motion:.1f} times what its predictions miss: too little excitation"
    elif not both < ERROR * (lag + delay) or lag + delay < 1.5 * h:
        reason = f"lag and delay, {1e3 * (lag + delay):.0f} +- {1e3 * both:.0f} ms, are too short "
        reason += f"or too uncertain for commands every {1e3 * h:.0f} ms"
    return np.array([k, lag, delay, *np.sqrt(np.diag(c)), both]), reason


def torque(t, state, params, command):
    """Return the torque of the lagged commands, and the rate of the lag."""
    k, lag, *_, push = params
    return k * (state.aux + jnp.where(t > 1.0, push, 0.0)), (command - state.aux) / lag


def update(t, state, memory, params, wanted):
    """Return the commands of PID controllers after a delay; the D term is filtered."""
    _, _, wait, share, gains, _ = params
    waiting, integral, filtered = memory
    error, now = wanted - state.omega, filtered + share * (state.omega - filtered)
    command = gains[:, 0] * error + integral - gains[:, 2] * (now - filtered) / DT
    waiting = jnp.concatenate([command[None], waiting[:-1]])
    return waiting[wait, jnp.arange(3)], (waiting, integral + DT * gains[:, 1] * error, now)


EMPTY = jnp.zeros((round(LONGEST / DT) + 1, 3)), jnp.zeros(3), jnp.zeros(3)
CONTROLLER = jq.Controller(lambda start, params: EMPTY, update)


@jax.jit
def fly(gains, plant):
    """Return the path after a step of all rates at 0 s and a push at 1 s."""
    grid, inputs = jq.grid(0.0, DT, 500), jnp.ones((500, 3))
    params = (*plant, gains, 0.1)
    return jq.rollout(
        jq.rkmk2, BODY, torque, REST, grid, params, controller=CONTROLLER, inputs=inputs
    )


def disks(gains, plant):
    """Return the disk margins of the axes, as ``control.margins``, but differentiable."""
    k, lag, wait, share = plant
    z, (p, i, d) = jnp.exp(1j * jnp.geomspace(1e-3, np.pi, 300))[:, None], gains.T
    controller = p + i * DT / (z - 1) + d * share * (z - 1) / (z - 1 + share) / DT
    late = lag * -jnp.expm1(-DT / lag)
    rate = (DT - late + late * late / lag / (z - jnp.exp(-DT / lag))) / (z - 1)
    return 1 / jnp.max(jnp.abs(1 / (1 + k * rate * controller * z**-wait) - 0.5), axis=0)


def better(gains, plant, disk):
    """Return the gains of least error after the step and the push, within the limits."""
    noise = 1.5 * (gains[:, 0] + gains[:, 2] * plant[3] / DT)

    def cost(logarithms):
        new = jnp.exp(logarithms.reshape(3, 3))
        size = jnp.mean(jnp.sqrt((1.0 - fly(new, plant).state.omega) ** 2 + 1e-4), axis=0)
        short = jnp.maximum(1.05 * disk - disks(new, plant), 0.0)
        loud = jnp.maximum((new[:, 0] + new[:, 2] * plant[3] / DT) / noise - 1.0, 0.0)
        return jnp.sum(size + 10.0 * short**2 + 10.0 * loud**2)

    first, slopes = np.log(np.maximum(np.ravel(gains), 1e-5)), jax.jit(jax.value_and_grad(cost))
    bounds = [(x - 2.0, x + 2.0) for x in first]
    found = minimize(slopes, first, jac=True, bounds=bounds, options={"maxiter": 60})
    return jnp.exp(found.x.reshape(3, 3))


def drawn(t, u, rate, paths, known):
    """Return the log, and simulated steps with each set of gains, as a picture in a page."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes, early = figure.subplots(3, 2), t < t[0] + 20.0
    for k, (left, right) in enumerate(axes):
        left.plot(t[early], rate[early, k], label="rate [rad/s]")
        left.plot(t[early], u[early, k], label="command")
        left.set(ylabel=AXES[k], xlabel="time in the log [s]")
        right.set(xlabel="simulated: step at 0, push at 1 s", ylabel="rate [rad/s]")
        for label, path in paths.items() if k in known else ():
            right.plot(path.t, path.state.omega[:, k], label=f"{label} gains")
        left.legend()
        right.legend() if k in known else right.text(0.5, 0.5, "no result", ha="center")
    figure.savefig("log_to_gains.png", dpi=110)
    content = base64.b64encode(Path("log_to_gains.png").read_bytes()).decode()
    return f'<img src="data:image/png;base64,{content}">'


def main():
    """Read, identify, design, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--inertia", type=float, nargs=3)
    parser.add_argument("--mass", type=float)
    parser.add_argument("--disk", type=float, default=0.9)
    options = parser.parse_args()
    read = px4 if options.log.suffix.lower() == ".ulg" else ardupilot
    t, u, rate, thrust, gains, cutoff = read(options.log)
    h = t[1] - t[0]
    lines = [f"{options.log.name}: {t[-1] - t[0]:.0f} s of flight, u every {1e3 * h:.0f} ms"]
    if options.mass:
        lines += [f"thrust {9.80665 * options.mass / np.median(thrust):.3g} N at u = 1, if linear"]
    if not options.inertia:
        lines += ["All torques are per inertia, which no log reveals: see --inertia."]
    found = [identified(u[:, k], rate[:, k], h) for k in range(3)]
    known = [k for k in range(3) if not found[k][1] and np.isfinite(gains[k]).all()]
    sets, loops, paths, plant = {}, {}, {}, ()
    if known:
        index = np.array([k if k in known else known[0] for k in range(3)])  # others copy one
        k, lag, delay = np.stack([found[k][0][:3] for k in index], axis=1)
        wait, turn = np.round(delay / DT).astype(int), 2 * np.pi * DT * cutoff[index]
        plant = jax.tree.map(jnp.asarray, (k, lag, wait, turn / (1 + turn)))
        sets["log"] = jnp.asarray(gains[index])
        sets["better"] = better(sets["log"], plant, options.disk)
    for label, new in sets.items():
        place = 0.0, REST, DT, (*plant, new, 0.0), CONTROLLER
        loops[label] = jq.control.margins(jq.rkmk2, BODY, torque, *place, inputs=jnp.zeros(3))
        paths[label] = fly(new, plant)
    for k, (x, reason) in enumerate(found):
        lines += (
            [f"{AXES[k]}: no result. {reason}"]
            if reason
            else [
                f"{AXES[k]}: torque over inertia {x[0]:.3g} +- {x[3]:.2g} rad/s^2 at u = 1",
                "  lag {:.0f} +- {:.0f} ms, delay {:.0f} +- {:.0f} ms".format(
                    *1e3 * x[[1, 4, 2, 5]]
                ),
            ]
        )
        if options.inertia and not reason:
            lines += [f"  torque {x[0] * options.inertia[k]:.3g} N m at u = 1"]
        for label, m in loops.items() if k in known else ():
            terms = [f"{name} {x:.3g}" for name, x in zip("PID", sets[label][k], strict=True)]
            low, high, phase = *m.gain[k], np.rad2deg(m.phase[k])
            text = f"margins of gain {low:.2f} to {high:.2f}, phase {phase:.0f} deg, "
            text += f"delay {1e3 * m.delay[k]:.0f} ms, disk {m.disk[k]:.2f}"
            lines += [f"  {label} gains {', '.join(terms)}: {text}"]
    print("\n".join(lines))
    page, text = f"{options.log.stem}_gains.html", html.escape("\n".join(lines))
    head = f'<!doctype html><meta charset="utf-8"><title>Gains</title><pre>{text}</pre>'
    Path(page).write_text(head + drawn(t, u, rate, paths, known))
    print(f"written to {page}")


if __name__ == "__main__":
    main()
