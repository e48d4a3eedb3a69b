"""Every derivative of the fused engine, of every order, is that of the scan engine.

The problem is commanded: a controller with memory, inputs and integers, rows between samples, a
torque of time, attitude, rate, an aux state and parameters. It is differentiated by the gains, the
rate at the start, the moments of inertia, the inputs, t0 and dt.
"""

import contextlib
import dataclasses
import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems
from jaxquat._internal.jaxprs import equations
from jaxquat.fused import keys, primitives, recurrence
from jaxquat.simulation.engines.kernels import trace
from jaxquat.simulation.simulation import checked_simulation

pytestmark = pytest.mark.needs("llvmlite")
TOLERANCE = {"float64": 1e-11, "float32": 1e-4}


def update(t, state, memory, params, value):
    """A law with an integral and a counter, which adds noise."""
    integral, count = memory
    integral = integral + 0.05 * state.q[1:] * state.q[0]
    command = -params[0] * state.q[1:] - params[1] * state.omega - integral + 0.1 * value
    return (command, count), (integral, count + 1)


def law(t, state, params, command):
    tau, count = command
    drive = 0.3 * jnp.sin(2 * t + state.aux) * (1 + count.astype(t.dtype))
    return tau + drive - 0.1 * state.q[0] * state.omega, state.omega - state.aux


def ends(engine, x, scheme=jq.lie_euler):
    """The last rate, rows of attitudes, and the controller's memory.

    With a scheme of one stage XLA compiles the derivatives of the scan in a fraction of the time.
    """
    gains, omega, moments, noise, t0, dt = x
    dtype = omega.dtype
    init = lambda start, params: (params[0] * start.omega, jnp.int32(0))
    start = jq.State(jnp.asarray(problems.TILTED, dtype), omega, jnp.zeros(3, dtype))
    path = jq.rollout(
        scheme,
        jq.Body.from_principal(moments),
        law,
        start,
        jq.grid(t0, dt, 12, sample_every=3, save_every=4),
        gains,
        controller=jq.Controller(init, update),
        inputs=noise,
        options=jq.RolloutOptions(engine=engine),
    )
    return path.final.omega, path.state.q, path.memory[0], path.command[0]


def numbers(dtype):
    values = [2.0, 1.0], [0.9, -0.4, 0.7], [0.6, 1.0, 1.5], np.ones((4, 3)), 0.3, 0.05
    return tuple(jnp.asarray(np.array(x, dtype)) for x in values)


def loss(engine, x, scheme=jq.lie_euler):
    parts = jax.tree.leaves(ends(engine, x, scheme))
    return sum(jnp.sum(jnp.sin(y + k)) for k, y in enumerate(parts))


def mean(engine, x):
    """Of three bodies, which share all but the rate."""
    rates = jnp.stack([x[1], -x[1], 0.5 * x[1]])
    return jnp.mean(jax.vmap(lambda rate: loss(engine, (x[0], rate, *x[2:])))(rates))


def direction(x):
    return jax.tree.map(lambda y: jnp.cos(3 * y + 1), x)


def along(f):
    """The derivative of f in a direction."""
    return lambda x: jax.jvp(f, (x,), (direction(x),))[1]


def squares(f):
    """The sum of the squares of all that f gives."""
    return lambda x: sum(jnp.sum(y**2) for y in jax.tree.leaves(f(x)))


def of_some(transformed):
    """A transformation by gains, rates and inputs alone, of which the outer ones are less."""
    return lambda f: lambda x: transformed(lambda some: f((*some, *x[3:])))(x[:3])


