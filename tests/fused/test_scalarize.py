"""A traced function as a scalar program gives the numbers of jax.jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from as_scalars import assert_same, both, evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.trace import calls
from jaxquat.fused.trace.tracing import Tracing, scalarize

MOVES = {
    "reverse": lambda x: x[::-1],
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(3, 4),
    "by columns": lambda x: x.ravel(order="F"),
    "roll": lambda x: jnp.roll(x, 1, axis=0),
    "pick": lambda x: x[jnp.array([2, 0, 1]), 1],
    "row at an index of the run": lambda x: x[jnp.argmax(x[:, 0])],
    "element far outside": lambda x: jnp.append(x.ravel(), x.ravel())[jnp.int32(9 * x[0, 0])],
    "rows at indices of the run": lambda x: x[jnp.argsort(x[:, 0])],
    "rows or zeros": lambda x: jnp.take(
        x, jnp.argsort(x[:, 0]) * 2 - 1, 0, mode="fill", fill_value=0.0
    ),
    "along an axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=0), axis=0),
    "set at an index of the run": lambda x: x.at[jnp.argmax(x[:, 0]), 1].set(7.0 * x[0, 0]),
    "add at indices of the run": lambda x: x.at[jnp.argsort(x[:, 0])[:2]].add(x[:2]),
    "multiply at an index of the run": lambda x: x.at[jnp.argmax(x[:, 0])].multiply(x[0]),
    "least at an index of the run": lambda x: x.at[jnp.argmax(x[:, 0])].min(x[0]),
    "largest at an index of the run": lambda x: x.at[jnp.argmax(x[:, 0])].max(x[0]),
    "largest outside": lambda x: x.at[jnp.argmax(x[:, 0]) + jnp.array([4, -9, 0])].max(2.0),
    "gathered from outside": lambda x: x[:, jnp.argmax(x[:, 0]) + jnp.array([3, -9])],
    "a function at an index of the run": lambda x: x.at[jnp.argmax(x[:, 0]), 1].apply(jnp.cos),
    "a function at fixed places": lambda x: x.at[jnp.array([0, 2, 2])].apply(jnp.exp),
    "a function in a large array": lambda x: (
        jnp.tile(x.ravel(), 9).at[jnp.argmax(x)].apply(jnp.sin)
    ),
    "set outside": lambda x: x.at[jnp.argmax(x[:, 0]) + 3].set(7.0),
    "update at an index of the run": lambda x: jax.lax.dynamic_update_slice(
        x, 3.0 * x[:2, :2], (jnp.argmax(x[:, 1]), jnp.argmin(x[0]))
    ),
    "search": lambda x: jnp.searchsorted(jnp.sort(x.ravel()), x[0]),
    "interpolate": lambda x: jnp.interp(x[0], jnp.arange(-3.0, 4.0), jnp.cos(jnp.arange(7.0))),
    "interpolate in data": lambda x: jnp.interp(0.3, jnp.sort(x[:, 0]), x[:, 1]),
    "set": lambda x: x.at[1, 2].set(7.0),
    "add at": lambda x: x.at[jnp.array([0, 0, 3])].add(2.0),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=3.0),
    "negative pad": lambda x: jax.lax.pad(x, 0.5, ((-1, 1, 0), (0, 0, 1))),
    "strided": lambda x: x[::2, 1:],
    "stack": lambda x: jnp.stack([x, 2 * x], axis=1),
    "concatenate": lambda x: jnp.concatenate([x, x], axis=1),
    "split": lambda x: jnp.split(x, [1], axis=1)[1],
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "dynamic slice": lambda x: jax.lax.dynamic_slice(x, (1, 0), (2, 2)),
    "dynamic update": lambda x: jax.lax.dynamic_update_slice(x, x[:1, :1], (9, 1)),
    "diagonal": lambda x: jnp.diagonal(x),
}
REDUCTIONS = {
    "sum": lambda x: jnp.sum(x, axis=1),
    "product": lambda x: jnp.prod(x, axis=0),
    "product of rows": lambda x: jnp.prod(x, axis=1),
    "median": lambda x: jnp.median(x[None] * jnp.array([[[1.0]], [[-2.0]]]), axis=(0, 2)),
    "max": lambda x: jnp.max(x),
    "min": lambda x: jnp.min(x, axis=(0, 1)),
    "argmax": lambda x: jnp.argmax(x, axis=1),
    "argmin": lambda x: jnp.argmin(x),
    "any": lambda x: jnp.any(x > 1.0, axis=0),
    "all": lambda x: jnp.all(x > -1.0),
    "cumsum": lambda x: jnp.cumsum(x, axis=0),
    "reverse cumsum": lambda x: jax.lax.cumsum(x, axis=1, reverse=True),
    "sort": lambda x: jnp.sort(x, axis=0),
    "argsort": lambda x: jnp.argsort(x, axis=1),
    "matmul": lambda x: x @ x.T,
    "einsum": lambda x: jnp.einsum("ij,kj,i->ki", x, x, x[:, 0]),
    "norm": lambda x: jnp.linalg.norm(x),
}
ELEMENTWISE = {
    "tan": jnp.tan,
    "arcsin": lambda x: jnp.arcsin(jnp.tanh(x)),
    "arccos": lambda x: jnp.arccos(jnp.tanh(x)),
    "arctan": jnp.arctan,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "expm1": jnp.expm1,
    "log1p": lambda x: jnp.log1p(x * x),
    "exp2": jnp.exp2,
    "arcsinh": jnp.arcsinh,
    "arccosh": lambda x: jnp.arccosh(1.5 + x * x),
    "arctanh": lambda x: jnp.arctanh(0.3 * x),
    "cbrt": jnp.cbrt,
    "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc,
    "logistic": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    "gelu": jax.nn.gelu,
    "sign": jnp.sign,
    "round": jnp.round,
    "ceil": jnp.ceil,
    "remainder": lambda x: jnp.remainder(x, 0.7),
    "clip": lambda x: jnp.clip(x, -0.5, 0.5),
    "product in another dtype": lambda x: jax.lax.mul(
        (x * 9).astype(jnp.int8), jnp.int8(100), out_dtype=jnp.dtype(jnp.int32)
    ),
    "powers": lambda x: x**3 + x**-2 + jnp.abs(x) ** 0.5 + jnp.abs(x) ** 1.5 + jnp.abs(x) ** x,
    "rsqrt": lambda x: jax.lax.rsqrt(jnp.abs(x)),
    "finite": lambda x: jnp.where(jnp.isfinite(x / 0.0), 1.0, x),
    "integers": lambda x: (x * 100).astype(jnp.int32) % 7 // 2 << 1,
    "unsigned": lambda x: (jnp.abs(x) * 100).astype(jnp.uint32) >> 2 ^ jnp.uint32(5),
    "logic": lambda x: jnp.where((x > 0) & ~(x > 1) | (x < -1), x, -x),
    "loop": lambda x: jax.lax.fori_loop(0, 4, lambda k, y: y * 0.5 + k.astype(y.dtype), x),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), x[0], x)[1],
    "backward scan": lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), x[0], x, reverse=True),
    "cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "switch": lambda x: [
        jax.lax.switch(k, [jnp.sin, jnp.cos, jnp.tanh], x) for k in (x[0] * 3).astype(jnp.int32)
    ],
    "while": lambda x: jax.lax.while_loop(
        lambda y: jnp.sum(y) < 20.0, lambda y: y * jnp.cos(y) + 1.5, x
    ),
    "rows of a while": lambda x: jax.vmap(
        lambda row, start: jax.lax.while_loop(
            lambda y: (jnp.sum(y[0]) < 4.0) & (y[1] < 6.0),
            lambda y: (y[0] * jnp.cos(y[0]) + 1.5, y[1] + 1.0),
            (row, start),
        )
    )(x, x[:, 0]),
    "rows of a known while": lambda x: jax.vmap(
        lambda row, last: jax.lax.while_loop(
            lambda y: y[1] < last, lambda y: (jnp.sin(y[0]), y[1] + 1), (row, 0)
        )[0]
    )(x, jnp.array([3, 0, 1, 2])),
    "long branches": lambda x: [
        jax.lax.cond(y > 0, lambda x: jnp.sin(jnp.cos(x)), lambda x: jnp.tanh(jnp.exp(x)), x)
        for y in x[0]
    ],
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))),
    "solve": lambda x: jax.lax.custom_root(
        lambda y: y**3 + y - x, x, lambda f, y: newton(f, y), lambda g, y: y / g(jnp.ones_like(y))
    ),
}


def newton(function, x):
    for _ in range(12):
        value, slope = jax.jvp(function, (x,), (jnp.ones_like(x),))
        x = x - value / slope
    return x


NOT_DIFFERENTIATED = ("integers", "unsigned", "any", "all", "argmax", "argmin", "argsort", "search")
NOT_DIFFERENTIATED += ("product in another dtype", "a function at an index of the run")
NOT_DIFFERENTIATED += ("a function at fixed places", "a function in a large array")
FORWARD_ONLY = ("while", "rows of a while", "rows of a known while")  # as in JAX
MATRIX = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
KINDS = {"moves": MOVES, "reductions": REDUCTIONS, "elementwise": ELEMENTWISE}


def drawn(shape):
    return jnp.asarray(np.random.default_rng(2).normal(size=shape.shape))


def with_derivative(name, function):
    """The function beside its derivative, and the cotangent or tangent that this takes."""
    if name in NOT_DIFFERENTIATED:
        return lambda x, _: function(x), ()
    if name in FORWARD_ONLY:
        tangent = lambda x, dx: jax.jvp(function, (x,), (dx,))[1]
        return lambda x, dx: (function(x), tangent(x, dx)), drawn(MATRIX)
    slope = lambda x, bar: jax.vjp(function, x)[1](bar)[0]
    cotangent = jax.tree.map(drawn, jax.eval_shape(function, MATRIX))
    return lambda x, bar: (function(x), slope(x, bar)), cotangent


@pytest.mark.parametrize("kind", KINDS)
def test_all_operations_and_their_vjps(kind):
    """As one program: the slow tests have each by itself."""
    pairs = {name: with_derivative(name, function) for name, function in KINDS[kind].items()}
    directions = {name: direction for name, (_, direction) in pairs.items()}
    every = lambda x, d: {name: function(x, d[name]) for name, (function, _) in pairs.items()}
    assert_same(every, MATRIX, directions)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for functions in KINDS.values() for name in functions])
def test_one_operation_and_its_vjp(name):
    function, direction = with_derivative(name, {**MOVES, **REDUCTIONS, **ELEMENTWISE}[name])
    assert_same(function, MATRIX, direction)


WITHOUT_INFLUENCE = {
    # of an operation's speed, accuracy or place
    "accuracy", "branches_platforms", "compiler_options_kvs", "ctx_mesh", "differentiated",
    "donated_invars", "in_layouts", "in_shardings", "indices_are_sorted", "inline", "keep_unused",
    "memory_space", "name", "out_layouts", "out_sharding", "out_shardings", "policy", "precision",
    "prevent_cse", "sharding", "unique_indices", "unroll",
    # what the dtype or shape of the result says as well
    "dtype", "index_dtype", "new_dtype", "new_sizes", "out_dtype", "preferred_element_type",
    "shape", "weak_type",
    # of derivatives
    "bwd", "fwd_jaxpr_thunk", "jvp_jaxpr_fun", "num_consts", "out_trees", "symbolic_zeros",
    # of single operations, of which the shape or the name says it
    "dimensions of squeeze", "ft_out of scan", "is_stable of sort",
    "update_consts of scatter-", "update_jaxpr of scatter-",
}  # fmt: skip


def test_a_rule_reads_all_that_changes_a_value(monkeypatch):
    """``lax.reshape`` has an order of axes, which no user of ``jnp.reshape`` sees."""
    read, had = set(), set()

    class Parameters(dict):
        def __init__(self, name, params):
            super().__init__(params)
            self.name = name

        def __getitem__(self, key):
            read.add((self.name, key))
            return super().__getitem__(key)

        def get(self, key, default=None):
            read.add((self.name, key))
            return super().get(key, default)

    def recorded(self, equation, args):
        name, params = equation.primitive.name, equation.params
        had.update((name, key) for key in params)
        return apply(self, equation.replace(params=Parameters(name, params)), args)

    apply = Tracing._apply
    monkeypatch.setattr(Tracing, "_apply", recorded)
    for function in (f for functions in KINDS.values() for f in functions.values()):
        scalarize(function, MATRIX)
    unread = {(name, key) for name, key in had if (name, key) not in read}
    names = lambda name, key: {key, f"{key} of {name}", f"{key} of {name[:8]}"}
    assert {pair for pair in unread if not names(*pair) & WITHOUT_INFLUENCE} == set()


def positive(a):
    return a @ a.T + jnp.eye(len(a))


solvers = jax.scipy.linalg
LINEAR_ALGEBRA = {
    "solve": jnp.linalg.solve,
    "inverse": lambda a, b: jnp.linalg.inv(a),
    "determinant": lambda a, b: jnp.linalg.det(a),
    "logarithm of it": lambda a, b: jnp.linalg.slogdet(a),
    "cholesky": lambda a, b: jnp.linalg.cholesky(positive(a)),
    "triangle": lambda a, b: solvers.solve_triangular(
        a + 3 * jnp.eye(len(a)), b, trans=1, lower=True
    ),
    "by cholesky": lambda a, b: solvers.cho_solve(solvers.cho_factor(positive(a)), b),
    "by lu": lambda a, b: solvers.lu_solve(solvers.lu_factor(a), b),
}


def system(n):
    rng = np.random.default_rng(n)
    return jnp.asarray(rng.normal(size=(n, n))), jnp.asarray(rng.normal(size=n))


@pytest.mark.parametrize(
    ("name", "n"),
    [
        pytest.param(name, n, marks=() if n == 3 and name == "solve" else pytest.mark.slow)
        for name in LINEAR_ALGEBRA
        for n in (3, 4, 6)
    ],
)
def test_linear_algebra_and_its_derivatives(name, n):
    function, (a, b) = LINEAR_ALGEBRA[name], system(n)
    assert_same(function, a, b, rtol=1e-11)
    assert_same(lambda a, b: jax.jvp(function, (a, b), (a * b[:, None], b))[1], a, b, rtol=1e-10)
    bars = function(a, b)
    assert_same(lambda a, b, bars: jax.vjp(function, a, b)[1](bars), a, b, bars, rtol=1e-10)


def test_factors_and_pivots_of_a_batch_and_of_singular_matrices():
    a = system(4)[0]
    singular = jnp.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    for matrix in (jnp.stack([a, a[::-1]]), a[:2], a[:, :2], singular, jnp.zeros((3, 2))):
        assert_same(jax.lax.linalg.lu, matrix)
    assert_same(jnp.linalg.cholesky, jnp.array([[1.0, 2.0], [2.0, 1.0]]))  # all NaN


UNARY = [jnp.sin, jnp.tanh, lambda x: jnp.exp(-x * x), lambda x: x[::-1]]
UNARY += [lambda x: x - jnp.mean(x), lambda x: jnp.roll(x, 1)]
BINARY = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum]
BINARY += [lambda x, y: jnp.where(x < y, x, 2.0 * y), lambda x, y: jnp.dot(x, y) + x]


@st.composite
def programs(draw):
    """A straight line of operations on three vectors."""
    lines = []
    for number in range(draw(st.integers(3, 12))):
        places = st.integers(0, number + 1)
        unary = draw(st.booleans())
        operation = draw(st.sampled_from(UNARY if unary else BINARY))
        lines.append((operation, [draw(places) for _ in range(1 if unary else 2)]))

    def run(x, y):
        values = [x, y]
        for operation, places in lines:
            values.append(operation(*(values[k] for k in places)))
        return values[-1], values[len(values) // 2]

    return run


@given(programs(), st.integers(0, 100))
@settings(max_examples=5, deadline=None)
def test_random_programs_and_their_vjps(function, seed):
    x, y, a, b = jnp.asarray(np.random.default_rng(seed).normal(size=(4, 3)))
    assert_same(function, x, y, rtol=1e-12)
    assert_same(lambda x, y, a, b: jax.vjp(function, x, y)[1]((a, b)), x, y, a, b, rtol=1e-11)


@pytest.mark.parametrize("bits", [jnp.uint8, jnp.uint32, jnp.uint64])
def test_random_bits_are_the_same_bits(bits):
    drawn = lambda key: jax.random.bits(jax.random.fold_in(key, 3), (5,), bits)
    for function in (drawn, lambda key: jax.random.split(key, 3)):
        got, wanted, _ = both(function, jax.random.key(42))
        assert (got == wanted).all()


def test_random_numbers():
    key = jax.random.key(7)
    got, wanted, _ = both(lambda key: jax.random.uniform(key, (4,), jnp.float32), key)
    assert (got == wanted).all()
    got, wanted, _ = both(lambda key: jax.random.normal(key, (12,), jnp.float32), key)
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.broadcast_to(x[0, 0], (5000,)), "too large"),
        (lambda x: jnp.linalg.eigh(x @ x.T)[0], "eigh"),
        (lambda x: jax.lax.scan(lambda c, _: (c + 1.0, ()), x, length=5000)[0], "iterations"),
        (lambda x: x.astype(jnp.float16), "float16"),
    ],
)
def test_what_cannot_be_dissolved_is_named(function, name):
    with pytest.raises(NotScalarError, match=rf"{name}.*engine='scan'"):
        scalarize(function, MATRIX)


def test_programs_share_fold_and_forget():
    nothing = lambda: 0.0 * jnp.sum(jnp.arange(3.0))
    program = scalarize(lambda x: (jnp.sin(x) * jnp.sin(x) + nothing(), jnp.cos(x)), 0.3)
    assert program.counts() == {"sin": 1, "mul": 1, "cos": 1}
    assert str(program).splitlines()[0] == "inputs %0:float64"
    assert len(str(program).splitlines()) == 2 + len(program.ops)


def test_denormal_constants_count_as_zero_but_keep_their_bits_where_they_are_moved():
    """As denormal values of a kernel do; 1e-30 1e-10 is one in float32."""
    small, tenth, less = np.float32([1e-30, 1e-10, 1e-40])
    lax, numbers = jax.lax, lambda: (
        1 / lax.mul(small, tenth), lax.gt(less, np.float32(0)), 1e30 * lax.abs(less),
        lax.convert_element_type(lax.mul(1e-20, 1e-20), np.float32), lax.neg(less),
        lax.bitcast_convert_type(less, np.int32),
    )  # fmt: skip
    program = scalarize(numbers)
    assert evaluate(program, []) == [np.inf, False, 0, 0, -less, less.view(np.int32)]
    assert not program.counts()


# loops and routines


def normal(*shape, seed=4):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def loops_of(program):
    return [op for op in program.ops if op.name == "call"]


@pytest.mark.parametrize(
    ("function", "shapes", "products"),
    [
        (lambda x, y: x @ y, ((5, 7), (7, 6)), 210),
        (lambda x, y: x @ y, ((4, 30), (30,)), 120),
        (lambda x, y: jnp.einsum("bij,bjk->bki", x, y), ((2, 5, 7), (2, 7, 6)), 420),
        (lambda x, y: jnp.einsum("i,j->ij", x, y), ((12,), (40,)), 480),
        pytest.param(lambda x, y: jnp.tanh(x @ y), ((64, 64), (64,)), 4096, marks=pytest.mark.slow),
    ],
)
def test_a_large_product_is_a_loop_and_so_are_those_of_its_vjp(function, shapes, products):
    x, y = (normal(*shape) for shape in shapes)
    program = assert_same(function, x, y, rtol=1e-12)
    assert loops_of(program)
    assert program.counts()["mul"] == products
    assert all(op.name != "mul" for op in program.ops)
    bar = normal(*jax.eval_shape(function, x, y).shape)
    program = assert_same(lambda x, y, bar: jax.vjp(function, x, y)[1](bar), x, y, bar, rtol=1e-12)
    assert len(loops_of(program)) >= 2
    assert sum(op.name == "mul" for op in program.ops) <= 2 * 64  # those of tanh


def test_a_sum_of_outer_products_is_one_product(monkeypatch):
    monkeypatch.setattr(calls, "LONG", 50)
    n = 12

    @jax.jit
    def layer(w, x):
        for _ in range(2):
            x = jnp.tanh(w @ jnp.sin(x))
        return x

    def several(w, x):
        return layer(w, layer(w, layer(w, x)))

    w, x, bar = normal(n, n) / 5, normal(n), normal(n)
    program = assert_same(lambda w, x, c: jax.vjp(several, w, x)[1](c), w, x, bar, rtol=1e-12)
    outer = [op.value for op in program.ops if op.name == "call" and op.value.items == n * n]
    assert len(outer) == 1  # not three of them, and two sums of n^2 numbers
    assert outer[0].program.counts() == {"mul": n * 6, "add": n * 5}
    program = assert_same(lambda a, b, c, d: jnp.outer(a, b) + jnp.outer(c, d).T, *[x] * 4)
    assert program.counts() == {"mul": 2 * n * n, "add": n * n}  # in another order: the sum stays


def test_products_of_small_matrices_have_no_loops():
    ones = jnp.ones((4, 4))
    by_sum = lambda x, y: jnp.sum(x[:, :, None] * y[None], axis=1)
    assert not loops_of(scalarize(lambda x, y: x @ y, ones, ones))
    assert not loops_of(scalarize(by_sum, ones, ones))


LAYERS = [
    lambda w, x: jnp.tanh(w @ x),
    lambda w, x: x @ w,
    lambda w, x: jnp.where(w @ x > 0, x, 0.1 * x),
    lambda w, x: (w @ w.T) @ x / len(x),
    lambda w, x: jnp.sin(w[:, ::-1] @ x + w[0]),
    lambda w, x: x - jnp.outer(x, x) @ w[1],
]


SEVERAL_LAYERS = st.lists(st.sampled_from(LAYERS), min_size=1, max_size=3)


@pytest.mark.slow
@given(SEVERAL_LAYERS, st.integers(9, 24), st.integers(0, 100))
@settings(max_examples=4, deadline=None)
def test_random_programs_of_larger_matrices_and_their_vjps(layers, n, seed):
    def function(w, x):
        for layer in layers:
            x = layer(w, x)
        return x

    w, x, bar = normal(n, n, seed=seed) / n**0.5, normal(n, seed=seed + 1), normal(n, seed=seed + 2)
    assert loops_of(assert_same(function, w, x, rtol=1e-11))
    assert_same(lambda w, x, bar: jax.vjp(function, w, x)[1](bar), w, x, bar, rtol=1e-10)


def test_a_function_called_several_times_is_there_once(monkeypatch):
    """Forward and in the derivative; what is constant or passes unchanged does not come from it."""
    monkeypatch.setattr(calls, "LONG", 60)

    @jax.jit
    def long(w, x, k):
        for _ in range(4):
            x = jnp.sin(w @ x) + k
        return x, w, jnp.asarray(2.0)

    def function(w, x):
        two = 0.0
        for k in range(3):
            x, w, two = long(w, x, 1.0 * k)
        return two * x

    w, x = normal(3, 3), normal(3)
    program = assert_same(function, w, x, rtol=1e-12)
    assert program.counts()["sin"] == 3 * 12
    assert {id(op.value) for op in loops_of(program)} == {id(r) for r in program.routines()}
    assert len(program.routines()) == 3  # one for each constant k

    def same(w, x):
        two = 0.0
        for _ in range(3):
            x, w, two = long(w, x, x[0])
        return two * x

    program = assert_same(same, w, x, rtol=1e-12)
    assert [len(loops_of(program)), len(program.routines())] == [3, 1]
    assert str(program).count("= sin ") == 12
    inner = program.routines()[0].program
    assert len(str(program).splitlines()) == (2 + len(program.ops)) + (3 + len(inner.ops))
    back = lambda w, x, bar: jax.vjp(same, w, x)[1](bar)
    program = assert_same(back, w, x, normal(3, seed=9), rtol=1e-11)
    assert len(program.routines()) == 2


def test_a_short_function_and_one_called_once_are_inlined():
    short = jax.jit(lambda x: jnp.sin(x) * x)
    long = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, x: x * x - 0.5, x))
    assert not loops_of(scalarize(lambda x: short(short(x)) + long(x), normal(3)))


def test_a_function_that_knows_its_index_where_it_is_called():
    @jax.jit
    def pick(x, k):
        for _ in range(100):
            x = x * x[0]
        return jnp.roll(x, 1) * x[k]

    assert_same(lambda x: pick(pick(x, 1), 2), normal(3))
    assert_same(lambda x: pick(pick(x, jnp.arange(3)[1]), jnp.arange(3)[1]), normal(3))
