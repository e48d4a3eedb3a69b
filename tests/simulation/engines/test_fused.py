"""The fused engine against the scan: values, gradients, batches, controllers, errors, the cache."""

import functools
import inspect
import os
import re
import subprocess
import sys

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems, units
from jaxquat.fused import cpu, engine, loading, vouching
from jaxquat.fused.targets import host, objects
from jaxquat.simulation.engines.kernels import trace
from jaxquat.simulation.simulation import checked_simulation

VALUES = {jnp.float32: 1e-5, jnp.float64: 1e-12}
GRADIENTS = {jnp.float32: 1e-4, jnp.float64: 1e-9}
NAMES = ("float32", "float64")
FLOATS = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=NAMES)


def pd(t, state, gains):
    """A closed loop that settles, driven by a weak periodic torque."""
    drive = jnp.stack([jnp.sin(3.0 * t), jnp.cos(2.0 * t), jnp.zeros_like(t)])
    settling = -gains[0] * state.q[1:] * state.q[0] - gains[1] * state.omega
    return settling + 0.1 * drive.astype(state.q.dtype)


def full_body(dtype):
    """Three principal moments, about axes that are not those of the body."""
    axes = jq.quaternion.exp(jnp.array([0.1, 0.2, 0.3], dtype))
    return jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0], dtype), axes)


def starts(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    q, omega = rng.normal(size=(n, 4)), rng.normal(size=(n, 3))
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    return jq.State(jnp.asarray(q, dtype), jnp.asarray(omega, dtype))


def one_start():
    return jax.tree.map(lambda x: x[0], starts(1, jnp.float64))


def scale_of(tree):
    return max(float(np.abs(x).max()) for x in jax.tree.leaves(tree))


def assert_close(got, wanted, tolerance):
    """Floats differ by less than ``tolerance`` times the largest of their leaf; others not at all.

    A leaf that is small beside the others is measured by 1/1000 of the largest number of all.
    """
    largest = scale_of(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if np.issubdtype(a.dtype, np.integer):
            assert (np.asarray(a) == np.asarray(b)).all()
        else:
            bound = tolerance * max(float(np.abs(b).max()), 1e-3 * largest)
            np.testing.assert_allclose(a, b, rtol=0, atol=bound)


def compare(run, *arguments, dtype):
    """Compares ``run(engine, *arguments)`` by scan and fused: its values and its gradients.

    The gradients are those by all arguments, of a loss in which every output has its weight. The
    fused engine gives the same values without a gradient.
    """
    shapes, rng = (
        jax.eval_shape(functools.partial(run, "fused"), *arguments),
        np.random.default_rng(3),
    )
    weights = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), shapes)

    def loss(name, arguments):
        values = run(name, *arguments)
        pairs = zip(jax.tree.leaves(values), jax.tree.leaves(weights), strict=True)
        total = sum(jnp.sum(x * w) for x, w in pairs if jnp.issubdtype(x.dtype, jnp.floating))
        return total, values

    slope = lambda name: jax.grad(functools.partial(loss, name), has_aux=True, allow_int=True)
    of_scan, wanted = jax.jit(slope("scan"))(arguments)
    with_value = lambda x: (slope("fused")(x), run("fused", *x))
    (of_fused, beside), got = jax.jit(with_value)(arguments)
    assert_close(got, wanted, VALUES[dtype])
    assert_close(beside, wanted, VALUES[dtype])
    smooth = lambda tree: [x for x in jax.tree.leaves(tree) if x.dtype != jax.dtypes.float0]
    assert_close(smooth(of_fused), smooth(of_scan), GRADIENTS[dtype])
    assert scale_of(smooth(of_scan)) > 0


CASES = [(jnp.float32, 37), (jnp.float32, 1), (jnp.float64, 3), (jnp.float64, 37)]


@pytest.mark.parametrize(
    ("dtype", "bodies"), some(CASES, slow=[(jnp.float32, 37), (jnp.float64, 3)])
)
def test_a_closed_loop_over_a_thousand_steps(dtype, bodies):
    """Ragged blocks; start, gains, inertia, t0 and dt differentiated; rows saved."""

    def run(name, start, gains, moments, t0, dt):
        body = jq.Body.from_principal(moments, jq.quaternion.exp(jnp.array([0.1, 0.2, 0.3], dtype)))
        grid, options = jq.grid(t0, dt, 1000), {"save_every": 100, "engine": name}
        one = lambda s: flat.rollout(jq.zhao, body, pd, s, grid, gains, **options)
        return jax.vmap(one)(start).state

    numbers = [2.0, 1.5], [0.6, 0.8, 1.0], 0.3, 0.01
    compare(run, starts(bodies, dtype), *(jnp.asarray(x, dtype) for x in numbers), dtype=dtype)


@pytest.mark.parametrize(
    ("sample_every", "save_every"), some([(5, 10), (10, 5), (6, 4), (60, 1)], [(6, 4)], [(10, 5)])
)
def test_a_controller_with_memory_and_inputs(sample_every, save_every):
    """Command, integer and float memory, keys among the inputs.

    Rows that are whole samples, parts of one, and neither.
    """
    dtype = jnp.float64

    def init(state, params):
        return {"sum": jnp.zeros(3, dtype), "count": jnp.asarray(0)}

    def update(t, state, memory, params, value):
        high, _ = jax.random.key_data(value["key"]) >> 8
        noise = 1e-9 * high.astype(dtype) + value["bias"]
        command = -params * (state.omega + noise) - 0.2 * memory["sum"] + 0.05 * jnp.sin(t)
        return command, {"sum": memory["sum"] + 0.1 * state.q[1:], "count": memory["count"] + 1}

    torque = lambda t, state, params, command: (
        command - 0.1 * state.omega + params * jnp.cos(2.0 * t) * 0.1
    )
    samples = 60 // sample_every
    keys = jax.random.split(jax.random.key(5), samples)
    bias = jnp.linspace(-0.1, 0.1, 3 * samples).reshape(samples, 3)
    controller = jq.Controller(init, update)

    def run(name, start, params, bias):
        one = lambda start: jq.rollout(
            jq.lie_euler,
            full_body(dtype),
            torque,
            start,
            jq.grid(0.1, 0.05, 60, sample_every=sample_every, save_every=save_every),
            params,
            controller=controller,
            inputs={"key": keys, "bias": bias},
            options=jq.RolloutOptions(engine=name),
        )
        path = jax.vmap(one)(start)
        return path.state, path.command, path.memory

    compare(run, starts(5, dtype), jnp.asarray(0.7), bias, dtype=dtype)


