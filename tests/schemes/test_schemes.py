"""These tests check orders, reference motions, norm, aux states and the table of schemes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import effort, problems
from examples.validation.orders import ANY_TORQUE, COMPOSED, STEPS, angles, assert_order, forced
from jaxquat._internal.jaxprs import nested
from jaxquat.schemes import tableaus

NAMES = list(jq.schemes.SCHEMES)
CONSISTENT = [name for name in NAMES if jq.schemes.SCHEMES[name].order]
# Those composed of others ask for torques where these do, from other times on.
OF_ONE_STEP = [name for name in CONSISTENT if name not in COMPOSED]
MILLION = (
    "lie_euler",
    "rkmk2",
    "rkmk3",
    "rkmk4",
    "rkmk5",
    "rkmk6",
    "zhao",
    "formulation1",
    "symmetric_top_bm4",
    "simo_wong",
)
EXTRA = {"heun": (jq.schemes.rkmk(tableaus.HEUN), 2)}
AUX = ("rkmk4", "zhao", "formulation1")
SIZES = ("rkmk4", "simo_wong")


@pytest.mark.slow  # the errors of one step are quick
@pytest.mark.parametrize("name", some([*CONSISTENT, *EXTRA], slow=[*OF_ONE_STEP, *EXTRA]))
def test_order_on_forced_bodies(name):
    """Each scheme gets torques and bodies that it admits, and forces if it admits them.

    These depend on time and all of the state, or on time, attitude and position.
    """
    step, order = (
        EXTRA[name] if name in EXTRA else (jq.schemes.SCHEMES[name], jq.schemes.SCHEMES[name].order)
    )
    kind = problems.Flying if step.translation else problems.Forced
    any_torque = name in ANY_TORQUE or name in EXTRA
    assert_order(name, step, order, *forced(any_torque, name == "symmetric_top_bm4", kind))


def lengths(order):
    """Three steps [s], so short that what a wrong torque changes is not hidden by higher terms."""
    return (0.2 if order >= 4 else 0.02) * 0.5 ** np.arange(3)


@functools.cache
def short(rate, symmetric, order, kind=problems.Forced):
    """A problem and where its bodies are after the lengths of an order, from t = 0.3.

    That is (q, vectors) of shape (3, 64, ...), in extended precision.
    """
    problem = kind(rate, symmetric)
    ends = [problem.exact(0.3, length) for length in lengths(order)]
    return problem, [np.stack(x).astype(float) for x in zip(*ends, strict=True)]


def errors_of_one_step(step, name, order, *of_problem):
    """The RMS errors (3,) of attitude, rate and, if there are any, position and velocity.

    A step of a reversible scheme is also undone by one of -dt, up to rounding.
    """
    problem, (q, vectors) = short(*of_problem)
    given = jax.tree.map(
        lambda x: jnp.concatenate([x] * 3), (problem.bodies(), problem.starts(name), problem.params)
    )

    @jax.jit
    @jax.vmap
    def run(body, start, params, t, dt):
        return step(body, problem.torque, t, start, dt, params)

    (bodies, starts, params), dt = given, jnp.repeat(lengths(order), problem.n)
    end = run(bodies, starts, params, jnp.full_like(dt, 0.3), dt)
    if isinstance(step, jq.schemes.Scheme) and step.reversible:
        back = run(bodies, end, params, 0.3 + dt, -dt)
        for x, y in zip(jax.tree.leaves(back), jax.tree.leaves(starts), strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)
    got = np.concatenate([x for x in (end.omega, *end[3:]) if x is not None], axis=1)
    apart = (got - vectors.reshape(got.shape)).reshape(3, problem.n, -1, 3)
    errors = [angles(end.q, q.reshape(-1, 4)).reshape(3, -1)]
    errors += list(np.moveaxis(np.linalg.norm(apart, axis=-1), 2, 0))
    return [np.sqrt(np.mean(np.square(error), axis=1)) for error in errors]


ONE_OF_EACH = (  # the order of the others on forced bodies is measured above
    "lie_euler",
    "rkmk4",
    "zhao",
    "pcdm1",
    "formulation1",
    "formulation2",
    "half_quat",
    "full_quat_corrected",
    "symmetric_top",
    "lgvi",
    "lie_midpoint",
    "simo_wong",
)
PLANTED = set(ONE_OF_EACH) - {"lie_euler", "formulation2", "half_quat", "full_quat_corrected"}
"""Those in which tests/mutations.py plants errors."""


@pytest.mark.parametrize("name", some(ONE_OF_EACH, PLANTED))
def test_the_error_of_one_step(name):
    """It is of the order of the scheme plus one, in attitude, rate, position and velocity.

    A torque or force at another state or time than the stage's would lower it.
    """
    scheme = jq.schemes.SCHEMES[name]
    kind = problems.Flying if scheme.translation else problems.Forced
    of_problem = name in ANY_TORQUE, name == "symmetric_top_bm4", scheme.order, kind
    errors = errors_of_one_step(scheme, name, scheme.order, *of_problem)
    assert len(errors) == (4 if scheme.translation else 2)
    for each in errors:
        assert each.min() > 1e-13, "the slope would measure rounding"
        assert -problems.slope(lengths(scheme.order), each) > scheme.order + 0.8, each


def zhao_as_printed(body, torque, t, state, dt, params):
    """Zhao and van Wachem's step with the factors of the predicted rates as they are printed."""
    q, omega, aux, *_ = state
    rate = lambda t, state: jq.dynamics.derivative(body, torque, t, state, params).omega
    slope = rate(t, state)
    half = jq.quaternion.exp(0.5 * dt * (omega + 0.5 * dt * slope))
    middle = jq.State(jq.quaternion.multiply(q, half), omega + 0.25 * dt * slope, aux)
    turn = jq.quaternion.exp(dt * jq.quaternion.rotate(half, middle.omega))
    end = omega + dt * rate(t + 0.5 * dt, middle)
    return jq.State(jq.quaternion.multiply(q, turn), end, aux)


