"""Train a network that rights and holds a quadrotor, by gradients through its flights.

    python examples/train_policy.py [--seconds 40 | --updates 1000] [--worlds 64] [--rate 0.01]
    python examples/train_policy.py --worlds 4096 --rate 0.015 --updates 225    # on a GPU

The quadrotor is a Crazyflie: 43 g, motors that follow commanded speeds with a lag. The policy, two
layers of 64, reads noisy sensors at 100 Hz and commands four rotor speeds, which act two samples
later. It starts at any attitude, upside down included, up to 1.2 m away, and should come to rest
level at the origin, with its heading at zero. Mass, inertia, motors, lag, wind and gusts differ
from flight to flight; the policy is told none of them.

An update differentiates the mean cost of 64 windows of 1 s with respect to the weights. A window
begins where the last one ended, without its derivatives, and a quarter of the flights are replaced
by new ones each time. So the policy learns the whole flight, but no gradient goes back further than
a second (docs/policies.md says why). The learning rate rises during the first 3200 windows, 50
updates, and falls to zero along a cosine as the budget ends: seconds of wall time, compilation
included, or a number of updates. It is at most 0.01, or a larger --rate for more windows.

The program prints how many of 1024 new bodies stay within 20 cm and 10 degrees during the last
second of 5 s, and writes train_policy.png, train_policy.gif, and the policy twice: policy.bin, for
any program that has jax, and policy.c, for any C compiler.
"""

import argparse
import importlib.util
import itertools
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
from jax import export

