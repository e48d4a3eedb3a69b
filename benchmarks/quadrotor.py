"""Fly crazyflow's quadrotor beside the same one in jaxquat: steps a second, and errors.

    pip install crazyflow==0.4.0
    python benchmarks/quadrotor.py [--bodies 1 64 1024 16384] [--tables speed accuracy]

crazyflow (PyPI) has drones in JAX. Its first-principles model has motors with a lag of their own,
thrust and drag torque of each rotor, the gyroscopic and reaction torques of the rotors, and a drag
of the air; its attitude controller is Mellinger's at 500 Hz. Both programs here compute this model
with the parameters that crazyflow has, each step with one call of the controller.

The first table has millions of steps a second in float32, crazyflow's Euler and RK4 beside
``rkmk4`` by the scan and by the fused engine, in one run. The second has the largest error of the
attitude after a second of a manoeuvre with given motor speeds, in float64, and the wall time, with
50 to 500 steps a second.
"""

import argparse
import os
import time
import warnings
from functools import partial
from importlib import metadata

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

import jaxquat as jq  # noqa: E402

RATE = 500  # Hz, of the controller
PER_MINUTE = 2 * np.pi / 60  # rad/s


def simulator(bodies, integrator, control=Control.attitude, rate=RATE):
    """Return crazyflow's simulator of one drone in each of several worlds."""
    return Sim(
        n_worlds=bodies,
        dynamics=Dynamics.first_principles,
        control=control,
        integrator=integrator,
        freq=rate,
        attitude_freq=min(rate, RATE),
        force_torque_freq=min(rate, RATE),
    )


def one(tree):
    """Return the parameters of one drone, without the axes of worlds and motors that are 1."""
    return jax.tree.map(lambda x: jnp.squeeze(jnp.asarray(x)), tree)


def plant(parameters):
    """Return body and torque of crazyflow's model; aux has the rotor speeds [rpm]."""
    p = parameters
    body = jq.Body(p.J, mass=p.mass)
    spin = p.mixing_matrix[2]

    def torque(t, state, params, command):
        speeds = state.aux
        up, quick, down, steep = p.rotor_dyn_coef
        lag, square = command - speeds, command**2 - speeds**2
        change = jnp.where(lag > 0, up * lag + quick * square, down * lag + steep * square)
        f0, f1, f2 = p.rpm2thrust
        t0, t1, t2 = p.rpm2torque
        thrust = f0 + f1 * speeds + f2 * speeds**2
        moments = p.mixing_matrix @ (p.L * thrust)
        yaw = spin @ (t0 + t1 * speeds + t2 * speeds**2)
        momentum, gained = (p.prop_inertia * PER_MINUTE * (spin @ x) for x in (speeds, change))
        x, y, _ = state.omega
        tau = jnp.stack([moments[0] + y * momentum, moments[1] - x * momentum, yaw + gained])
        drag = p.drag_matrix @ jq.quaternion.rotate_inverse(state.q, state.velocity)
        push = drag + jnp.sum(thrust) * jnp.array([0.0, 0.0, 1.0], drag.dtype)
        force = jq.quaternion.rotate(state.q, push) + p.mass * p.gravity_vec
        return jq.Wrench(tau, force), change

    return body, torque


