"""Rollouts of bodies that move: exact motions, every engine, controllers, gradients, one potential.

The order of every scheme is in schemes/test_schemes.py.
"""

import dataclasses
import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from marks import some

import jaxquat as jq
from examples.validation import effort, problems
from jaxquat import quaternion

MOVES = [name for name, scheme in jq.schemes.SCHEMES.items() if scheme.translation]
INERTIA = jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]])
BODY = jq.Body(INERTIA, 1.7)
START = jq.State(
    jnp.asarray(problems.TILTED),
    jnp.array([0.5, -1.0, 0.7]),
    position=jnp.array([1.0, -0.5, 0.3]),
    velocity=jnp.array([0.2, 0.9, -0.4]),
)
GRID = jq.grid(0.1, 0.05, 40)


def weight(t, state, params):
    return jq.Wrench(jnp.zeros_like(state.omega), BODY.mass * params)


# Of the others the error of one step, by positions and velocities too, is quick.
@pytest.mark.parametrize("name", some(MOVES, ("rkmk2",)))
def test_a_free_fall_is_a_parabola_and_does_not_disturb_the_rotation(name):
    """Those of order 2 or more fall exactly; the attitude is that of the body without position."""
    scheme, gravity = jq.schemes.SCHEMES[name], jnp.array([0.0, 0.3, -9.81])
    body = jq.Body.from_principal(jnp.array([0.7, 0.7, 1.0]), mass=1.7)
    fall = lambda t, state, params: jq.Wrench(jnp.zeros_like(state.omega), body.mass * params)

    @jax.jit
    def both():
        without = START._replace(position=None, velocity=None)
        return [
            jq.rollout(
                scheme, body, torque, start, GRID, gravity, options=jq.RolloutOptions(engine="scan")
            )
            for torque, start in ((fall, START), (jq.torques.zero, without))
        ]

    path, turned = both()
    np.testing.assert_allclose(path.state.q, turned.state.q, rtol=0, atol=1e-15)
    np.testing.assert_allclose(path.state.omega, turned.state.omega, rtol=0, atol=2e-15)
    t = np.asarray(path.t - path.t[0])[:, None]
    velocity = np.asarray(START.velocity) + t * np.asarray(gravity)
    np.testing.assert_allclose(path.state.velocity, velocity, atol=1e-13)
    if scheme.order >= 2:
        wanted = np.asarray(START.position) + t * (0.5 * (np.asarray(START.velocity) + velocity))
        np.testing.assert_allclose(path.state.position, wanted, atol=1e-13)


def kepler(t, state, mu):
    x = state.position
    return jq.Wrench(jnp.zeros_like(x), -mu * BODY.mass * x / jnp.linalg.norm(x) ** 3)


def test_an_orbit_closes_after_a_period():
    """The ellipse of eccentricity 0.3, half way and all the way round; mu = 1, semi-axis 1."""
    e = 0.3
    start = START._replace(
        position=jnp.array([1 - e, 0.0, 0.0]),
        velocity=jnp.sqrt((1 + e) / (1 - e)) * jnp.array([0.0, 0.6, 0.8]),
    )
    run = lambda: jq.rollout(
        jq.rkmk6, BODY, kepler, start, jq.grid(0.0, np.pi / 300, 600, save_every=300), 1.0
    )
    path = jax.jit(run)()
    np.testing.assert_allclose(path.state.position[1], [-1 - e, 0, 0], atol=1e-10)
    np.testing.assert_allclose(path.state.position[2], start.position, atol=1e-10)
    np.testing.assert_allclose(path.state.velocity[2], start.velocity, atol=1e-10)


def gravity_gradient(mu):
    """Torque and force of a body in the field of a point mass, and the potential that has both.

    It is -mu m/r and MacCullagh's term; differentiation gives the other two.
    """

    def potential(turn, position, q, body):
        attitude = quaternion.multiply(q, quaternion.exp(turn))
        r = jnp.sqrt(position @ position)
        u = quaternion.rotate_inverse(attitude, position) / r
        inertia = body.inertia
        return -mu * body.mass / r - mu * (jnp.trace(inertia) - 3 * u @ inertia @ u) / (2 * r**3)

    def torque(t, state, body):
        by = jax.grad(potential, (0, 1))
        moment, slope = by(jnp.zeros_like(state.position), state.position, state.q, body)
        return jq.Wrench(-moment, -slope)

    return torque, potential