def test_with_its_printed_factors_zhaos_step_is_of_order_one():
    """The error of one step falls with the square of the step, and not with its cube."""
    each = errors_of_one_step(zhao_as_printed, "zhao", 2, True, False, 2)[0]
    assert abs(-problems.slope(lengths(2), each) - 2) < 0.15


@pytest.mark.slow  # what rkmk6 is the reference of is quick
@pytest.mark.parametrize("problem", problems.REFERENCE)
def test_reference_end_states(problem):
    """The most accurate scheme gives the twelve printed digits.

    Its own error at this step is far below them.
    """
    torque, q0, q, omega = problems.REFERENCE[problem]
    start = jq.State(jnp.asarray(q0), jnp.asarray(problems.OMEGA0))
    run = jax.jit(
        lambda: jq.rollout(
            jq.rkmk6,
            problems.reference_body(),
            torque,
            start,
            jq.grid(0.0, 0.0025, 4000, save_every=4000),
        )
    )
    state = run().state
    assert angles(state.q[-1], q) < 1e-10
    assert np.abs(state.omega[-1] - omega).max() < 1e-10


# An implementation in another language had these rotation angle errors at h = .05, T = 10.
MEASURED = {
    "zhao": (3.4e-3, 1.2e-2, 1.1e-2),
    "pcdm1": (1.8e-3, 5.6e-3),
    "rkmk3": (1.4e-4, 2.3e-3, 1.1e-3),
    "rkmk4": (1.3e-6, 7.6e-6, 5.5e-7),
    "rkmk5": (2.6e-9, 2.2e-8, 1.7e-8),
    "rkmk6": (5.0e-10, 8.2e-9, 5.0e-9),
    "formulation1": (1.6e-5, 1.6e-4, 1.0e-5),
    "formulation2": (1.1e-5, 3.3e-5, 4.1e-6),
    "no_squish": (8.2e-3, 3.9e-3),
    "no_squish_kl6": (3.5e-9, 2.5e-9),
    "lgvi": (1.3e-1, 1.5e-1),
    "lie_midpoint": (2.8e-3, 1.3e-3, 3.2e-3),
    "simo_wong": (6.7e-2, 8.8e-2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_errors_agree_with_an_independent_implementation(name):
    """The errors agree within 4 %.

    Two digits were recorded, so 4 % leaves room for their rounding and none for another method.
    """
    any_torque = name in ANY_TORQUE
    kinds = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])[: len(MEASURED[name])]

    def torque(t, state, params):
        """FREE, HEAVY or DRIVEN, by its factors."""
        heavy = problems.heavy(t, state, params)
        other = problems.driven(t, state, params) - heavy if any_torque else 0.0
        return params[0] * heavy + params[1] * other

    known = list(problems.REFERENCE.values())[: len(kinds)]
    q0, q = (np.array([each[k] for each in known]) for k in (1, 2))
    start = jq.State(jnp.asarray(q0), jnp.stack([jnp.asarray(problems.OMEGA0)] * len(kinds)))
    bodies = jax.tree.map(lambda x: jnp.stack([x] * len(kinds)), problems.reference_body())
    march = problems.marcher(jq.schemes.SCHEMES[name], torque, batch=True)
    end = march(bodies, start, 0.0, 10.0, 200, kinds)
    np.testing.assert_allclose(angles(end.q, q), MEASURED[name], rtol=0.04)