DERIVATIVES = {
    "value": lambda f: f,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (direction(x),)),
    "jacfwd": lambda f: of_some(jax.jacfwd)(f),
    "value_and_grad": jax.value_and_grad,
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](direction(x)),
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.ones_like(f(x))),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "jvp of grad": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (direction(x),)),
    "grad of jvp": lambda f: jax.grad(along(f)),
    "grad of grad": lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x)[0] ** 2)),
    "hessian": lambda f: of_some(jax.hessian)(f),
    "jvp of jvp": lambda f: along(along(f)),
    "vmapped linearize": lambda f: lambda x: jax.vmap(jax.linearize(f, x)[1])(
        jax.tree.map(lambda y: jnp.stack([y, 2 * y]), direction(x))
    ),
}  # fmt: skip
CHECKPOINTED = {
    "grad of checkpoint of grad": lambda f: jax.grad(jax.checkpoint(squares(jax.grad(f)))),
    "grad of checkpoint of jvp": lambda f: jax.grad(jax.checkpoint(along(f))),
    "grad of jvp of checkpoint": lambda f: jax.grad(along(jax.checkpoint(f))),
    "grad of grad of checkpoint": lambda f: jax.grad(squares(jax.grad(jax.checkpoint(f)))),
    "all twice": lambda f: jax.grad(jax.checkpoint(squares(jax.grad(jax.checkpoint(f))))),
    "jvp of checkpoint of grad": lambda f: along(jax.checkpoint(jax.grad(jax.checkpoint(f)))),
    "linearize": lambda f: lambda x: jax.linearize(jax.checkpoint(jax.grad(f)), x)[1](direction(x)),
    "products saved": lambda f: jax.grad(
        jax.checkpoint(squares(jax.grad(f)), policy=jax.checkpoint_policies.dots_saveable)
    ),
    "what does not depend": lambda f: lambda x: jax.grad(
        jax.checkpoint(lambda gains: squares(jax.grad(f))(x) * jnp.sum(gains))
    )(x[0]),
}  # fmt: skip
TRANSPOSED = {
    "of vjp": lambda f: lambda x: jax.linear_transpose(jax.vjp(f, x)[1], f(x))((direction(x),)),
    "of many jvp": lambda f: (
        lambda x: jax.linear_transpose(
            jax.vmap(lambda dx: jax.jvp(f, (x,), (dx,))[1]),
            jax.tree.map(lambda y: jnp.stack([y, y]), x),
        )(jnp.array([1.0, 2.0]))
    ),
    "of jvp of grad": lambda f: (
        lambda x: jax.linear_transpose(lambda dx: jax.jvp(jax.grad(f), (x,), (dx,))[1], x)(
            direction(x)
        )
    ),
}
QUICK = [("value_and_grad", loss), ("checkpoint", mean)]
SLOW = [
    ("jacfwd", mean),
    ("jvp", loss),
    ("linearize", mean),
    ("jvp of grad", loss),
    ("grad of jvp", mean),
    ("hessian", mean),
    ("jvp of jvp", mean),
    ("vmapped linearize", loss),
]


def assert_close(got, wanted, tolerance):
    """Relative to the largest number of each array."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1e-3, np.abs(b).max()))


def assert_same(transformation, f=loss):
    """A transformation of f has the same results by both engines."""
    got, wanted = (
        jax.jit(transformation(functools.partial(f, engine)))(numbers("float64"))
        for engine in ("fused", "scan")
    )
    assert_close(got, wanted, TOLERANCE["float64"])


@pytest.mark.parametrize(
    ("name", "f"), some([(name, f) for name in DERIVATIVES for f in (loss, mean)], QUICK, SLOW)
)
def test_a_derivative(name, f):
    assert_same(DERIVATIVES[name], f)


@pytest.mark.parametrize("name", some(["value_and_grad", "jvp of grad"], slow=["value_and_grad"]))
def test_a_derivative_of_steps_of_two_stages(name):
    assert_same(DERIVATIVES[name], functools.partial(loss, scheme=jq.rkmk2))


@pytest.mark.parametrize(
    "name", some(CHECKPOINTED, slow=["all twice", "grad of jvp of checkpoint"])
)
def test_checkpoint_around_and_inside_other_derivatives(name):
    assert_same(CHECKPOINTED[name])


@pytest.mark.parametrize("name", some(TRANSPOSED, slow=["of vjp", "of many jvp"]))
def test_a_linear_function_made_of_derivatives_has_a_transpose(name):
    assert_same(TRANSPOSED[name])


def test_what_is_linear_in_an_aux_state_alone_has_a_transpose():
    """As of the scan: aux decays by (1 - dt) in each of four steps of Euler's method."""
    start = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.9, -0.4, 0.7]))
    torque = lambda t, state, params: (jnp.zeros(3), -state.aux)

    def end(aux):
        grid, body = jq.grid(0.0, 0.25, 4), problems.reference_body()
        begin = start._replace(aux=aux)
        return jq.rollout(
            jq.lie_euler, body, torque, begin, grid, options=jq.RolloutOptions(engine="fused")
        ).final.aux

    (slope,) = jax.jit(jax.linear_transpose(end, jnp.float64(0.0)))(jnp.float64(2.0))
    np.testing.assert_allclose(slope, 2 * 0.75**4, rtol=1e-15)


