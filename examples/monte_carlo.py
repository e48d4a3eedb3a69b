"""Does the closed loop hold with every aircraft off the line? 100,000 of them, each with its own inertia, gyroscope and start.

The aircraft and the law of examples/fit_gains.py: inertia with a product, torque limits 8, 2 and 4 N m, Hoffmann's quaternion law
sampled at 50 Hz. A member has an inertia a few percent off (each parameter of the log-Cholesky chart, so it is always physical),
limits a tenth lower at most, a start attitude anywhere on SO(3), a rate of up to 1 rad/s, and a gyroscope with bias and noise. It
succeeds if after 5 s it stays within 3 degrees of the target until the end, at 20 s.

    python examples/monte_carlo.py [--members 100000] [--engine auto] [--store FOLDER]

prints success rate, settling times and the ten worst, and draws them to monte_carlo.png. With a store, a run that was stopped
goes on where it was. The fused engine needs the extra of that name.
"""

import argparse
import math
import resource
import statistics
import sys
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INERTIA = jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]])  # kg m^2
LIMITS = jnp.array([8.0, 2.0, 4.0])  # N m
GAINS = jq.control.Gains(damping=jnp.array([3.0, 4.0, 6.0]), stiffness=jnp.array([6.0, 10.0, 12.0]))
TARGET = jnp.array([1.0, 0.0, 0.0, 0.0])
GRID = jq.grid(0.0, 0.02, 1000)
BIAS, NOISE = 0.02, 0.05  # rad/s: spread of a gyroscope's bias, and of each of its readings
WITHIN, IN_TIME = math.radians(3.0), 5.0  # rad, s


class Member(NamedTuple):
    """What differs from aircraft to aircraft."""

    body: jq.Body
    limits: jax.Array  # (3,) N m
    bias: jax.Array  # (3,) rad/s
    start: jq.State
    noise: jax.Array  # key of the gyroscope's noise


class Outcome(NamedTuple):
    """What is kept of a member."""

    success: jax.Array  # bool
    settling: jax.Array  # s, after which the error angle stays small; 20 s if it does not
    final: jax.Array  # deg
    peak: jax.Array  # (3,) N m


class Memory(NamedTuple):
    """Of the controller: what it needs, and what is watched on the way."""

    key: jax.Array
    settled: jax.Array  # s, the end of the last sample outside
    peak: jax.Array  # (3,) N m


def sample(key):
    """A random aircraft."""
    inertia, limits, bias, turn, spin, noise = jax.random.split(key, 6)
    theta = jq.Body(INERTIA).parameters + 0.03 * jax.random.normal(inertia, (6,))
    start = jq.State(jq.quaternion.random(turn), jax.random.ball(spin, 3))
    weaker = jax.random.uniform(limits, (3,), minval=0.9, maxval=1.0)
    return Member(
        jq.Body.from_parameters(theta),
        weaker * LIMITS,
        BIAS * jax.random.normal(bias, (3,)),
        start,
        noise,
    )


def path(engine, member, save_every=GRID.steps):
    """20 s in closed loop: the law sees the true attitude and the gyroscope's rate, its command is held for a step."""

    def update(t, state, memory, params, _):
        key, now = jax.random.split(memory.key)
        measured = state.omega + member.bias + NOISE * jax.random.normal(now, (3,))
        command = jq.control.quaternion_law(state._replace(omega=measured), GAINS, TARGET)
        command = jq.actuators.saturate(command, member.limits)
        outside = (
            jnp.sum(state.q[1:] ** 2) > math.sin(WITHIN / 2) ** 2
        )  # the target is the identity
        settled = jnp.where(outside, t + GRID.dt, memory.settled)
        return command, Memory(key, settled, jnp.maximum(memory.peak, jnp.abs(command)))

    controller = jq.Controller(
        lambda start, params: Memory(member.noise, jnp.zeros(()), jnp.zeros(3)), update
    )
    return jq.rollout(
        jq.rkmk4,
        member.body,
        jq.torques.commanded,
        member.start,
        GRID,
        controller=controller,
        save_every=save_every,
        engine=engine,
    )