def mellinger(attitude, motors):
    """Return crazyflow's attitude controller; it commands rotor speeds [rpm]."""
    a, m = attitude, motors

    def begin(start, params):
        return jnp.zeros_like(start.omega), jnp.zeros_like(start.omega)

    def update(t, state, memory, params, _):
        integral, before = memory
        wanted, force = params
        turned = jq.quaternion.to_matrix(jq.quaternion.relative(wanted, state.q))
        skew = turned - turned.T
        error = jnp.stack([skew[2, 1], skew[0, 2], skew[1, 0]])
        slope = -(state.omega - before) * RATE * jnp.array([1.0, 1.0, 0.0], error.dtype)
        integral = jnp.clip(integral - error / RATE, -a["int_err_max"], a["int_err_max"])
        moment = -a["kR"] * error - a["kw"] * state.omega + a["ki_m"] * integral
        moment = moment + a["kd_omega"] * slope
        moment = jnp.clip(moment, -a["torque_pwm_max"], a["torque_pwm_max"])
        share = jnp.array([0.5, 0.5, 1.0], moment.dtype)
        pwm = force / 4 / a["thrust_max"] * a["pwm_max"] + (share * moment) @ a["mixing_matrix"]
        thrust = jnp.clip(pwm, a["pwm_min"], a["pwm_max"]) / a["pwm_max"] * a["thrust_max"]
        arms = jnp.stack([a["L"], a["L"], a["thrust2torque"]])
        tau = arms * (a["mixing_matrix"] @ thrust)
        tau = tau / jnp.stack([m["L"], m["L"], m["thrust2torque"]])
        thrust = jnp.clip(
            (tau @ m["mixing_matrix"] + jnp.sum(thrust)) / 4, m["thrust_min"], m["thrust_max"]
        )
        c, b, a2 = m["rpm2thrust"]
        speeds = (-b + jnp.sqrt(b * b - 4 * a2 * (c - thrust))) / (2 * a2)
        return speeds, (integral, state.omega)

    return jq.Controller(begin, update)


def starts_of(bodies, parameters, dtype):
    """Return random starts at 100 m, with the motors near hovering, and the commands."""
    rng = np.random.default_rng(5)
    f0, f1, f2 = np.asarray(parameters.rpm2thrust, np.float64)
    hover = float(parameters.mass) * 9.81 / 4
    speed = (-f1 + np.sqrt(f1 * f1 + 4 * f2 * (hover - f0))) / (2 * f2)
    angles = rng.uniform(-0.3, 0.3, (bodies, 3))
    as_array = lambda x: jnp.asarray(x, dtype)  # noqa: E731
    start = jq.State(
        jax.vmap(jq.quaternion.exp)(as_array(0.3 * rng.normal(size=(bodies, 3)))),
        as_array(rng.normal(size=(bodies, 3))),
        as_array(speed * rng.uniform(0.95, 1.05, (bodies, 4))),
        as_array(np.array([0.0, 0.0, 100.0]) + np.zeros((bodies, 3))),
        as_array(rng.normal(size=(bodies, 3))),
    )
    force = 4 * hover * rng.uniform(0.9, 1.1, bodies)
    return start, as_array(angles), as_array(force), speed


def placed(sim, start):
    """Return crazyflow's data at these starts."""
    states = sim.data.states.replace(
        pos=start.position[:, None],
        quat=jnp.roll(start.q, -1, axis=-1)[:, None],
        vel=start.velocity[:, None],
        ang_vel=start.omega[:, None],
        rotor_vel=start.aux[:, None],
    )
    return sim.data.replace(states=states)


def ours(parameters, controller, grid, engine, scheme=jq.rkmk4):
    """Return a program of the last states of all bodies."""
    body, torque = plant(parameters)

    def fly(start, params):
        return jq.rollout(
            scheme, body, torque, start, grid, params,
            controller=controller, options=jq.RolloutOptions(engine=engine),
        ).final  # fmt: skip

    return jax.jit(jax.vmap(fly))


def timed(run, repeats=5):
    """Return the least seconds of several runs, after one that compiles."""
    jax.block_until_ready(run())
    least = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        least = min(least, time.perf_counter() - began)
    return least


