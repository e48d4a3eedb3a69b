"""Programs: expressions in the functions of a short rollout, their text and their inputs.

``draw(seed)`` draws the expressions, ``text_of`` puts them into the functions ``torque`` and
``save``, ``data_of(mode, seed, bodies)`` draws the inputs. A seed gives the same program in every
process, as long as the order of the draws does not change.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from . import derivatives
from .grammar import COMMAND, COMMAND_WIDE, PARAMS, Grammar, Mode, Node, Type

STEPS = 2
BODIES = 72
PLACES = ("save", "save", "save", "save", "rate", "torque")

PRELUDE = '''
def step(body, torque, t, state, dt, params):
    """Euler's method for omega and aux; the attitude stays."""
    tau, rate = torque(t, state, params)
    aux = jax.tree.map(lambda x, y: x + dt * y, state.aux, rate)
    return jq.State(state.q, state.omega + dt * tau, aux)


def bounded(x):
    """Small and finite."""
    return jnp.tanh(jnp.where(jnp.isfinite(x), x, 0.0)) * 0.125


def normal(bits):
    """Zero for the bits of a subnormal number, of which XLA makes zero at times."""
    info = jnp.finfo({4: jnp.float32, 8: jnp.float64}[bits.dtype.itemsize])
    exponent = ((1 << info.nexp) - 1) << info.nmant
    small = (bits & jnp.array(exponent, f"uint{info.bits}").astype(bits.dtype)) == 0
    return jnp.where(small, jnp.zeros_like(bits), bits)


def no_nan(x):
    """1 for NaN, whose bits XLA chooses."""
    return jnp.where(jnp.isnan(x), jnp.ones_like(x), x)


def with_jvp(function):
    """With twice its derivative as the custom one."""
    g = jax.custom_jvp(function)
    g.defjvp(lambda p, v: (function(*p), jax.jvp(function, p, v)[1] * 2))
    return g


def with_vjp(function):
    """With half its derivative as the custom one."""
    g = jax.custom_vjp(function)
    g.defvjp(lambda x: (function(x), x), lambda x, bar: (jax.vjp(function, x)[1](bar)[0] * 0.5,))
    return g


def loop(low, high, body, start):
    """With an index of 32 bits also where the default integer has 64."""
    return lax.fori_loop(low, high, lambda k, x: body(jnp.asarray(k, jnp.int32), x), start)


def root_of(x):
    """y with y^3 + y = tanh(x)."""

    def solve(f, y):
        for _ in range(8):
            value, slope = jax.jvp(f, (y,), (jnp.ones_like(y),))
            y = y - value / slope
        return y

    x = jnp.tanh(x)
    cubic = lambda y: y * y * y + y - x
    return lax.custom_root(cubic, x, solve, lambda g, y: y / g(jnp.ones_like(y)))


def solution_of(x):
    """x/3, as the solution of a linear system."""
    solve = lambda matvec, b: b / matvec(jnp.ones_like(b))
    return lax.custom_linear_solve(lambda y: 3 * y, x, solve, solve, symmetric=True)
