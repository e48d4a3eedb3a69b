"""The kernels for the GPU equal those for the CPU: on a GPU or, if there is none, emulated."""

import contextlib

import emulator
import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from jaxquat.fused import lowering, recurrence, vouching
from jaxquat.fused.targets import nvptx
from jaxquat.simulation.engines.kernels import trace
from jaxquat.simulation.simulation import checked_simulation

F4, F8 = jnp.float32, jnp.float64
MOMENTS = 1.0, 1.0, 0.25  # XLA inverts them; on a GPU it has other bits for 1 / 0.6
FLOATS = pytest.mark.parametrize("dtype", [F4, F8], ids=["float32", "float64"])


@pytest.fixture(autouse=True)
def not_on_the_gpu(monkeypatch):
    """What is not in ``emulator.gpu`` runs on the CPU."""
    if emulator.is_real():
        monkeypatch.setattr(vouching, "VOUCHED", {jax.devices()[0].device_kind})
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def assert_equal_on_both(function, *arguments):
    """Values and gradients of a loss, bit by bit; every kind of kernel runs.

    On a GPU XLA sums the loss and some gradients over the bodies in another order.
    """

    def loss(arguments):
        values = function(*arguments)
        rng = np.random.default_rng(3)
        total = jnp.zeros((), arguments[0].dtype)
        for x in jax.tree.leaves(values):
            if jnp.issubdtype(x.dtype, jnp.floating):
                total += jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), x.dtype))
        return total, values

    slope = jax.value_and_grad(loss, has_aux=True)
    wanted = jax.jit(slope)(arguments), jax.jit(function)(*arguments)
    with emulator.gpu():
        got = jax.jit(lambda x: slope(x))(arguments), jax.jit(lambda *x: function(*x))(*arguments)
        jax.block_until_ready(got)
    assert set(emulator.launches) == {"fused_forward", "fused_keeping", "fused_backward"}
    for number, (slopes_or_values, pair) in enumerate(zip(got, wanted, strict=True)):
        for a, b in zip(jax.tree.leaves(slopes_or_values), jax.tree.leaves(pair), strict=True):
            assert a.dtype == b.dtype
            assert np.isfinite(a).all()
            if emulator.is_real() and number == 0:
                error = np.abs(np.asarray(a, float) - np.asarray(b, float)).max()
                assert error <= 64 * np.finfo(F4 if a.dtype == F4 else F8).eps * np.abs(b).max()
            else:
                np.testing.assert_array_equal(a, b)


def starts(n, dtype):
    rng = np.random.default_rng(0)
    q, omega = rng.normal(size=(n, 4)), rng.normal(size=(n, 3))
    return jnp.asarray(q / np.linalg.norm(q, axis=1, keepdims=True), dtype), jnp.asarray(
        omega, dtype
    )


def law(t, state, gains):
    """It has roots, divisions, a sine, and a cosine of large angles."""
    drive = jnp.stack([jnp.sin(3.0 * t), jnp.cos(2e6 * t), jnp.tanh(t)])
    return -gains[0] * state.q[1:] - gains[1] * state.omega + 0.1 * drive.astype(state.q.dtype)


def pull(t, state, gains):
    """A torque of time and attitude."""
    drive = jnp.stack([gains[0], gains[1], jnp.sin(t)])
    return jq.quaternion.rotate_inverse(state.q, drive.astype(state.q.dtype))


ALL = [name for name in jq.schemes.SCHEMES if not name.startswith("full_quat")]  # has other states
SOME = ALL if emulator.is_real() else ("rkmk4", "zhao", "lgvi")
CASES = [("lie_euler", F8), *((name, dtype) for name in SOME for dtype in (F4, F8))]


@pytest.mark.slow  # a rollout by lie_euler, with a network, is quick
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_schemes(name, dtype):
    """200 bodies are two blocks of which the second is ragged."""
    scheme = jq.schemes.SCHEMES[name]
    torque, grid = law if scheme.torques == "any" else pull, jq.grid(0.3, 0.01, 30, save_every=10)

    def run(q, omega, gains, moments):
        body = jq.Body.from_principal(moments)
        one = lambda q, w: jq.rollout(
            scheme,
            body,
            torque,
            jq.State(q, w),
            grid,
            gains,
            options=jq.RolloutOptions(engine="fused"),
        )
        path = jax.vmap(one)(q, omega)
        return path.state.q, path.state.omega

    numbers = jnp.array([2.0, 1.5], dtype), jnp.array(MOMENTS, dtype)
    assert_equal_on_both(run, *starts(200, dtype), *numbers)


def rows_of_a_long_loop(x):
    """A loop of 20 trips that stays one; what it takes from x alone is computed before it."""

    def turned(angle, row):
        for _ in range(10):
            angle = angle + row[0] * jnp.sin(x + row[1]) * jnp.cos(3 * x)
        return angle, angle * row

    rows = jnp.linspace(0.0, 0.01, 40, dtype=x.dtype).reshape(20, 2)
    angle, results = jax.lax.scan(turned, x, rows)
    return angle + jnp.sum(results)