@pytest.mark.slow  # the errors of one step are quick
@pytest.mark.parametrize("name", OF_ONE_STEP)
def test_stage_times_on_a_manufactured_motion(name):
    """Every stage must ask the torque at its own time.

    The torque depends on time alone and moves the body along a known path.
    """
    scheme = jq.schemes.SCHEMES[name]
    body = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
    if name == "symmetric_top_bm4":
        body = jq.Body.from_principal(jnp.array([0.9, 1.3, 0.9]), jnp.asarray(problems.TILTED))

    def torque(t, state, params):
        _, omega, omega_dot = problems.manufactured(t)
        return body.inertia @ omega_dot + jnp.cross(omega, body.inertia @ omega)

    q, omega, _ = problems.manufactured(jnp.asarray(0.3))
    end_q, end_omega, _ = problems.manufactured(jnp.asarray(1.3))
    march, errors = problems.marcher(scheme, torque), []
    steps = STEPS[scheme.order] if scheme.order < 5 else (10, 20, 40)
    for n in steps:
        state = march(body, problems.start_of(name, q, omega), 0.3, 1.3, n)
        errors.append(
            (float(angles(state.q, end_q)), float(jnp.linalg.norm(state.omega - end_omega)))
        )
    slopes = [problems.slope(steps, np.array(errors)[:, k]) for k in (0, 1)]
    # The leading error term of a single motion may happen to be small.
    assert min(slopes) > scheme.order - 0.25, slopes
    assert np.array(errors).min() > 1e-13


@pytest.mark.parametrize("name", some(MILLION, ("rkmk4",)))
@pytest.mark.parametrize("dtype", some(["float32", "float64"], ["float32"]))
def test_norm_over_a_million_steps(name, dtype):
    """The smooth norm controller keeps |q| within three ulp of 1.

    Its factor (3 - |q|^2)/2 and four products round a few times each.
    """
    steps = 1_000_000
    start = jq.State(jnp.asarray(problems.TILTED, dtype), jnp.asarray(problems.OMEGA0, dtype))

    body, admitted = problems.reference_body(dtype), problems.heavy
    if name == "symmetric_top_bm4":
        body = jq.Body.from_principal(jnp.asarray([0.6, 0.6, 1.0], dtype))

    def of_rate(t, state, params):
        return problems.heavy(t, state, params) - jnp.array([0.1, 0.2, 0.05], dtype) * (
            state.omega - 1
        )

    if name in ANY_TORQUE:
        admitted = of_rate
    run = jax.jit(
        lambda start: jq.rollout(
            jq.schemes.SCHEMES[name],
            body,
            admitted,
            start,
            jq.grid(0.0, 0.01, steps, save_every=1000),
        ),
        compiler_options=effort.FULL,
    )
    q = np.asarray(run(start).state.q, dtype=np.longdouble)
    assert q.shape == (1001, 4)
    assert np.abs(np.sqrt((q * q).sum(1)) - 1).max() <= 3 * np.finfo(dtype).eps


