"""Stochastic rollouts: what they cost, what they keep over 100,000 steps, and their gradients.

    python benchmarks/langevin.py speed        # both engines, and what the normals cost
    python benchmarks/langevin.py long         # temperature and order over 100,000 steps
    python benchmarks/langevin.py gradients    # pathwise derivatives, and how long they are useful
    python benchmarks/langevin.py peers        # beside jax-md (pip install jax-md)

All of it is float32. Errors in brackets are standard errors, in units of the last digit.
"""

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from timing import best

import jaxquat as jq

MOMENTS = jnp.array([1.0, 2.0, 2.5])  # kg m^2
DAMPING = jnp.array([1.0, 2.0, 1.5])  # N m s
AXIS = jnp.array([0.0, 0.0, 1.0])  # of the dipole, in the body
START = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
UP = jnp.array([0.0, 0.0, 1.0])  # of the field, in the world
HEAT = 0.5  # k T, J
BODY = jq.Body.from_principal(MOMENTS)


def dipole(t, state, field):
    """Return the torque [N m] of a field along the world's z; its energy is -field cos [J]."""
    return field * jnp.cross(AXIS, jq.quaternion.rotate_inverse(state.q, UP))


def cosine(state):
    """Return the cosine between dipole and field."""
    return jq.quaternion.rotate(state.q, AXIS)[2]


def starts(bodies):
    """Return random attitudes with rates at the temperature."""
    turn, spin = jax.random.split(jax.random.key(7))
    rates = jnp.sqrt(HEAT / MOMENTS) * jax.random.normal(spin, (bodies, 3))
    return jq.State(jq.quaternion.random(turn, (bodies,)), rates)


def langevin(damping=DAMPING, heat=HEAT):
    """Return Langevin's scheme over ``no_squish``."""
    return jq.stochastic.langevin(jq.no_squish, damping, heat)


def bracketed(mean, error, digits=3):
    """Return a number with its standard error in units of the last digit."""
    return f"{mean:.{digits}f} ({10**digits * error:.0f})"


# Speed.


