"""Make a pointing budget of a telescope from its sources, and tune its gains to the budget.

    python examples/pointing_budget.py

A satellite of 300 kg m^2 holds its telescope on a star. An exposure takes 10 s, and the next one
begins 100 s later. The sources are the noise of the star tracker and of the gyroscope, a random
torque, the imbalance of three wheels (their torque is ``imbalance speed^2``), and a solar panel,
whose resonance is in the loop. ``dynamics.linearize`` makes the loop of one step, and
``control.pointing`` its transfer functions and the errors that each source leaves: absolute (APE),
of the mean over an exposure (MPE), relative to this mean (RPE), and from one exposure to the next
(PDE). Independent sources add by their mean squares (ECSS-E-ST-60-10C).

The gains that minimise the 99.7 % level of the RPE follow by gradient. The program prints the
budget with the first and with the fitted gains, checks it against a simulation of the loop, and
draws pointing_budget.png. Its levels are those of normal errors. The variance of the RPE is largest
at the ends of an exposure, so that the level of all times is 4 % higher in the simulation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from scipy.optimize import minimize

import jaxquat as jq
from jaxquat import plot
from jaxquat.control import pointing

matplotlib.use("Agg")
import matplotlib.pyplot as plt

jax.config.update("jax_enable_x64", True)

BODY = jq.Body.from_principal(jnp.array([300.0, 250.0, 200.0]))  # kg m^2
PANEL = jq.dynamics.flexible_modes(
    frequency=jnp.array([2 * np.pi * 0.3]),  # rad/s
    ratio=jnp.array([0.005]),
    translation=jnp.zeros((1, 3)),
    rotation=jnp.array([[7.0, 0.0, 0.0]]),  # m sqrt(kg): a sixth of the moment
)
LEVEL, DT = jnp.array([1.0, 0.0, 0.0, 0.0]), 0.1  # s
STILL = jq.State(LEVEL, jnp.zeros(3), (jnp.zeros(1), jnp.zeros(1)))
WINDOW, DRIFT, PROBABILITY = 10.0, 100.0, 0.997  # s, s
TRACKER, GYRO, TORQUE = 1e-5, 5e-6, 2e-3  # rad, rad/s, N m: deviations of the samples
SPEEDS = jnp.array([3.0, 11.0, 26.0])  # rad/s, of the wheels
IMBALANCE = 2e-5  # kg m^2: dynamic, of each wheel
FREQUENCY = np.unique(
    np.concatenate([[0.0], np.geomspace(1e-5, 5.0, 600), np.linspace(0.25, 0.4, 300)])
)  # Hz, with the resonance
FIRST = jnp.log(jnp.array([60.0, 150.0]))  # N m/rad, N m s/rad
MICRO = 1e6
AXIS = 0  # whose budget it is


def loop(logarithms):
    """Return the matrices of a step, from the three noises of the axis to its attitude error."""
    stiffness, damping = jnp.exp(logarithms)
    gains = jq.control.Gains(damping * jnp.ones(3), stiffness * jnp.ones(3))

    def torque(t, state, noise):
        tracker, gyro, disturbance = jnp.zeros((3, 3)).at[:, AXIS].set(noise)
        measured = state._replace(
            q=jq.quaternion.multiply(state.q, jq.quaternion.exp(tracker)),
            omega=state.omega + gyro,
        )
        tau = jq.control.quaternion_law(measured, gains, LEVEL) + disturbance
        bend, speed = state.aux
        tau, acceleration = jq.dynamics.coupled(BODY, PANEL, state, bend, speed, tau)
        return tau, (speed, acceleration)

    a, b = jq.dynamics.linearize(jq.rkmk2, BODY, torque, 0.0, STILL, DT, jnp.zeros(3))
    return a, b, jnp.eye(len(a))[AXIS : AXIS + 1]


def budget(logarithms):
    """Return the mean squares of the errors [rad^2], each with a number for each source."""
    matrices = loop(logarithms)
    deviations = jnp.array([TRACKER, GYRO, TORQUE])
    h = jnp.abs(pointing.transfer(*matrices, FREQUENCY, DT))[:, 0]
    noise = pointing.from_spectrum(FREQUENCY, 2 * DT * (h * deviations) ** 2, WINDOW, drift=DRIFT)
    wheels = SPEEDS / (2 * np.pi)
    amplitude = IMBALANCE * SPEEDS**2
    h = jnp.abs(pointing.transfer(*matrices, wheels, DT))[:, 0, 2]
    power = jnp.diag((h * amplitude) ** 2 / 2)  # a source for each wheel
    imbalance = pointing.from_spectrum(wheels, power, WINDOW, drift=DRIFT, lines=True)
    both: Any = zip(noise[:4], imbalance[:4], strict=True)
    return pointing.Errors(*(jnp.concatenate(pair) for pair in both))


def level(squares):
    """Return the level of a normal error that a share of 99.7 % does not exceed [urad]."""
    return MICRO * jnp.sqrt(2.0 * jnp.sum(squares)) * jax.scipy.special.erfinv(PROBABILITY)


def simulate(logarithms, members=256, seconds=400.0):
    """Return the errors of members of the linear loop with noise and wheels, (members, N) [rad]."""
    a, b, c = loop(logarithms)
    steps = round(seconds / DT)
    t = DT * jnp.arange(steps)

    def member(key):
        noise, phase = jax.random.split(key)
        phases = jax.random.uniform(phase, (3,), maxval=2 * np.pi)
        shake = jnp.sum(IMBALANCE * SPEEDS**2 * jnp.sin(t[:, None] * SPEEDS + phases), axis=1)
        inputs = jax.random.normal(noise, (steps, 3)) * jnp.array([TRACKER, GYRO, TORQUE])
        inputs = inputs.at[:, 2].add(shake)

        def step(x, row):
            return a @ x + b @ row, (c @ x)[0]

        return jax.lax.scan(step, jnp.zeros(len(a)), inputs)[1]

    return jax.jit(jax.vmap(member))(jax.random.split(jax.random.key(2), members))


SOURCES = (
    "star tracker",
    "gyroscope",
    "random torque",
    *(f"wheel at {s:.0f} rad/s" for s in SPEEDS),
)


def print_budget(title, logarithms, errors):
    """Print the root mean square of each source, and the levels of their sum."""
    stiffness, damping = np.exp(logarithms)
    print(f"{title}: stiffness {stiffness:.1f} N m/rad, damping {damping:.1f} N m s/rad")
    print("rms [urad]               APE       MPE       RPE       PDE")
    for k, source in enumerate(SOURCES):
        print(f"{source:18}", *(f"{MICRO * np.sqrt(x[k]):9.4f}" for x in errors[:4]))
    print(f"{'99.7 % of the sum':18}", *(f"{level(x):9.2f}" for x in errors[:4]))


def print_check(logarithms):
    """Print the levels of a simulation, with their intervals over the members."""
    late = simulate(logarithms)[:, -2000:]  # 200 s
    windows = round(WINDOW / DT), round(DRIFT / DT)
    errors = jax.vmap(lambda x: pointing.errors(x, windows[0], drift=windows[1]))(late)
    for name in ("ape", "mpe", "rpe", "pde"):
        values = getattr(errors, name).reshape(len(late), -1)
        found, low, high = (MICRO * x for x in pointing.percentile(values, PROBABILITY))
        print(
            f"  simulated {name.upper()}: {found:.3f} urad, 95 % interval {low:.3f} to {high:.3f}"
        )


def draw(gains, file):
    """Draw densities, weights and budgets with the first and the fitted gains."""
    figure, axes = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
    deviations = np.array([TRACKER, GYRO, TORQUE])
    for (name, logarithms), line in zip(gains.items(), ("--", "-"), strict=True):
        h = np.abs(pointing.transfer(*loop(logarithms), FREQUENCY[1:], DT))[:, 0]
        density = MICRO * np.sqrt(2 * DT * np.sum((h * deviations) ** 2, axis=1))
        axes[0].loglog(FREQUENCY[1:], density, line, color=plot.COLOURS[0], label=f"{name} gains")
    f = np.geomspace(1e-3, 5.0, 2000)
    axes[0].loglog(f, 1 - np.sinc(f * WINDOW) ** 2, color=plot.COLOURS[1], label="weight of RPE")
    axes[0].set(xlabel="frequency [Hz]", ylabel="error [urad/sqrt(Hz)]", ylim=(1e-3, 100.0))
    axes[0].legend()
    place = np.arange(len(SOURCES) + 1)
    for k, (name, logarithms) in enumerate(gains.items()):
        squares = budget(logarithms).rpe
        rms = MICRO * np.sqrt(np.append(squares, np.sum(squares)))
        axes[1].barh(place + 0.4 * k, rms, 0.4, color=plot.COLOURS[k], label=f"{name} gains")
    axes[1].set_yticks(place + 0.2, [*SOURCES, "all"])
    axes[1].set(xscale="log", xlabel="RPE over 10 s, rms [urad]")
    axes[1].invert_yaxis()
    axes[1].legend()
    figure.savefig(file, dpi=130)


def main():
    """Print the budget, fit the gains, check and draw."""
    errors = jax.jit(budget)
    print_budget("first gains", FIRST, errors(FIRST))
    loss = jax.jit(jax.value_and_grad(lambda logarithms: level(budget(logarithms).rpe)))
    fitted = minimize(loss, FIRST, jac=True, method="BFGS", options={"gtol": 1e-4})
    print()
    print_budget("fitted gains", fitted.x, errors(fitted.x))
    print_check(fitted.x)
    draw({"first": FIRST, "fitted": jnp.asarray(fitted.x)}, "pointing_budget.png")
    print("drawn to pointing_budget.png")


if __name__ == "__main__":
    main()
