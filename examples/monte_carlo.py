"""Simulate 100,000 different aircraft, and count how many settle in time.

    python examples/monte_carlo.py [--members 100000] [--engine auto] [--store FOLDER]

The aircraft and the law are those of examples/fit_gains.py: an inertia with a product of inertia,
torque limits of 8, 2 and 4 N m, and Hoffmann's quaternion law, here sampled at 50 Hz. Each member
has

- an inertia that is a few percent off (in the log-Cholesky chart, so it is always physical),
- torque limits up to a tenth lower,
- a start at any attitude on SO(3) with a rate of up to 1 rad/s,
- a gyroscope with bias and noise.

A member succeeds if it is within 3 degrees of the target from 5 s on until the end, at 20 s.

The program prints success rate, settling times and the ten worst members, and draws them to
monte_carlo.png. With a store, a stopped run continues where it was. The fused engine needs the
extra ``fused``.
"""

import argparse
import dataclasses
import math
import os
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
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INERTIA = jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]])  # kg m^2
LIMITS = jnp.array([8.0, 2.0, 4.0])  # N m
GAINS = jq.control.Gains(damping=jnp.array([3.0, 4.0, 6.0]), stiffness=jnp.array([6.0, 10.0, 12.0]))
TARGET = jnp.array([1.0, 0.0, 0.0, 0.0])
GRID = jq.grid(0.0, 0.02, 1000)
BIAS, NOISE = 0.02, 0.05  # rad/s: spread of a gyroscope's bias, and of each of its readings
WITHIN, IN_TIME = math.radians(3.0), 5.0  # rad, s
LEVELS = np.linspace(0, 1, 201)  # of the quantiles of the settling time


class Member(NamedTuple):
    """The properties that differ between aircraft."""

    body: jq.Body
    limits: jax.Array  # (3,) N m
    bias: jax.Array  # (3,) rad/s
    start: jq.State
    noise: jax.Array  # key of the gyroscope's noise


class Outcome(NamedTuple):
    """The results that are kept for a member."""

    success: jax.Array  # bool
    settling: jax.Array  # s, time from which the error angle stays small; 20 s if it does not
    final: jax.Array  # deg
    peak: jax.Array  # (3,) N m


class Memory(NamedTuple):
    """The controller's memory: its random key, and the results that it records."""

    key: jax.Array
    settled: jax.Array  # s, the end of the last sample outside the limit
    peak: jax.Array  # (3,) N m


def draw_member(key):
    """Draw a random aircraft."""
    inertia, limits, bias, turn, spin, noise = jax.random.split(key, 6)
    theta = jq.Body(INERTIA).parameters + 0.03 * jax.random.normal(inertia, (6,))
    start = jq.State(jq.quaternion.random(turn), jax.random.ball(spin, 3))
    weaker = jax.random.uniform(limits, (3,), minval=0.9, maxval=1.0)
    body, bias = jq.Body.from_parameters(theta), BIAS * jax.random.normal(bias, (3,))
    return Member(body, weaker * LIMITS, bias, start, noise)


def fly(engine, member, save_every=GRID.steps):
    """Simulate 20 s in closed loop.

    The law sees the true attitude and the gyroscope's rate. Its command acts for one step.
    """

    def update(t, state, memory, params, _):
        key, now = jax.random.split(memory.key)
        measured = state.omega + member.bias + NOISE * jax.random.normal(now, (3,))
        command = jq.control.quaternion_law(state._replace(omega=measured), GAINS, TARGET)
        command = jnp.clip(command, -member.limits, member.limits)
        # The target is the identity, so |q[1:]| is the sine of half the error angle.
        outside = jnp.sum(state.q[1:] ** 2) > math.sin(WITHIN / 2) ** 2
        settled = jnp.where(outside, t + GRID.dt, memory.settled)
        return command, Memory(key, settled, jnp.maximum(memory.peak, jnp.abs(command)))

    def begin(start, params):
        return Memory(member.noise, jnp.zeros(()), jnp.zeros(3))

    return jq.rollout(
        jq.rkmk4,
        member.body,
        jq.torques.commanded,
        member.start,
        dataclasses.replace(GRID, save_every=save_every),
        controller=jq.Controller(begin, update),
        options=jq.RolloutOptions(engine=engine),
    )


def simulate(engine, member):
    """Return the outcome of one member."""
    path = fly(engine, member)
    final = jnp.rad2deg(jq.quaternion.distance(path.final.q, TARGET))
    settled = path.memory.settled
    return Outcome(settled < IN_TIME, settled, final, path.memory.peak)


def wilson(share, count, confidence=0.95):
    """Return E. B. Wilson's interval of a probability (J. Am. Stat. Assoc. 22, 1927, 209)."""
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return [(middle + side * half) / (1 + z * z / count) for side in (-1, 1)]