def speed():
    """Print the nanoseconds a body-step: without noise, with given normals, and with a key."""
    bodies, steps = 2048, 200
    keys = jax.random.split(jax.random.key(0), bodies)
    rows = {
        "none, `damp`": jnp.zeros(bodies),
        "array": jax.vmap(lambda key: jax.random.normal(key, (steps, 6)))(keys),
        "key": keys,
    }

    def rates(damping, starts, noise, engine, name):
        def one(start, noise):
            noisy = not name.startswith("none")
            scheme = langevin(damping) if noisy else jq.schemes.damp(jq.no_squish, damping)
            path = jq.rollout(
                scheme, BODY, dipole, start, jq.grid(0.0, 0.1, steps, save_every=steps), 1.0,
                noise=noise if noisy else None, options=jq.RolloutOptions(engine=engine),
            )  # fmt: skip
            return path.final.omega

        return jnp.sum(jax.vmap(one)(starts, noise) ** 2)

    print("2048 bodies, 200 steps of `langevin(no_squish)`: nanoseconds a body-step\n")
    print("| noise | scan | fused | ratio | gradient: scan | fused | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, noise in rows.items():
        cells = []
        for derivative in (lambda f: f, jax.grad):
            times = []
            for engine in ("scan", "fused"):
                run = jax.jit(derivative(partial(rates, engine=engine, name=name)))
                times.append(1e9 * best(run, DAMPING, starts(bodies), noise) / bodies / steps)
            cells.append(f"{times[0]:.0f} | {times[1]:.1f} | {times[0] / times[1]:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


# 100,000 steps.

STEPS = 100_000


def long():
    """Print I <omega^2>/kT about each axis and <cos> of dipoles, then k T of dumbbells."""
    bodies, field = 10_000, 1.0
    keys = jax.random.split(jax.random.key(1), bodies)

    def saved(t, state, params):
        return MOMENTS * state.omega**2 / HEAT, cosine(state)

    def one(start, key):
        grid = jq.grid(0.0, 0.2, STEPS, save_every=STEPS // 100)
        return jq.rollout(
            langevin(), BODY, dipole, start, grid, field, noise=key,
            options=jq.RolloutOptions(save=saved),
        ).saved  # fmt: skip

    began = time.perf_counter()
    heats, cosines = jax.block_until_ready(jax.jit(jax.vmap(one))(starts(bodies), keys))
    seconds = time.perf_counter() - began
    print(f"{bodies} dipoles, {STEPS} steps of 0.2 s in {seconds:.0f} s with compilation\n")
    print(
        f"| steps | I <omega^2>/kT, three axes | <cos>, exact {mean_cosine(field / HEAT)[0]:.4f} |"
    )
    print("|---|---|---|")
    for name, k in tenths():
        cells = by_axis(heats[:, k])
        print(f"| {name} | {cells} | {mean_of(cosines[:, k], 4)} |")
    dumbbells()


def tenths():
    """Return the names of the first and of the last tenth of the steps, and their rows."""
    return (
        (f"the first {STEPS // 10}", slice(1, 11)),
        (f"the last {STEPS // 10}", slice(91, 101)),
    )


def mean_of(x, digits):
    """Return the mean over bodies and rows of x (bodies, rows), as text; bodies are independent."""
    of_body = jnp.mean(x, axis=1)
    return bracketed(jnp.mean(of_body), jnp.std(of_body) / len(of_body) ** 0.5, digits)


def by_axis(x, digits=4):
    """Return the means over bodies and rows of x (bodies, rows, axes), as text."""
    return ", ".join(mean_of(x[..., axis], digits) for axis in range(x.shape[-1]))


ENDS = jnp.array([[0.0, 0.0, 0.5], [0.0, 0.0, -0.5]])  # m, of a dumbbell
DUMBBELL = jq.Body.from_principal(jnp.array([0.3, 0.3, 0.02]), mass=1.0)


def attraction(t, state, strength):
    """Return the wrench on a dumbbell whose ends repel others and are attracted by the origin."""
    arms = jq.quaternion.rotate(state.q, ENDS)
    mine = state.position + arms
    gaps = mine[:, None, None] - lax.all_gather(mine, "bodies")
    others = jnp.arange(gaps.shape[1]) != lax.axis_index("bodies")
    pairs = strength * others[:, None] * jnp.exp(-jnp.sum(gaps**2, axis=-1))
    of_ends = jnp.sum(2.0 * pairs[..., None] * gaps, axis=(1, 2)) - mine
    torque = jnp.sum(jnp.cross(arms, of_ends), axis=0)
    return jq.Wrench(jq.quaternion.rotate_inverse(state.q, torque), jnp.sum(of_ends, axis=0))


def dumbbells():
    """Print I <omega^2>/kT and m <v^2>/kT of 64 dumbbells that interact."""
    bodies = 64
    damping, resistance = jnp.array([0.3, 0.3, 0.02]), jnp.array([1.0, 1.0, 0.5])
    scheme = jq.stochastic.langevin(jq.symmetric_top, damping, HEAT, resistance=resistance)
    place, turn = jax.random.split(jax.random.key(4))
    still = jnp.zeros((bodies, 3))
    position = 2.0 * jax.random.normal(place, (bodies, 3))
    q = jq.quaternion.random(turn, (bodies,))
    first = jq.State(q, still, position=position, velocity=still)

    def saved(t, state, params):
        return jnp.diagonal(DUMBBELL.inertia) * state.omega**2 / HEAT, state.velocity**2 / HEAT

    def one(start, key):
        grid = jq.grid(0.0, 0.02, STEPS, save_every=STEPS // 1000)
        return jq.rollout(
            scheme, DUMBBELL, attraction, start, grid, 1.0, noise=key,
            options=jq.RolloutOptions(save=saved),
        ).saved  # fmt: skip

    began = time.perf_counter()
    keys = jax.random.split(jax.random.key(5), bodies)
    run = jax.jit(jax.vmap(one, axis_name="bodies"))
    turning, moving = jax.block_until_ready(run(first, keys))
    seconds = time.perf_counter() - began
    print(f"\n{bodies} dumbbells that interact, {STEPS} steps of 0.02 s in {seconds:.0f} s\n")
    print("| steps | I <omega^2>/kT, three axes | m <v^2>/kT, three axes |\n|---|---|---|")
    for name, k in (
        (f"{STEPS // 10} to {STEPS // 2}", slice(100, 500)),
        (f"{STEPS // 2} to {STEPS}", slice(500, 1001)),
    ):
        print(f"| {name} | {by_axis(turning[:, k], 3)} | {by_axis(moving[:, k], 3)} |")


# Gradients.


def mean_cosine(x):
    """Return coth x - 1/x, the mean cosine of a dipole of energy x kT, and its derivative."""
    return 1 / np.tanh(x) - 1 / x, 1 / x**2 - 1 / np.sinh(x) ** 2


def gradients():
    """Print pathwise derivatives against closed forms, and their spread against the horizon."""
    closed_forms()
    print(
        "\nStandard deviation over bodies of the derivative of cos by the field [1/J], by horizon\n"
    )
    horizons = (1, 3, 10, 30, 100, 300)
    print(f"| scheme, damping | {' | '.join(f'{t} s' for t in horizons)} |")
    print("|---|" + "---|" * len(horizons))
    for name, scheme, dt in (
        ("brownian, 1 x", jq.stochastic.brownian(DAMPING, HEAT), 0.05),
        ("langevin, 10 x", langevin(10.0 * DAMPING), 0.05),
        ("langevin, 1 x", langevin(), 0.05),
        ("langevin, 0.1 x", langevin(0.1 * DAMPING), 0.05),
        ("langevin, 0.01 x", langevin(0.01 * DAMPING), 0.05),
    ):
        print(f"| {name} | {' | '.join(spreads(scheme, dt, horizons))} |", flush=True)


def spreads(scheme, dt, horizons):
    """Return the spread of the derivative of cos by the field over 2000 bodies, as text."""
    grid = jq.grid(0.0, dt, round(horizons[-1] / dt), save_every=round(1 / dt))
    options = jq.RolloutOptions(save=lambda t, state, p: cosine(state))

    def one(start, key):
        def cosines(field):
            return jq.rollout(
                scheme, BODY, dipole, start, grid, field, noise=key, options=options
            ).saved

        return jax.jvp(cosines, (1.0,), (1.0,))[1]

    keys = jax.random.split(jax.random.key(3), 2000)
    slopes = np.asarray(jax.jit(jax.vmap(one))(starts(2000), keys), np.float64)
    return [f"{np.std(slopes[:, t]):.2g}" for t in horizons]


def closed_forms():
    """Print derivatives of means with their standard errors, beside the exact ones."""
    print("| derivative | mean over bodies | exact |\n|---|---|---|")
    steps, dt, bodies, field = 1600, 0.0125, 20_000, 1.0
    keys = jax.random.split(jax.random.key(2), bodies)

    def measured(numbers, start, key):
        """The cosine over the last three quarters, from equilibrium at the temperature."""
        heat, scale, field = numbers
        scheme = jq.stochastic.brownian(scale * DAMPING, heat)
        path = jq.rollout(
            scheme, BODY, dipole, start, jq.grid(0.0, dt, steps, save_every=40), field, noise=key,
            options=jq.RolloutOptions(save=lambda t, state, p: cosine(state)),
        )  # fmt: skip
        return jnp.mean(path.saved[10:])

    slope = jax.jit(jax.vmap(jax.grad(measured), (None, 0, 0)))
    slopes = slope((HEAT, 1.0, field), starts(bodies), keys)
    exact = mean_cosine(field / HEAT)[1]
    for name, x, wanted in (
        ("<cos> by kT [1/J]", slopes[0], -field / HEAT**2 * exact),
        ("<cos> by the scale of the damping", slopes[1], 0.0),
        ("<cos> by the field [1/J]", slopes[2], exact / HEAT),
    ):
        print(f"| {name} | {bracketed(jnp.mean(x), jnp.std(x) / bodies**0.5)} | {wanted:.3f} |")

    time_, steps = 0.6, 60

    def decayed(damping, key):
        """The cosine between an axis and itself before; it decays by D_1 + D_2."""
        scheme, grid = jq.stochastic.brownian(damping, HEAT), jq.grid(0.0, time_ / steps, steps)
        return cosine(jq.rollout(scheme, BODY, jq.torques.zero, START, grid, noise=key).final)

    def decay(damping):
        """What ``decayed`` is on average."""
        return jnp.exp(-time_ * HEAT * (1 / damping[0] + 1 / damping[1]))

    def drag(ratio):
        """The resistance of a spheroid with this ratio of axes and the volume of a sphere."""
        return jq.flow.rotational_resistance(ratio ** jnp.array([-1 / 3, -1 / 3, 2 / 3]), 0.05)

    slopes = jax.jit(jax.vmap(jax.grad(decayed), (None, 0)))(DAMPING, keys)
    exact = jax.grad(decay)(DAMPING)
    rows = [
        (f"decay by the damping of axis {k + 1} [1/(N m s)]", slopes[:, k], exact[k])
        for k in (0, 1)
    ]
    by_ratio = jax.jit(jax.vmap(jax.grad(lambda ratio, key: decayed(drag(ratio), key)), (None, 0)))
    exact = jax.grad(lambda ratio: decay(drag(ratio)))(3.0)
    rows.append(("decay by the ratio of a spheroid's axes, at 3", by_ratio(3.0, keys), exact))
    for name, x, wanted in rows:
        print(f"| {name} | {bracketed(jnp.mean(x), jnp.std(x) / bodies**0.5, 4)} | {wanted:.4f} |")


# Beside jax-md.


def peers():
    """Print speeds and temperatures of dipoles in a field, by this library and by jax-md.

    jax-md damps the rotation by one coefficient gamma, which is a damping of gamma / sum(1/I) about
    each axis, and its rate alone relaxes in a step.
    """
    from jax_md import rigid_body, simulate, space  # pyright: ignore[reportMissingImports]

    bodies, steps, field, damping = 1000, 2000, 1.0, 1.5
    print("1000 dipoles, 2000 steps\n")
    print("| | dt damping/I of the first axis | steps/s | I <omega^2>/kT, three axes | <cos> |")
    print("|---|---|---|---|---|")
    first = starts(bodies)
    expected = mean_cosine(field / HEAT)[0]

    def row(name, dt, run):
        jax.block_until_ready(run(jax.random.key(0)))
        began = time.perf_counter()
        heats, cosines = jax.block_until_ready(run(jax.random.key(1)))
        seconds = time.perf_counter() - began
        heats, cosines = heats[steps // 4 :], cosines[steps // 4 :]
        of_body = jnp.std(jnp.mean(heats, 0), 0) / bodies**0.5
        cells = ", ".join(
            bracketed(m, e) for m, e in zip(jnp.mean(heats, (0, 1)), of_body, strict=True)
        )
        cos = bracketed(jnp.mean(cosines), jnp.std(jnp.mean(cosines, 0)) / bodies**0.5)
        x = dt * damping / MOMENTS[0]
        print(f"| {name} | {x:.2g} | {steps / seconds:.0f} | {cells} | {cos} |", flush=True)

    for dt in (0.05, 0.5):

        def own(key, dt=dt):
            def saved(t, state, params):
                return MOMENTS * state.omega**2 / HEAT, cosine(state)

            def one(start, key):
                scheme, grid = langevin(jnp.asarray(damping)), jq.grid(0.0, dt, steps)
                return jq.rollout(
                    scheme, BODY, dipole, start, grid, field, noise=key,
                    options=jq.RolloutOptions(save=saved),
                ).saved  # fmt: skip

            keys = jax.random.split(key, bodies)
            return jax.tree.map(lambda x: x.swapaxes(0, 1), jax.vmap(one)(first, keys))

        row("jaxquat, `langevin(no_squish)`", dt, jax.jit(own))

        def energy(body, **_):
            up = jax.vmap(jq.quaternion.rotate, (0, None))(body.orientation.vec, AXIS)[:, 2]
            return -field * jnp.sum(up)

        gamma = rigid_body.RigidBody(1.0, damping * jnp.sum(1.0 / MOMENTS))
        _, shift = space.free()
        init, step = simulate.nvt_langevin(energy, shift, dt, HEAT, gamma)
        place = rigid_body.RigidBody(jnp.zeros((bodies, 3)), rigid_body.Quaternion(first.q))
        mass = rigid_body.RigidBody(jnp.ones(bodies), jnp.tile(MOMENTS, (bodies, 1)))

        def theirs(key, init=init, step=step, place=place, mass=mass):
            def advance(state, _):
                state = step(state)
                turning = rigid_body.canonicalize_momentum(state.position, state.momentum)
                cosines = jax.vmap(jq.quaternion.rotate, (0, None))(
                    state.position.orientation.vec, AXIS
                )[:, 2]
                return state, (turning.orientation**2 / MOMENTS / HEAT, cosines)

            return jax.lax.scan(advance, init(key, place, mass=mass), length=steps)[1]

        row("jax-md, `nvt_langevin`", dt, jax.jit(theirs))
    print(f"\nexact: 1, 1, 1 and {expected:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"speed": speed, "long": long, "gradients": gradients, "peers": peers}
    parser.add_argument("parts", nargs="+", choices=parts)
    for part in parser.parse_args().parts:
        parts[part]()