WHEELED = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
WITH_WHEEL = jq.State(
    jnp.asarray(problems.TILTED),
    jnp.array([0.5, -1.0, 0.7]),
    {"wheel": jnp.ones(3), "lag": jnp.zeros(3)},
)


def wheel_and_lag(t, state, params):
    wheel, lag = state.aux["wheel"], state.aux["lag"]
    motor = jnp.sin(2 * t) * jnp.ones(3) - 0.5 * lag + 0.2 * state.omega
    return -motor - jnp.cross(state.omega, wheel), {
        "wheel": motor,
        "lag": 3.0 * (state.omega - lag),
    }


@functools.cache
def end_with_wheel():
    return problems.marcher(jq.rkmk6, wheel_and_lag)(WHEELED, WITH_WHEEL, 0.0, 1.0, 400)


@pytest.mark.parametrize("name", some((n for n in NAMES if jq.schemes.SCHEMES[n].aux), AUX))
def test_aux_states_are_integrated_at_the_scheme_order(name):
    """The order of the scheme is that of the aux state, of q and of omega.

    A wheel's momentum drives the body, and the body drives it.
    """
    scheme = jq.schemes.SCHEMES[name]
    march = problems.marcher(scheme, wheel_and_lag)
    steps = STEPS[scheme.order] if scheme.order < 5 else (10, 20, 40)
    ends = [march(WHEELED, WITH_WHEEL, 0.0, 1.0, n) for n in steps]
    local = jax.jit(jq.dynamics.local)
    errors = np.array([np.abs(local(end_with_wheel(), end)) for end in ends])
    parts = [np.linalg.norm(errors[:, k : k + 3], axis=1) for k in (0, 3, 6, 9)]
    assert min(part.min() for part in parts) > 1e-13
    assert min(problems.slope(steps, part) for part in parts) > scheme.order - 0.25


def test_wheel_exchange_conserves_total_momentum():
    """World momentum R (I omega + h) stays constant, to the order of the scheme.

    Internal torques only move momentum between body and wheel.
    """
    body = problems.reference_body()

    def torque(t, state, params):
        motor = 0.3 * jnp.array([1.0, -0.5, 0.2]) * jnp.cos(t)
        return -motor - jnp.cross(state.omega, state.aux), motor

    start = jq.State(
        jnp.asarray(problems.TILTED), jnp.asarray(problems.OMEGA0), jnp.array([0.1, 0.2, -0.3])
    )
    path = jax.jit(lambda: jq.rollout(jq.rkmk6, body, torque, start, jq.grid(0.0, 0.01, 1000)))()
    own = body.inertia @ path.state.omega.T
    total = np.asarray(jq.quaternion.rotate(path.state.q, own.T + path.state.aux))
    assert np.abs(total - total[0]).max() < 1e-11


def test_float32_and_float64_agree():
    """The two motions differ by float32 rounding: about 200 steps of one ulp each."""
    ends = []
    for dtype in (jnp.float32, jnp.float64):
        start = jq.State(jnp.asarray(problems.TILTED, dtype), jnp.asarray(problems.OMEGA0, dtype))
        body = problems.reference_body(dtype)
        ends.append(
            jax.jit(
                lambda s=start, b=body: jq.rollout(
                    jq.rkmk2, b, problems.driven, s, jq.grid(0.0, 0.05, 200)
                )
            )().state
        )
    assert angles(ends[0].q[-1].astype(jnp.float64), ends[1].q[-1]) < 200 * np.finfo(np.float32).eps