def simulate(engine, member):
    """The outcome of one member."""
    found = path(engine, member)
    final = jnp.rad2deg(jq.quaternion.distance(found.state.q[-1], TARGET))
    return Outcome(found.memory.settled < IN_TIME, found.memory.settled, final, found.memory.peak)


def wilson(share, count, confidence=0.95):
    """E. B. Wilson's interval of a probability (J. Am. Stat. Assoc. 22, 1927, 209)."""
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    middle, half = (
        share + z * z / (2 * count),
        z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)),
    )
    return [(middle + side * half) / (1 + z * z / count) for side in (-1, 1)]


def draw(levels, settling, worst, replayed):
    """The distribution of settling times, and the ten worst against time."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    left.plot(settling, 100 * levels)
    left.set(
        xlabel=f"settling time to {math.degrees(WITHIN):.0f} deg [s]",
        ylabel="share of the members settled [%]",
    )
    left.set(
        ylim=(0, 100),
        xlim=(0, 1.2 * IN_TIME),
        title="Settling times; success is to the left of the line",
    )
    left.axvline(IN_TIME, color="grey", linewidth=0.8, linestyle="--")
    left.grid(alpha=0.3)
    degrees = np.rad2deg(jq.quaternion.distance(replayed.state.q, TARGET[None, None]))
    for number, t, angle in zip(worst, replayed.t, degrees, strict=True):
        right.plot(t, angle, linewidth=1.0, label=f"{number}")
    right.axhline(math.degrees(WITHIN), color="grey", linewidth=0.8, linestyle="--")
    right.set(
        xlabel="time [s]",
        ylabel="error angle [deg]",
        yscale="log",
        ylim=(1, 200),
        xlim=(0, GRID.steps * GRID.dt),
    )
    right.set_title("The ten that settle last")
    right.legend(title="member", ncols=2, fontsize="small")
    figure.savefig("monte_carlo.png", dpi=120)


def main():
    """Simulate, print, replay the worst, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    parser.add_argument("--store")
    given = parser.parse_args()
    key, levels = jax.random.key(2002), np.linspace(0, 1, 201)
    reduce = {
        "mean": jq.ensembles.mean(),
        "settling": jq.ensembles.quantiles(levels, of=lambda out: out.settling),
        "peak": jq.ensembles.quantiles([0.5, 0.95], of=lambda out: out.peak),
        "worst": jq.ensembles.largest(10, lambda out: out.settling),
    }
    began = time.perf_counter()
    found = jq.ensemble(
        sample,
        partial(simulate, given.engine),
        given.members,
        key,
        reduce=reduce,
        store=given.store,
    )
    seconds = time.perf_counter() - began
    mean, settling, worst = found.result["mean"], found.result["settling"], found.result["worst"]
    low, high = wilson(float(mean.mean.success), mean.n)
    print(
        f"\n{given.members} members of {GRID.steps} steps in {seconds:.1f} s, compilation included"
    )
    print(f"{len(found.failed_index)} members not finite")
    print(
        f"success {100 * mean.mean.success:.3f} %, with 95 % confidence between {100 * low:.3f} and {100 * high:.3f} %"
    )
    middle, late, last = (settling[round(p * 200)] for p in (0.5, 0.95, 1.0))
    average = f"mean {mean.mean.settling:.3f} +- {mean.standard_error.settling:.3f}"
    print(f"settling to 3 deg: {average}, median {middle:.2f}, 95 % {late:.2f}, last {last:.2f} s")
    print(
        f"final error: mean {mean.mean.final:.3f} deg; peak torque, median {np.round(found.result['peak'][0], 2)} N m"
    )
    print(
        "the ten worst, member: settling time [s]   "
        + "   ".join(f"{i}: {x:.2f}" for x, i in zip(*worst, strict=True))
    )
    members = jax.vmap(sample)(jq.ensembles.keys(key, worst.members))
    replayed = jax.jit(jax.vmap(partial(path, given.engine, save_every=5)))(members)
    np.testing.assert_allclose(replayed.memory.settled, worst.value, atol=0.5)
    draw(levels, settling, worst.members, replayed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform != "darwin" else 2**30
    )
    print(f"largest resident memory {peak:.2f} GiB; drawn to monte_carlo.png")


if __name__ == "__main__":
    main()
