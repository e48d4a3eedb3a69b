"""Fly the policy of examples/train_policy.py in crazyflow's own dynamics.

    python examples/train_policy.py            # writes policy.bin
    pip install crazyflow flatbuffers          # in any environment: jaxquat is not needed
    python benchmarks/policy_crazyflow.py [policy.bin] [--worlds 1024]

crazyflow (PyPI) simulates the same Crazyflie with its own first-principles model, integrated by its
RK4 at 500 Hz: unlike in training, the rotors have momentum, spin up and down at different rates and
have thrust curves with a linear part, and the air is at rest. The sensors' noise, the two samples
of delay, the starts and the criterion are those of the training.
"""

import argparse
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import crazyflow.sim.functional as crazy  # noqa: E402  # pyright: ignore[reportMissingImports]
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from crazyflow.control import Control  # noqa: E402  # pyright: ignore[reportMissingImports]
from crazyflow.dynamics import Dynamics  # noqa: E402  # pyright: ignore[reportMissingImports]
from crazyflow.sim import Sim  # noqa: E402  # pyright: ignore[reportMissingImports]
from crazyflow.sim.integration import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    Integrator,
)
from jax import export  # noqa: E402
from jax.scipy.spatial.transform import Rotation  # noqa: E402

HOLD = jnp.array([0.0, 0.0, 100.0])  # m, far from crazyflow's floor
THRUST = 0.2  # N, of a rotor at full speed
NOISE = jnp.repeat(jnp.array([0.01, 0.03, 0.01, 0.05]), 3)  # m, m/s, rad, rad/s


def placed(sim, n, hover, rng):
    """Return crazyflow's data at random starts."""
    cube = lambda size: size * rng.uniform(-1.0, 1.0, (n, 3))  # noqa: E731
    q = rng.normal(size=(n, 4))
    values = {
        "pos": HOLD + cube(0.7),
        "vel": cube(0.7),
        "ang_vel": cube(2.0),
        "quat": q / np.linalg.norm(q, axis=1, keepdims=True),
        "rotor_vel": np.full((n, 4), hover),
    }
    values = {name: jnp.asarray(x, jnp.float32)[:, None] for name, x in values.items()}
    return sim.data.replace(states=sim.data.states.replace(**values))


def main():
    """Print how many starts are held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default="policy.bin", type=Path)
    parser.add_argument("--worlds", type=int, default=1024)
    options = parser.parse_args()
    n = options.worlds
    policy = export.deserialize(bytearray(options.file.read_bytes())).call
    sim = Sim(
        n_worlds=n,
        dynamics=Dynamics.first_principles,
        control=Control.rotor_vel,
        integrator=Integrator.rk4,
        freq=500,
        attitude_freq=500,
        force_torque_freq=500,
    )
    c0, c1, c2 = np.ravel(np.asarray(sim.data.params.rpm2thrust, np.float64))
    speed = lambda thrust: (np.sqrt(c1**2 + 4 * c2 * (thrust - c0)) - c1) / (2 * c2)  # noqa: E731
    full = speed(THRUST)  # rpm
    hover = speed(float(np.ravel(sim.data.params.mass)[0]) * 9.81 / 4) / full

    def sample(carry, normal):
        data, before, last, average, integral = carry
        states = data.states
        shift, slip, turn, spin = jnp.split(NOISE * normal, 4, axis=1)
        position = states.pos[:, 0] - HOLD + shift
        attitude = Rotation.from_quat(states.quat[:, 0])
        seen = (attitude * Rotation.from_rotvec(turn)).as_matrix().reshape(n, 9)
        body = [position, states.vel[:, 0] + slip, seen, states.ang_vel[:, 0] + spin]
        command = policy(jnp.concatenate([*body, before, last, average, integral], axis=1))
        data = sim._step(crazy.rotor_vel_control(data, full * before[:, None]), n_steps=5)
        average = average + 0.02 * (command - average)
        integral = jnp.clip(integral + 0.01 * jnp.clip(position, -0.5, 0.5), -0.5, 0.5)
        distance = jnp.linalg.norm(data.states.pos[:, 0] - HOLD, axis=1)
        angle = jnp.rad2deg(Rotation.from_quat(data.states.quat[:, 0]).magnitude())
        return (data, last, command, average, integral), (distance, angle)

    began, still = time.perf_counter(), jnp.full((n, 4), hover, jnp.float32)
    data = placed(sim, n, hover * full, np.random.default_rng(0))
    upside_down = np.mean(Rotation.from_quat(data.states.quat[:, 0]).as_matrix()[:, 2, 2] < 0)
    noise = jax.random.normal(jax.random.key(0), (500, n, 12))
    start = (data, still, still, still, jnp.zeros((n, 3)))
    _, (distance, angle) = jax.jit(lambda start: jax.lax.scan(sample, start, noise))(start)
    distance, angle = np.asarray(distance)[400:], np.asarray(angle)[400:]
    held = np.all((distance < 0.2) & (angle < 10.0), axis=0)
    print(f"{np.sum(held)} of {n} held in crazyflow, {100 * np.mean(held):.1f} %", end="; ")
    print(f"{100 * upside_down:.0f} % start upside down; {time.perf_counter() - began:.1f} s")
    for name, values in (("distance [m]", distance), ("angle [deg]", angle)):
        worst = np.round(np.percentile(values.max(axis=0), (50, 95, 99)), 3)
        print(f"largest {name} of the last second, 50, 95 and 99 % of the starts:", *worst)


if __name__ == "__main__":
    main()