@pytest.mark.parametrize(
    ("sampled", "save_every"), some([(True, 4), (True, 60), (False, 5)], [(True, 4)], [(False, 5)])
)
def test_what_is_saved(sampled, save_every):
    """A function of time, state, parameters and command, which closes over an array.

    It saves arrays of several kinds.
    """
    dtype = jnp.float64
    controller = jq.Controller(
        lambda start, params: jnp.zeros(3),
        lambda t, state, memory, params, value: (memory, params * state.omega),
    )
    options = {"controller": controller, "sample_every": 6} if sampled else {}

    def run(name, start, params, target):
        torque = lambda t, state, params, *command: sum(command, -params * state.omega) + jnp.sin(t)

        def save(t, state, params, *command):
            error = jnp.sum((state.q - target) ** 2)
            cost = error + params * jnp.sum(torque(t, state, params, *command) ** 2)
            grid = jnp.outer(state.q, state.omega)
            return {"cost": cost, "near": error < 1.0, "grid": grid}

        one = lambda start: flat.rollout(
            jq.lie_euler,
            full_body(dtype),
            torque,
            start,
            jq.grid(0.1, 0.05, 60, save_every=save_every),
            params,
            options=jq.RolloutOptions(save=save, engine=name),
            **options,
        )
        path = jax.vmap(one)(start)
        saved = {**path.saved, "near": path.saved["near"].astype(jnp.int32)}
        return saved, path.state, path.command, path.memory

    compare(run, starts(5, dtype), jnp.asarray(0.7), jnp.array([0.5, 0.5, -0.5, 0.5]), dtype=dtype)


@pytest.mark.slow
def test_a_large_memory_whose_halves_change_places():
    """Numbers that lie together in the kernel, and change places in the derivative too."""
    dtype = jnp.float64

    def init(state, params):
        return params, jnp.ones(20, dtype)

    def update(t, state, memory, params, value):
        return memory[0], (memory[1], 0.5 * memory[0] + jnp.sum(state.omega))

    torque = lambda t, state, params, command: 0.1 * command[:3] - command[3:6] * state.omega
    grid, controller = (
        jq.grid(0.0, 0.05, 12, sample_every=2, save_every=4),
        jq.Controller(init, update),
    )

    def run(name, start, params):
        one = lambda s: jq.rollout(
            jq.lie_euler,
            full_body(dtype),
            torque,
            s,
            grid,
            params,
            controller=controller,
            options=jq.RolloutOptions(engine=name),
        )
        path = jax.vmap(one)(start)
        return path.state, path.command, path.memory

    compare(run, starts(5, dtype), jnp.linspace(0.1, 1.0, 20), dtype=dtype)


@pytest.mark.slow
def test_inputs_and_aux_states():
    dtype = jnp.float64
    torque = lambda t, state, params, command: (
        command - params * state.aux["wheel"],
        {"wheel": command * 0.1 - state.aux["wheel"]},
    )

    def run(name, start, params, inputs):
        start = start._replace(aux={"wheel": 0.1 * start.omega})
        one = lambda start, inputs: jq.rollout(
            jq.lie_euler,
            full_body(dtype),
            torque,
            start,
            jq.grid(0.0, 0.05, 40, sample_every=4),
            params,
            inputs=inputs,
            options=jq.RolloutOptions(engine=name, checkpoint=7),
        )
        path = jax.vmap(one)(start, inputs)
        return path.state, path.command

    inputs = jnp.asarray(np.random.default_rng(4).normal(size=(4, 10, 3)))
    compare(run, starts(4, dtype), jnp.asarray(0.5), inputs, dtype=dtype)


def case_of(name, dtype):
    attitude = lambda t, state, pull: jnp.sin(3 * t) * jq.quaternion.rotate_inverse(state.q, pull)
    damped = lambda t, state, pull: attitude(t, state, pull) - 0.5 * state.omega
    torque = damped if jq.schemes.SCHEMES[name].torques == "any" else attitude
    body = jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0], dtype))
    scheme, grid = jq.schemes.SCHEMES[name], jq.grid(0.2, 0.02, 30, save_every=10)

    def run(engine, q, omega, pull):
        start = problems.start_of(name, q, omega)
        path = jq.rollout(
            scheme,
            body,
            torque,
            start,
            grid,
            pull,
            options=jq.RolloutOptions(engine=engine),
        )
        return path.state.q, path.state.omega

    numbers = problems.TILTED, [1.2, -0.7, 0.9], [0.5, -0.3, 0.8]
    return run, tuple(jnp.asarray(x, dtype) for x in numbers)


# no_squish_kl6 is nine steps of no_squish; test_rounding.py runs its kernel a million steps.
SCHEMES = [name for name in jq.schemes.SCHEMES if name != "no_squish_kl6"]
LONG = ("symmetric_top_bm4", "symmetric_top_suzuki4", "rkmk5", "rkmk6")


