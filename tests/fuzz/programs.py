"""Programs: expressions in the functions of a short rollout, their text and their inputs."""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .grammar import HELD, HELD_WIDE, PARAMS, Grammar, Mode, Node, Type

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
        """What a child is sent."""
        chosen = list(self.expressions if names is None else names)
        items = {
            name: [
                self.expressions[name][0],
                self.expressions[name][1].render(),
                list(self.expressions[name][1].type.shape),
            ]
            for name in chosen
        }
        gradient = self.seed % GRADIENT_EVERY == 0
        request = {
            "kind": "program",
            "mode": list(self.mode),
            "seed": self.seed,
            "expressions": items,
            "gradient": gradient,
        }
        more = {"forward": gradient and self.seed % 2 == 0}
        more["alone"] = self.seed % GRADIENT_EVERY == 3
        return request | more | options


def has_subnormals(seed: int) -> bool:
    """Whether subnormal numbers occur among the constants and inputs: in one program of ten."""
    return seed % 10 == 5


GRADIENT_EVERY = 5  # programs, of which one is differentiated: that costs four times the values


def draw(seed: int, count: int = 20, without: Sequence[str] = (), depth: int = 3) -> Program:
    """The program of a seed. One in twenty has operations without a scalar form."""
    rng = random.Random(seed)
    mode = (Mode(False, True), Mode(True, False), Mode(True, True))[seed // 25 % 3]
    grammar = Grammar(
        rng,
        mode,
        without,
        odd=seed % 20 == 19,
        reverse=seed % GRADIENT_EVERY == 0,
        subnormal=has_subnormals(seed),
    )
    expressions = {}
    for number in range(count):
        place = rng.choice(PLACES)
        kind = Type("f", grammar.any_shape())
        if place == "save" and rng.random() < 0.45:
            kind = Type(
                rng.choice([*mode.integers, "i4", "i4", "b", "b", *(["h"] if mode.x64 else [])]),
                kind.shape,
            )
        expressions[f"e{number}"] = (place, grammar.expression(kind, rng.choice((2, 2, 3, depth))))
    return Program(mode, seed, expressions)


def text_of(mode: Mode, expressions: dict[str, Sequence[object]]) -> str:
    """The functions of a program: torque and save."""
    lines = [PRELUDE, "def torque(t, state, params, held):"]
    tau = ["jnp.zeros_like(state.omega)"]
    tau += [
        f"bounded(jnp.sum({text}))" for place, text, _ in expressions.values() if place == "torque"
    ]
    lines += ["    tau = 0.01 * state.omega", *(f"    tau = tau + {term}" for term in tau)]
    rates = [
        f"        {name!r}: {text},"
        for name, (place, text, _) in expressions.items()
        if place == "rate"
    ]
    lines += [
        "    rate = {",
        *rates,
        "    }",
        "    return tau, rate",
        "",
        "",
        "def save(t, state, params, held):",
    ]
    saved = [
        f"        {name!r}: {text},"
        for name, (place, text, _) in expressions.items()
        if place == "save"
    ]
    lines += ["    return {", '        "omega": state.omega,', *saved, "    }", ""]
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
    """``extreme`` is the probability for each body of a number that is special."""
    special = rng.random(shape) < extreme.reshape(-1, *[1] * (len(shape) - 1))
    if name == "bool":
        return rng.random(shape) < 0.5
    if name.startswith("float"):
        small = rng.normal(size=shape) * 2.0
        small = np.where(rng.random(shape) < 0.15, np.round(small * 2) / 2, small)
        with np.errstate(over="ignore"):
            return np.where(
                special, rng.choice(FLOATS + ([1e-40, -1e-38] if subnormal else []), shape), small
            ).astype(name)
    kind = np.dtype(name)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    ends = np.array([low, high, low + 1, high - 1, 0, 0, 1, high // 2], kind)
    small = rng.integers(0 if kind.kind == "u" else -9, 10, shape).astype(kind)
    anything = rng.integers(low, high, shape, kind, endpoint=True)
    return np.where(
        special, np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), anything), small
    )


def data_of(mode: Mode, seed: int, bodies: int) -> dict[str, object]:
    """Numpy arrays with a leading axis of bodies: a third each with no, few and many extremes."""
    rng = np.random.default_rng(seed)
    extreme = np.resize([0.0, 0.05, 0.3], bodies)
    held = {}
    for name, kind in {**HELD, **(HELD_WIDE if mode.x64 else {})}.items():
        if kind.dtype == "key":
            held[name] = rng.integers(0, 2**32, (bodies, STEPS, 2), np.uint32)
        else:
            held[name] = _numbers(
                rng,
                mode.name(kind.dtype),
                (bodies, STEPS, *kind.shape),
                extreme,
                has_subnormals(seed),
            )
    params = {
        name: _numbers(
            rng, mode.name(kind.dtype), (bodies, *kind.shape), extreme, has_subnormals(seed)
        )
        for name, kind in PARAMS.items()
    }
    q = rng.normal(size=(bodies, 4))
    return {
        "q": (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(mode.name("f")),
        "omega": rng.normal(size=(bodies, 3)).astype(mode.name("f")),
        "t0": np.resize([0.0, 0.5, -2.0, 8.25], bodies).astype(mode.name("f")),
        "held": held,
        "params": params,
    }