def callbacks(jaxpr):
    """How often a program calls back when it runs: a scan does so at each of its steps."""
    total = 0
    for equation in jaxpr.eqns:
        assert equation.primitive.name not in ("cond", "while")
        inside = sum(callbacks(getattr(x, "jaxpr", x)) for x in nested(equation))
        total += equation.params.get("length", 1) * inside
        total += equation.primitive.name == "pure_callback"
    return total


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32_and_evaluations_are_counted_right(name):
    """A step returns the dtype, the shapes and the structure that it was given.

    An empty dict as aux state, as diffrax wants it, is one.
    """
    scheme = jq.schemes.SCHEMES[name]
    start = problems.start_of(name, jnp.array([1, 0, 0, 0], jnp.float32), jnp.ones(3, jnp.float32))
    if not name.startswith("full_quat"):
        start = start._replace(aux={})
    body = jq.Body.from_principal(jnp.asarray([0.6, 0.6, 1.0], jnp.float32))
    result = jax.ShapeDtypeStruct((3,), jnp.float32)
    none = lambda t: np.zeros(3, np.float32)
    torque = lambda t, state, params: jax.pure_callback(none, result, t)
    step = lambda state: scheme(body, torque, 0.0, state, 0.1, None)
    program, after = jax.make_jaxpr(step, return_shape=True)(start)
    if "call_hi_primitive" not in {x.primitive.name for x in program.jaxpr.eqns}:
        # From jax 0.12 on, the programs of lax.custom_root are hidden in one.
        assert callbacks(program.jaxpr) == scheme.evaluations
    assert jax.tree.structure(after) == jax.tree.structure(start)
    assert {leaf.dtype for leaf in jax.tree.leaves(after)} == {jnp.dtype("float32")}
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, start)


NOT_EXPONENTIAL = {
    "half_quat",
    "full_quat",
    "full_quat_corrected",
    "formulation1",
    "formulation2",
    "lgvi",
    "simo_wong",
}


@pytest.mark.parametrize("name", some(sorted(set(NAMES) - NOT_EXPONENTIAL), ("rkmk4", "zhao")))
def test_spin_about_a_principal_axis_is_exact(name):
    """At a constant rate about a principal axis, every product is the exact exponential.

    The schemes in NOT_EXPONENTIAL know no exponential.
    """
    body = jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0]))
    start = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.0, 0.0, 2.0]))
    exact = jq.quaternion.multiply(start.q, jq.quaternion.exp(jnp.array([0.0, 0.0, 0.6])))
    step = lambda: jq.schemes.SCHEMES[name](body, jq.torques.zero, 0.0, start, 0.3, None)
    state = jax.jit(step)()
    assert np.abs(state.q - exact).max() < 2e-15
    assert np.abs(state.omega - start.omega).max() < 1e-15


@pytest.mark.parametrize("name", some(sorted(set(NAMES) - ANY_TORQUE), set(NAMES) - set(COMPOSED)))
def test_a_torque_of_the_rate_is_refused(name):
    body, start = (
        jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0])),
        jq.State(jnp.asarray(problems.TILTED), jnp.ones(3)),
    )
    with pytest.raises(TypeError, match=f"{name}: .*torque driven"):
        jq.schemes.SCHEMES[name](body, problems.driven, 0.0, start, 0.1, None)
    # This hands the rate to a function that ignores it.
    nested = jax.jit(lambda t, state, params: problems.heavy(t, state, params))
    jax.eval_shape(lambda: jq.schemes.SCHEMES[name](body, nested, 0.0, start, 0.1, None))
    with pytest.raises(TypeError, match="reads state"):
        jq.schemes.SCHEMES[name](
            body, jax.jit(lambda t, state, params: -state.omega), 0.0, start, 0.1, None
        )


def doubled(t, state, params):
    return 2.0 * problems.heavy(t, state, params)