def print_result(result):
    """Print success rate, settling times, final errors, torques and the ten worst members."""
    mean, error, n = result["mean"].mean, result["mean"].standard_error, result["mean"].n
    low, high = (100 * bound for bound in wilson(float(mean.success), n))
    confidence = f"with 95 % confidence between {low:.3f} and {high:.3f} %"
    print(f"success {100 * mean.success:.3f} %, {confidence}")
    median, late, last = (result["settling"][round(p * 200)] for p in (0.5, 0.95, 1.0))
    average = f"mean {mean.settling:.3f} +- {error.settling:.3f}"
    quantiles = f"median {median:.2f}, 95 % {late:.2f}, last {last:.2f} s"
    print(f"settling to 3 deg: {average}, {quantiles}")
    peak = f"peak torque, median {np.round(result['peak'][0], 2)} N m"
    print(f"final error: mean {mean.final:.3f} deg; {peak}")
    numbers, values = result["worst"].members, result["worst"].value
    worst = [f"{number}: {value:.2f}" for number, value in zip(numbers, values, strict=True)]
    print("the ten worst, member: settling time [s]")
    print("   ".join(worst[:5]), "   ".join(worst[5:]), sep="\n")


def print_worst(bias, replayed):
    """Print why the worst members do not settle: the bias of their gyroscopes."""
    size, usual = np.linalg.norm(bias, axis=1), math.sqrt(3) * BIAS
    print(f"bias of their gyroscopes {size.min():.3f} to {size.max():.3f} rad/s,", end=" ")
    print(f"rms of all {usual:.3f} rad/s")
    late = np.rad2deg(jq.quaternion.distance(replayed.state.q, TARGET[None, None]))
    late = np.median(late[replayed.t > IN_TIME].reshape(len(bias), -1), axis=1)
    print(f"their median error after {IN_TIME:g} s: {late.min():.2f} to {late.max():.2f} deg")


def draw(result, replayed):
    """Draw the distribution of settling times, and the ten worst against time."""
    settling, success = result["settling"], float(result["mean"].mean.success)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.8), layout="constrained")
    limit = math.degrees(WITHIN)
    left.plot(settling, 100 * LEVELS, color=plot.COLOURS[0], linewidth=2.0)
    left.set(xlabel=f"settling time to {limit:.0f} deg [s]", xlim=(0, 1.2 * IN_TIME))
    left.set(ylabel="share of the members settled [%]", ylim=(0, 100))
    left.set_title(f"{100 * success:.3f} % settle within {IN_TIME:g} s")
    left.axvline(IN_TIME, color="0.45", linewidth=1.2, linestyle="--")
    left.grid(alpha=0.3)
    degrees = np.rad2deg(jq.quaternion.distance(replayed.state.q, TARGET[None, None]))
    for k, (number, t, angle) in enumerate(
        zip(result["worst"].members, replayed.t, degrees, strict=True)
    ):
        style = {"color": plot.COLOURS[k % 5], "linestyle": "--" if k >= 5 else "-"}
        right.plot(t, angle, linewidth=1.0, label=f"{number}", **style)
    right.axhline(limit, color="0.45", linewidth=1.2, linestyle="--")
    right.set(xlabel="time [s]", xlim=(0, GRID.steps * GRID.dt))
    right.set(ylabel="error angle [deg]", yscale="log", ylim=(1, 200))
    right.set_title(f"The ten that settle last, up to {settling[-1]:.1f} s")
    right.legend(title="member", ncols=2, fontsize="small")
    figure.savefig("monte_carlo.png", dpi=150)


def resident_gibibytes():
    """Return the largest resident memory of this process; macOS counts it in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def main():
    """Simulate, print, simulate the worst again, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    parser.add_argument("--store", help="folder for the outcomes, to continue a stopped run")
    options = parser.parse_args()
    key, n = jax.random.key(2002), options.members
    reduce = {
        "mean": jq.ensembles.mean(),
        "settling": jq.ensembles.quantiles(LEVELS, of=lambda outcome: outcome.settling),
        "peak": jq.ensembles.quantiles([0.5, 0.95], of=lambda outcome: outcome.peak),
        "worst": jq.ensembles.largest(10, lambda outcome: outcome.settling),
    }
    one, began = partial(simulate, options.engine), time.perf_counter()
    ensemble = jq.ensembles.run(key, draw_member, one, n, reduce=reduce, store=options.store)
    seconds = time.perf_counter() - began
    print(f"\n{n} members of {GRID.steps} steps in {seconds:.1f} s, compilation included")
    print(f"{len(ensemble.failed_index)} members not finite")
    print_result(ensemble.result)

    worst = ensemble.result["worst"]
    members = jax.vmap(draw_member)(jq.ensembles.keys(key, worst.members))
    replayed = jax.jit(jax.vmap(partial(fly, options.engine, save_every=5)))(members)
    np.testing.assert_allclose(replayed.memory.settled, worst.value, atol=0.5)
    print_worst(members.bias, replayed)
    draw(ensemble.result, replayed)
    print(f"largest resident memory {resident_gibibytes():.2f} GiB; drawn to monte_carlo.png")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
