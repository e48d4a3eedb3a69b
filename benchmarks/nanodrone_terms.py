"""What further terms give to the model of ``nanodrone.py``, and how much noise leaves.

    python benchmarks/nanodrone_terms.py --train FILES --test FILES [--write]

FILES are those of ``nanodrone.py``. Each term stands alone beside the stored "memory, estimated
start", whose parameters stay as they are, and is fitted to windows of the training flights. Every
fourth of these flights only decides when the fits by gradient stop.

"Battery" are factors of thrust and torques, and torques, linear in the voltage at the start.
"Ground effect" is a factor of thrust, and one of roll and pitch, linear in (R/z)^2 with the radius
R of a rotor and the height z. "Network" gives an angular acceleration and a force from the signals
of the model and their low-passed past, by 16 neurons. "Recurrent" is linear: eight states that
decay with fitted time constants, from 0 at the start of a window, driven by the same signals.

The last rows are floors. The noise is white and estimated from third differences of the samples,
where a signal that is smooth over 40 ms leaves nothing: no white noise is larger, but slow noise
may be. Its row is the change of the prediction by noise in the first rates and attitude, or in the
speeds of the motors. "Repeated flight" predicts the changes of another flight along the same path,
at the shift in time at which the positions differ least: what the path alone determines.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from nanodrone import BATCH, PAGE, STORED, mean_errors, parser_of, put, stored, summary
from nanodrone_fit import MEMORY_STEPS, chosen, constant, residuals_at
from nanodrone_model import (
    MASS,
    QUADRATIC,
    STEPS,
    UP,
    basis,
    by_cause,
    predict,
    prepared,
    read,
    run,
    windows,
    wrench,
)

import jaxquat as jq

RADIUS, VOLTS, NEURONS, STATES = 0.023, 3.6, 16, 8  # m, V
NOW, SIGNALS, STRIDE, EVERY, UPDATES = 11, 51, 24, 4, 1500
SHIFTS = np.arange(-10, 11)  # samples between repeated flights


def signals(state, row, gains):
    """Return the model's signals and their low-passed past (51,), near 1, and the motors' turn."""
    back = jq.quaternion.conjugate(state.q)
    v, up = (jq.quaternion.rotate(back, x) for x in (state.velocity, jnp.array(UP)))
    motors = by_cause(gains, basis(row[:4], row[4:], v, state.omega)[:QUADRATIC])[0]
    past = [jnp.ravel(x) for x in (0.1 * state.aux[0], *state.aux[1:3])]
    return jnp.concatenate([0.1 * motors, v, state.omega, up[:2], *past]), motors


# Each term returns an angular acceleration, a force in body axes, and the rates of its states.


def battery(extra, signals, motors, lift, height, volts, memory):
    """Return what a voltage other than ``VOLTS`` at the start changes."""
    off = volts - VOLTS
    turn = off * (extra["motors"] * motors + extra["torque"])
    return turn, off * extra["thrust"] * lift, 0 * memory


def ground(extra, signals, motors, lift, height, volts, memory):
    """Return what the ground changes."""
    near = (RADIUS / height) ** 2
    turn = near * extra["motors"] * motors * jnp.array([1.0, 1.0, 0.0])
    return turn, near * extra["thrust"] * lift, 0 * memory


def network(extra, signals, motors, lift, height, volts, memory):
    """Return the output of a network with one hidden layer."""
    out = extra["out"] @ jnp.tanh(extra["in"] @ signals + extra["bias"])
    return out[:3], MASS * out[3:], 0 * memory


def recurrent(extra, signals, motors, lift, height, volts, memory):
    """Return the output of linear states."""
    change = extra["in"] @ signals[:NOW] - jnp.exp(extra["rates"]) * memory
    return extra["out"] @ memory, jnp.zeros(3), change


def first_terms():
    """Return the terms with their first parameters, by name."""
    first, second = jax.random.split(jax.random.key(0))
    layer = 0.15 * jax.random.normal(first, (NEURONS, SIGNALS))
    drive = 0.5 * jax.random.normal(second, (STATES, NOW))
    rates = jnp.log(jnp.geomspace(1.0, 30.0, STATES))  # 1/s
    linear = {"motors": jnp.zeros(3), "torque": jnp.zeros(3), "thrust": jnp.zeros(())}
    layers = {"in": layer, "bias": jnp.zeros(NEURONS), "out": jnp.zeros((6, NEURONS))}
    states = {"in": drive, "rates": rates, "out": jnp.zeros((3, STATES))}
    return {
        "battery at the start": (battery, linear),
        "ground effect": (ground, {"motors": jnp.zeros(()), "thrust": jnp.zeros(())}),
        "network": (network, layers),
        "recurrent": (recurrent, states),
    }


def with_term(model, term):
    """Return ``predict(extra, window)`` with a term beside the model."""

    def torque(t, state, params, row):
        base, extra, volts = params
        known, memory = state.aux
        bare = state._replace(aux=known)
        both: Any = wrench(t, bare, base, row)  # with a memory
        wanted, rates = both
        given, motors = signals(bare, row, base[3])
        lift = jnp.array(UP) * jnp.sum(base[0].physics.thrust * row[:4] ** 2)
        height = state.position[2]
        turn, push, change = term(extra, given, motors, lift, height, volts, memory)
        force = wanted.force + jq.quaternion.rotate(state.q, push)
        return jq.Wrench(wanted.torque + base[1] @ turn, force), (rates, change)

    def predicted(extra, window):
        body, start, base = prepared(model, window)
        start = start._replace(aux=(start.aux, jnp.zeros(STATES)))
        return run(torque, body, start, (base, extra, window["battery"]), window["motors"])

    return predicted


def fitted(predicted, extra, data, kept):
    """Return the fit: of few numbers by least squares, of many by Adam, the best on ``kept``."""
    residuals = residuals_at(MEMORY_STEPS, predicted)
    if sum(x.size for x in jax.tree.leaves(extra)) < 20:
        options = jq.LeastSquaresOptions(max_steps=6, ftol=1e-4, progress=False)
        return jq.least_squares(residuals, extra, data, options=options)

    def loss(extra, data, key=None):
        return jnp.mean(residuals(extra, data) ** 2)

    return jq.fit(
        loss,
        extra,
        optax.adam(optax.cosine_decay_schedule(5e-3, UPDATES)),
        data,
        steps=UPDATES,
        key=jax.random.key(1),
        batch_size=256,
        validation=lambda extra: loss(extra, kept),
        options=jq.FitOptions(chunk=50, progress=False),
    )


# Floors.


def noise(x):
    """Return the standard deviation of white noise with these third differences, per column."""
    return np.sqrt(np.mean(np.diff(x, 3, axis=0) ** 2, axis=0) / 20)


def turned(q):
    """Return the sum of the small turns of q (n, 4) as vectors (n - 1, 3)."""
    turns = jq.quaternion.multiply(jq.quaternion.conjugate(q[:-1]), q[1:])
    return np.cumsum(np.asarray(jq.quaternion.log(turns)), axis=0)


def with_noise(flight, window, what, rng):
    """Return windows with noise added to their start or to the speeds of the motors."""
    if what == "motors":
        added = np.zeros_like(window["motors"])
        added[..., :4] = rng.normal(size=added[..., :4].shape) * noise(flight["motors"])
        return window | {"motors": window["motors"] + added}
    shape = window["omega"].shape
    turn = jnp.float32(rng.normal(size=shape) * noise(turned(flight["q"])))
    q = np.asarray(jq.quaternion.multiply(window["q"], jq.quaternion.exp(turn)))
    added = np.float32(rng.normal(size=shape) * noise(flight["omega"]))
    return window | {"omega": window["omega"] + added, "q": q}


def repeated(flight, other, starts):
    """Return the changes of another flight from these starts, added to the states of this one."""
    middle = np.arange(-SHIFTS[0], min(len(flight["t"]), len(other["t"])) - SHIFTS[-1])
    misses = [
        np.mean((flight["position"][middle] - other["position"][middle + s]) ** 2) for s in SHIFTS
    ]
    shifted = np.clip(starts + SHIFTS[np.argmin(misses)], 0, len(other["t"]) - STEPS - 1)
    rows = shifted[:, None] + np.arange(STEPS + 1)
    sums = [
        flight[name][starts][:, None] + other[name][rows] - other[name][rows[:, :1]]
        for name in ("position", "velocity", "omega")
    ]
    turn = jq.quaternion.multiply(
        jq.quaternion.conjugate(other["q"][rows[:, :1]]), other["q"][rows]
    )
    q = np.asarray(jq.quaternion.multiply(flight["q"][starts][:, None], turn))
    return tuple(np.float32(x) for x in (sums[0], sums[1], q, sums[2]))


def batched(flights):
    """Return batches of windows, each a tuple (flight, window), windows with repeated flights."""
    batches = []
    for flight, other in zip(flights, flights[1:] + flights[:1], strict=True):
        starts = np.arange(0, len(flight["t"]) - STEPS, EVERY)
        for first in range(0, len(starts), BATCH):
            part = starts[first : first + BATCH]
            window = windows(flight, part) | {"repeated": repeated(flight, other, part)}
            batches.append((flight, window))
    return batches


def floors(batches, model):
    """Return the errors by noise and of repeated flights, by name."""
    rng, clean = np.random.default_rng(0), jax.jit(jax.vmap(lambda x: predict(model, x)))
    noisy = {"start": [], "motors": []}
    for flight, window in batches:
        position, velocity, q, omega = (np.asarray(x)[:, 1:] for x in clean(window))
        truth = {"position": position, "velocity": velocity, "q": q, "omega": omega}
        for what, parts in noisy.items():
            parts.append(with_noise(flight, window, what, rng) | {"truth": truth})
    rows = {
        f"floor: noise of the {what}": mean_errors(lambda x: predict(model, x), parts)
        for what, parts in noisy.items()
    }
    bare = [window for _, window in batches]
    return rows | {"floor: repeated flight": mean_errors(lambda x: x["repeated"], bare)}


def main():
    """Fit and test each term, print, and write where asked."""
    options = parser_of(__doc__).parse_args()
    model = stored(STORED)["memory, estimated start"]
    flights = [read(file) for file in options.train]
    kept = chosen(flights[3::4], MEMORY_STEPS, STRIDE)
    data = chosen([x for i, x in enumerate(flights) if i % 4 != 3], MEMORY_STEPS, STRIDE)
    batches = batched([read(file) for file in options.test])
    bare = [window for _, window in batches]
    rows = {
        "hold": mean_errors(constant, bare),
        "the model": mean_errors(lambda x: predict(model, x), bare),
    }
    rows |= floors(batches, model)
    print("\n".join(summary(rows)), flush=True)
    for name, (term, extra) in first_terms().items():
        begin, predicted = time.process_time(), with_term(model, term)
        found = fitted(predicted, extra, data, kept)
        minutes = (time.process_time() - begin) / 60
        size = sum(x.size for x in jax.tree.leaves(extra))
        print(f"{name}: {found}", flush=True)
        title = f"{name}: {size} numbers, {minutes:.1f} min"
        rows[title] = mean_errors(lambda x, f=predicted, p=found.params: f(p, x), bare)
        print("\n".join(summary(rows)), flush=True)
    if options.write:
        put(PAGE, "<!-- terms -->", "<!-- end of terms -->", "\n".join(summary(rows)))


if __name__ == "__main__":
    main()