import jaxquat as jq
from jaxquat import forces, plot, torques

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MASS, MOMENTS = 0.0434, jnp.array([2.5e-5, 2.8e-5])  # kg, kg m^2
ARM, THRUST, YAW = 0.035355, 0.2, 0.0056  # m, N at full speed, N m of drag torque per N
DRAG = 0.0216  # N s/m
SIGNS = jnp.array([[-1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])
MIXER = jnp.array([ARM, ARM, YAW])[:, None] * SIGNS  # torque [N m] from thrusts [N]
HOVER = (MASS * 9.80665 / 4 / THRUST) ** 0.5  # of full speed
GUSTS = jnp.array([2.0, 3.0, 5.0])  # rad/s
DT, WINDOW, WORLDS, SIZES = 0.01, 100, 64, (33, 64, 64, 4)
NOISE = jnp.repeat(jnp.array([0.01, 0.03, 0.01, 0.05]), 3)  # m, m/s, rad, rad/s
ENDED = 0.25  # the part of flights replaced after a window
# An observation: position, velocity, rotation matrix by rows, rate, then what the Memory has.
PARTS = np.array([3, 3, 9, 3, 8, 4, 3])
CENTRE = np.repeat([0.0, 0.0, 0.0, 0.0, HOVER, HOVER, 0.0], PARTS).astype(np.float32)
SCALE = np.repeat([1.0, 0.5, 1.0, 0.2, 4.0, 8.0, 2.0], PARTS).astype(np.float32)


class World(NamedTuple):
    """What differs between flights, and what the policy is not told."""

    moments: jax.Array  # (3,) kg m^2
    mass: jax.Array  # () kg
    strength: jax.Array  # (4,) N, thrusts at full speed
    lag: jax.Array  # () s
    wind: jax.Array  # (3,) m/s
    gust: jax.Array  # (3,) m/s
    phase: jax.Array  # (3,) rad


class Memory(NamedTuple):
    """What the controller remembers: commands under way, and two slow integrals."""

    pending: jax.Array  # (2, 4) of full speed; the first acts next
    average: jax.Array  # (4,) of full speed, over half a second
    integral: jax.Array  # (3,) m s, of the position


class Flight(NamedTuple):
    """A flight under way."""

    world: World
    state: jq.State  # aux has the rotor speeds (4,), of full speed
    memory: Memory


@partial(jax.jit, static_argnums=1)
def random_flights(key, n):
    """Draw n flights at their starts."""
    turn, other = jax.random.split(key)
    drawn = jax.random.uniform(other, (n, 27), minval=-1.0)
    sizes = np.array([2, 1, 1, 4, 1, 3, 3, 3, 3, 3, 3])
    u = jnp.split(drawn, np.cumsum(sizes)[:-1], axis=1)
    flat = MOMENTS * (1.0 + 0.2 * u[0])  # of a nearly flat body the third is almost their sum
    moments = jnp.concatenate([flat, (0.925 + 0.045 * u[1]) * flat.sum(1, keepdims=True)], axis=1)
    mass, strength = MASS * (1.0 + 0.2 * u[2][:, 0]), THRUST * (1.0 + 0.1 * u[3])
    lag, wind = 0.06 + 0.02 * u[4][:, 0], u[5] * jnp.array([1.4, 1.4, 0.5])
    world = World(moments, mass, strength, lag, wind, 0.4 * u[6], jnp.pi * u[7])
    hover = jnp.full((n, 4), HOVER, float)
    q = jq.quaternion.random(turn, (n,))
    state = jq.State(q, 2.0 * u[8], hover, position=0.7 * u[9], velocity=0.7 * u[10])
    return Flight(world, state, Memory(jnp.stack([hover, hover], 1), hover, jnp.zeros((n, 3))))


def policy(weights, observation):
    """Return the four speeds, as shares of the full one, for an observation (33,)."""
    x = SCALE * (observation - CENTRE)
    for weight, bias in weights[:-1]:
        x = jnp.tanh(weight @ x + bias)
    weight, bias = weights[-1]
    return jax.nn.sigmoid(weight @ x + bias)


def random_weights(seed):
    """Draw weights whose commands are near hovering."""
    rng, sizes = np.random.default_rng(seed), itertools.pairwise(SIZES)
    weights = [(rng.normal(size=(n, m)) / m**0.5, np.zeros(n)) for m, n in sizes]
    weights[-1] = 0.1 * weights[-1][0], np.full(4, np.log(HOVER / (1.0 - HOVER)))
    return jax.tree.map(jnp.float32, weights)


def update(t, state, memory, weights, noise):
    """Return the command of two samples ago, which acts now, and the memory with the new one."""
    shift, slip, turn, spin = (NOISE * noise).reshape(4, 3)
    position, velocity, omega = state.position + shift, state.velocity + slip, state.omega + spin
    matrix = jq.quaternion.to_matrix(jq.quaternion.multiply(state.q, jq.quaternion.exp(turn)))
    seen = [position, velocity, matrix.reshape(9), omega]
    command = policy(weights, jnp.concatenate([*seen, *(x.reshape(-1) for x in memory)]))
    average = memory.average + DT / 0.5 * (command - memory.average)
    integral = jnp.clip(memory.integral + DT * jnp.clip(position, -0.5, 0.5), -0.5, 0.5)
    return memory.pending[0], Memory(jnp.stack([memory.pending[1], command]), average, integral)


def fly(weights, flight, noise, save=None):
    """Return the path of a flight from here on, a step for each row of noise (steps, 12)."""
    world = flight.world
    body = jq.Body(jnp.diag(world.moments), world.mass)

    def rotors(t, state, weights, command):
        thrusts = world.strength * state.aux**2
        lift = jq.quaternion.rotate(state.q, jnp.array([0.0, 0.0, 1.0]) * jnp.sum(thrusts))
        return jq.Wrench(MIXER @ thrusts, lift), jq.actuators.lag(state.aux, command, world.lag)

    def wind(t, position):
        return world.wind + world.gust * jnp.sin(GUSTS * t + world.phase)

    plant = torques.total(forces.gravity(body), forces.linear_drag(DRAG, wind), rotors)
    controller = jq.Controller(lambda start, weights: flight.memory, update, DT)
    return jq.rollout(
        jq.rkmk2, body, plant, flight.state, jq.grid(0.0, DT, len(noise)), weights,
        controller=controller, inputs=noise, options=jq.RolloutOptions(save=save),
    )  # fmt: skip


def cost(t, state, weights, command):
    """Return the cost of a moment: from squares near the goal to distances and angles far off."""

    def distance(square, width):
        return jnp.sqrt(square + width**2) - width

    matrix = jq.quaternion.to_matrix(state.q)
    turned = 1.5 - matrix[2, 2] - 0.5 * matrix[0, 0]
    place = distance(jnp.sum(state.position**2), 0.1)
    speed = distance(jnp.sum(state.velocity**2), 0.1)
    rate = distance(jnp.sum(state.omega**2), 1.0)
    effort = jnp.sum((command - state.aux) ** 2)
    return place + 0.2 * speed + turned + 0.5 * distance(turned, 0.05) + 0.02 * rate + 0.1 * effort


def loss(weights, flights, noise):
    """Return the mean cost of a window of all flights, and the flights at its end."""

    def one(flight, noise):
        path = fly(weights, flight, noise, cost)
        return jnp.mean(path.saved), flight._replace(state=path.final, memory=path.memory)

    costs, flights = jax.vmap(one)(flights, noise)
    return jnp.mean(costs), flights


ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(b2=0.95))