FUNCTIONS = {
    "division": lambda x: x / (x * x + 0.7),
    "root": lambda x: jnp.sqrt(jnp.abs(x)),
    "rounding": lambda x: x - jnp.round(x) + 0.1 * jnp.floor(3 * x),
    "angles": lambda x: jnp.sin(x) + jnp.tan(x) * jnp.arctan2(x, 1.3),
    "large angles": lambda x: jnp.cos(1e7 * x),
    "exponentials": lambda x: jnp.exp(x) + jnp.expm1(0.1 * x) + jnp.tanh(x),
    "logarithms": lambda x: jnp.log(jnp.abs(x)) * jnp.log1p(jnp.abs(x)),
    "powers": lambda x: jnp.abs(x) ** x + jnp.cbrt(x),
    "special": lambda x: jax.scipy.special.erf(x) + jnp.arccosh(1 + x * x),
    "long loop": rows_of_a_long_loop,
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    some([(name, x) for name in FUNCTIONS for x in (F4, F8)], [("angles", F4), ("long loop", F8)]),
)
def test_functions(monkeypatch, name, dtype):
    """The values at 2000 numbers; the sum is a part of the state."""
    monkeypatch.setattr(recurrence, "LOOPS", 300)  # so a loop that stays one compiles soon

    def run(x):
        def advance(total, x):
            y = FUNCTIONS[name](x)
            return total + y, y

        one = lambda x: jq.fused.scan(advance, jnp.zeros((), dtype), x, engine="fused")
        return jax.vmap(one)(x)

    rng = np.random.default_rng(4)
    assert_equal_on_both(run, jnp.asarray(3 * rng.normal(size=(200, 10)), dtype))


@pytest.mark.slow
def test_a_controller_with_keys_and_memory_of_all_kinds():
    keys = jax.random.split(jax.random.key(5), 10)

    def init(state, params):
        return {"sum": jnp.zeros(3, F8), "count": jnp.asarray(0), "high": jnp.asarray(False)}

    def update(t, state, memory, params, key):
        command = -params * state.omega - 0.2 * memory["sum"] * memory["count"].astype(F8)
        command = command + 0.01 * jax.random.uniform(key, (3,), F8)
        high = (jnp.sum(state.omega**2) > 2.0) ^ memory["high"]
        command = jnp.where(high, 0.5 * command, command)
        total = memory["sum"] + 0.1 * state.q[1:]
        return command, {"sum": total, "count": memory["count"] + 1, "high": high}

    def run(omega, q, gain):
        one = lambda q, w: jq.rollout(
            jq.zhao,
            jq.Body.from_principal(jnp.array(MOMENTS)),
            jq.torques.commanded,
            jq.State(q, w),
            jq.grid(0.1, 0.05, 60, sample_every=6, save_every=4),
            gain,
            controller=jq.Controller(init, update),
            inputs=keys,
            options=jq.RolloutOptions(engine="fused"),
        )
        path = jax.vmap(one)(q, omega)
        memory = {**path.memory, "high": path.memory["high"].astype(jnp.int32)}
        return path.state.q, path.command, memory

    q, omega = starts(5, F8)
    assert_equal_on_both(run, omega, q, jnp.asarray(0.7))


@pytest.mark.parametrize(("n", "dtype"), some([(9, F8), (16, F4), (32, F4)], [(9, F8)]))
@pytest.mark.parametrize("local", some([nvptx.LOCAL, 0], [0]))
def test_a_network_whose_arrays_lie_in_local_or_scratch_memory(monkeypatch, n, dtype, local):
    """With little scratch memory one block of threads takes all 300 bodies."""
    monkeypatch.setattr(nvptx, "LOCAL", local)
    monkeypatch.setattr(nvptx, "SCRATCH", 1)
    rng = np.random.default_rng(6)
    number = lambda *shape: jnp.asarray(rng.normal(size=shape) / shape[-1] ** 0.5, dtype)
    layers = number(n, 7), number(n, n), number(3, n)
    body = jq.Body.from_principal(jnp.array(MOMENTS, dtype))

    def torque(t, state, layers):
        x = jnp.concatenate([state.q, state.omega])
        for weight in layers[:-1]:
            x = jnp.tanh(weight @ x)
        return layers[-1] @ x

    def run(q, omega, *layers):
        one = lambda q, w: jq.rollout(
            jq.lie_euler,
            body,
            torque,
            jq.State(q, w),
            jq.grid(0.0, 0.05, 12, save_every=6),
            layers,
            options=jq.RolloutOptions(engine="fused"),
        )
        path = jax.vmap(one)(q, omega)
        return path.state.q, path.state.omega

    assert_equal_on_both(run, *starts(300, dtype), *layers)
    assert local or all(owner.size for owner in emulator.owners)  # there are none on a GPU
    for owner in emulator.owners:  # a number of thread t lies beside those of t - 1 and t + 1
        count = owner.shape[1]
        threads = owner.reshape(-1, count, np.dtype(dtype).itemsize)
        assert ((threads == np.arange(count)[:, None]) | (threads == -1)).all()