def test_a_jacobian_of_a_gradient_has_one_gradient_whatever_the_directions():
    """By all arrays: what does not depend on the directions has no axis of them."""
    x = numbers("float64")
    f = lambda x: loss("fused", x)
    shapes = jax.eval_shape(jax.hessian(f), x)
    assert shapes[1][3].shape == (3, 4, 3)


def powers(p, y):
    """p^15 y^16, as a rollout: each of four steps makes p y^2 of the aux state y."""
    start = jq.State(jnp.eye(4)[0], jnp.zeros(3), y)
    torque = lambda t, state, p: (jnp.zeros(3), p * state.aux**2 - state.aux)
    grid, body = jq.grid(0.0, 1.0, 4), problems.reference_body()
    options = {"checkpoint": 2, "engine": "fused"}
    return flat.rollout(jq.lie_euler, body, torque, start, grid, p, **options).final.aux


def logarithm(x):
    """The sum of the logarithms of two powers: 30 log p + 16 log y + 16 log z."""
    return jnp.sum(jnp.log(powers(x[0], x[1:])))


TWICE = {
    "jacrev of grad": lambda f: jax.jacrev(jax.grad(f)),
    "jacrev of jacfwd": lambda f: jax.jacrev(jax.jacfwd(f)),
    "linearized grad": lambda f: lambda x: jax.vmap(jax.linearize(jax.grad(f), x)[1])(jnp.eye(3)),
    "jacrev of linearized": lambda f: jax.jacrev(
        lambda x: jax.vmap(jax.linearize(f, x)[1])(jnp.eye(3))
    ),
}


@pytest.mark.parametrize("name", some(TWICE, [x for x in TWICE if x != "jacrev of jacfwd"], ()))
def test_the_second_derivatives_of_a_logarithm_are_those_of_calculus(name):
    """By a parameter and by the start, of which two states are kept."""
    x = jnp.array([1.1, 0.9, 0.8])
    hessian = jax.jit(TWICE[name](logarithm))(x)
    np.testing.assert_allclose(hessian, np.diag(-np.array([30.0, 16.0, 16.0]) / x**2), atol=1e-11)


@pytest.mark.parametrize(
    "name", some(["jvp of grad", "grad of grad"], ["jvp of grad"], ["grad of grad"])
)
def test_the_second_derivative_by_the_start_alone(name):
    """No parameter has a tangent, so that of a state that is kept is all there is."""
    slope = jax.grad(lambda y: jnp.log(powers(jnp.float64(1.1), y)))
    twice = jax.grad(slope) if name == "grad of grad" else lambda y: jax.jvp(slope, (y,), (1.0,))[1]
    np.testing.assert_allclose(jax.jit(twice)(0.8), -16 / 0.8**2, rtol=1e-12)


def test_the_tangents_of_several_directions_have_a_transpose():
    """They go through one loop; the Jacobian is that of 15 log p + 16 log y and the same of z."""
    x, cotangents = jnp.array([1.1, 0.9, 0.8]), jnp.array([[1.0, 2.0], [3.0, 5.0]])
    logarithms = lambda x: jnp.log(powers(x[0], x[1:]))
    along_each = jax.vmap(lambda dx: jax.jvp(logarithms, (x,), (dx,))[1])
    transposed = jax.jit(jax.linear_transpose(along_each, jnp.zeros((2, 3))))
    jacobian = np.array([[15 / 1.1, 16 / 0.9, 0.0], [15 / 1.1, 0.0, 16 / 0.8]])
    np.testing.assert_allclose(transposed(cotangents)[0], cotangents @ jacobian, rtol=1e-12)