@jax.jit
def improve(weights, moments, flights, key, rate):
    """Update the weights by a window of all flights; return them, and the flights to go on with."""
    noisy, over, new = jax.random.split(key, 3)
    worlds = len(flights.world.mass)
    noise = jax.random.normal(noisy, (worlds, WINDOW, 12))
    gradient = jax.value_and_grad(loss, has_aux=True)
    (value, flights), slope = gradient(weights, flights, noise)
    change, moments = ADAM.update(slope, moments)
    weights = jax.tree.map(lambda x, change: x - rate * change, weights, change)
    away = ~(jnp.sum(flights.state.position**2, axis=1) < 16.0)  # NaN, too
    ended = away | (jax.random.uniform(over, (worlds,)) < ENDED)
    pick = jax.vmap(lambda ended, *flights: jax.tree.map(partial(jnp.where, ended), *flights))
    return weights, moments, pick(ended, random_flights(new, worlds), flights), value


def train(weights, key, options):
    """Return weights trained until the budget ends."""
    seconds, updates, worlds = options.seconds, options.updates, options.worlds
    began, first, now, k, done = time.perf_counter(), 0.0, 0.0, 0, 0.0
    keys = jax.random.split(key)
    moments, flights = ADAM.init(weights), random_flights(keys[0], worlds)
    while done < 1.0:
        rate = min(options.rate, 1e-2 + 5e-4 * k) * (0.5 + 0.5 * np.cos(np.pi * done))
        # With 64 windows one training in fifty would diverge in its first updates.
        rate *= min(1.0, (k + 1) * worlds / 3200)
        key = jax.random.fold_in(keys[1], k)
        weights, moments, flights, value = improve(weights, moments, flights, key, rate)
        value, k, now = float(value), k + 1, time.perf_counter() - began
        first = first or now
        if k % 100 == 0:
            print(f"{k:6d} updates, {now:5.1f} s: mean cost of a window {value:.3f}", flush=True)
        done = k / updates if updates else now / seconds
    print(f"{k} updates in {now:.1f} s, {first:.1f} s until the first was compiled and done")
    print(f"processor time, with the imports: {time.process_time():.1f} s")
    if k > 1:
        rate = (k - 1) * worlds * WINDOW / (now - first)
        print(f"then {rate:.3g} steps of flight a second, derivatives included")
    return weights


@jax.jit
def judge(weights, flights, key):
    """Return the paths of flights of 5 s, their distances [m] and their angles [deg]."""
    noise = jax.random.normal(key, (len(flights.world.mass), 500, 12))
    paths = jax.vmap(lambda *flight: fly(weights, *flight))(flights, noise)
    distance = jnp.sqrt(jnp.sum(paths.state.position**2, axis=-1))
    angle = jax.vmap(jax.vmap(jq.quaternion.distance, (0, None)), (0, None))
    return paths, distance, jnp.rad2deg(angle(paths.state.q, jnp.array([1.0, 0.0, 0.0, 0.0])))


def exported(weights):
    """Return the policy, (n, 33) to (n, 4), as bytes for ``jax.export.deserialize``."""
    shape = jax.ShapeDtypeStruct((*export.symbolic_shape("n"), SIZES[0]), jnp.float32)
    return export.export(jax.jit(jax.vmap(partial(policy, weights))))(shape).serialize()


C_COMMENT = """\
/* The policy of train_policy.py; call it a hundred times a second.

   observation: position [m] and velocity [m/s] in world axes from the place to hold, z up; rotation
   matrix from body to world axes, by rows; rates in body axes [rad/s]; the commands before the last
   and last; their average a, by a += 0.02 (command - a) after each; the integral of the position,
   in which 0.5 m counts for more, itself within 0.5 m s. result: shares of full speed of four
   rotors. */

"""