@pytest.mark.parametrize(
    "name",
    some(SCHEMES, quick=("half_quat",), slow=[n for n in SCHEMES if n not in LONG]),
)
def test_every_scheme(name):
    """Values as by the scan, gradients as its central differences of order 4."""
    run, arguments = case_of(name, jnp.float64)
    weights = jnp.asarray(np.random.default_rng(3).normal(size=(4, 7)))

    def loss(engine, x):
        return jnp.sum(weights * jnp.concatenate(run(engine, x[:4], x[4:7], x[7:]), axis=1))

    x, h = jnp.concatenate(arguments), 1e-3
    shifts = h * jnp.array([0.0, -2.0, -1.0, 1.0, 2.0])
    moved = x[None, None] + shifts[:, None, None] * jnp.eye(10)[None]
    values = np.asarray(jax.jit(jax.vmap(jax.vmap(functools.partial(loss, "scan"))))(moved))
    value, gradient = jax.jit(jax.value_and_grad(functools.partial(loss, "fused")))(x)
    np.testing.assert_allclose(value, values[0, 0], rtol=1e-12)
    differences = (values[1] - 8 * values[2] + 8 * values[3] - values[4]) / (12 * h)
    np.testing.assert_allclose(gradient, differences, rtol=0, atol=1e-9 * np.abs(differences).max())


def network(t, state, layers):
    x = jnp.concatenate([state.q, state.omega])
    for weight, bias in layers[:-1]:
        x = jnp.tanh(weight @ x + bias)
    return layers[-1][0] @ x


def layers_of(n, dtype, *batch):
    rng = np.random.default_rng(6)
    number = lambda *shape: jnp.asarray(rng.normal(size=(*batch, *shape)) / shape[-1] ** 0.5, dtype)
    return [(number(n, 7), number(n)), (number(n, n), number(n)), (number(3, n), None)]


@pytest.mark.parametrize(
    ("n", "dtype"),
    some([(16, jnp.float64), (64, jnp.float32)], slow=[(16, jnp.float64)]),
)
def test_a_neural_torque(n, dtype):
    """One function for all stages, loops over its weights."""
    body, grid = full_body(dtype), jq.grid(0.0, 0.05, 12)

    def run(name, layers, start):
        options = {"save_every": 6, "engine": name}
        one = lambda s: flat.rollout(jq.rkmk2, body, network, s, grid, layers, **options)
        return jax.vmap(one)(start).state

    compare(run, layers_of(n, dtype), starts(19, dtype), dtype=dtype)


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
def test_the_gradient_by_transposed_weights_is_as_long_a_program(monkeypatch):
    """``x @ W`` as ``W @ x``: each leaf of the gradient is written by a loop."""
    modules, lengths = host.module, []

    def measured(loop, kind, *arguments):
        text, scratch = modules(loop, kind, *arguments)
        lengths.append(len(text))
        return text, scratch

    monkeypatch.setattr(host, "module", measured)
    monkeypatch.setattr(objects, "read", lambda key: b"")  # nothing is compiled
    monkeypatch.setattr(loading, "add", lambda name, code: None)

    def forward(t, state, layers):
        x = jnp.concatenate([state.q, state.omega])
        return layers[1] @ jnp.tanh(layers[0] @ x)

    def transposed(t, state, layers):
        x = jnp.concatenate([state.q, state.omega])
        return jnp.tanh(x @ layers[0].T) @ layers[1].T

    def flax(t, state, layers):
        x = jnp.concatenate([state.q, state.omega])
        return jnp.tanh(x @ layers[0]) @ layers[1]

    body, grid, layers = full_body(jnp.float32), jq.grid(0.0, 0.1, 4), layers_of(24, jnp.float32)
    layers, start = [layers[0][0], layers[2][0]], jax.tree.map(jnp.float32, one_start())

    def gradient(torque, layers):
        final = lambda x: (
            jq.rollout(
                jq.rkmk4, body, torque, start, grid, x, options=jq.RolloutOptions(engine="fused")
            ).final
        )
        lengths.clear()
        jax.jit(jax.grad(lambda x: jnp.sum(final(x).omega))).lower(layers)
        cpu._kernel.cache_clear()
        return max(lengths)

    length = gradient(forward, layers)
    assert gradient(transposed, layers) < 1.1 * length
    assert gradient(flax, [weight.T for weight in layers]) < 1.1 * length