def test_one_recurrence_has_derivatives_by_each_argument_and_of_each_result():
    """A function under ``jit`` is traced once; x decays by 3/4 in each step, and y by 1/2."""

    @jax.jit
    def end(x, y):
        torque = lambda t, state, params: (jnp.zeros(3), (-state.aux[0], -2.0 * state.aux[1]))
        start = jq.State(jnp.eye(4)[0], jnp.zeros(3), (x, y))
        grid, body = jq.grid(0.0, 0.25, 4), problems.reference_body()
        return jq.rollout(
            jq.lie_euler, body, torque, start, grid, options=jq.RolloutOptions(engine="fused")
        ).final.aux

    by_x = jax.jvp(lambda x: end(x, 1.0), (1.0,), (1.0,))[1]
    by_y = jax.jvp(lambda y: end(1.0, y), (1.0,), (1.0,))[1]
    of_x, of_y = (jax.grad(lambda z, k=k: end(*z)[k])((1.0, 1.0)) for k in (0, 1))
    slopes = [[0.75**4, 0.0], [0.0, 0.5**4]]
    np.testing.assert_allclose([by_x, by_y], slopes, rtol=1e-15)
    np.testing.assert_allclose([of_x, of_y], slopes, rtol=1e-15)


def test_what_goes_through_other_states_has_its_derivative():
    """Of c alone, where a step adds a to b and b to c: after four steps c + 4 b + 6 a."""
    torque = lambda t, state, params: (jnp.zeros(3), (jnp.zeros(()), *state.aux[:2]))

    def end(*x):
        start = jq.State(jnp.eye(4)[0], jnp.zeros(3), x)
        grid, body = jq.grid(0.0, 1.0, 4), problems.reference_body()
        return jq.rollout(
            jq.lie_euler, body, torque, start, grid, options=jq.RolloutOptions(engine="fused")
        ).final.aux[2]

    x = jnp.array([0.3, -0.7, 1.1])
    assert jax.jit(jax.grad(end, (0, 1, 2)))(*x) == (6.0, 4.0, 1.0)
    assert jax.jit(lambda a: jax.jvp(lambda a: end(a, *x[1:]), (a,), (1.0,))[1])(x[0]) == 6.0


def test_a_tangent_keeps_the_states_that_its_primal_keeps(monkeypatch):
    """Where 7 numbers are kept because a step costs as much; that of the tangent costs more."""
    start = jq.State(jnp.asarray(problems.TILTED), jnp.ones(3))
    body, grid = problems.reference_body(), jq.grid(0.0, 0.01, 100)
    torque = lambda t, state, params: -state.omega
    f = trace(checked_simulation(jq.lie_euler, body, torque, start, grid, None))[0]
    monkeypatch.setattr(recurrence, "KEEPING", f.loop.step.cost() / 7)
    f = dataclasses.replace(f)
    g = f.tangent(f.smooth("constants"), ())
    assert (f.kept_every, g.kept_every) == (10, 10)
    assert dataclasses.replace(g, segment=None).kept_every == 1


def test_the_jacobian_of_sums_over_bodies():
    """Rows of weights times the powers of three bodies, of which each has a slope of its own."""
    weights, y = jnp.array([[1.0, 2.0, 3.0], [5.0, 7.0, 11.0]]), jnp.array([0.8, 0.9, 1.0])
    of_all = jax.vmap(functools.partial(powers, jnp.float64(1.1)))
    jacobian = jax.jit(jax.jacrev(lambda y: weights @ of_all(y)))(y)
    np.testing.assert_allclose(jacobian, weights * (16 * 1.1**15 * y**15)[None], rtol=1e-12)


def test_checkpoint_keeps_a_rollout_where_its_policy_says_so():
    """One that does not depend on what is differentiated; otherwise it is computed again."""
    policies = jax.checkpoint_policies

    def rollouts(policy):
        scaled = lambda x: jax.checkpoint(
            lambda scale: jnp.sin(scale * logarithm(x)), policy=policy
        )
        jaxpr = jax.make_jaxpr(lambda x: jax.grad(scaled(x))(1.0))(jnp.ones(3))
        named = [equation.primitive for equation in equations(jaxpr)]
        return named.count(primitives.value.primitive)

    saved = policies.everything_saveable, policies.nothing_saveable, policies.dots_saveable
    assert [rollouts(policy) for policy in saved] == [1, 2, 2]


@pytest.mark.slow
@pytest.mark.weekly
def test_a_third_derivative():
    """The gradient of the derivative of a gradient along a direction."""
    assert_same(lambda f: jax.grad(lambda x: jnp.sum(along(jax.grad(f))(x)[1])))