def in_c(weights):
    """Return the policy as C, with the weights as constant tables."""
    observation = jax.ShapeDtypeStruct(SIZES[:1], jnp.float32)
    return C_COMMENT + jq.export.c(partial(policy, weights), (observation,), name="policy")


def draw(paths, distance, angle, file):
    """Draw 64 flights in space, and their distances and angles against time."""
    figure = plt.figure(figsize=(9.0, 4.4))
    space: Any = figure.add_axes((0.0, 0.1, 0.5, 0.9), projection="3d", elev=15, azim=-60)
    for k in range(64):
        colour = plot.COLOURS[k % len(plot.COLOURS)]
        space.plot(*np.asarray(paths.state.position[k]).T, color=colour, linewidth=0.7, alpha=0.7)
    space.plot(0.0, 0.0, 0.0, "o", color="black", markersize=4)
    space.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    space.set_aspect("equal")
    space.zaxis.labelpad = 12
    curves = (("distance [m]", distance, 0.2), ("angle [deg]", angle, 10.0))
    for k, (name, values, limit) in enumerate(curves):
        panel = figure.add_axes((0.62, 0.57 - 0.45 * k, 0.36, 0.37))
        style = {"color": plot.COLOURS[0], "lw": 0.6, "alpha": 0.5}
        panel.plot(DT * np.arange(501), np.asarray(values[:64]).T, **style)
        panel.plot([4.0, 5.0], [limit, limit], color="black", linewidth=1.5)
        panel.set(ylabel=name, xlim=(0, 5), ylim=(0, None))
    figure.axes[-1].set_xlabel("time [s]")
    figure.savefig(file, dpi=140)


def film(path, body, file):
    """Film a flight; the quadrotor is a box, drawn five times as large."""
    figure = plt.figure(figsize=(4.4, 4.6), dpi=90)
    space: Any = figure.add_axes((0.06, 0.12, 0.74, 0.86), projection="3d", elev=15, azim=-60)
    plot.animate(path, body, file, fps=12, size=0.5, ax=space, progress=False)


def main():
    """Train, judge, write the policy, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="budget of wall time")
    parser.add_argument("--updates", type=int, help="budget of updates, instead")
    parser.add_argument("--worlds", type=int, default=WORLDS, help="windows of an update")
    parser.add_argument("--rate", type=float, default=1e-2, help="largest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # The generator of XLA: JAX's own takes three seconds longer to compile.
    keys = jax.random.split(jax.random.key(options.seed, impl="rbg"), 3)
    weights = random_weights(options.seed)
    weights = train(weights, keys[0], options)

    began, flights = time.perf_counter(), random_flights(keys[1], 1024)
    results = jax.block_until_ready(judge(weights, flights, keys[2]))
    paths, (distance, angle) = results[0], map(np.asarray, results[1:])
    held = np.all((distance[:, 400:] < 0.2) & (angle[:, 400:] < 10.0), axis=1)
    share, seconds = 100 * held.mean(), time.perf_counter() - began
    print(f"{held.sum()} of 1024 new bodies held, {share:.1f} %; judged in {seconds:.1f} s")
    for name, values in (("distance [m]", distance), ("angle [deg]", angle)):
        worst = np.round(np.percentile(values[:, 400:].max(axis=1), (50, 95, 99)), 3)
        print(f"largest {name} of the last second, 50, 95 and 99 % of the bodies:", *worst)

    Path("policy.c").write_text(in_c(weights))
    if importlib.util.find_spec("flatbuffers"):  # pip install "jaxquat[export]"
        Path("policy.bin").write_bytes(exported(weights))
        loaded = export.deserialize(bytearray(Path("policy.bin").read_bytes()))
        seen = jax.random.normal(keys[1], (1024, SIZES[0]))
        off = jnp.abs(loaded.call(seen) - jax.vmap(partial(policy, weights))(seen)).max()
        print(f"policy.bin, loaded again, differs by at most {off:.1g} of full speed")
    draw(paths, distance, angle, "train_policy.png")
    one = int(np.argmax(angle[:, 0]))
    shape = jq.Body(jnp.diag(flights.world.moments[one]), MASS)
    film(jax.tree.map(lambda x: x[one], paths), shape, "train_policy.gif")
    print("drawn to train_policy.png and train_policy.gif; policy.c is written")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