@pytest.mark.needs("llvmlite")
def test_auto_takes_the_scan_where_matrix_products_are_large(capsys, monkeypatch):
    """Of about 120, 200 and 320 multiplications: all, derivatives, nothing by the kernel.

    The numbers from which on XLA is faster are 125 and 250 here, 1/80 of those measured.
    """
    most = {name: number // 80 for name, number in engine.MULTIPLICATIONS["cpu"].items()}
    on_gpu = dict.fromkeys(most, 30)
    monkeypatch.setattr(engine, "MULTIPLICATIONS", {"cpu": most, "gpu": on_gpu})

    def wide(t, state, layers):
        return layers[1] @ jnp.tanh(layers[0] @ jnp.concatenate([state.q, state.omega]))

    body, grid, start = full_body(jnp.float64), jq.grid(0.0, 0.1, 2), one_start()
    kernels = lambda f, x: "jaxquat" in jax.jit(f).lower(x).as_text()
    for n, by_kernel in ((10, (True, True)), (18, (False, True)), (30, (False, False))):
        layers = [jnp.full((n, 7), 0.1), jnp.full((3, n), 0.01)]
        run = lambda x, name: jnp.sum(
            jq.rollout(
                jq.lie_euler, body, wide, start, grid, x, options=jq.RolloutOptions(engine=name)
            ).final.omega
        )
        auto, scan = (functools.partial(run, name=name) for name in ("auto", "scan"))
        jq.explain(jq.lie_euler, body, wide, start, grid, layers)
        text = capsys.readouterr().out
        assert ("the fused kernel" in text) == by_kernel[1]
        assert ("value alone: by a scan" in text) == (by_kernel == (False, True))
        if by_kernel == (False, True):
            assert (kernels(auto, layers), kernels(jax.grad(auto), layers)) == by_kernel
            np.testing.assert_allclose(jax.jit(auto)(layers), jax.jit(scan)(layers), rtol=1e-12)

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(vouching, "objection", lambda: None)
    layers = [jnp.full((10, 7), 0.1), jnp.full((3, 10), 0.01)]
    jq.explain(jq.lie_euler, body, wide, start, grid, layers)
    assert "from 30 on XLA is faster" in capsys.readouterr().out


@pytest.mark.needs("llvmlite")
def test_auto_takes_the_scan_for_a_large_network_that_is_seldom_called(capsys):
    """65 x 65 weights are too many for a derivative by the kernel, however long a sample is."""

    def update(t, state, memory, layers, value):
        x = jnp.tanh(layers[0] @ jnp.concatenate([state.q, state.omega]))
        return layers[2] @ jnp.tanh(layers[1] @ x), memory

    controller = jq.Controller(lambda start, layers: (), update)
    held = lambda t, state, layers, command: command
    body, grid, start = full_body(jnp.float64), jq.grid(0.0, 0.1, 8), one_start()
    options = {"controller": controller, "sample_every": 8}
    for n, chosen in ((64, "the fused kernel"), (65, "the scan (4875 multiplications in matrix")):
        layers = [jnp.full(shape, 0.01) for shape in ((n, 7), (n, n), (3, n))]
        flat.explain(jq.lie_euler, body, held, start, grid, layers, **options)
        assert f'engine="auto" takes {chosen}' in capsys.readouterr().out


def test_a_long_step_is_not_computed_again():
    """What "none" keeps: every state of a long step, otherwise as many as steps lie between."""
    grid, body = jq.grid(0.0, 0.01, 100), jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5]))
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.ones(3))

    def kept_every(torque, inputs=None, **options):
        simulation = checked_simulation(
            jq.rkmk4, body, torque, start, grid, inputs=inputs, options=jq.RolloutOptions(**options)
        )
        return trace(simulation)[0].loop.segment

    def long(t, state, params):
        return jax.lax.fori_loop(0, 60, lambda _, tau: jnp.tanh(tau), -state.omega)

    assert kept_every(lambda t, state, params: -state.omega) == 10
    assert kept_every(long) == 1
    under = lambda t, state, params, command: long(t, state, params) + command[:3]
    assert kept_every(under, inputs=jnp.zeros((100, 60))) == 10  # commands are kept too
    assert kept_every(long, checkpoint="sqrt") == 10
    assert kept_every(long, checkpoint=7) == 7


@pytest.mark.slow
def test_a_network_for_each_body():
    """Weights that lie as (size, bodies); one of them is the same for all."""
    dtype, n = jnp.float64, 10
    body, grid = full_body(dtype), jq.grid(0.0, 0.05, 6)

    def run(name, first, others, start):
        options = {"save_every": 3, "engine": name}
        one = lambda first, s: flat.rollout(
            jq.lie_euler, body, network, s, grid, [first, *others], **options
        )
        return jax.vmap(one)(first, start).state

    first, others = layers_of(n, dtype, 5)[0], layers_of(n, dtype)[1:]
    compare(run, first, others, starts(5, dtype), dtype=dtype)


@pytest.mark.slow
def test_transformations():
    """Nested vmap with arguments batched in one of the two; gradients in and of a vmap."""
    body, grid, four = (
        full_body(jnp.float64),
        jq.grid(0.0, 0.05, 20, save_every=20),
        starts(4, jnp.float64),
    )

    def end(name, start, gains):
        path = jq.rollout(
            jq.lie_euler,
            body,
            pd,
            start,
            grid,
            gains,
            options=jq.RolloutOptions(engine=name),
        )
        return jnp.sum(path.state.q[-1] ** 3) + jnp.sum(path.state.omega[-1])

    gains = jnp.array([[2.0, 1.5], [1.0, 0.5], [0.3, 0.2]])

    def nested(name):
        return jax.vmap(lambda g: jax.vmap(lambda s: end(name, s, g))(four))(gains)

    def inner(name):
        return jax.vmap(jax.value_and_grad(lambda g: end(name, one_start(), g)))(gains)

    def crossed(name):
        ends = lambda gains: jax.vmap(lambda s: jax.vmap(lambda g: end(name, s, g))(gains))(four)
        return jax.grad(lambda gains: jnp.sum(ends(gains)))(gains)

    for function in (nested, inner, crossed):
        fused, scan = (jax.jit(functools.partial(function, name))() for name in ("fused", "scan"))
        assert_close(fused, scan, 1e-9)


@pytest.mark.slow
def test_a_new_inertia_or_array_does_not_compile_again():
    """What the torque closes over is an argument of the kernel and has its gradient."""
    start, grid = one_start(), jq.grid(0.0, 0.05, 20)

    def loss(name, moments, arm):
        body = jq.Body.from_principal(moments)
        torque = lambda t, state, params: jq.quaternion.rotate_inverse(state.q, arm)
        path = jq.rollout(
            jq.lie_euler, body, torque, start, grid, options=jq.RolloutOptions(engine=name)
        )
        return jnp.sum(path.state.q[-1] ** 3)

    values = jnp.array([0.6, 0.8, 1.0]), jnp.array([0.1, 0.2, 0.3])
    slopes = lambda name: jax.jit(jax.grad(functools.partial(loss, name), (0, 1)))(*values)
    assert_close(slopes("fused"), slopes("scan"), 1e-9)
    loss("fused", *values)
    known = set(loading.loaded)
    for factor in (0.5, 2.0):  # concrete arrays, outside of jit
        loss("fused", values[0] * factor, values[1] * factor)
    assert set(loading.loaded) == known


def test_not_a_number_and_infinity_stay_with_their_body():
    start = starts(5, jnp.float32)
    start = start._replace(omega=start.omega.at[1, 0].set(jnp.nan).at[3, 2].set(jnp.inf))
    body, gains, grid = full_body(jnp.float32), jnp.ones(2, jnp.float32), jq.grid(0.0, 0.01, 20)

    def run(name):
        one = lambda s: jq.rollout(
            jq.lie_euler, body, pd, s, grid, gains, options=jq.RolloutOptions(engine=name)
        )
        return jax.vmap(one)(start).state

    got, wanted = jax.jit(lambda: run("fused"))(), jax.jit(lambda: run("scan"))()
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
        assert np.isfinite(a[jnp.array([0, 2, 4])]).all()


