"""Fit the model of ``nanodrone_model``: first the physics, then the memory beside it.

Motor speeds are sampled at 100 Hz from a loop that is faster, so their slow part is mostly noise,
and a fit over long windows finds a torque per speed that is several times too small. So the physics
comes from short windows of flights that turn fast, where the noise is small. The memory comes from
long windows of the others, and corrects the slow part. So does the drag of the rotors: in short
windows it changes the velocity too little.
"""

import jax
import jax.numpy as jnp
import numpy as np
from nanodrone_model import SPEED, STEPS, Model, errors, first_guess, predict, windows

import jaxquat as jq

AGILE = 1.5  # rad/s: a flight turns fast if a rate held for half a second is off by more
SHARES = {"rates": 1.0, "attitude": 0.7, "velocity": 0.3, "position": 0.3}
PHYSICS_STEPS = np.array([2, 4, 6, 8, 10, 12, 15])
MEMORY_STEPS = np.array([1, 2, 4, 6, 8, 11, 14, 17, 20, 25, 30, 35, 40, 45, 50])


def held(flight):
    """Return the mean error of the rates held for half a second."""
    omega = flight["omega"]
    return np.linalg.norm(omega[STEPS:] - omega[:-STEPS], axis=1).mean()


def chosen(flights, steps, stride):
    """Return windows of all flights, with the errors of holding at ``steps`` as their scale."""
    parts = []
    for flight in flights:
        starts = np.arange(110, len(flight["t"]) - STEPS - 12, stride)
        part = windows(flight, starts)
        hold = jax.vmap(lambda x: errors(constant(x), x["truth"]))(part)
        scale = {k: jnp.linalg.norm(v, axis=-1).mean(0)[steps - 1] for k, v in hold.items()}
        part["scale"] = {k: np.tile(v, (len(starts), 1)) for k, v in scale.items()}
        parts.append(part)
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def constant(window):
    """Return the prediction that holds the state."""
    names = ("position", "velocity", "q", "omega")
    return tuple(jnp.tile(window[name], (STEPS + 1, 1)) for name in names)


def residuals_at(steps, predict=predict):
    """Return ``residuals(model, data)``, whose squares sum to lengths of errors over held ones."""

    def of_window(model, window):
        found = errors(predict(model, window), window["truth"])
        parts = []
        for name, share in SHARES.items():
            x = found[name][steps - 1] / window["scale"][name][:, None]
            parts.append(share * x * (jnp.sum(x * x, -1, keepdims=True) + 0.01) ** -0.25)
        return jnp.concatenate(parts, axis=-1)

    return lambda model, data: jnp.ravel(jax.vmap(of_window, (None, 0))(model, data))


def fit(flights, report, steps=12):
    """Fit in four steps; ``report(name, model, result)`` receives each."""
    agile = [flight for flight in flights if held(flight) > AGILE]
    calm = [flight for flight in flights if held(flight) <= AGILE]
    guess, short, long = first_guess(), residuals_at(PHYSICS_STEPS), residuals_at(MEMORY_STEPS)

    def bare(residuals):
        return lambda physics, data: residuals(Model(physics, None), data)

    options = jq.LeastSquaresOptions(max_steps=16, ftol=1e-4, progress=False)
    physics = jq.least_squares(
        bare(short), guess.physics, chosen(agile, PHYSICS_STEPS, 6), options=options
    )
    model = guess._replace(physics=physics.params)
    report("physics", model, physics)
    print(physics.covariance, physics.predict(constants), sep="\n", flush=True)
    data = chosen(calm, MEMORY_STEPS, 36)
    slow = jq.least_squares(bare(long), guess.physics, data, options=options)
    report("physics, long windows", guess._replace(physics=slow.params), slow)
    free = [name for name in model.memory._fields if name != "start"]
    for name, fields in {"memory": free, "memory, estimated start": ["start"]}.items():
        model, result = improved(model, fields, long, data, steps)
        report(name, model, result)


def constants(physics):
    """Return what is known of a Crazyflie by other means: compare these numbers."""
    inertia = jq.Body.from_parameters(physics.inertia).inertia
    moments = jnp.diag(inertia)
    return {
        "moments [1e-5 kg m^2]": 1e5 * moments,
        "thrust [1e-8 N s^2]": 1e8 * jnp.mean(physics.thrust) / SPEED**2,
        "drag over thrust [mm]": 1e3 * physics.drag / jnp.mean(physics.thrust),
        "rotor [1e-8 kg m^2]": 1e8 * physics.momentum / SPEED,
        "roll and pitch by velocity [rad/s^2 per m/s]": jnp.stack(
            [physics.flow[0, 1] / moments[0], physics.flow[1, 0] / moments[1]]
        ),
    }


def improved(model, free, residuals, data, steps):
    """Return the model with ``air`` and these fields of its memory fitted, and the fit."""

    def put(values):
        memory = {name: values[name] for name in free}
        physics = model.physics._replace(air=values["air"])
        return Model(physics, model.memory._replace(**memory))

    values = {name: getattr(model.memory, name) for name in free} | {"air": model.physics.air}
    options = jq.LeastSquaresOptions(max_steps=steps, ftol=1e-4, progress=False)
    result = jq.least_squares(
        lambda values, data: residuals(put(values), data), values, data, options=options
    )
    return put(result.params), result