ORBITER = jq.Body.from_principal(jnp.array([0.006, 0.009, 0.011]), mass=1.0)
ON_ORBIT = jq.State(
    jnp.asarray(problems.TILTED),
    jnp.array([1.5, 0.3, -0.8]),
    position=jnp.array([1.0, 0.0, 0.0]),
    velocity=jnp.array([0.0, 0.8, 0.7]),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symmetric_top", "no_squish", "lgvi", "symmetric_top_suzuki4"])
def test_the_energy_of_a_tumbling_orbiter_stays_bounded_over_a_million_steps(name):
    """The mean of the last tenth is that of the first, but for a part of the amplitude.

    The largest error of rkmk4 here is 2.3 times as large in the second half as in the first.
    """
    torque, potential = gravity_gradient(1.0)
    of_energy = lambda s: (
        jq.dynamics.energy(ORBITER, s) + potential(jnp.zeros(3), s.position, s.q, ORBITER)
    )
    of_momentum = lambda s: jq.dynamics.momentum(ORBITER, s, about=jnp.zeros(3))

    @functools.partial(jax.jit, compiler_options=effort.FULL)
    def fly():
        save = lambda t, s, params: (of_energy(s), of_momentum(s))
        grid = jq.grid(0.0, 0.01, 1_000_000, save_every=10)
        path = jq.rollout(
            jq.schemes.SCHEMES[name],
            ORBITER,
            torque,
            ON_ORBIT,
            grid,
            ORBITER,
            options=jq.RolloutOptions(save=save),
        )
        return path.saved

    energy, momentum = (np.asarray(x) for x in fly())
    error = np.abs(energy / energy[0] - 1)
    first, second = error[: len(error) // 2].max(), error[len(error) // 2 :].max()
    drift = np.abs(energy[-10_000:].mean() / energy[:10_000].mean() - 1)
    assert 1e-11 < first < 2e-5
    assert second < 1.3 * first
    assert drift < 0.2 * first
    assert np.ptp(momentum, axis=0).max() < 1e-11


def pushed(t, state, params, command):
    tau = command - params["damping"] * state.omega + 0.1 * jnp.sin(state.position)
    lift = quaternion.rotate(state.q, params["thrust"] + 0.2 * command)
    return jq.Wrench(tau, lift - params["drag"] * state.velocity + jnp.cos(t))


HOVER = jq.Controller(
    lambda start, params: start.position,
    lambda t, state, memory, params, value: (
        params["gain"] * (memory - state.position) - 0.1 * state.velocity + value,
        0.9 * memory + 0.1 * state.position,
    ),
)
PARAMS = {
    "damping": jnp.array(0.3),
    "thrust": jnp.array([0.1, -0.2, 0.8]),
    "drag": jnp.array([0.2, 0.1, 0.4]),
    "gain": jnp.array(0.7),
}
INPUTS = jnp.sin(jnp.arange(60.0).reshape(20, 3))


def guided(start, params, mass, engine, scheme=jq.rkmk4, **options):
    return flat.rollout(
        scheme,
        jq.Body(INERTIA.astype(start.q.dtype), mass),
        pushed,
        start,
        dataclasses.replace(GRID, sample_every=2),
        params,
        controller=HOVER,
        inputs=INPUTS.astype(start.q.dtype),
        options=jq.RolloutOptions(engine=engine),
        **options,
    )


@pytest.mark.parametrize(
    ("scheme", "bodies", "dtype", "bound"),
    some(
        [
            ("rkmk2", 64, jnp.float32, 1e-4),
            *(("rkmk4", n, jnp.float32, 1e-4) for n in (1, 64)),
            *(("rkmk4", n, jnp.float64, 1e-11) for n in (1, 64)),
        ],
        [("rkmk2", 64, jnp.float32, 1e-4)],
    ),
)
def test_the_fused_engine_flies_like_the_scan(scheme, bodies, dtype, bound):
    scales = jnp.linspace(1.0, 0.5, bodies, dtype=dtype)
    given = jax.tree.map(lambda x: x.astype(dtype), (START, PARAMS, jnp.asarray(1.7)))

    def fly(engine):
        def one(scale):
            start, params, mass = given
            start = start._replace(position=scale * start.position)
            mass = scale * mass
            path = guided(start, params, mass, engine, jq.schemes.SCHEMES[scheme], save_every=4)
            return path.state, path.command, path.memory

        return jax.jit(jax.vmap(one))(scales)

    for a, b in zip(*(jax.tree.leaves(fly(engine)) for engine in ("scan", "fused")), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=bound)


def attitude_force(t, state, params):
    tau = params["pull"] * jnp.sin(t + state.position) - state.q[1:]
    return jq.Wrench(tau, quaternion.rotate(state.q, params["pull"]) - 2.0 * state.position)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["scan", "fused", "reversible"])
def test_gradients_by_mass_inertia_start_and_parameters(engine):
    """Against central differences of the scan, in one pass over all of them."""
    checkpoint = "reversible" if engine == "reversible" else "none"
    given = (jnp.asarray(1.7), INERTIA, START, {"pull": jnp.array([0.3, -0.4, 0.9])})
    flat, unravel = jax.flatten_util.ravel_pytree(given)

    def loss(flat, engine, checkpoint="none"):
        mass, inertia, start, params = unravel(flat)
        start = start._replace(q=quaternion.normalize(start.q))
        body = jq.Body(0.5 * (inertia + inertia.T), mass)
        end = jq.rollout(
            jq.symmetric_top,
            body,
            attitude_force,
            start,
            GRID,
            params,
            options=jq.RolloutOptions(engine=engine, checkpoint=checkpoint),
        ).final
        weights = jnp.arange(1.0, 14.0)
        return weights @ jnp.concatenate([end.q, end.omega, end.position, end.velocity])

    value = jax.jit(functools.partial(loss, engine="scan"))
    by = "fused" if engine == "fused" else "scan"
    got = jax.jit(jax.grad(functools.partial(loss, engine=by, checkpoint=checkpoint)))(flat)
    h = 1e-5 * jnp.eye(flat.size)
    many = jax.jit(jax.vmap(value))
    wanted = (many(flat[None] + h) - many(flat[None] - h)) / 2e-5
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-8 * float(np.abs(wanted).max()))
    assert np.count_nonzero(np.abs(wanted) > 1e-3) > 15