@pytest.mark.parametrize(
    "name", some(["jvp", "jacfwd", "value_and_grad", "jvp of grad"], ["jvp"], ["value_and_grad"])
)
def test_a_derivative_in_float32(name):
    got, wanted = (
        jax.jit(DERIVATIVES[name](functools.partial(mean, engine)))(numbers("float32"))
        for engine in ("fused", "scan")
    )
    assert_close(got, wanted, TOLERANCE["float32"])


def kernels(function, *arguments):
    """How many kernels a function calls."""
    return jax.jit(function).lower(*arguments).as_text().count("jaxquat_kernel")


@pytest.mark.slow
def test_several_tangents_ride_in_one_kernel():
    """Those by two gains beside their primal; twelve are two bodies of eight."""
    x = numbers("float64")
    by_gains = jax.jacfwd(lambda gains: loss("fused", (gains, *x[1:])))
    assert kernels(by_gains, x[0]) == 1
    jaxpr = str(jax.make_jaxpr(by_gains)(x[0]))
    assert jaxpr.count("fused_loop_value") == 1
    of = lambda engine: jax.jacfwd(lambda noise: loss(engine, (*x[:3], noise, *x[4:])))
    assert kernels(of("fused"), x[3]) == 1
    assert_close(jax.jit(of("fused"))(x[3]), jax.jit(of("scan"))(x[3]), TOLERANCE["float64"])


@pytest.mark.slow
@pytest.mark.weekly  # test_fused.py::test_transformations has vmap around and inside too
def test_vmap_goes_around_and_inside_in_any_order():
    x = numbers("float64")
    rates = jnp.stack([x[1], 2 * x[1]])
    gains = jnp.stack([x[0], x[0] + 1, x[0] * 0.5])

    def of(engine):
        by_rate = lambda gains, rate: jax.jacfwd(lambda w: loss(engine, (gains, w, *x[2:])))(rate)
        inner = lambda gains: jax.vmap(functools.partial(by_rate, gains))(rates)
        whole = lambda gains: jax.vmap(lambda w: loss(engine, (gains, w, *x[2:])))(rates)
        return jax.jit(lambda g: (jax.vmap(inner)(g), jax.vmap(jax.jacrev(whole))(g)))(gains)

    assert_close(of("fused"), of("scan"), TOLERANCE["float64"])


@pytest.mark.slow
def test_what_does_not_depend_has_a_derivative_of_zero():
    x = numbers("float64")
    count = lambda gains: jnp.sum(ends("fused", (gains, *x[1:]))[1][0])
    slopes = jax.jit(lambda x: [derivative(count)(x) for derivative in (jax.jacfwd, jax.grad)])
    np.testing.assert_array_equal(slopes(x[0]), 0)


@pytest.mark.parametrize(
    "name", some(["grad", "jvp of grad", "grad of jvp"], slow=["grad", "jvp of grad"])
)
def test_a_result_that_is_not_used_leaves_its_infinite_slope_out(name):
    """The norm of a vector that stays 0 has no derivative; the rate does not depend on its sum."""

    def torque(t, state, gain):
        return -gain * state.omega, jnp.linalg.norm(gain * state.q[2:])

    def total(engine, gain):
        start = jq.State(jnp.eye(4)[0], jnp.array([0.3, 0.0, 0.0]), jnp.zeros(()))
        body = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5]))
        grid = jq.grid(0.0, 0.05, 3)
        path = jq.rollout(
            jq.lie_euler, body, torque, start, grid, gain, options=jq.RolloutOptions(engine=engine)
        )
        return jnp.sum(path.final.omega**2)

    derivative = {
        "grad": jax.grad,
        "jvp of grad": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (1.0,))[1],
        "grad of jvp": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (1.0,))[1]),
    }[name]
    scan, fused = (jax.jit(derivative(functools.partial(total, e)))(2.0) for e in ("scan", "fused"))
    assert np.isfinite(scan)
    assert scan != 0
    np.testing.assert_allclose(fused, scan, rtol=1e-11)


SINGULAR = {
    "jvp": lambda f, x, one: jax.jvp(f, (x,), (one,))[1],
    "jvp of jvp": lambda f, x, one: jax.jvp(lambda x: jax.jvp(f, (x,), (one,))[1], (x,), (one,))[1],
    "jvp of grad": lambda f, x, one: jax.jvp(jax.grad(lambda x: jnp.sum(f(x))), (x,), (one,))[1],
    "grad of grad": lambda f, x, one: jax.grad(
        lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(f(x)))(x))
    )(x),
}