'''


class Program(NamedTuple):
    """Expressions by name, each with its place: "save", "rate" (d aux/dt) or "torque"."""

    mode: Mode
    seed: int
    expressions: dict[str, tuple[str, Node]]

    def request(self, names: Iterable[str] | None = None, **options: object) -> dict[str, object]:
        """The request to a child, with only the expressions ``names``."""
        items = {}
        for name in self.expressions if names is None else names:
            place, node = self.expressions[name]
            items[name] = [place, node.render(), list(node.type.shape)]
        gradient = self.seed % GRADIENT_EVERY == 0
        request = {
            "kind": "program", "mode": list(self.mode), "seed": self.seed, "expressions": items,
            "gradient": gradient, "derivative": kind_of(self.seed),
            "forward": gradient and self.seed % 2 == 0,
            "alone": self.seed % GRADIENT_EVERY == 3,
        }  # fmt: skip
        return request | options


def has_subnormals(seed: int) -> bool:
    """Whether the constants and inputs may be subnormal, as in one program of ten."""
    return seed % 10 == 5


GRADIENT_EVERY = 5  # one of this many programs is differentiated, at four times the cost


def kind_of(seed: int) -> str:
    """The kind of derivative of a program that is differentiated."""
    return derivatives.KINDS[seed // GRADIENT_EVERY % len(derivatives.KINDS)]


def draw(seed: int, count: int = 20, without: Sequence[str] = (), depth: int = 3) -> Program:
    """The program of a seed. One in twenty has operations without a scalar form."""
    rng = random.Random(seed)
    mode = (Mode(False, True), Mode(True, False), Mode(True, True))[seed // 25 % 3]
    odd = seed % 20 == 19
    if seed % GRADIENT_EVERY == 0:
        without = [*without, *derivatives.without(kind_of(seed))]
    grammar = Grammar(rng, mode, without, odd, has_subnormals(seed))
    expressions = {}
    for number in range(count):
        place = rng.choice(PLACES)
        kind = Type("f", grammar.any_shape())
        if place == "save" and rng.random() < 0.45:
            dtypes = [*mode.integers, "i4", "i4", "b", "b", *(["h"] if mode.x64 else [])]
            kind = Type(rng.choice(dtypes), kind.shape)
        expressions[f"e{number}"] = (place, grammar.expression(kind, rng.choice((2, 2, 3, depth))))
    return Program(mode, seed, expressions)


def text_of(mode: Mode, expressions: dict[str, Sequence[object]]) -> str:
    """The functions of a program: torque and save."""

    def texts(which: str) -> dict[str, object]:
        return {name: text for name, (place, text, _) in expressions.items() if place == which}

    tau = [f"bounded(jnp.sum({text}))" for text in texts("torque").values()]
    rates = [f"        {name!r}: {text}," for name, text in texts("rate").items()]
    saved = [f"        {name!r}: {text}," for name, text in texts("save").items()]
    lines = [PRELUDE, "def torque(t, state, params, command):", "    tau = 0.01 * state.omega"]
    lines += [f"    tau = tau + {term}" for term in ("jnp.zeros_like(state.omega)", *tau)]
    lines += ["    rate = {", *rates, "    }", "    return tau, rate", "", ""]
    lines += ["def save(t, state, params, command):", "    return {"]
    lines += ['        "omega": state.omega,', *saved, "    }", ""]
    return "\n".join(lines)


FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-30,
    3.4028235e38, -3.4028235e38, 1e12, -1e12, 1e-20, 1e20, 0.49999997, -0.49999997, 8388609.0,
    -8388607.5, 2147483648.0, -2147483904.0, 4294967296.0, 127.5, 128.0, 255.5, 256.0, -129.0,
    65536.0, 88.8, -104.0, 710.0, np.pi, np.pi / 2,
]  # fmt: skip


def _numbers(
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    extreme: np.ndarray,
    subnormal: bool,
) -> np.ndarray:
    """Random numbers of the dtype ``name``.

    ``extreme``: for each body the probability that a number is special.
    """
    special = rng.random(shape) < extreme.reshape(-1, *[1] * (len(shape) - 1))
    if name == "bool":
        return rng.random(shape) < 0.5
    if name.startswith("float"):
        small = rng.normal(size=shape) * 2.0
        small = np.where(rng.random(shape) < 0.15, np.round(small * 2) / 2, small)
        floats = FLOATS + ([1e-40, -1e-38] if subnormal else [])
        with np.errstate(over="ignore"):
            return np.where(special, rng.choice(floats, shape), small).astype(name)
    kind = np.dtype(name)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    ends = np.array([low, high, low + 1, high - 1, 0, 0, 1, high // 2], kind)
    small = rng.integers(0 if kind.kind == "u" else -9, 10, shape).astype(kind)
    anything = rng.integers(low, high, shape, kind, endpoint=True)
    large = np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), anything)
    return np.where(special, large, small)


def data_of(mode: Mode, seed: int, bodies: int) -> dict[str, object]:
    """The inputs, numpy arrays with a leading axis of bodies.

    A third of the bodies have no extreme numbers, a third have few, and a third have many.
    """
    rng = np.random.default_rng(seed)
    extreme, subnormal = np.resize([0.0, 0.05, 0.3], bodies), has_subnormals(seed)

    def drawn(kind: Type, *leading: int) -> np.ndarray:
        shape = (*leading, *kind.shape)
        return _numbers(rng, mode.name(kind.dtype), shape, extreme, subnormal)

    command = {}
    for name, kind in (COMMAND | (COMMAND_WIDE if mode.x64 else {})).items():
        if kind.dtype == "key":
            command[name] = rng.integers(0, 2**32, (bodies, STEPS, 2), np.uint32)
        else:
            command[name] = drawn(kind, bodies, STEPS)
    params = {name: drawn(kind, bodies) for name, kind in PARAMS.items()}
    q = rng.normal(size=(bodies, 4))
    return {
        "q": (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(mode.name("f")),
        "omega": rng.normal(size=(bodies, 3)).astype(mode.name("f")),
        "t0": np.resize([0.0, 0.5, -2.0, 8.25], bodies).astype(mode.name("f")),
        "command": command,
        "params": params,
    }
