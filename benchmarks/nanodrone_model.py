"""A model of a nano-quadrotor: its data, its physics, and a linear memory beside the physics.

Nothing here looks ahead: a window uses samples up to its start, and after it the motor speeds.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import butter, lfilter

import jaxquat as jq

DT, STEPS = 0.01, 50  # s, and steps of a prediction
SPEED = 1740.0  # rad/s, near hover: the unit of motor speeds
SPIKE = 3300.0 / SPEED  # faster readings are faults of the telemetry
MASS, ARM, GRAVITY = 0.045, 0.0353, 9.81  # kg, m (of the authors), m/s^2
LEFT = np.array([-1.0, -1.0, 1.0, 1.0])  # of the rotors 1 to 4
FORWARD = np.array([1.0, -1.0, -1.0, 1.0])
SPINS = np.array([1.0, -1.0, 1.0, -1.0])
MEMORY = np.array([0.05, 0.1, 0.2, 0.5, 1.0])  # s, the time constants of the memory
BAND = (4.0, 18.0)  # Hz, where the motors alone explain the rates
DELAYS = np.arange(-4, 43, 2) * 1e-3  # s
USUAL_DELAY, SETTLED = 0.012, 250  # s until that many samples have shown another one
GAINS = np.array([125.0, 107.0])  # rad/s^2 per unit of squared speeds, only to find the delay
UP = np.array([0.0, 0.0, 1.0], np.float32)
TERMS, QUADRATIC = 20, 14  # of the basis of torques, and where omega x (I omega) begins


class Physics(NamedTuple):
    """A rigid body with four rotors; torques in N m for speeds in units of ``SPEED``."""

    inertia: Any  # (6,) of Body.from_parameters
    thrust: Any  # (4,) [N] of each rotor at SPEED
    drag: Any  # () [N m] reaction of a rotor at SPEED
    momentum: Any  # () [N m s] of a rotor at SPEED
    centre: Any  # (2,) [m] centre of mass from the middle of the rotors
    flow: Any  # (3, 3) [N m per m/s] torque of a velocity, body axes
    damping: Any  # (3,) [N m s]
    trim: Any  # (3,) [N m]
    air: Any  # (3,) [N per m/s] drag of the rotors at SPEED


class Memory(NamedTuple):
    """Angular accelerations beside the physics, linear in signals and in their low-passed past."""

    motors: Any  # (3,) share of the acceleration that the motors cause
    spin_up: Any  # () share of the reaction of rotors that change their speed
    flow: Any  # (2,) share of that of the velocity
    rates: Any  # (3,) [1/s]
    tilt: Any  # (2,) [rad/s^2]
    bent: Any  # (3, 2) flow times thrust, climb and speed
    past_motors: Any  # (5, 3), for each time constant
    past_rates: Any  # (5, 3)
    past_tilt: Any  # (5, 2)
    surprise: Any  # (5, 3) of the accelerations that the physics missed before the start
    start: Any  # (5, 3) the same, added to the rates at the start


class Model(NamedTuple):
    """What a prediction needs; ``memory`` may be None."""

    physics: Physics
    memory: Any


def first_guess():
    """Return a symmetric Crazyflie and an empty memory."""
    n = len(MEMORY)
    physics = Physics(
        inertia=np.append(0.5 * np.log([1.9e-5, 1.6e-5, 1.6e-5]), np.zeros(3)),
        thrust=np.full(4, MASS * GRAVITY / 4),
        drag=-3e-4,
        momentum=-1e-4,
        centre=np.zeros(2),
        flow=7e-4 * np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 0]]),
        damping=np.zeros(3),
        trim=np.zeros(3),
        air=np.full(3, 0.02),
    )
    shapes = [(3,), (), (2,), (3,), (2,), (3, 2), (n, 3), (n, 3), (n, 2), (n, 3), (n, 3)]
    guess = Model(physics, Memory(*map(np.zeros, shapes)))
    return jax.tree.map(jnp.float32, guess)


# The data.


def read(file):
    """Return a flight as a dict of float64, motors in units of ``SPEED``, with its delay."""
    with np.load(file) as data:
        flight = {name: data[name].astype(float) for name in data}
    motors = flight["motors"] / SPEED
    for i in range(1, len(motors)):
        motors[i] = np.where(motors[i] > SPIKE, motors[i - 1], motors[i])
    return completed(flight | {"motors": motors})


def completed(flight):
    """Return a flight with velocity and vertical in body axes, and the delay."""
    velocity = into_body(flight["q"], flight["velocity"])
    tilt = into_body(flight["q"], np.tile([0.0, 0.0, 1.0], (len(velocity), 1)))[:, :2]
    flight = flight | {"body velocity": velocity, "tilt": tilt}
    return flight | {"delay": delays(flight)}


def into_body(q, v):
    """Return vectors (n, 3) in body axes."""
    w, u = q[:, :1], -q[:, 1:]
    turned = 2 * np.cross(u, v)
    return v + w * turned + np.cross(u, turned)


def delays(flight):
    """Return for each sample by how much motors are stamped early, from the samples before it.

    Clocks of motors and state were aligned once for each flight. In ``BAND`` the rates are the
    integral of the motors' torque, so the delay is where the two differ least.
    """
    t, squares = flight["t"], flight["motors"] ** 2
    rolls = np.stack([squares @ LEFT, squares @ -FORWARD], 1)
    coefficients: Any = butter(2, np.array(BAND) * 2 * DT, "band")
    filtered: Any = partial(lfilter, *coefficients, axis=0)
    wanted = filtered(flight["omega"][:, :2])
    misses = []
    for delay in DELAYS:
        late = np.stack([np.interp(t - delay, t, column) for column in rolls.T], 1)
        miss = filtered(np.cumsum(late, 0) * DT) * GAINS - wanted
        miss[:110] = 0  # the filters settle
        misses.append(np.cumsum(np.sum(miss**2, 1)))
    misses, k = np.array(misses), np.arange(len(t))
    best = np.clip(np.argmin(misses, 0), 1, len(DELAYS) - 2)
    below, at, above = misses[best - 1, k], misses[best, k], misses[best + 1, k]
    vertex = 0.5 * (below - above) / np.maximum(below - 2 * at + above, 1e-9)
    found = DELAYS[best] + np.clip(vertex, -1, 1) * (DELAYS[1] - DELAYS[0])
    return np.round(np.where(k < SETTLED, USUAL_DELAY, found), 3)


def basis(motors, change, v, omega, xp=jnp):
    """Return the terms (..., 20) in which the torque is linear; v in body axes."""
    spin = xp.sum(motors * SPINS, -1, keepdims=True)
    x, y, z = (omega[..., i : i + 1] for i in range(3))
    parts = [motors * motors, xp.sum(change * SPINS, -1, keepdims=True), v, omega]
    parts += [spin * omega[..., :2], xp.ones_like(x), x * x, y * y, z * z, y * z, x * z, x * y]
    return xp.concatenate(parts, -1)


def low_passed(signal):
    """Return (n, 5, k): the signal (n, k) through each low-pass of the memory."""
    keep = np.exp(-DT / MEMORY)
    rows = [lfilter([1 - a], [1, -a], signal, axis=0, zi=a * signal[:1])[0] for a in keep]
    return np.stack(rows, 1)


def windows(flight, starts=None):
    """Return windows of a flight, a dict of float32 with a leading axis; all starts if None."""
    n = len(flight["t"])
    starts = np.arange(n - STEPS) if starts is None else starts
    names = ("q", "omega", "position", "velocity")
    found = {name: flight[name][starts] for name in names}
    found["battery"] = flight["battery"][starts]
    later = starts[:, None] + np.arange(1, STEPS + 1)
    found["truth"] = {name: flight[name][later] for name in names}
    past_rates = low_passed(flight["omega"])[starts]
    found["past rates"] = past_rates
    found["past slope"] = (flight["omega"][starts][:, None] - past_rates) / MEMORY[:, None]
    found["past tilt"] = low_passed(flight["tilt"])[starts]
    found["motors"] = np.empty((len(starts), STEPS, 8))
    found["past"] = np.empty((len(starts), len(MEMORY), TERMS))
    for delay in np.unique(flight["delay"][starts]):
        rows, past = _delayed(flight, delay)
        here = flight["delay"][starts] == delay
        found["motors"][here] = rows[starts[here][:, None] + np.arange(STEPS)]
        found["past"][here] = past[np.maximum(starts[here] - 1, 0)]
    return jax.tree.map(np.float32, found)


def _delayed(flight, delay):
    """Return speeds and their change (n, 8) over each step, and the low-passed basis."""
    t = flight["t"]

    def at(times):
        return np.stack([np.interp(times, t, x) for x in flight["motors"].T], 1)

    motors, change = at(t + DT / 2 - delay), (at(t + DT - delay) - at(t - delay)) / DT
    terms = basis(motors, change, flight["body velocity"], flight["omega"], np)
    return np.hstack([motors, change]), low_passed(terms)


# The model.


def torque_map(p):
    """Return (3, 14): the torque of ``basis`` without ``omega x (I omega)``."""
    hubs = jnp.stack([ARM * LEFT - p.centre[1], p.centre[0] - ARM * FORWARD])
    motors = jnp.concatenate([hubs * p.thrust, (SPINS * p.drag)[None]])
    spin_up = jnp.zeros((3, 1)).at[2, 0].set(p.momentum)
    gyroscopic = p.momentum * jnp.array([[0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])
    parts = [motors, spin_up, p.flow, -jnp.diag(p.damping), gyroscopic, p.trim[:, None]]
    return jnp.concatenate(parts, axis=1)


def turning_map(inertia):
    """Return (3, 6): minus ``omega x (I omega)`` of the last terms of ``basis``."""
    (a, d, e), (_, b, f), (_, _, c) = inertia
    rows = [
        [0 * a, -f, f, b - c, d, -e],
        [e, 0 * a, -e, -d, c - a, f],
        [-d, d, 0 * a, e, -f, a - b],
    ]
    return jnp.stack([jnp.stack(row) for row in rows])


def wrench(t, state, params, row):
    """Return the wrench of the physics, and with a memory also the rates of its low-passes."""
    (p, memory), inertia, torques, gains = params
    v, up = (
        jq.quaternion.rotate(jq.quaternion.conjugate(state.q), x) for x in (state.velocity, UP)
    )
    terms = basis(row[:4], row[4:], v, state.omega)[:QUADRATIC]
    lift = jnp.array(UP) * jnp.sum(p.thrust * row[:4] ** 2)
    force = lift - p.air * v * jnp.mean(row[:4])
    force = jq.quaternion.rotate(state.q, force) - MASS * GRAVITY * jnp.array(UP)
    torque = torques @ terms
    if memory is None:
        return jq.Wrench(torque, force)
    motors, flow, spin_up = by_cause(gains, terms)
    factors = jnp.stack([jnp.mean(row[:4] ** 2) - 1, v[2], jnp.sqrt(jnp.sum(v * v) + 1e-4)])
    flat = memory.flow * flow[:2] + memory.tilt * up[1::-1]
    flat = flat + jnp.sum(memory.bent * factors[:, None], 0) * flow[:2]
    missing = memory.motors * motors + memory.rates * state.omega
    missing = missing + jnp.append(flat, memory.spin_up * spin_up[2])
    missing = missing + recalled(memory, state.aux)
    signals = (motors, state.omega, up[:2], jnp.zeros(3))
    tau = jnp.asarray(MEMORY, jnp.float32)[:, None]
    rates = tuple((now - past) / tau for now, past in zip(signals, state.aux, strict=True))
    return jq.Wrench(torque + inertia @ missing, force), rates


def by_cause(gains, terms):
    """Return the angular accelerations by motors, velocity and spin-up, each (..., 3)."""

    def cause(columns):
        return terms[..., columns] @ gains[:, columns].T

    return cause(np.array([0, 1, 2, 3, 13])), cause(np.array([5, 6, 7])), cause(np.array([4]))


def recalled(memory, past):
    """Return the accelerations (3,) of the low-passed signals."""
    motors, omega, up, surprise = past
    total = memory.past_motors * motors + memory.past_rates * omega + memory.surprise * surprise
    return jnp.sum(total, 0) + jnp.append(jnp.sum(memory.past_tilt * up[:, ::-1], 0), 0.0)


def prepared(model, window):
    """Return the body, the start and the params of ``wrench`` for one window."""
    body = jq.Body.from_parameters(model.physics.inertia, mass=jnp.float32(MASS))
    torques, inverse = torque_map(model.physics), jnp.linalg.inv(body.inertia)
    gains = inverse @ jnp.concatenate([torques, turning_map(body.inertia)], axis=1)
    omega, aux = window["omega"], ()
    if model.memory is not None:
        surprise = window["past slope"] - window["past"] @ gains.T
        motors = by_cause(gains, window["past"])[0]
        aux = (motors, window["past rates"], window["past tilt"], surprise)
        omega = omega + jnp.sum(model.memory.start * surprise, axis=0)
    start = jq.State(window["q"], omega, aux, window["position"], window["velocity"])
    return body, start, (model, body.inertia, torques, gains)


def predict(model, window):
    """Return position, velocity, q and omega (51, .) of one window."""
    return run(wrench, *prepared(model, window), window["motors"])


def run(torque, body, start, params, rows):
    """Return position, velocity, q and omega of a rollout."""

    def save(t, state, *_):
        return state.position, state.velocity, state.q, state.omega

    grid, options = jq.grid(0.0, DT, len(rows)), jq.RolloutOptions(save=save)
    path = jq.rollout(jq.rkmk2, body, torque, start, grid, params, inputs=rows, options=options)
    return path.saved


def errors(prediction, truth):
    """Return the errors (50, 3) of one window after each step; of q as a rotation vector."""
    position, velocity, q, omega = (x[1:] for x in prediction)
    turn = jq.quaternion.multiply(jq.quaternion.conjugate(q), truth["q"])
    return {
        "rates": omega - truth["omega"],
        "attitude": jq.quaternion.log(turn),
        "velocity": velocity - truth["velocity"],
        "position": position - truth["position"],
    }