def numbers_to_divide(dtype):
    """Pairs of ordinary and special numbers, with quotients up to 2^127 and 2^1023."""
    info, rng = np.finfo(dtype), np.random.default_rng(1)
    special = [0, 1, 2, 3, 0.1, info.max, info.tiny, 2 * info.tiny, np.inf, np.nan]
    special += [5 * info.smallest_subnormal, info.tiny / 3, info.smallest_subnormal]
    x, y = (a.ravel() for a in np.meshgrid(*2 * [[*special, *(-a for a in special)]]))
    wide = lambda: rng.normal(size=999) * 2.0 ** rng.integers(3 - info.maxexp, info.maxexp - 3, 999)
    x = np.concatenate([x, rng.normal(size=500), 1e7 * rng.normal(size=500), wide(), wide()])
    y = np.concatenate([y, rng.normal(size=1000), wide(), rng.normal(size=999)])
    count = len(x) // 3 * 3
    return x[:count].astype(dtype).reshape(-1, 3), y[:count].astype(dtype).reshape(-1, 3)


@FLOATS
@pytest.mark.parametrize("target", ["CPU", "GPU"])
def test_the_remainder_is_exact(dtype, target):
    """It is C's fmod, with the sign of zeros; on the CPU denormal numbers count as zero."""
    x, y = numbers_to_divide(dtype)
    body, start = (
        jq.Body.from_principal(jnp.ones(3, dtype)),
        jq.State(*(a[0] for a in starts(1, dtype))),
    )
    grid = jq.grid(0.0, 0.1, 1)

    def run(x, y):
        remainder = lambda t, state, p: jnp.fmod(jnp.where(state.omega < 1e3, x, 0), y)
        options = {"engine": "fused", "save": remainder}
        return flat.rollout(jq.lie_euler, body, jq.torques.zero, start, grid, **options).saved[0]

    with emulator.gpu() if target == "GPU" else contextlib.nullcontext():
        got = np.asarray(jax.jit(lambda x, y: jax.vmap(run)(x, y))(x, y))
    tiny = 0 if target == "GPU" else np.finfo(dtype).tiny
    normal = lambda a: np.where(abs(a) < tiny, np.copysign(0, a), a)
    with np.errstate(invalid="ignore"):
        got, wanted = normal(got), normal(np.fmod(normal(x), normal(y)))
    np.testing.assert_array_equal(got, wanted)
    defined = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[defined], np.signbit(wanted)[defined])


@pytest.mark.slow
def test_a_kernel_with_more_arrays_than_a_gpu_allows_is_left_to_the_scan(monkeypatch, capsys):
    """With room for the forward kernel alone it is the derivative that a scan computes."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(vouching, "objection", lambda: None)
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.array([0.1, 0.2, 0.3]))
    gains = [jnp.asarray(0.1 * k) for k in range(8)]
    law = lambda t, state, gains: sum(-gain * state.omega for gain in gains)
    arguments = jq.lie_euler, body, law, start, jq.grid(0.0, 0.1, 4)

    def rates(gains, by):
        path = jq.rollout(*arguments, gains, options=jq.RolloutOptions(engine=by))
        return jnp.sum(path.final.omega**2)

    value = lambda gains: rates(gains, "auto")
    wanted = jax.grad(lambda gains: rates(gains, "scan"))(gains)
    layout = trace(checked_simulation(*arguments, gains))[0].layout
    fits = 2 + len(layout.operands("forward")) + len(layout.results("forward"))
    kernels = []
    own = lowering.kernel.bind
    monkeypatch.setattr(
        lowering.kernel, "bind", lambda *x, **p: kernels.append(p["kind"]) or own(*x, **p)
    )
    for most, named, lines in (
        (512, ["keeping", "backward"], ["the fused kernel", "derivative of the step: "]),
        (fits, [], ["the fused kernel", "derivative: by a scan (a fused kernel has at most "]),
        (fits - 1, [], [f"the scan (a fused kernel has at most {fits - 1} arrays on the GPU, "]),
    ):
        monkeypatch.setattr(nvptx, "ARRAYS", most)
        kernels.clear()
        slope = jax.jit(lambda gains: jax.grad(value)(gains))(gains)
        assert kernels == named
        for a, b in zip(slope, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
        jq.explain(*arguments, gains)
        told = capsys.readouterr().out
        assert all(line in told for line in lines)
    with pytest.raises(
        NotImplementedError, match=f'at most {fits - 1} arrays .*; use engine="scan"'
    ):
        rates(gains, "fused")