# errors


def rolled(torque, engine="scan", **options):
    body, grid = full_body(jnp.float64), jq.grid(0.0, 0.05, 4)
    options["engine"] = engine
    return flat.rollout(jq.lie_euler, body, torque, one_start(), grid, jnp.ones(2), **options)


def scaled(x):
    """The attitudes of a rollout by the fused engine, whose torque has a factor x."""
    return rolled(lambda t, s, p: x * pd(t, s, p), engine="fused").state.q


def test_a_torque_without_scalar_form_is_named_and_auto_takes_the_scan():
    def torque(t, state, params):
        return jnp.linalg.eigvalsh(jnp.outer(state.omega, state.omega))

    with pytest.raises(NotImplementedError, match=r"eigh.*engine='scan'"):
        rolled(torque, engine="fused")
    assert_close(rolled(torque, engine="auto"), rolled(torque, engine="scan"), 1e-15)


TABLE = jnp.linspace(0.0, 1.0, 90).reshape(30, 3) ** 2


UNKNOWN = [
    lambda t, s, p: TABLE[jnp.asarray(100 * t, int)],
    lambda t, s, p: jnp.interp(s.omega, TABLE[:, 0], TABLE[:, 2]),
    lambda t, s, p: jnp.sort(s.omega) * jnp.median(s.q),
    lambda t, s, p: jax.lax.cond(s.omega[0] > 0, jnp.tanh, lambda x: -jnp.exp(x), s.omega),
    lambda t, s, p: jnp.zeros(100).at[jnp.asarray(20 * s.q[:3] ** 2, int)].add(s.q[1:])[:3],
]


def test_indices_and_branches_that_only_the_run_knows():
    """Bodies of a vector take different elements and branches; values and gradients agree."""

    def loss(omega, engine):
        torque = lambda t, s, p: sum((1.0 + k) * f(t, s, p) for k, f in enumerate(UNKNOWN))
        body, grid = full_body(jnp.float64), jq.grid(0.0, 0.05, 4)
        start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), omega)
        return jq.rollout(
            jq.lie_euler, body, torque, start, grid, options=jq.RolloutOptions(engine=engine)
        ).final.omega[0]

    omegas = jax.random.normal(jax.random.key(3), (5, 3))
    run = lambda e: jax.jit(jax.vmap(jax.value_and_grad(lambda w: loss(w, e))))(omegas)
    assert_close(run("fused"), run("scan"), 1e-12)


@pytest.mark.slow
def test_a_loop_whose_end_only_the_run_knows():
    def torque(t, state, params):
        more = lambda x: jnp.sum(x * x) < 50.0
        return 1e-3 * jax.lax.while_loop(more, lambda x: 2.0 * x + 0.1, state.omega)

    def final(omega, engine):
        body, grid = full_body(jnp.float64), jq.grid(0.0, 0.05, 4)
        start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), omega)
        return jq.rollout(
            jq.lie_euler, body, torque, start, grid, options=jq.RolloutOptions(engine=engine)
        ).final.omega

    omegas = jax.random.normal(jax.random.key(3), (5, 3))
    of_one = lambda e: lambda w: jax.jvp(lambda w: final(w, e), (w,), (jnp.ones(3),))
    run = lambda e: jax.jit(jax.vmap(of_one(e)))(omegas)
    assert_close(run("fused"), run("scan"), 1e-12)


def test_auto_is_fused_where_it_can():
    rows = lambda **options: flat.rollout(
        jq.lie_euler,
        full_body(jnp.float64),
        pd,
        one_start(),
        jq.grid(0.0, 0.05, 4),
        jnp.ones(2),
        **options,
    )
    for options in ({"engine": "auto"}, {}):  # the default
        assert "fused_loop" in str(jax.make_jaxpr(lambda o=options: rows(**o))())
    assert "fused_loop" not in str(jax.make_jaxpr(lambda: rolled(pd))())


def test_without_llvmlite_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    message = r'^engine: wanted the package llvmlite, got none: pip install "jaxquat\[fused\]"$'
    with pytest.raises(ImportError, match=message):
        rolled(pd, engine="fused")
    assert_close(rolled(pd, engine="auto"), rolled(pd), 1e-15)


def test_options_that_the_engine_does_not_have():
    message = 'engine: wanted "scan" or "auto" with .*, got "fused"'
    for option in ({"check": True}, {"checkpoint": "reversible"}):
        with pytest.raises(ValueError, match=message):
            rolled(pd, engine="fused", **option)
    with pytest.raises(ValueError, match="count: wanted 1 to 256 threads, got 300"):
        jq.fused.set_threads(300)


def test_effects_that_do_not_depend_on_the_state_happen_in_every_step(capfd):
    """Two stages in each of four steps; the kernel refuses, as it would do them once."""

    def fly(engine, gain):
        def torque(t, state, gain):
            jax.debug.print("gain {}", gain)
            return -gain * state.omega

        body, grid = problems.reference_body(), jq.grid(0.0, 0.05, 4)
        return jq.rollout(
            jq.rkmk2,
            body,
            torque,
            one_start(),
            grid,
            gain,
            options=jq.RolloutOptions(engine=engine),
        ).final

    with pytest.raises(NotImplementedError, match="effects have no scalar form"):
        jax.jit(functools.partial(fly, "fused"))(0.5)
    jax.block_until_ready(jax.jit(functools.partial(fly, "auto"))(0.5))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("gain 0.5") == 8