@pytest.mark.parametrize("name", some(SINGULAR, ["jvp"], ["jvp of jvp", "jvp of grad"]))
def test_a_tangent_or_cotangent_of_zero_meets_no_infinite_slope(name):
    """As in JAX, what is known not to change is left out; 0 times infinity would be NaN.

    The root of an aux state that stays 0 has no derivative by the inputs, and the second
    derivatives of the saved functions are infinite at their ends, where the tangent of the tangent
    is 0.
    """

    def saved(engine, inputs):
        def torque(t, state, params, command):
            still = jnp.minimum(jax.lax.stop_gradient(jnp.abs(state.omega[0])), 0.0)
            return command - state.omega, jnp.sqrt(state.aux) + still

        start = jq.State(jnp.eye(4)[0], jnp.array([0.3, 0.0, 0.1]), jnp.zeros(()))
        body, grid = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5])), jq.grid(0.0, 0.05, 2)
        save = lambda t, s, p, c: (jnp.sum(s.omega**2) + s.aux, jnp.log1p(c[0]), jnp.cbrt(c[1]))
        path = jq.rollout(
            jq.lie_euler,
            body,
            torque,
            start,
            grid,
            inputs=inputs,
            options=jq.RolloutOptions(save=save, engine=engine),
        )
        return jnp.concatenate(path.saved)

    inputs = jnp.array([[-1.0, 0.0, 0.7], [0.5, 1.0, -0.2]])
    scan, fused = (
        np.asarray(
            jax.jit(functools.partial(SINGULAR[name], functools.partial(saved, e)))(
                inputs, inputs + 2.0
            )
        )
        for e in ("scan", "fused")
    )
    assert np.isinf(scan).any()
    assert not np.isnan(scan).any()
    np.testing.assert_allclose(fused, scan, rtol=1e-11, atol=1e-14)


@pytest.mark.slow
def test_operation_by_operation_without_jit():
    x = numbers("float64")
    with jax.disable_jit():
        got = jax.value_and_grad(functools.partial(loss, "fused"))(x)
    wanted = jax.jit(jax.value_and_grad(functools.partial(loss, "scan")))(x)
    assert_close(got, wanted, TOLERANCE["float64"])


@pytest.mark.slow
@pytest.mark.weekly
def test_no_bodies_have_no_derivatives():
    x = numbers("float64")
    none = jnp.zeros((0, 3))
    for derivative in (jax.jacfwd, jax.jacrev):
        by_rate = derivative(lambda w: loss("fused", (x[0], w, *x[2:])))
        assert jax.vmap(by_rate)(none).shape[0] == 0


@pytest.mark.slow
def test_auto_differentiates_a_torque_whose_tangent_has_no_scalar_form():
    """The scan computes it, in both modes. This one has lgamma, which is no scalar program."""
    drag = jax.custom_jvp(jnp.tanh)
    drag.defjvp(lambda x, dx: (drag(*x), dx[0] * jax.lax.lgamma(2.0 + x[0] ** 2)))

    def of(engine):
        def end(omega):
            torque = lambda t, state, params: drag(state.omega * params) - state.q[1:]
            start = jq.State(jnp.asarray(problems.TILTED), omega)
            body, grid = problems.reference_body(), jq.grid(0.0, 0.05, 8)
            path = jq.rollout(
                jq.lie_euler,
                body,
                torque,
                start,
                grid,
                0.5,
                options=jq.RolloutOptions(engine=engine),
            )
            return path.final.omega

        return lambda x: (jax.jacfwd(end)(x), jax.jacrev(end)(x), end(x))

    x = jnp.array([0.9, -0.4, 0.7])
    assert "fused_loop" in str(jax.make_jaxpr(of("auto"))(x))
    assert_close(jax.jit(of("auto"))(x), jax.jit(of("scan"))(x), 1e-12)


def rounded():
    """A custom_jvp function whose rule computes the value anew, which has another slope."""
    f = jax.custom_jvp(lambda x: jnp.round(10 * x) / 10)
    f.defjvp(lambda x, dx: (jnp.round(10 * x[0]) / 10, dx[0]))
    return f


def clipped():
    """A custom_vjp function: the sine, whose cotangents are bounded."""
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, bar: (jnp.clip(bar * jnp.cos(x), -0.3, 0.3),))
    return f


