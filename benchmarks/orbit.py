"""Measure how far float32 ends from Kepler's orbits after a day: the table of docs/control.md.

    python benchmarks/orbit.py [--orbits 64] [--turns 9] [--engine auto] [--write]

The orbits have a semi-major axis of 7000 km and an eccentricity of 0.001; their planes and phases
are random. An error is the root mean square over them of the distance [m] to the two-body motion in
closed form (Kepler's equation, float64). "Units of the orbit" have the semi-major axis as length
and one radian of mean motion as time. "Compensated" are steps in SI units from ``compensated``
below, which keeps what the sums of position and velocity round off. The errors after one revolution
follow, and the times of both engines.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pages import put

import jaxquat as jq

jax.config.update("jax_enable_x64", True)

PAGE = Path(__file__).parents[1] / "docs" / "control.md"
MU, AXIS, ECCENTRICITY = 3.986004418e14, 7.0e6, 1e-3  # m^3/s^2, m
MOTION = np.sqrt(MU / AXIS**3)  # rad/s
DAY = 86400.0  # s
SCHEMES = ("rkmk4", "symmetric_top", "symmetric_top_suzuki4")
SI, OWN = (1.0, 1.0), (AXIS, 1 / MOTION)  # units of length [m] and time [s]


def kepler(anomaly):
    """Return position [m] and velocity [m/s] in the plane of the orbit at a mean anomaly (N,)."""
    e, eccentric = ECCENTRICITY, anomaly
    for _ in range(20):  # Newton's method
        off = eccentric - e * np.sin(eccentric) - anomaly
        eccentric = eccentric - off / (1 - e * np.cos(eccentric))
    c, s, minor = np.cos(eccentric), np.sin(eccentric), np.sqrt(1 - e * e)
    rate = AXIS * MOTION / (1 - e * c)
    position = AXIS * np.stack([c - e, minor * s, 0 * s], axis=-1)
    return position, rate[:, None] * np.stack([-s, minor * c, 0 * s], axis=-1)


def added(a, b):
    """Return a + b and what its rounding lost (D. E. Knuth, TAOCP 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def compensated(scheme):
    """Return a step that keeps, in aux, what the sums of position and velocity lose by rounding.

    The scheme takes a step in axes that move with the body as it was at the start of the step: its
    position and velocity begin there as what was lost before, and end as small changes.
    """

    def step(body, torque, t, state, dt, params):
        def within(since, moved, params):
            position = state.position + (since * state.velocity + moved.position)
            velocity = state.velocity + moved.velocity
            here = moved._replace(aux=state.aux, position=position, velocity=velocity)
            return torque(t + since, here, params)[0]

        start = state._replace(aux=(), position=state.aux[0], velocity=state.aux[1])
        end = scheme(body, within, jnp.zeros_like(t), start, dt, params)
        position, off = added(state.position, dt * state.velocity + end.position)
        velocity, slow = added(state.velocity, end.velocity)
        return end._replace(aux=(off, slow), position=position, velocity=velocity)

    return step


def with_aux(torque, t, state, params):
    """Return a wrench, and zero for the derivatives of what ``compensated`` keeps in aux."""
    return torque(t, state, params), jax.tree.map(jnp.zeros_like, state.aux)


def flight(scheme, dtype, dt, options, units=SI, keep=False, duration=DAY):
    """Return a function that flies all orbits, and the positions [m] where it should end."""
    length, second = units
    steps = round(duration / dt)
    plane = jq.quaternion.random(jax.random.key(0), (options.orbits,))
    turn = np.asarray(jq.quaternion.to_matrix(plane))
    phase = np.random.default_rng(0).uniform(0, 2 * np.pi, options.orbits)
    x, v = (np.einsum("nij,nj->ni", turn, vector) for vector in kepler(phase))
    right = np.einsum("nij,nj->ni", turn, kepler(phase + MOTION * steps * dt)[0])

    zero = jnp.zeros(3, dtype)
    moments = jnp.array([1.0, 1.5, 2.0], dtype)
    body = jq.Body.from_principal(moments, mass=jnp.ones((), dtype))
    pull = jq.forces.point_mass(body, MU * second**2 / length**3)
    grid = jq.grid(0.0, dt / second, steps, save_every=steps)
    step, torque, aux = scheme, pull, ()
    if keep:
        step, aux = compensated(scheme), (zero, zero)
        torque = functools.partial(with_aux, pull)

    @jax.jit
    @jax.vmap
    def last(x, v):
        q = jnp.array([1.0, 0.0, 0.0, 0.0], dtype)
        spin = jnp.array([0.0, 0.0, 1e-3 * second], dtype)
        start = jq.State(q, spin, aux, x, v)
        choice = jq.RolloutOptions(engine=options.engine)
        return jq.rollout(step, body, torque, start, grid, options=choice).final.position

    start = jnp.asarray(x / length, dtype), jnp.asarray(v * second / length, dtype)
    return lambda: np.asarray(last(*start), float) * length, right


def error(*args, **options):
    """Return the root mean square error [m] at the end of a ``flight``."""
    fly, right = flight(*args, **options)
    return np.sqrt(np.mean(np.sum((fly() - right) ** 2, axis=1)))


def times(scheme, options):
    """Return the times in float64, and compensated, in units of that in float32; steps of 10 s."""
    kinds = (jnp.float32, False), (jnp.float64, False), (jnp.float32, True)
    flights = [flight(scheme, dtype, 10.0, options, keep=keep)[0] for dtype, keep in kinds]
    seconds = []
    for fly in flights:
        fly()
    for _ in range(options.turns):
        seconds.append([])
        for fly in flights:
            began = time.perf_counter()
            fly()
            seconds[-1].append(time.perf_counter() - began)
    single, *others = np.min(seconds, axis=0)
    return [other / single for other in others]


def rows(options):
    """Return the rows of the table."""
    heads = ("scheme", "step [s]", "float64", "float32, SI", "units of the orbit", "compensated")
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for name in SCHEMES:
        for dt in (1.0, 10.0, 60.0):
            scheme = jq.schemes.SCHEMES[name]
            off = [
                error(scheme, jnp.float64, dt, options),
                error(scheme, jnp.float32, dt, options),
                error(scheme, jnp.float32, dt, options, units=OWN),
                error(scheme, jnp.float32, dt, options, keep=True),
            ]
            yield f"| `{name}` | {dt:g} | " + " | ".join(f"{x:.1e}" for x in off) + " |"


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--orbits", type=int, default=64)
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    parser.add_argument("--turns", type=int, default=9, help="runs of which the fastest counts")
    parser.add_argument("--write", action="store_true", help="put the table into docs/control.md")
    options = parser.parse_args()
    table = []
    for row in rows(options):
        print(row, flush=True)
        table.append(row)
    if options.write:
        put(PAGE, "<!-- orbits -->", "<!-- end of orbits -->", "\n".join(table))

    print("\nafter one revolution, rkmk4 [m]: step [s], float64, float32")
    turn = {"duration": 2 * np.pi / MOTION}
    for dt in (1.0, 10.0):
        off = [error(jq.rkmk4, dtype, dt, options, **turn) for dtype in (jnp.float64, jnp.float32)]
        print(f"{dt:g}, {off[0]:.1e}, {off[1]:.1e}", flush=True)

    print("\ntimes in units of that in float32: scheme, engine: float64, compensated")
    for name in SCHEMES:
        for options.engine in ("scan", "fused"):
            double, kept = times(jq.schemes.SCHEMES[name], options)
            print(f"{name}, {options.engine}: {double:.1f}, {kept:.1f}", flush=True)


if __name__ == "__main__":
    main()