@pytest.mark.slow
def test_an_export_is_the_program_of_the_scan():
    """It runs on machines without the compiler, and has a derivative of its own."""
    exported = jax.export.export(jax.jit(scaled), platforms=("cpu", "cuda"))(1.0)
    again = jax.export.deserialize(exported.serialize(vjp_order=1))
    assert "jaxquat_kernel" not in again.mlir_module()
    ends = lambda call: lambda x: call(x)[-1, 0]
    for by in (lambda f: f, jax.grad):
        assert_close(by(ends(again.call))(1.0), by(ends(scaled))(1.0), 1e-12)


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, jaxquat as jq
from jax.sharding import AxisType, PartitionSpec
mesh = jax.make_mesh((4,), ("bodies",), axis_types=(AxisType.Auto,))
spread, same = PartitionSpec("bodies"), PartitionSpec()
body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
grid = jq.grid(0.0, 0.05, 20, save_every=20)
rates = jax.random.normal(jax.random.key(0), (8, 3))

def end(engine, omega, gains):
    torque = lambda t, state, gains: -gains[0] * state.q[1:] - gains[1] * state.omega
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), omega)
    options = jq.RolloutOptions(engine=engine)
    path = jq.rollout(jq.lie_euler, body, torque, start, grid, gains, options=options)
    return path.state.omega[-1]

def loss(engine, check, gains):
    ends = jax.vmap(lambda w, g: end(engine, w, g), (0, None))
    specs = {"in_specs": (spread, same), "out_specs": spread}
    shared = jax.shard_map(ends, mesh=mesh, check_vma=check, **specs)
    return jnp.sum(shared(rates, gains) ** 2)

gains = jnp.array([2.0, 1.0])
slope = lambda *how: jax.jit(jax.value_and_grad(lambda g: loss(*how, g)))(gains)
value, slopes = slope("scan", False)
for how in (("fused", False), ("scan", True), ("fused", True), ("auto", True)):
    a, b = slope(*how)
    np.testing.assert_allclose([a, *b], [value, *slopes], rtol=1e-5)
print(len(jax.devices()))
"""


@pytest.mark.slow
def test_several_devices():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command, options = [sys.executable, "-c", DEVICES], {"capture_output": True, "text": True}
    process = subprocess.run(command, env=environment, timeout=300, **options)
    assert process.stdout == "4\n", process.stderr


def explained(capsys, *arguments, **options):
    """What ``explain`` prints."""
    assert flat.explain(*arguments, **options) is None
    return capsys.readouterr().out


def test_explain(capsys):
    start, body, grid = one_start(), full_body(jnp.float64), jq.grid(0.0, 0.01, 4)
    text = explained(capsys, jq.lie_euler, body, pd, start, grid, jnp.ones(2))
    assert text.startswith('engine="auto" takes the fused kernel\nstep: ')
    assert "scalar operations" in text
    assert "floor: about" in text
    assert "\nderivative of the step: " in text
    assert "controller: " not in text
    assert "save: " not in text
    torque = lambda t, s, p: jnp.linalg.eigh(jnp.diag(s.omega))[0]
    text = explained(capsys, jq.lie_euler, body, torque, start, grid)
    assert text.startswith('engine="auto" takes the scan (no scalar form: ')
    assert "eigh" in text
    text = explained(capsys, jq.lie_euler, body, pd, start, grid, jnp.ones(2), check=True)
    verdict = 'engine="auto" takes the scan (only the scan engine has check=True)\nstep: '
    assert text.startswith(verdict)


@pytest.mark.parametrize(
    "torque", [lambda t, s, p: s.omega[:2], lambda t, s, p: {}["gain"], lambda t, s, p: None]
)
def test_explain_raises_what_rollout_raises(torque):
    arguments = jq.lie_euler, full_body(jnp.float64), torque, one_start(), jq.grid(0.0, 0.01, 4)
    with pytest.raises((ValueError, KeyError, TypeError)) as of_rollout:
        jq.rollout(*arguments, options=jq.RolloutOptions(engine="scan"))
    with pytest.raises(of_rollout.type, match=re.escape(str(of_rollout.value).splitlines()[0])):
        jq.explain(*arguments)


CONSTANTS = [np.complex64(3 + 4j), np.complex128(1j), 1j, jnp.bfloat16(1.3), np.float16(1.3)]


def test_a_constant_of_another_dtype_is_said():
    """Its bits were taken for those of a float: "auto" gave other numbers without a warning."""
    start, body, grid = one_start(), full_body(jnp.float64), jq.grid(0.0, 0.01, 4)

    def run(engine, torque=jq.torques.zero, save=None):
        return jq.rollout(
            jq.lie_euler,
            body,
            torque,
            start,
            grid,
            options=jq.RolloutOptions(save=save, engine=engine),
        )

    def paths(engine):
        yield from run(engine, save=lambda *_: tuple(map(jnp.asarray, CONSTANTS))).saved
        for c in CONSTANTS:
            brake = lambda t, state, _, c=c: -state.omega * jnp.abs(c).astype(jnp.float64)
            yield run(engine, brake).final.omega

    scan, auto = (jax.jit(lambda e=e: list(paths(e)))() for e in ("scan", "auto"))
    for x, y in zip(auto, scan, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    for c in CONSTANTS:
        with pytest.raises(jq.fused.NotScalarError, match="scalar code has float32, float64"):
            jax.eval_shape(lambda c=c: run("fused", save=lambda *_: jnp.asarray(c)))


def test_explain_takes_the_arguments_of_rollout(capsys, monkeypatch):
    """A torque with a command, a controller, inputs and ``save``; its errors; no compiler."""
    start, body = one_start(), full_body(jnp.float64)
    grid = jq.grid(0.0, 0.01, 4, sample_every=2, save_every=4)
    torque = lambda t, state, params, command: command - params * state.omega
    arguments = (jq.lie_euler, body, torque, start, grid, jnp.ones(3))
    update = lambda t, state, memory, params, noise: (-memory, state.omega + noise)
    options = {
        "controller": jq.Controller(lambda start, params: start.omega, update),
        "inputs": jnp.zeros((2, 3)),
        "options": jq.RolloutOptions(
            save=lambda t, state, params, command: jnp.sum(command * state.omega)
        ),
    }
    parameters = inspect.signature(jq.rollout).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    text = explained(capsys, *arguments, **defaults | options)
    assert text.startswith('engine="auto" takes the fused kernel\n')
    for title in ("step", "controller", "save"):
        assert f"\n{title}: " in text
        assert f"\nderivative of the {title}: " in text
    assert jq.rollout(*arguments, **options).saved.shape == (2,)
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        jq.explain(*arguments, speed=1)
    with pytest.raises(ValueError, match=r"^inputs: wanted leading axis 4 "):
        flat.explain(*arguments, **options | {"sample_every": 1})
    with pytest.raises(TypeError, match=r"^grid: wanted a jq.grid"):
        jq.explain(jq.zhao, body, pd, start, jnp.ones(2))
    monkeypatch.setattr(cpu, "missing", lambda: "no compiler")
    text = explained(capsys, *arguments, **options)
    assert text.startswith('engine="auto" takes the scan (no compiler)\nstep: ')


# the cache


PROCESS = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, jaxquat as jq
start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.array([0.1, 0.2, 0.3]))
body, torque = jq.Body.from_principal(jnp.array([1.0, 2, 2.5])), lambda t, s, p: -s.omega * 0.5
grid, options = jq.grid(0.0, 0.1, 10), jq.RolloutOptions(engine="fused")
path = jq.rollout(jq.lie_euler, body, torque, start, grid, options=options)
print(np.asarray(path.state.q[-1]).tolist())
"""