IGNORANT = {
    "checkpoint": jax.checkpoint(problems.heavy),
    "cond": lambda t, state, params: jax.lax.cond(
        t > 0.05, problems.heavy, lambda *given: 2.0 * problems.heavy(*given), t, state, params
    ),
    "switch": lambda t, state, params: jax.lax.switch(
        1, [problems.heavy, problems.heavy], t, state, params
    ),
    "scan": lambda t, state, params: jax.lax.scan(
        lambda carry, _: ((carry[0], carry[1] + problems.heavy(t, carry[0], params)), None),
        (state, jnp.zeros(3)),
        None,
        length=2,
    )[0][1],
    "while": lambda t, state, params: jax.lax.while_loop(
        lambda carry: carry[0] < 2,
        lambda carry: (carry[0] + 1, carry[1], problems.heavy(t, carry[1], params)),
        (0, state, jnp.zeros(3)),
    )[2],
    "discarded": lambda t, state, params: (jnp.sin(state.omega), problems.heavy(t, state, params))[
        1
    ],
}
READING = {
    "checkpoint": jax.checkpoint(problems.driven),
    "cond": lambda t, state, params: jax.lax.cond(
        t > 0.05, problems.heavy, lambda *given: -given[1].omega, t, state, params
    ),
    "index": lambda t, state, params: jax.lax.cond(
        state.omega[0] > 0, problems.heavy, problems.heavy, t, state, params
    ),
    "scan": lambda t, state, params: jax.lax.scan(
        lambda carry, _: ((carry[1], carry[1]), None), (jnp.zeros(3), state.omega), None, length=2
    )[0][0],
}


def plain(t, state, factors):
    return jnp.where(t < 0.05, factors[0], factors[1]) * problems.heavy(t, state, factors)


@functools.partial(jax.jit, static_argnums=0)
def one_step(torque, params):
    body = jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0]))
    start = jq.State(jnp.asarray(problems.TILTED), jnp.ones(3))
    return jq.symmetric_top(body, torque, 0.0, start, 0.1, params)


@pytest.mark.parametrize("kind", IGNORANT)
def test_a_torque_that_only_hands_the_rate_around_is_taken(kind):
    """The step is that of a plain torque with the same values.

    The branch makes the first of the two kicks, before t = 0.05, twice as strong. The loop adds two
    torques.
    """
    after = one_step(IGNORANT[kind], None)
    first, second = {"cond": (2.0, 1.0), "scan": (2.0, 2.0)}.get(kind, (1.0, 1.0))
    wanted = one_step(plain, jnp.array([first, second]))
    np.testing.assert_allclose(after.omega, wanted.omega, atol=1e-15)


@pytest.mark.parametrize("kind", READING)
def test_a_torque_that_reads_the_rate_in_a_branch_or_a_loop_is_refused(kind):
    body, start = (
        jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0])),
        jq.State(jnp.asarray(problems.TILTED), jnp.ones(3)),
    )
    with pytest.raises(
        TypeError,
        match=r"lgvi: wanted a torque of time and attitude, got torque .*, "
        r"which reads state\.omega",
    ):
        jq.lgvi(body, READING[kind], 0.0, start, 0.1, None)


@pytest.mark.parametrize("name", [name for name in NAMES if not jq.schemes.SCHEMES[name].aux])
def test_aux_states_are_refused(name):
    start = jq.State(jnp.asarray(problems.TILTED), jnp.ones(3), {"wheel": jnp.ones(3)})
    with pytest.raises(TypeError, match="aux"):
        jq.schemes.SCHEMES[name](
            jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0])),
            problems.heavy,
            0.0,
            start,
            0.1,
            None,
        )


@pytest.mark.parametrize("name", some((n for n in NAMES if not n.startswith("full_quat")), SIZES))
def test_free_motion_does_not_depend_on_the_size_of_the_inertia(name):
    """A power of two in the inertia changes no digit of the motion.

    The inertia goes from 1e-24 to 1e24 kg m^2, where determinants leave the range of float32.
    """
    start = jq.State(
        jnp.array([0.5, 0.5, -0.5, 0.5], jnp.float32), jnp.array([0.3, -0.2, 0.5], jnp.float32)
    )
    moments = jnp.array(
        [0.6, 0.6, 1.0] if name.startswith("symmetric") else [0.6, 0.8, 1.0], jnp.float32
    )

    @jax.jit
    def end(size):
        body = jq.Body.from_principal(size * moments)
        return jq.rollout(
            jq.schemes.SCHEMES[name], body, jq.torques.zero, start, jq.grid(0.0, 0.05, 20)
        ).state.omega[-1]

    wanted = end(jnp.float32(1.0))
    assert np.isfinite(wanted).all()
    for exponent in (-80, 80):
        np.testing.assert_array_equal(end(jnp.float32(2.0**exponent)), wanted)