def speed(bodies):
    """Print millions of steps a second, and how far the programs are from each other."""
    print("\nMillions of steps a second, float32, controller at every step")
    print(
        "  bodies  crazyflow Euler  crazyflow RK4  rkmk4 scan  rkmk4 fused  fused/Euler  fused/RK4"
    )
    for n in bodies:
        steps = 2000 if n <= 64 else 500 if n <= 1024 else 100
        row, ends = [], []
        for integrator in (Integrator.euler, Integrator.rk4):
            sim = simulator(n, integrator)
            parameters = one(sim.data.params)
            start, angles, force, _ = starts_of(n, parameters, jnp.float32)
            commands = jnp.concatenate([angles, force[:, None]], axis=1)[:, None]
            data = crazy.attitude_control(placed(sim, start), commands)
            run = partial(sim._step, data, n_steps=steps)
            row.append(timed(run))
            ends.append(run().states.quat[:, 0])
        controls = sim.data.controls
        law = mellinger(one(controls.attitude.params), one(controls.force_torque.params))
        wanted = jax.vmap(lambda x: jq.euler.to_quaternion(x, "xyz"))(angles)
        grid = jq.grid(0.0, 1 / RATE, steps, save_every=steps)
        for engine in ("scan", "fused"):
            program = ours(parameters, law, grid, engine)
            run = partial(program, start, (wanted, force))
            row.append(timed(run))
            ends.append(jnp.roll(run().q, -1, axis=-1))
        rates = [n * steps / seconds / 1e6 for seconds in row]
        cells = "".join(f"{x:13.3f}" for x in rates)
        print(f"{n:8d}{cells}{rates[3] / rates[0]:13.1f}{rates[3] / rates[1]:13.1f}")
        apart = [float(jnp.max(angle(x, ends[1]))) for x in ends]
        names = ("Euler", "scan", "fused")
        far = ", ".join(f"{x} {y:.1e}" for x, y in zip(names, (apart[0], *apart[2:]), strict=True))
        print(f"          attitudes after {steps} steps, from crazyflow's RK4 [rad]: {far}")


def angle(p, q):
    """Return the angle [rad] between attitudes, scalar last."""
    return jq.quaternion.distance(jnp.roll(p, 1, axis=-1), jnp.roll(q, 1, axis=-1))


def accuracy(bodies=1024):
    """Print errors and wall times of a second of flight with given motor speeds."""
    print(
        f"\n{bodies} bodies fly for 1 s with given motor speeds, float64: the largest error of an"
    )
    print("attitude [rad] and the wall time [ms]")
    parameters = one(simulator(1, Integrator.rk4, Control.rotor_vel).data.params)
    start, _, _, hover = starts_of(bodies, parameters, jnp.float64)
    wide = np.random.default_rng(6).uniform(0.98, 1.02, (bodies, 4))
    command = hover * jnp.asarray(wide)
    hold = jq.Controller(lambda start, params: (), lambda t, s, m, params, _: (params, m))

    def flown(rate, scheme=jq.rkmk4, engine="fused"):
        grid = jq.grid(0.0, 1 / rate, rate, save_every=rate)
        program = ours(parameters, hold, grid, engine, scheme)
        run = partial(program, start, command)
        return jnp.roll(run().q, -1, axis=-1), run

    reference, _ = flown(4000, jq.rkmk6)
    names = ("crazyflow Euler", "crazyflow RK4", "rkmk4 scan", "rkmk4 fused")
    print("  steps/s" + "".join(f"{name:>18s}" for name in names))
    errors, rates = [], (50, 100, 200, 500)
    for rate in rates:
        row = []
        for integrator in (Integrator.euler, Integrator.rk4):
            sim = simulator(bodies, integrator, Control.rotor_vel, rate)
            data = crazy.rotor_vel_control(placed(sim, start), command[:, None])
            run = partial(sim._step, data, n_steps=rate)
            row.append((run().states.quat[:, 0], run))
        row += [flown(rate, engine=engine) for engine in ("scan", "fused")]
        errors.append([float(jnp.max(angle(last, reference))) for last, _ in row])
        seconds = [timed(run, 3) for _, run in row]
        cells = zip(errors[-1], seconds, strict=True)
        print(f"{rate:9d}" + "".join(f"{x:11.1e}{1e3 * y:7.1f}" for x, y in cells))
    slopes = -np.polyfit(np.log(rates), np.log(errors), 1)[0]
    print("    order" + "".join(f"{x:11.2f}{'':7s}" for x in slopes))


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, nargs="+", default=[1, 64, 1024, 16384])
    tables = ("speed", "accuracy")
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables)
    options = parser.parse_args()
    version = metadata.version("crazyflow")
    print(f"crazyflow {version}, jax {jax.__version__}, {os.cpu_count()} cores")
    if "speed" in options.tables:
        speed(options.bodies)
    if "accuracy" in options.tables:
        with jax.enable_x64(True):
            accuracy()


if __name__ == "__main__":
    main()