@pytest.mark.slow
def test_the_cache_is_shared_checked_and_never_trusted(tmp_path):
    """Two processes at once; then a damaged file, thrown away, and a folder in its place.

    test_a_damaged_file_is_thrown_away has other kinds of damage.
    """
    environment = {**os.environ, "JAXQUAT_CACHE": str(tmp_path / "cache")}
    options = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    start = lambda: subprocess.Popen([sys.executable, "-c", PROCESS], **options)
    outputs = [process.communicate(timeout=300)[0] for process in [start() for _ in range(2)]]
    assert len(set(outputs)) == 1
    (file,) = (tmp_path / "cache").iterdir()
    good = file.read_bytes()
    file.write_bytes(good[:-100] + bytes(100))
    assert start().communicate(timeout=300)[0] == outputs[0]
    assert file.read_bytes() == good
    file.unlink()
    file.mkdir()
    assert start().communicate(timeout=300)[0] == outputs[0]


CODE = (b"k" * 32, b"code")


def kept(monkeypatch, **environment):
    """Whether code that is written in this environment is read again."""
    for name in ("HOME", "XDG_CACHE_HOME", "JAXQUAT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    objects.write(*CODE)
    return objects.read(CODE[0]) == CODE[1]


def test_kernels_are_kept_where_the_environment_says(tmp_path, monkeypatch):
    assert kept(monkeypatch, HOME=tmp_path, JAXQUAT_CACHE=tmp_path / "own")
    assert kept(monkeypatch, HOME=tmp_path, XDG_CACHE_HOME=tmp_path / "xdg")
    assert kept(monkeypatch, HOME=tmp_path)
    assert not kept(monkeypatch, HOME=tmp_path, JAXQUAT_CACHE="")
    for folder in (tmp_path / "own", tmp_path / "xdg/jaxquat", tmp_path / ".cache/jaxquat"):
        assert [file.name for file in folder.iterdir()] == [f"{CODE[0].hex()}.o"]
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_damaged_file_is_thrown_away(tmp_path, monkeypatch):
    """Changed, truncated, empty, foreign, or that of another kernel."""
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path)
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    assert objects.read(b"x" * 32) is None
    for bad in (good[:-1] + b"?", good[:-1], good[:50], b"", b"ELF" * 1000):
        file.write_bytes(bad)
        assert objects.read(CODE[0]) is None
        file.rename(tmp_path / f"{(b'x' * 32).hex()}.o")
        assert objects.read(b"x" * 32) is None
        assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path)
    file.rename(tmp_path / f"{(b'x' * 32).hex()}.o")
    assert objects.read(b"x" * 32) is None


def test_a_processor_has_kernels_of_its_own(monkeypatch):
    """A home may be shared by machines, of which one cannot run the code of the other."""
    simulation = checked_simulation(
        jq.lie_euler, full_body(jnp.float64), pd, one_start(), jq.grid(0.0, 0.05, 4), jnp.ones(2)
    )
    loop, asked = trace(simulation)[0].loop, []
    code = host.compiled(host.module(loop, "forward", (False,) * 9, 1)[0])
    monkeypatch.setattr(objects, "read", lambda key: asked.append(key) or code)
    monkeypatch.setattr(loading, "loaded", {})
    monkeypatch.setattr(loading, "add", lambda name, code: None)
    name, features = host.processor()
    for processor in ((name, features), ("generic", features), (name, ""), (name, features)):
        monkeypatch.setattr(host, "processor", lambda processor=processor: processor)
        monkeypatch.setattr(host, "register_bytes", lambda: 32)
        cpu._kernel.__wrapped__(loop, "forward", (False,) * 9, 1)
    assert len(set(asked)) == 3
    assert asked[0] == asked[3]
    monkeypatch.setattr(host, "version", host.version.__wrapped__)
    for option, value in (("LEVEL", host.LEVEL), ("LEVEL", 0), ("PASSES", host.PASSES[:1])):
        monkeypatch.setattr(host, option, value)
        cpu._kernel.__wrapped__(loop, "forward", (False,) * 9, 1)
    assert asked[4] == asked[0]
    assert len(set(asked)) == 5  # and of each way to compile