@pytest.mark.slow
def test_the_reversible_gradient_needs_no_more_memory_for_more_steps():
    def memory(steps, checkpoint):
        def loss(mass):
            body = jq.Body(INERTIA, mass)
            params, grid = (
                {"pull": jnp.array([0.3, -0.4, 0.9])},
                jq.grid(0.0, 0.01, steps, save_every=steps),
            )
            end = jq.rollout(
                jq.lgvi,
                body,
                attitude_force,
                START,
                grid,
                params,
                options=jq.RolloutOptions(engine="scan", checkpoint=checkpoint),
            ).final
            return jnp.sum(end.position)

        compiled = jax.jit(jax.grad(loss)).lower(jnp.asarray(1.7)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(100_000, "reversible") < 2 * memory(100, "reversible")
    assert memory(100_000, "none") > 100 * memory(100_000, "reversible")


@pytest.mark.slow
def test_a_path_knows_the_position_between_its_rows():
    """Cubic: the error falls with the fourth power of the spacing, that of velocity the third."""
    params, grid = {"pull": jnp.array([0.3, -0.4, 0.9])}, jq.grid(0.1, 0.0125, 160)
    run = lambda: jq.rollout(jq.rkmk6, BODY, attitude_force, START, grid, params)
    path = jax.jit(run)()
    errors = []
    for spacing in (8, 16):
        got = path[::spacing].at(path.t)
        errors.append([np.abs(got.position - path.state.position).max()])
        errors[-1].append(np.abs(got.velocity - path.state.velocity).max())
    slopes = np.log2(np.divide(*reversed(errors)))
    assert np.abs(slopes - np.array([4, 3])).max() < 0.3
    at_rows = path.at(path.t)
    np.testing.assert_allclose(at_rows.position, path.state.position, atol=1e-15)
    np.testing.assert_allclose(at_rows.velocity, path.state.velocity, atol=1e-13)


def test_the_exact_free_motion_drifts():
    """Without the attitude, which would be compiled too."""
    position, velocity = jax.jit(lambda: jq.exact.free_body(BODY, 2.0, START)[3:])()
    wanted = np.asarray(START.position) + 2 * np.asarray(START.velocity)
    np.testing.assert_allclose(position, wanted, rtol=1e-15)
    np.testing.assert_array_equal(velocity, START.velocity)


def test_a_traced_mass_that_is_none_is_reported():
    @jax.jit
    @checkify.checkify
    def end(mass):
        body, grid = jq.Body(INERTIA, mass), jq.grid(0.0, 0.1, 2)
        return jq.rollout(
            jq.lie_euler,
            body,
            weight,
            START,
            grid,
            jnp.ones(3),
            options=jq.RolloutOptions(check=True),
        ).final

    assert end(1.0)[0].get() is None
    for mass in (0.0, -1.0, np.nan):
        with pytest.raises(Exception, match="mass: wanted a positive finite number, got"):
            end(mass)[0].throw()
