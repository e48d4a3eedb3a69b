"""Restarts: impacts that conserve, what a restart's derivative is, and the facts of the scheme."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from marks import some

import jaxquat as jq
from jaxquat.schemes import Episode, restart

BODY = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]), mass=0.5)  # kg m^2, kg
REST = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
G = 10.0  # m/s^2
FALL = jq.forces.gravity(BODY, (0.0, 0.0, -G))
FIRST = Episode(jnp.zeros(()))


def thrown(height, speed):
    return REST._replace(
        position=jnp.array([0.0, 0.0, height]), velocity=jnp.array([speed, 0.0, 0.0]), aux=FIRST
    )


def below(t, state, params):
    return (state.position[2] < 0) & (state.velocity[2] < 0)


def bounce(t, state, restitution):
    return state._replace(velocity=state.velocity * jnp.array([1.0, 1.0, -restitution]))


BOUNCING = restart(jq.rkmk2, below, bounce)


def never(t, state, params):
    return jnp.zeros((), bool)


def unchanged(t, state, params):
    return state


def turning_at(time):
    """The first event, once, at this time."""
    return lambda t, state, params: (t >= time) & (state.aux.number == 0)


turning = turning_at(1.0)


def second_rate(t, state, params):
    return REST._replace(omega=params["rate"] * jnp.eye(3)[2], aux=state.aux)


TURNING = restart(jq.lie_euler, turning, second_rate)


def test_an_elastic_impact_conserves_the_energy_and_the_horizontal_momentum():
    fly = lambda: jq.rollout(BOUNCING, BODY, FALL, thrown(1.0, 2.0), jq.grid(0, 2**-8, 2560), 1.0)
    path = jax.jit(fly)()
    speed2 = jnp.sum(path.state.velocity**2, axis=1)
    energy = 0.5 * 0.5 * speed2 + 0.5 * G * path.state.position[:, 2]
    # rkmk2 is exact for a parabola, and the height of an impact does not change: rounding is left
    np.testing.assert_allclose(energy, energy[0], rtol=1e-12)
    np.testing.assert_array_equal(path.state.velocity[:, 0], 2.0)
    # sqrt(2/G) s to the first impact, then sqrt(8/G) s between two: 11 within 10 s
    assert path.final.aux.number == 1 + int((10.0 - np.sqrt(2 / G)) / np.sqrt(8 / G)) == 11


def test_an_inelastic_impact_keeps_the_square_of_the_restitution_of_the_vertical_energy():
    fly = lambda: jq.rollout(BOUNCING, BODY, FALL, thrown(1.0, 2.0), jq.grid(0, 2**-10, 700), 0.5)
    path = jax.jit(fly)()
    k = int(np.argmax(path.state.aux.number))  # the row after the impact
    before = path.state.velocity[k - 1] - jnp.array([0.0, 0.0, G * 2**-10])
    np.testing.assert_allclose(path.state.velocity[k], before * jnp.array([1.0, 1.0, -0.5]))
    np.testing.assert_allclose(path.t[k], np.sqrt(2.0 / G), atol=2**-10)


def test_a_separation_happens_once_and_conserves_the_momentum_of_both_parts():
    masses = np.array([0.5, 2.0])  # kg, of this stage and of the one it leaves
    push = 3.0  # N s, of the spring

    def part(mass, sign):
        body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]), mass=mass)

        def pushed(t, state, params):
            return state._replace(velocity=state.velocity.at[0].add(sign * push / mass))

        scheme = restart(jq.no_squish, turning, pushed)
        fall = jq.forces.gravity(body, (0.0, 0.0, -G))
        return jq.rollout(scheme, body, fall, thrown(1.0, 7.0), jq.grid(0.0, 0.125, 24)).final

    ends = jax.jit(lambda: [part(m, sign) for m, sign in zip(masses, (1.0, -1.0), strict=True)])()
    momentum = sum(m * end.velocity for m, end in zip(masses, ends, strict=True))
    np.testing.assert_allclose(momentum, masses.sum() * np.array([7.0, 0.0, -G * 3.0]), rtol=1e-12)
    np.testing.assert_allclose(ends[0].velocity[0], 7.0 + push / 0.5, rtol=1e-12)
    assert [float(end.aux.number) for end in ends] == [1.0, 1.0]


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("engine", some(["scan", "fused"], quick=["fused"]))
@pytest.mark.parametrize("checkpoint", some(["none", "sqrt"], quick=["none"]))
def test_the_derivative_through_a_restart_is_that_of_the_fresh_state(checkpoint, engine):
    def angle(rate, first):
        start = REST._replace(omega=first * jnp.eye(3)[2], aux=FIRST)
        grid = jq.grid(0.0, 0.25, 12)  # the restart is at 1 s, 2 s remain
        path = jq.rollout(
            TURNING, BODY, jq.torques.zero, start, grid, {"rate": rate},
            options=jq.RolloutOptions(checkpoint=checkpoint, engine=engine),
        )  # fmt: skip
        return jq.quaternion.log(path.final.q)[2]

    rates, firsts = jnp.array([0.2, 0.4]), jnp.array([0.9, 1.1])
    both = jax.jit(jax.vmap(jax.value_and_grad(angle, argnums=(0, 1))))
    value, (by_rate, by_first) = both(rates, firsts)
    np.testing.assert_allclose(value, 2.0 * rates, rtol=1e-12)
    np.testing.assert_allclose(by_rate, 2.0, rtol=1e-12)
    np.testing.assert_array_equal(by_first, 0.0)
    if checkpoint == "none":
        tangent = jax.jit(lambda x: jax.jvp(angle, (x, 1.0), (1.0, 1.0))[1])(0.3)
        np.testing.assert_allclose(tangent, 2.0, rtol=1e-12)


@pytest.fixture(params=["scan", "fused"])
def engine(request):
    return request.param


@pytest.mark.needs("llvmlite")
def test_random_restarts_are_the_same_in_both_engines_and_reproducible_alone():
    def tumbled(t, state, key):
        drawn = jax.random.normal(jax.random.fold_in(key, state.aux.number.astype(int)), (3,))
        return state._replace(q=jq.quaternion.exp(drawn), omega=0.1 * drawn)

    scheme = restart(jq.lie_euler, lambda t, state, key: jnp.sum(state.omega**2) > 1.0, tumbled)
    push = lambda t, state, key: state.omega

    def fly(key, engine):
        start = tumbled(0.0, REST._replace(aux=FIRST), key)
        return jq.rollout(
            scheme,
            BODY,
            push,
            start,
            jq.grid(0.0, 0.0625, 200),
            key,
            options=jq.RolloutOptions(engine=engine),
        )

    keys = jax.random.split(jax.random.key(0), 4)
    scan, fused = (jax.jit(jax.vmap(lambda k, e=e: fly(k, e)))(keys) for e in ("scan", "fused"))
    np.testing.assert_array_equal(scan.state.aux.number, fused.state.aux.number)
    assert scan.final.aux.number.min() >= 2
    # the rows grow by a factor e^(t/I) between restarts, to at most 10 times the rate at the start
    np.testing.assert_allclose(scan.state.omega, fused.state.omega, atol=1e-12)
    restarts = np.diff(scan.state.aux.number[1], prepend=0) == 1
    for k, row in zip(range(1, 3), np.flatnonzero(restarts), strict=False):
        drawn = jax.random.normal(jax.random.fold_in(keys[1], k), (3,))
        np.testing.assert_allclose(scan.state.omega[1, row], 0.1 * drawn, rtol=1e-14)


def test_a_controller_keeps_its_memory_and_sees_the_number_of_the_episode():
    def update(t, state, memory, params, value):
        count, number = memory
        count = jnp.where(state.aux.number == number, count + 1, 0)
        return jnp.zeros(3), (count, state.aux.number)

    controller = jq.Controller(lambda start, params: (0, start.aux.number), update)
    push = lambda t, state, params, command: command
    start, grid = REST._replace(aux=FIRST), jq.grid(0.0, 0.25, 10)
    fly = lambda p: jq.rollout(TURNING, BODY, push, start, grid, p, controller=controller)
    count, number = jax.jit(fly)({"rate": 0.3}).memory
    assert (count, number) == (5, 1)  # the sample at 1 s is the first of the new episode


def test_two_kinds_of_events_count_by_themselves_and_at_given_times():
    """An inner event at rates above 1 rad/s, an outer one once, at 2 s; empty intervals count not.

    A ball of 2 kg m^2 under 2 N m gains 1 rad/s each second, from 0.5 rad/s.
    """
    ball, start = jq.Body(2.0 * jnp.eye(3)), REST._replace(omega=0.5 * jnp.eye(3)[2])
    fast = lambda t, state, params: state.omega[2] > 1.0
    inner = restart(jq.lie_euler, fast, lambda t, state, params: start._replace(aux=state.aux))
    outer = restart(inner, turning_at(1.99), lambda t, state, params: REST._replace(aux=state.aux))
    push = lambda t, state, params: 2.0 * jnp.eye(3)[2]

    def fly(start):
        grid = jq.grid_at(jnp.array([0.0, 0.625, 0.625, 1.25, 2.0, 2.5]), 5)
        return jq.rollout(outer, ball, push, start, grid).final

    final = jax.jit(fly)(start._replace(aux=Episode(jnp.zeros(()), FIRST)))
    # steps of 0.125 s, 0.15 s from 1.25 s on, 0.1 s from 2 s on; 0.5 rad/s are passed after 5, 5
    # and 4 of them
    assert (final.aux.number, final.aux.aux.number) == (1, 3)
    np.testing.assert_allclose(final.omega[2], 0.5, rtol=1e-12)


class Shaken:
    """A step that takes as many normals as there are aux states, and adds them to these."""

    def noise(self, state):
        return state.aux.size

    def __call__(self, body, torque, t, state, dt, params, noise):
        return state._replace(aux=state.aux + noise)


def test_a_stochastic_scheme_gets_its_noise_and_its_own_aux_states():
    start = REST._replace(aux=jnp.zeros(2))
    counted = REST._replace(aux=Episode(jnp.zeros(()), start.aux))
    scheme = restart(Shaken(), turning, lambda t, state, params: counted)
    assert scheme.noise(start) == scheme.noise(counted) == 2
    noise, grid = jax.random.normal(jax.random.key(0), (6, 2)), jq.grid(0.0, 0.25, 6)
    fly = lambda noise: jq.rollout(scheme, BODY, jq.torques.zero, counted, grid, noise=noise)
    final = jax.jit(fly)(noise).final
    np.testing.assert_allclose(final.aux.aux, noise[4:].sum(0), rtol=1e-15)  # from 1 s on
    assert final.aux.number == 1  # although ``fresh`` returned 0


def test_the_facts_of_the_inner_scheme_are_passed_on():
    plain = restart(jq.no_squish, never, unchanged)
    assert (plain.evaluations, plain.torques, plain.translation) == (2, "attitude", True)
    assert (plain.order, plain.conserves, plain.reversible) == (1, (), False)
    assert plain.noise(REST) == 0
    assert plain.name == "restarted(no_squish)"
    assert plain == restart(jq.no_squish, never, unchanged)
    drag = restart(jq.schemes.damp(jq.no_squish, 0.5), never, unchanged)
    np.testing.assert_allclose(drag.decay(BODY), 0.5)
    white = jq.stochastic.add_torque_noise(drag, 0.1)
    assert white.noise(REST) == 3  # of a scheme with drag


@pytest.mark.parametrize(
    ("wrapped", "inner"),
    [
        (lambda s: jq.schemes.damp(s, 0.5), jq.no_squish),
        (lambda s: jq.stochastic.langevin(s, 0.5, 0.1), jq.no_squish),
        (lambda s: jq.schemes.compose(s, jq.schemes.weights.SUZUKI4), jq.rkmk2),
        (
            lambda s: jq.schemes.compose(s, jq.schemes.weights.SUZUKI4),
            jq.schemes.damp(jq.rkmk2, 0.5),
        ),
    ],
)
def test_a_restart_within_the_step_of_another_scheme_is_refused(wrapped, inner):
    wrapped(inner)
    scheme = restart(restart(inner, never, unchanged), never, unchanged)
    text = "scheme: wanted one that is not restarted, got restarted.*; put restarted outermost"
    with pytest.raises(TypeError, match=text):
        wrapped(scheme)


def test_a_restart_after_an_overflow_has_a_tangent():
    """1e200 rad/s overflow in the first step; then 2 rad by rate, of 8 steps of 0.25 s."""
    overflows = lambda t, state, params: ~jnp.isfinite(state.omega).all()
    scheme = restart(jq.lie_euler, overflows, second_rate)
    grid = jq.grid(0.0, 0.25, 9)

    def angle(rate):
        start = REST._replace(omega=rate * 1e200 * jnp.array([1.0, 2.0, 3.0]), aux=FIRST)
        path = jq.rollout(scheme, BODY, jq.torques.zero, start, grid, {"rate": rate})
        return jq.quaternion.log(path.final.q)[2]

    value, slope = jax.jit(lambda rate: jax.jvp(angle, (rate,), (1.0,)))(0.3)
    np.testing.assert_allclose([value, slope], [0.6, 2.0], rtol=1e-12)


def test_check_reports_a_bad_number_of_the_inner_scheme():
    def fly(damping):
        scheme = restart(jq.schemes.damp(jq.lie_euler, damping), never, unchanged)
        return jq.rollout(
            scheme,
            BODY,
            jq.torques.zero,
            REST,
            jq.grid(0.0, 0.1, 2),
            options=jq.RolloutOptions(check=True),
        )

    error, _ = checkify.checkify(jax.jit(fly))(-0.5)
    with pytest.raises(checkify.JaxRuntimeError, match="damping: wanted"):
        error.throw()


def test_reversible_is_refused_by_name():
    with pytest.raises(ValueError, match=r"time-reversible scheme .* got restarted\(no_squish\)"):
        jq.rollout(
            restart(jq.no_squish, never, unchanged), BODY, jq.torques.zero, REST,
            jq.grid(0.0, 0.1, 2), options=jq.RolloutOptions(checkpoint="reversible"),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "fresh", "error", "text"),
    [
        (lambda t, s, p: s.q > 0, unchanged, TypeError, r"ended: wanted one bool, got bool\[4\]"),
        (lambda t, s, p: t, unchanged, TypeError, r"ended: wanted one bool, got float64\[\]"),
        (never, lambda t, s, p: s.q, TypeError, "fresh: wanted a State back, got"),
        (never, lambda t, s, p: s._replace(aux=()), ValueError, "fresh: wanted a state like the"),
        (
            never,
            lambda t, s, p: s._replace(omega=s.omega.astype("float32")),
            ValueError,
            r"fresh: wanted .*omega='float64\[3\]'.* got .*omega='float32\[3\]'",
        ),
    ],
)  # fmt: skip
def test_a_wrong_result_of_ended_or_fresh_is_named(ended, fresh, error, text):
    scheme, start = restart(jq.rkmk2, ended, fresh), REST._replace(aux=FIRST)
    with pytest.raises(error, match=text):
        jq.rollout(scheme, BODY, jq.torques.zero, start, jq.grid(0.0, 0.1, 2))