def test_an_unusable_home_is_no_cache_and_no_error(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    assert not kept(monkeypatch, HOME=file)
    with pytest.warns(RuntimeWarning, match="JAXQUAT_CACHE: no kernel is kept, .*File exists"):
        assert not kept(monkeypatch, HOME=tmp_path, JAXQUAT_CACHE=file)
    assert not kept(monkeypatch, HOME="/proc/none")
    assert not kept(monkeypatch, HOME=tmp_path / "none")
    assert not (tmp_path / "none").exists()

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(objects.Path, "home", homeless)
    assert not kept(monkeypatch)
    assert kept(monkeypatch, XDG_CACHE_HOME=tmp_path)
    assert not kept(monkeypatch, XDG_CACHE_HOME="relative")
    rolled(lambda t, s, p: -0.75 * s.omega, engine="fused")


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    message = r"kernels are neither read nor kept here, .* set JAXQUAT_CACHE$"
    for mode in (0o770, 0o707, 0o777):
        tmp_path.chmod(mode)
        for use in (lambda: objects.write(*CODE), lambda: objects.read(CODE[0])):
            monkeypatch.setenv("JAXQUAT_CACHE", str(tmp_path))
            with pytest.warns(RuntimeWarning, match=message):
                assert use() is None
        assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o755)
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path)


def test_a_file_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path)
    (file,) = tmp_path.iterdir()
    file.chmod(0o620)
    with pytest.warns(RuntimeWarning, match="other users can write to it"):
        assert objects.read(CODE[0]) is None
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path)  # written anew


def test_a_folder_or_file_of_another_user_is_not_used(tmp_path, monkeypatch):
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path)
    (file,) = tmp_path.iterdir()
    me = os.geteuid()
    if me == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(RuntimeWarning, match="or own it"):
        assert objects.read(CODE[0]) is None
    if me == 0:
        os.chown(tmp_path, 12345, -1)
    with pytest.warns(RuntimeWarning, match="or own it"):
        objects.write(*CODE)
    if me == 0:
        assert file.stat().st_uid == 12345


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path, monkeypatch):
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert objects.read(CODE[0]) is None
    assert kept(monkeypatch, JAXQUAT_CACHE=tmp_path / "cache")  # in place of the link
    assert not file.is_symlink()
    file.unlink()
    os.mkfifo(file)
    assert objects.read(CODE[0]) is None


# elementary functions


@FLOATS
@pytest.mark.parametrize("name", units.RANGES)
def test_elementary_functions(name, dtype):
    assert units.worst(name, dtype) < (3.0 if name in ("tanh", "atan2") else 2.0)


@pytest.mark.parametrize(
    "dtype", some([jnp.float32, jnp.float64], [jnp.float64], [jnp.float32]), ids=NAMES
)
@pytest.mark.parametrize("name", units.MADE_OF_THEM)
def test_special_functions(name, dtype):
    assert units.worst(name, dtype) < {"erfc": 5.0, "erf_inv": 4.0}.get(name, 2.5)


def test_a_torque_that_solves_equations():
    def torque(t, state, gains):
        matrix = jnp.eye(3) + jnp.outer(state.omega, state.q[1:]) * gains[0]
        return -jnp.linalg.solve(matrix, gains[1] * state.omega)

    def final(gains, engine):
        body, grid = full_body(jnp.float64), jq.grid(0.0, 0.01, 20)
        options = {"save_every": 20, "engine": engine}
        return flat.rollout(jq.lie_euler, body, torque, one_start(), grid, gains, **options).final

    gains = jnp.array([0.3, 0.8])
    fused, scan = (jax.jit(lambda x, e=e: final(x, e))(gains) for e in ("fused", "scan"))
    assert_close(fused, scan, 1e-12)


# bits


@pytest.mark.parametrize(
    ("name", "dtype"),
    some(
        [
            ("lie_euler", jnp.float32),
            ("lie_midpoint", jnp.float32),
            ("rkmk4", jnp.float32),
            ("rkmk4", jnp.float64),
            ("no_squish", jnp.float64),
        ],
        quick=[("lie_euler", jnp.float32)],
        slow=[("no_squish", jnp.float64)],
    ),
)
def test_the_bits_of_a_body_do_not_depend_on_its_neighbours(name, dtype):
    """Permuted, among others, and alone; some bodies turn so far that a step needs the far branch.

    A vector that none of them is in skips that branch; the values and gradients are the same.
    """
    scheme, body, grid = jq.schemes.SCHEMES[name], full_body(dtype), jq.grid(0.0, 0.1, 20)
    omegas = np.random.default_rng(5).normal(size=(40, 3)).astype(dtype)
    omegas[::7] *= 60.0

    def loss(omega):
        start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5], dtype), omega)
        state = jq.rollout(
            scheme, body, law, start, grid, options=jq.RolloutOptions(engine="fused")
        ).final
        return jnp.sum(state.omega * state.q[1:]), state

    law = jq.torques.zero if name == "no_squish" else lambda t, s, p: -s.q[1:] - 0.1 * s.omega
    run = jax.jit(jax.vmap(jax.value_and_grad(loss, has_aux=True)))
    whole = jax.tree.map(np.asarray, run(omegas))
    order = np.random.default_rng(1).permutation(40)
    taken = lambda places: jax.tree.map(lambda x: x[places], whole)
    same = lambda one, other: jax.tree.map(np.testing.assert_array_equal, one, other)
    same(run(omegas[order]), taken(order))
    same(run(omegas[21:24]), taken(slice(21, 24)))
    same(run(omegas[7:8]), taken(slice(7, 8)))


def test_a_product_minus_itself_is_zero():
    """Such as x y - y x, in the cross product of a vector with itself."""
    cross = lambda t, state, p: jnp.cross(state.omega, state.omega)
    start = jq.State(jnp.eye(4)[0], jnp.array([-1.4938959, -1.0244435, -0.5283047]))
    path = jq.rollout(
        jq.lie_euler, jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5])), jq.torques.zero,
        start, jq.grid(0.0, 0.1, 5), options=jq.RolloutOptions(save=cross, engine="fused"),
    )  # fmt: skip
    assert not np.any(path.saved)