SECOND = {
    "grad of grad": lambda f: jax.grad(jax.grad(f)),
    "jacrev of jacfwd": lambda f: jax.jacrev(jax.jacfwd(f)),
    "hessian": jax.hessian,
}


def twice(function, engine, p):
    torque = lambda t, state, p: -function(state.omega * p) * state.omega - 0.3 * state.q[1:]
    start = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.4, -0.3, 0.2]))
    body, grid = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5])), jq.grid(0.0, 0.05, 4)
    path = jq.rollout(
        jq.lie_euler, body, torque, start, grid, p, options=jq.RolloutOptions(engine=engine)
    )
    return jnp.sum(path.final.omega**2)


@pytest.mark.parametrize(
    ("function", "name"),
    some(
        [(clipped, "grad of grad"), *((rounded, name) for name in SECOND)],
        slow=[(clipped, "grad of grad"), (rounded, "jacrev of jacfwd")],
    ),
)
def test_a_second_derivative_is_by_the_rules_of_custom_derivatives(function, name):
    """What the rule computes is differentiated again, and not the function that it is for.

    "auto" takes the scan for it; with "fused" it is an error if it needs one.
    """
    function = function()
    auto, scan = (
        jax.jit(SECOND[name](functools.partial(twice, function, e)))(0.7) for e in ("auto", "scan")
    )
    assert scan != 0
    np.testing.assert_allclose(auto, scan, rtol=1e-11)
    once = jax.grad(functools.partial(twice, function, "fused"))
    wanted = jax.jit(jax.grad(functools.partial(twice, function, "scan")))(0.7)
    np.testing.assert_allclose(jax.jit(once)(0.7), wanted, rtol=1e-11)
    if name == "grad of grad":
        with pytest.raises(NotImplementedError, match="a rule that calls the function itself"):
            jax.make_jaxpr(jax.grad(once))(0.7)


@pytest.mark.parametrize(
    ("function", "is_refused"),
    [
        (rounded(), True),
        (clipped(), True),
        pytest.param(jax.nn.relu, False, marks=pytest.mark.slow),
        (jnp.sinc, False),
    ],
    ids=["rounded", "clipped", "relu", "sinc"],
)
def test_a_second_derivative_by_the_kernel_is_of_functions_whose_rules_call_them(
    function, is_refused
):
    once = jax.grad(functools.partial(twice, function, "fused"))
    raises = pytest.raises(NotImplementedError, match="a rule that calls the function itself")
    jax.make_jaxpr(once)(0.7)
    with raises if is_refused else contextlib.nullcontext():
        jax.make_jaxpr(jax.grad(once))(0.7)


@pytest.mark.slow
def test_activations_with_rules_of_their_own_keep_the_kernel():
    all_of_them = lambda x: sum(f(x) for f in (jax.nn.relu, jax.nn.silu, jax.nn.softplus, jnp.sinc))
    second = lambda e: jax.jit(jax.grad(jax.grad(functools.partial(twice, all_of_them, e))))(0.7)
    np.testing.assert_allclose(second("fused"), second("scan"), rtol=1e-11)


def test_the_words_of_primitives_name_all_arrays_once():
    """Operands and results of every primitive, for F, its tangent and that one's tangent."""
    jaxpr = jax.make_jaxpr(functools.partial(loss, "fused"))(numbers("float64"))
    params = [x.params for x in equations(jaxpr) if x.primitive is primitives.value.primitive]
    f = params[0]["recurrence"]
    g = f.tangent(f.smooth("constants"), f.smooth("inputs"))
    for r in (f, g, g.tangent(g.smooth("constants"), ())):
        live = tuple(("saved", i) for i in r.smooth("saved"))
        for primitive in (primitives.value, primitives.vjp):
            for names in primitive.keys(r, keep=True, live=live):
                assert len(set(names)) == len(names)
        if r.primal is not None:
            live = tuple(("saved", i) for i in r.primal.smooth("saved"))
            for moved in ((), live[:1], live):
                above = keys.live_of_tangent(r.primal, live, moved)
                assert keys.live_of_primal(r, above) == live
                for primitive in (primitives.jvp, primitives.jvp_of_vjp):
                    for names in primitive.keys(r, keep=True, live=above):
                        assert len(set(names)) == len(names)
            lifted = [keys.primal_key(r, key) for key in keys.primals(r)]
            assert len(set(lifted)) == len(lifted)
