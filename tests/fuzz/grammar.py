"""Random expressions of jnp and lax operations, as trees that render to Python.

A type is a dtype and a shape; "f" is the float dtype of the program, "h" the other one. A
production makes an expression of a given type from expressions of types that it chooses. For
example "dot" makes a number as ``jnp.dot($0, $1)``, where $0 and $1 stand for two vectors that the
grammar draws in turn. ``Grammar.expression`` draws a production by its weight; at the maximum depth
it draws leaves: inputs, constants, names bound by a lambda.

All random choices come from one ``random.Random``, in one order, so a seed identifies a program. A
change of that order gives every seed another program.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

SIGNED, UNSIGNED = ("i1", "i2", "i4", "i8"), ("u1", "u2", "u4", "u8")
SHAPES = ((), (3,), (4,), (2, 3), (20,))
WIDTH = {"i1": 8, "i2": 16, "i4": 32, "i8": 64, "u1": 8, "u2": 16, "u4": 32, "u8": 64}


class Type(NamedTuple):
    """The type of an expression: dtype "f", "h", "b", "i4", ... or "key", and shape."""

    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the dtype: "f" float, "i" signed, "u" unsigned, "b" bool, "k" key."""
        return "f" if self.dtype in "fh" else self.dtype[0]


class Node(NamedTuple):
    """An expression.

    ``text`` has $0, $1, ... for the children; ``binds[k]`` are the names that it binds for child k.
    """

    production: str
    type: Type
    text: str
    children: tuple["Node", ...] = ()
    binds: tuple[tuple[str, ...], ...] = ()

    def render(self) -> str:
        """The expression in Python."""
        text = self.text
        for number in reversed(range(len(self.children))):
            text = text.replace(f"${number}", self.children[number].render())
        return text

    def free(self) -> set[str]:
        """The names that the expression uses and does not bind."""
        if self.production == "variable":
            return {self.text}
        names: set[str] = set()
        for number, child in enumerate(self.children):
            inner = child.free()
            names |= inner - set(self.binds[number] if self.binds else ())
        return names

    def size(self) -> int:
        """The number of nodes."""
        return 1 + sum(child.size() for child in self.children)

    def productions(self) -> set[str]:
        """The names of all productions in the expression."""
        return {self.production}.union(*(child.productions() for child in self.children))


class Mode(NamedTuple):
    """The dtypes of a program."""

    x64: bool
    single: bool  # the float dtype is float32

    def name(self, dtype: str) -> str:
        """A dtype's name in numpy."""
        if dtype == "f":
            return "float32" if self.single else "float64"
        if dtype == "h":
            return "float64" if self.single else "float32"
        if dtype == "b":
            return "bool"
        return f"{'u' if dtype[0] == 'u' else ''}int{8 * int(dtype[1])}"

    @property
    def integers(self) -> list[str]:
        """The dtypes of integers."""
        return [d for d in SIGNED + UNSIGNED if self.x64 or d[1] != "8"]


# the inputs of a program; most leaves come from the command, which changes from step to step
COMMAND = {
    "x": Type("f", (3,)), "y": Type("f"), "z": Type("f", (4,)), "m": Type("f", (2, 3)),
    "w": Type("f", (20,)), "k": Type("i4"), "b": Type("b", (3,)), "c": Type("b"),
    "key": Type("key"), "i1": Type("i1", (3,)), "i2": Type("i2", (3,)), "i4": Type("i4", (3,)),
    "u1": Type("u1", (3,)), "u2": Type("u2", (3,)), "u4": Type("u4", (3,)),
}  # fmt: skip
COMMAND_WIDE = {"h": Type("h", (3,)), "i8": Type("i8", (3,)), "u8": Type("u8", (3,))}
PARAMS = {"a": Type("f", (3,)), "g": Type("f"), "n": Type("i4", (3,))}

FLOATS = ("0.0", "-0.0", "1.0", "-1.0", "0.5", "2.0", "3.0", "-0.25", "0.1", "1e-3", "1.5707963",
          "10.0", "-7.3")  # fmt: skip
EXTREMES = ("np.inf", "-np.inf", "np.nan", "1e-30", "3.4028235e38", "-3.4028235e38", "1e12",
            "-1e12", "1e-20", "1e20", "0.49999997", "-0.49999997", "8388609.0", "8388607.5",
            "2147483648.0", "-2147483904.0", "4294967296.0", "255.5", "2.5", "-1.5")  # fmt: skip
SUBNORMAL = ("1e-40", "-1e-42", "1e-38")  # in float32
EXPONENTS = ("-2.5", "0.5", "-0.5", "1.5", "2.0", "-3.0", "3.0", "0.3333", "-1.7", "0.0", "-0.0",
             "1.0", "65.0", "-70.0", "64.5", "0.25", "100.0", "5.0", "-64.0", "7.5", "np.inf",
             "np.nan")  # fmt: skip


class Production(NamedTuple):
    """``make(grammar, type, depth)`` makes a node; ``weight`` is 0 for types it cannot make."""

    name: str
    weight: Callable[[Type], float]
    make: Callable[["Grammar", Type, int], Node]


PRODUCTIONS: dict[str, Production] = {}


def production(
    name: str, weight: float | Callable[[Type], float] = 1.0
) -> Callable[[Callable[..., Node]], Callable[..., Node]]:
    """Enter a function into the table."""

    def enter(make: Callable[..., Node]) -> Callable[..., Node]:
        assert name not in PRODUCTIONS, name
        PRODUCTIONS[name] = Production(name, weight if callable(weight) else lambda _: weight, make)
        return make

    return enter


NOT_BACKWARD = ("while", "extremes at the run's indices")  # jax has no derivative in reverse mode


class Grammar:
    """Draws expressions.

    ``without`` names productions to leave out; ``odd`` admits productions without a scalar form;
    ``subnormal`` admits constants below the normal numbers, which XLA may treat as zero.
    """

    def __init__(
        self,
        rng: random.Random,
        mode: Mode,
        without: Sequence[str] = (),
        odd: bool = False,
        subnormal: bool = False,
    ) -> None:
        self.rng, self.mode = rng, mode
        self.extremes = (*EXTREMES, *(SUBNORMAL if subnormal else ()))
        productions = [p for p in PRODUCTIONS.values() if p.name not in without]
        self.table = [p for p in productions if odd or not p.name.startswith("odd ")]
        self.scope: list[tuple[str, Type]] = []
        self.sealed: int | None = None  # a custom rule may use only names bound from here on
        self.count = 0
        command = COMMAND | (COMMAND_WIDE if mode.x64 else {})
        self.names = {f"command[{name!r}]": kind for name, kind in command.items()}
        self.names |= {f"params[{name!r}]": kind for name, kind in PARAMS.items()}
        self.names |= {"t": Type("f"), "state.q": Type("f", (4,)), "state.omega": Type("f", (3,))}

    @contextlib.contextmanager
    def without(self, names: Sequence[str]) -> Iterator[None]:
        """Leave out productions of these names within a ``with`` block."""
        table = self.table
        self.table = [p for p in table if p.name not in names]
        yield
        self.table = table

    def dtype(self, name: str) -> str:
        """The Python text of a dtype."""
        return "jnp.bool_" if name == "b" else f"jnp.{self.mode.name(name)}"

    def any_shape(self) -> tuple[int, ...]:
        """A shape; small shapes are more frequent."""
        return self.rng.choices(SHAPES, (5, 6, 3, 2, 1))[0]

    def any_number(self) -> str:
        """A dtype of floats or integers."""
        return self.rng.choice(["f"] * 6 + (["h"] if self.mode.x64 else []) + self.mode.integers)

    def expression(self, kind: Type, depth: int) -> Node:
        """An expression of a type, of at most ``depth`` more levels."""
        if kind.dtype == "key":
            return self.key(depth)
        if depth <= 0 or self.rng.random() < 0.1:
            return self.leaf(kind)
        weights = [p.weight(kind) for p in self.table]
        if not any(weights):
            return self.leaf(kind)
        return self.rng.choices(self.table, weights)[0].make(self, kind, depth - 1)

    def node(
        self,
        name: str,
        kind: Type,
        text: str,
        children: Sequence[Type],
        depth: int,
        binds: Sequence[Sequence[Type]] | None = None,
    ) -> Node:
        """A node with new children; in ``text``, @k_j is the j-th name bound for child k.

        ``binds``: for each child, the types of the names that are bound for it.
        """
        nodes, names = [], []
        for number, child in enumerate(children):
            bound = []
            for place, bound_type in enumerate(binds[number] if binds else ()):
                self.count += 1
                bound.append(f"v{self.count}")
                text = text.replace(f"@{number}_{place}", bound[-1])
                self.scope.append((bound[-1], bound_type))
            nodes.append(self.expression(child, depth))
            if bound:
                del self.scope[-len(bound) :]
            names.append(tuple(bound))
        return Node(name, kind, text, tuple(nodes), tuple(names))

    def constant(self, kind: Type) -> Node:
        """A constant: a scalar is a literal in the program, an array is closed over."""

        def one() -> str:
            if kind.kind == "f":
                return self.rng.choice(FLOATS if self.rng.random() < 0.8 else self.extremes)
            if kind.dtype == "b":
                return self.rng.choice(("True", "False"))
            count, signed = 2 ** WIDTH[kind.dtype], kind.kind == "i"
            low, high = (-count // 2, count // 2 - 1) if signed else (0, count - 1)
            small = [0, 1, 2, 3, 7, 100] + ([-1, -2, -5] if signed else [])
            ends = [low, high, low + 1, high - 1]
            return str(self.rng.choice(ends if self.rng.random() < 0.25 else small))

        name = "bool_" if kind.dtype == "b" else self.mode.name(kind.dtype)
        if kind.shape == ():
            return Node("constant", kind, f"np.{name}({one()})")

        def rows(shape: tuple[int, ...]) -> str:
            return f"[{', '.join(rows(shape[1:]) for _ in range(shape[0]))}]" if shape else one()

        return Node("constant", kind, f"jnp.array(np.array({rows(kind.shape)}, np.{name}))")

    def leaf(self, kind: Type) -> Node:
        """Mostly a name; if none has this shape, one of shape (3,) is reshaped."""
        bound = [name for name, other in self.scope[self.sealed or 0 :] if other == kind]
        if bound and self.rng.random() < 0.8:
            return Node("variable", kind, self.rng.choice(bound))
        if self.sealed is not None or self.rng.random() < 0.2:
            return self.constant(kind)
        names = [name for name, other in self.names.items() if other == kind]
        if names:
            command = [name for name in names if name.startswith("command")]
            names = command if command and self.rng.random() < 0.7 else names
            return Node("input", kind, self.rng.choice(names))
        vector = Type(kind.dtype, (3,))
        same = [name for name, other in self.names.items() if other == vector]
        if not same:
            return self.constant(kind)
        name, shape = self.rng.choice(same), kind.shape
        if shape == ():
            return Node("input", kind, f"{name}[{self.rng.randrange(3)}]")
        spread = {
            (3,): name,
            (4,): f"{name}[np.array([0, 1, 2, 0])]",
            (2, 3): f"jnp.stack([{name}, {name}[::-1]])",
            (20,): f"jnp.tile({name}, 7)[:20]",
        }
        return Node("input", kind, spread[shape])

    def key(self, depth: int) -> Node:
        """A key of jax.random."""
        kind, which = Type("key"), self.rng.random()
        names = [name for name, other in self.names.items() if other == kind]
        if names and self.sealed is None and (depth <= 0 or which < 0.4):
            return Node("input", kind, names[int(which * 1000) % len(names)])
        if depth <= 0 or which < 0.5:
            return Node("key", kind, f"jax.random.key({self.rng.randrange(100)})")
        if which < 0.8:
            children = [kind, Type(self.rng.choice(("i4", "u4")))]
            return self.node("fold_in", kind, "jax.random.fold_in($0, $1)", children, depth - 1)
        text = f"jax.random.split($0, 3)[{self.rng.randrange(3)}]"
        return self.node("split", kind, text, [kind], depth - 1)


def _is(*kinds: str) -> Callable[[Type], float]:
    return lambda kind: 1.0 if kind.kind in kinds else 0.0


def _number(kind: Type) -> float:
    return 1.0 if kind.kind in "fiu" else 0.0


def _any(kind: Type) -> float:
    return 1.0 if kind.dtype != "key" else 0.0


def _scaled(weight: float, test: Callable[[Type], float]) -> Callable[[Type], float]:
    return lambda kind: weight * test(kind)


def _shaped(
    weight: float, test: Callable[[Type], float], *shapes: tuple[int, ...]
) -> Callable[[Type], float]:
    return lambda kind: weight * test(kind) * (kind.shape in shapes)


# element by element


def _elementwise(
    name: str, text: str, test: Callable[[Type], float], count: int = 1, weight: float = 1.0
) -> None:
    """Enter an elementwise operation on operands of its type; one of two may be a scalar."""

    def make(g: Grammar, kind: Type, depth: int) -> Node:
        children = [kind] * count
        if count == 2 and kind.shape and "lax" not in text and g.rng.random() < 0.2:
            children[g.rng.randrange(2)] = Type(kind.dtype)
        node = g.node(name, kind, text, children, depth)
        if kind.kind in "iu" and all(child.production == "constant" for child in node.children):
            # XLA ends the process if constants are divided by zero
            return next(child for child in node.children if child.type == kind)
        return node

    production(name, _scaled(weight, test))(make)


_FLOAT_FUNCTIONS = {
    "sqrt": "jnp.sqrt", "sin": "jnp.sin", "cos": "jnp.cos", "tan": "jnp.tan", "tanh": "jnp.tanh",
    "exp": "jnp.exp", "log": "jnp.log", "floor": "jnp.floor", "ceil": "jnp.ceil",
    "rsqrt": "lax.rsqrt", "logistic": "lax.logistic", "exp2": "jnp.exp2", "asin": "jnp.arcsin",
    "acos": "jnp.arccos", "atan": "jnp.arctan", "sinh": "jnp.sinh", "cosh": "jnp.cosh",
    "arcsinh": "jnp.arcsinh", "arccosh": "jnp.arccosh", "arctanh": "jnp.arctanh",
    "cbrt": "jnp.cbrt", "expm1": "jnp.expm1", "log1p": "jnp.log1p", "jnp.round": "jnp.round",
    "trunc": "jnp.trunc",
    "reciprocal": "jnp.reciprocal", "log2": "jnp.log2", "log10": "jnp.log10", "sinc": "jnp.sinc",
    "nan_to_num": "jnp.nan_to_num", "softplus": "jax.nn.softplus", "gelu": "jax.nn.gelu",
    "silu": "jax.nn.silu", "elu": "jax.nn.elu", "rint": "jnp.rint",
    "arcsinh of square": "(lambda x: jnp.log(x + jnp.sqrt(x * x + 1)))",
    # not differentiated: this would round the cotangent of the entire loop, or of each step
    "reduce_precision half": "(lambda x: lax.reduce_precision(lax.stop_gradient(x), 5, 10))",
    "reduce_precision few": "(lambda x: lax.reduce_precision(lax.stop_gradient(x), 8, 3))",
    "round away": "(lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO))",
    "round even": "(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN))",
    "sqrt of abs": "(lambda x: jnp.sqrt(jnp.abs(x)))",
    "log of abs": "(lambda x: jnp.log(jnp.abs(x)))", "unit": "(lambda x: x / (1 + jnp.abs(x)))",
    "atan2 of one": "(lambda x: jnp.arctan2(x, x))", "stop_gradient": "lax.stop_gradient",
}  # fmt: skip
for _name, _text in _FLOAT_FUNCTIONS.items():
    _elementwise(_name, f"{_text}($0)", _is("f"), weight=0.5)
for _name in ("negative", "abs", "square", "sign", "copy", "relu"):
    _module = "jax.nn" if _name == "relu" else "jnp"
    _elementwise(_name, f"{_module}.{_name}($0)", _is("f", "i"), weight=0.7)
for _name in ("add", "subtract", "multiply", "maximum", "minimum"):
    _elementwise(_name, f"jnp.{_name}($0, $1)", _number, 2, 2.0)
_elementwise("divide", "jnp.divide($0, $1)", _is("f"), 2, 2.0)
_elementwise("floor_divide", "jnp.floor_divide($0, $1)", _number, 2, 1.0)
_elementwise("remainder", "jnp.remainder($0, $1)", _number, 2, 1.0)
_elementwise("lax.rem", "lax.rem($0, $1)", _number, 2)
_elementwise("lax.div", "lax.div($0, $1)", _is("i", "u"), 2, 2.0)
_elementwise("fmod", "jnp.fmod($0, $1)", _number, 2, 0.5)
for _name in ("arctan2", "hypot", "logaddexp", "copysign", "heaviside"):
    _elementwise(_name, f"jnp.{_name}($0, $1)", _is("f"), 2, 1.0 if _name == "arctan2" else 0.4)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _elementwise(_name, f"jnp.{_name}($0, $1)", _is("i", "u"), 2)
_OF_BOOLS = ("logical_and", "logical_or", "logical_xor", "maximum", "minimum", "equal",
             "not_equal", "less")  # fmt: skip
for _name in _OF_BOOLS:
    _elementwise(f"{_name} of bools", f"jnp.{_name}($0, $1)", _is("b"), 2)
_elementwise("bitwise_not", "jnp.bitwise_not($0)", _is("i", "u", "b"))
_elementwise("clip", "jnp.clip($0, $1, $2)", _number, 3)
_elementwise("power of abs", "lax.pow(jnp.abs($0), $1)", _is("f"), 2)
_elementwise("power", "lax.pow($0, $1)", _is("f"), 2, 0.5)
_elementwise("erf", "jax.scipy.special.erf($0)", _is("f"))
_elementwise("erfc", "jax.scipy.special.erfc($0)", _is("f"))
_elementwise("odd nextafter", "jnp.nextafter($0, $1)", _is("f"), 2)
_elementwise("odd population_count", "lax.population_count($0)", _is("i", "u"))
_elementwise("odd shift", "jnp.left_shift($0, $1)", _is("i", "u"), 2)
_elementwise(
    "odd half precision",
    "(lambda x: jnp.asarray(x).astype(jnp.float16).astype(x.dtype))($0)",
    lambda k: float(k.dtype == "f"),
)
_elementwise("odd complex", "jnp.abs(lax.complex($0, $1))", lambda k: float(k.dtype == "f"), 2)


@production("lax.clamp", _number)
def _(g: Grammar, kind: Type, depth: int) -> Node:
    low, high = (g.constant(Type(kind.dtype)).text for _ in range(2))
    return g.node("lax.clamp", kind, f"lax.clamp({low}, $0, {high})", [kind], depth)


@production("erf_inv", _scaled(0.5, _is("f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("erf_inv", kind, "lax.erf_inv($0)", [kind], depth)


@production("float exponent", _scaled(2.5, _is("f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    exponent = g.rng.choice(EXPONENTS)
    text = f"lax.pow($0, np.{g.mode.name(kind.dtype)}({exponent}))"
    text = f"jnp.power($0, {exponent})" if g.rng.random() < 0.4 else text
    if "lax" in text:
        text = text if kind.shape == () else text.replace("$0, ", "$0, jnp.full_like($0, ") + ")"
        if kind.shape:
            text = f"(lambda x: {text.replace('$0', 'x')})($0)"
    base = "jnp.abs($0)" if g.rng.random() < 0.5 else "$0"
    text = text.replace("$0", base, 1) if text.count("$0") == 1 else text
    return g.node("float exponent", kind, text, [kind], depth)


@production("integer exponent", _number)
def _(g: Grammar, kind: Type, depth: int) -> Node:
    choices = [0, 1, 2, 3, 4, 5, 7, 12] + ([-1, -2, -3, -5, 65, 80] if kind.kind == "f" else [])
    text = f"lax.integer_pow($0, {g.rng.choice(choices)})"
    return g.node("integer exponent", kind, text, [kind], depth)


@production("integer to a constant integer", _scaled(0.5, _is("i")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    if kind.dtype != "i4" and not (g.mode.x64 and kind.dtype == "i8"):
        return g.expression(kind, depth)
    power = f"np.{g.mode.name(kind.dtype)}({g.rng.choice([0, 1, 2, 3, 5])})"
    return g.node("integer to a constant integer", kind, f"jnp.power($0, {power})", [kind], depth)


@production("shift", _scaled(2.0, _is("i", "u")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    width = WIDTH[kind.dtype]
    name = g.rng.choice(("shift_left", "shift_right_logical", "shift_right_arithmetic"))
    counts = [0, 1, 3, width // 2, width - 1, width, width + 3] + ([-1] if kind.kind == "i" else [])
    count = f"np.{g.mode.name(kind.dtype)}({g.rng.choice(counts)})"
    text = f"(lambda x: lax.{name}(x, jnp.full_like(x, {count})))($0)"
    text = f"lax.{name}($0, {count})" if kind.shape == () else text
    return g.node("shift", kind, text, [kind], depth)


@production("where", _scaled(2.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    children = [Type("b", kind.shape), kind, kind]
    return g.node("where", kind, "jnp.where($0, $1, $2)", children, depth)


@production("select_n", _any)
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "lax.select_n(jnp.clip($0, 0, 2), $1, $2, $3)"
    return g.node("select_n", kind, text, [Type("i4", kind.shape), kind, kind, kind], depth)


@production("comparison", _scaled(6.0, _is("b")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name = g.rng.choice(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
    operand = Type(g.any_number(), kind.shape)
    return g.node("comparison", kind, f"jnp.{name}($0, $1)", [operand, operand], depth)


@production("is", _scaled(2.0, _is("b")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name = g.rng.choice(("isnan", "isfinite", "isinf", "isposinf", "signbit"))
    return g.node("is", kind, f"jnp.{name}($0)", [Type("f", kind.shape)], depth)


@production("astype", _scaled(5.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    other = g.rng.choice([g.any_number(), g.any_number(), "b"])
    text = f"jnp.asarray($0).astype({g.dtype(kind.dtype)})"
    return g.node("astype", kind, text, [Type(other, kind.shape)], depth)


@production("lax.convert", _scaled(1.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = f"lax.convert_element_type($0, {g.dtype(kind.dtype)})"
    return g.node("lax.convert", kind, text, [Type(g.any_number(), kind.shape)], depth)


@production("bitcast", _number)
def _(g: Grammar, kind: Type, depth: int) -> Node:
    width = {"float32": "4", "float64": "8"}.get(g.mode.name(kind.dtype), kind.dtype[-1])
    same = [d for d in ["f", *(["h"] if g.mode.x64 else []), *g.mode.integers] if d != kind.dtype]
    same = [d for d in same if {"float32": "4", "float64": "8"}.get(g.mode.name(d), d[-1]) == width]
    if not same:
        return g.expression(kind, depth)
    source = g.rng.choice(same)
    bits = "normal($0)" if kind.dtype in ("f", "h") else "$0"
    bits = "no_nan($0)" if source in ("f", "h") else bits
    text = f"lax.bitcast_convert_type({bits}, {g.dtype(kind.dtype)})"
    return g.node("bitcast", kind, text, [Type(source, kind.shape)], depth)


@production("odd bitcast by width", _shaped(1.0, _is("u"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    if kind.dtype != "u2":
        return g.expression(kind, depth)
    text = f"lax.bitcast_convert_type($0, jnp.uint16)[{g.rng.randrange(2)}]"
    return g.node("odd bitcast by width", kind, text, [Type("u4")], depth)


@production("ldexp", _scaled(0.4, lambda k: float(k.dtype == "f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("ldexp", kind, "jnp.ldexp($0, $1)", [kind, Type("i4", kind.shape)], depth)


@production("frexp", _scaled(0.3, lambda k: float(k.dtype == "f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("frexp", kind, "jnp.frexp($0)[0]", [kind], depth)


# reductions and products


@production("reduce", _shaped(4.0, _any, ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    shape = g.rng.choice(SHAPES[1:])
    if kind.dtype == "b":
        name = g.rng.choice(("any", "all", "max", "min"))
        return g.node("reduce", kind, f"jnp.{name}($0)", [Type("b", shape)], depth)
    names = ("sum", "sum", "prod", "max", "min", "ptp")
    names += ("mean", "var", "linalg.norm") if kind.kind == "f" else ()
    name = g.rng.choice(names)
    if name == "linalg.norm":
        shape = (3,)
    dtype = f", dtype={g.dtype(kind.dtype)}" if name in ("sum", "prod") else ""
    text = f"jnp.{name}($0{dtype})"
    return g.node("reduce", kind, text, [Type(kind.dtype, shape)], depth)


@production("reduce an axis", _shaped(2.0, _number, (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name = g.rng.choice(("sum", "prod", "max", "min"))
    rows = g.rng.choice(("$0, axis=0", "$0.T, axis=1"))
    text = f"jnp.{name}({rows}).astype({g.dtype(kind.dtype)})"
    return g.node("reduce an axis", kind, text, [Type(kind.dtype, (2, 3))], depth)


@production("count of bools", _shaped(1.0, lambda k: float(k.dtype == "i4"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text, bools = "jnp.sum($0, dtype=jnp.int32)", Type("b", g.rng.choice(SHAPES[1:]))
    return g.node("count of bools", kind, text, [bools], depth)


@production("argument of the extreme", _shaped(3.0, lambda k: float(k.dtype == "i4"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    operand = Type(g.rng.choice((g.any_number(), "f", "b")), g.rng.choice(((3,), (4,), (20,))))
    text = f"lax.{g.rng.choice(('argmax', 'argmin'))}($0, 0, jnp.int32)"
    return g.node("argument of the extreme", kind, text, [operand], depth)


@production("dot", _shaped(2.0, _number, ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    shape = g.rng.choice(((3,), (4,), (20,)))
    return g.node("dot", kind, "jnp.dot($0, $1)", [Type(kind.dtype, shape)] * 2, depth)


@production("dot of bools", _shaped(1.0, lambda k: float(k.dtype == "b"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("dot of bools", kind, "jnp.dot($0, $1)", [Type("b", (3,))] * 2, depth)


@production("dot into a wider type", _shaped(0.5, lambda k: float(k.dtype in ("i4", "u4")), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    narrow = {"i4": "i1", "u4": "u2"}[kind.dtype]
    text = f"jnp.dot($0, $1, preferred_element_type={g.dtype(kind.dtype)})"
    return g.node("dot into a wider type", kind, text, [Type(narrow, (3,))] * 2, depth)


@production("matrix times vector", _shaped(2.0, _number, (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jnp.einsum('ij,ik,k->j', $0, $1, $2)"
    matrix = Type(kind.dtype, (2, 3))
    return g.node("matrix times vector", kind, text, [matrix, matrix, kind], depth)


@production("batched product", _shaped(1.0, _number, (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text, children = "jnp.einsum('bi,bj,j->bi', $0, $1, $2)", [kind, kind, Type(kind.dtype, (3,))]
    return g.node("batched product", kind, text, children, depth)


@production("large product", _shaped(0.3, _is("f"), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    product = "(a.reshape(4, 5) @ b.reshape(5, 4) @ a.reshape(4, 5)).reshape(20)"
    text = f"(lambda a, b: {product})($0, $1)"
    return g.node("large product", kind, text, [kind, kind], depth)


@production("outer", _shaped(1.0, _number, (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    children = [Type(kind.dtype)] * 2 + [Type(kind.dtype, (3,))]
    return g.node("outer", kind, "jnp.outer(jnp.stack([$0, $1]), $2)", children, depth)


@production("cross", _shaped(1.0, _is("f"), (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("cross", kind, "jnp.cross($0, $1)", [kind, kind], depth)


@production("cumulative", _shaped(2.0, _number, (3,), (4,), (20,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name, axis = g.rng.choice(("cumsum", "cumprod", "cummax", "cummin")), len(kind.shape) - 1
    text = f"lax.{name}($0, axis={axis}, reverse={g.rng.random() < 0.4})"
    return g.node("cumulative", kind, text, [kind], depth)


@production("softmax", _shaped(0.5, _is("f"), (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = g.rng.choice(("jax.nn.softmax($0)", "jax.nn.log_softmax($0)"))
    return g.node("softmax", kind, text, [kind], depth)


# arrays moved


@production("sort", _shaped(1.5, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = g.rng.choice(("jnp.sort($0)", "jnp.sort($0, descending=True)"))
    return g.node("sort", kind, text, [kind], depth)


@production("sort with a companion", _shaped(1.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text, key = "lax.sort(($0, $1), num_keys=1)[1]", Type(g.any_number(), kind.shape)
    return g.node("sort with a companion", kind, text, [key, kind], depth)


@production("argsort", _shaped(1.0, lambda k: float(k.dtype == "i4"), (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text, key = "jnp.argsort($0).astype(jnp.int32)", Type(g.any_number(), kind.shape)
    return g.node("argsort", kind, text, [key], depth)


@production("odd sort by two keys", _shaped(1.0, _number, (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "lax.sort(($0, $1), num_keys=2)[1]"
    return g.node("odd sort by two keys", kind, text, [kind, kind], depth)


@production("rearranged", _shaped(3.0, _any, (3,), (4,), (20,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    texts = ["jnp.flip($0)", "jnp.roll($0, 1)", "$0[::-1]", "lax.rev($0, (0,))"]
    texts += ["lax.optimization_barrier($0)", f"jnp.tile($0, 2)[..., {kind.shape[-1]}:]"]
    texts += [f"jnp.broadcast_to($0, (2, *{kind.shape}))[1]"]
    if kind.shape == (2, 3):
        texts += ["$0.T.reshape(2, 3)", "$0.reshape(3, 2).T", '$0.reshape((2, 3), order="F")']
        texts += ['$0.ravel(order="F").reshape(2, 3)']
        texts += ["jnp.swapaxes($0[None], 0, 1)[:, 0]", "$0[np.array([1, 1])]"]
    return g.node("rearranged", kind, g.rng.choice(texts), [kind], depth)


@production("stack", _shaped(3.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    n = kind.shape[0]
    text = f"jnp.stack([{', '.join(f'${k}' for k in range(n))}])"
    return g.node("stack", kind, text, [Type(kind.dtype)] * n, depth - 1)


@production("concatenate", _shaped(2.0, _any, (4,), (20,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    three = Type(kind.dtype, (3,))
    texts = {
        (4,): ("jnp.concatenate([$0[1:], $1[:2]])", [three, three]),
        (20,): ("jnp.concatenate([$0[4:], $1])", [kind, Type(kind.dtype, (4,))]),
        (2, 3): ("jnp.stack([$0, $1])", [three, three]),
    }  # fmt: skip
    return g.node("concatenate", kind, texts[kind.shape][0], texts[kind.shape][1], depth)


@production("sliced", _shaped(2.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    n = kind.shape[0]
    choices = [((20,), f"$0[{20 - 5 * n}::5]"), ((20,), f"lax.slice($0, (2,), ({2 + n},))")]
    choices += [((20,), f"jnp.split($0, [{n}, 15])[0]")]
    if n == 3:
        choices += [((2, 3), "$0[1]"), ((4,), "$0[1:]")]
        choices += [((2, 3), "jnp.diagonal($0[:, :2])[np.array([0, 1, 1])]")]
    shape, text = g.rng.choice(choices)
    return g.node("sliced", kind, text, [Type(kind.dtype, shape)], depth)


@production("pad", _shaped(2.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    widths = [(1, 0, 0), (0, 1, 0), (-2, 3, 0), (3, -2, 0), (0, -1, 1), (-1, 0, 1)]
    if kind.shape == (3,):
        widths = [(-1, 1, 0), (1, -1, 0), (2, -2, 0), (-2, 2, 0)]
    low, high, inner = g.rng.choice(widths)
    # the derivative with respect to a filler is a difference of sums, unless under vmap
    filler = "lax.stop_gradient(x[0])"
    if g.rng.random() < 0.5:
        filler = g.constant(Type(kind.dtype)).text
    text = f"(lambda x: lax.pad(x, {filler}, (({low}, {high}, {inner}),)))($0)"
    return g.node("pad", kind, text, [Type(kind.dtype, (3,))], depth)


@production("element", _shaped(3.0, _any, ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    shape = g.rng.choice(SHAPES[1:])
    index = ", ".join(str(g.rng.randrange(-n, n)) for n in shape)
    return g.node("element", kind, f"$0[{index}]", [Type(kind.dtype, shape)], depth)


def _indices(g: Grammar, count: int, size: int) -> str:
    """Indices, some of them outside an array of this size."""
    places = [*range(size), -1, -size, size, size + 4, -size - 2]
    return f"np.array({[g.rng.choice(places) for _ in range(count)]})"


def _fill(g: Grammar, kind: Type) -> str:
    if g.rng.random() < 0.4:
        return ""
    if kind.dtype == "b":
        return f", fill_value={g.rng.random() < 0.5}"
    fills = ["7", "0"] if kind.kind != "f" else ["7.0", "-1.5", "0.0", "np.inf"]
    return f", fill_value={g.rng.choice(fills)}"


@production("gather", _shaped(3.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    shape = g.rng.choice(((3,), (4,), (20,)))
    mode = g.rng.choice(("fill", "clip", "wrap", "fill"))
    index, fill = _indices(g, kind.shape[0], shape[0]), _fill(g, kind) if mode == "fill" else ""
    if mode == "wrap" or g.rng.random() < 0.5:
        text = f'jnp.take($0, {index}, mode="{mode}"{fill})'
    else:
        text = f'$0.at[{index}].get(mode="{mode}"{fill})'
    return g.node("gather", kind, text, [Type(kind.dtype, shape)], depth)


@production("gather at the run's indices", _shaped(2.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name, mode = "gather at the run's indices", g.rng.choice(("fill", "clip"))
    text = f'$0.at[{_indices(g, kind.shape[0], 20)} + $1].get(mode="{mode}")'
    return g.node(name, kind, text, [Type(kind.dtype, (20,)), Type("i4")], depth)


@production("row of a large table", _shaped(0.5, _is("f"), (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    table = f"jnp.asarray(np.sin(np.arange(4095.0)).reshape(-1, 3), {g.dtype(kind.dtype)})"
    text = f"{table}[$0 * 7 + $1.astype(jnp.int32)[0]]"
    return g.node("row of a large table", kind, text, [Type("i4"), Type("f", (3,))], depth)


@production("scatter at the run's indices", _shaped(1.5, _any, (4,), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name, children = "scatter at the run's indices", [kind, Type(kind.dtype, (3,)), Type("i4")]
    if kind.dtype == "b":  # each place once: among several updates of a place, any may win
        return g.node(name, kind, '$0.at[np.arange(3) + $2].set($1, mode="drop")', children, depth)
    mode = g.rng.choice(("drop", "clip"))
    text = f'$0.at[{_indices(g, 3, kind.shape[0])} + $2].add($1, mode="{mode}")'
    return g.node(name, kind, text, children, depth)


@production("extremes at the run's indices", _shaped(0.7, _number, (4,), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name, how = "extremes at the run's indices", g.rng.choice(("min", "max", "multiply"))
    at = f"$0.at[{_indices(g, 3, kind.shape[0])} + $2]"
    if kind.kind != "f" and g.rng.random() < 0.4:  # jax cannot differentiate it
        return g.node(
            name, kind, f"{at}.apply(lambda x: x * 3 + 1)", [kind, kind, Type("i4")], depth
        )
    text = f'{at}.{how}($1, mode="drop")'
    return g.node(name, kind, text, [kind, Type(kind.dtype, (3,)), Type("i4")], depth)


@production("slice at the run's index", _shaped(1.0, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name, children = "slice at the run's index", [Type(kind.dtype, (20,)), Type("i4")]
    return g.node(name, kind, f"lax.dynamic_slice($0, ($1,), ({kind.shape[0]},))", children, depth)


@production("update at the run's index", _shaped(1.0, _any, (4,), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    name, children = "update at the run's index", [kind, Type(kind.dtype, (3,)), Type("i4")]
    return g.node(name, kind, "lax.dynamic_update_slice($0, $1, ($2,))", children, depth)


def _matrix(vector: str, symmetric: bool = False) -> str:
    """A matrix made from a vector, whose inverse is moderate."""
    other = "sin" if symmetric else "cos"
    outer = f"jnp.outer(jnp.sin({vector}), jnp.{other}({vector}))"
    return f"{outer} + 2 * jnp.eye({vector}.size, dtype={vector}.dtype)"


@production("solve", _shaped(0.7, _is("f"), (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    texts = (
        f"(lambda v, b: jnp.linalg.solve(({_matrix('v')})[::-1], b))($0, $1)",
        f"(lambda v, b: jnp.linalg.cholesky({_matrix('v', symmetric=True)}) @ b)($0, $1)",
    )
    return g.node("solve", kind, g.rng.choice(texts), [kind, kind], depth)


@production("matrix of five or six", _shaped(0.5, _is("f"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    size, name = g.rng.choice((5, 6)), g.rng.choice(("det($0)", "inv($0)[-1, 1]"))
    text = f"jnp.linalg.{name.replace('$0', _matrix('v'))}"
    row = f"$0[{size}:{2 * size}]"
    children = [Type(kind.dtype, (20,))]
    return g.node("matrix of five or six", kind, f"(lambda v: {text})({row})", children, depth)


@production("search", _shaped(1.0, lambda k: float(k.dtype == "i4"), (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    side = g.rng.choice(("left", "right"))
    text = f'jnp.searchsorted(jnp.sort($0), $1, side="{side}").astype(jnp.int32)'
    return g.node("search", kind, text, [Type("f", (20,)), Type("f", kind.shape)], depth)


@production("interpolate", _shaped(1.0, lambda k: float(k.dtype == "f"), (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jnp.interp($0, jnp.arange(-10.0, 10.0, dtype=$1.dtype), $1)"
    return g.node("interpolate", kind, text, [kind, Type("f", (20,))], depth)


@production("take_along_axis", _shaped(0.7, _any, (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    index = f"np.array([[{g.rng.randrange(2)}, {g.rng.randrange(2)}, {g.rng.choice([0, 1, 5])}]])"
    text = f"jnp.take_along_axis($0, {index}, axis=0)[0]"
    return g.node("take_along_axis", kind, text, [Type(kind.dtype, (2, 3))], depth)


@production("dynamic slice", _shaped(1.5, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    start = g.rng.choice((-30, -3, 0, 2, 15, 19, 40))
    text = f"lax.dynamic_slice($0, ({start},), ({kind.shape[0]},))"
    return g.node("dynamic slice", kind, text, [Type(kind.dtype, (20,))], depth)


@production("dynamic update", _shaped(1.5, _any, (4,), (20,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    starts = ", ".join(str(g.rng.choice((-9, -1, 0, 1, 2, 9))) for _ in kind.shape)
    small = {(4,): (3,), (20,): (4,), (2, 3): (3,)}[kind.shape]
    update = "$1[None]" if kind.shape == (2, 3) else "$1"
    text = f"lax.dynamic_update_slice($0, {update}, ({starts},))"
    return g.node("dynamic update", kind, text, [kind, Type(kind.dtype, small)], depth)


@production("scatter", _shaped(2.5, _any, (3,), (4,), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    index, mode = _indices(g, 3, kind.shape[0]), g.rng.choice(("drop", "clip", "fill"))
    how = g.rng.choice(("set", "add") if kind.kind != "b" else ("set",))
    if how == "set":  # each place once: among several updates of a place, any may win
        index = f"np.array({sorted(g.rng.sample([*range(kind.shape[0]), kind.shape[0] + 3], 3))})"
        mode = "drop" if mode == "clip" else mode
    mode = "" if g.rng.random() < 0.3 and how == "add" else f', mode="{mode}"'
    text = f"$0.at[{index}].{how}($1{mode})"
    return g.node("scatter", kind, text, [kind, Type(kind.dtype, (3,))], depth)


@production("set one", _shaped(1.0, _any, (3,), (4,), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    n = kind.shape[0]
    text = f"$0.at[{g.rng.randrange(-n, n)}].set($1)"
    return g.node("set one", kind, text, [kind, Type(kind.dtype)], depth)


@production("triangle", _shaped(0.5, _number, (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = g.rng.choice(("jnp.tril($0)", "jnp.triu($0, 1)"))
    return g.node("triangle", kind, text, [kind], depth)


@production("iota", _shaped(0.5, _number, (3,), (4,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    axis = g.rng.randrange(len(kind.shape))
    text = f"(lax.broadcasted_iota({g.dtype(kind.dtype)}, {kind.shape}, {axis}) * $0)"
    return g.node("iota", kind, text, [kind], depth)


@production("wide", _shaped(1.0, _is("f"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = f"jnp.sum($0[{g.rng.randrange(3)}::{g.rng.randrange(4, 9)}])"
    return g.node("wide", kind, text, [Type(kind.dtype, (20,))], depth + 1)


@production("odd index", _shaped(3.0, _any, ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("odd index", kind, "$0[$1]", [Type(kind.dtype, (4,)), Type("i4")], depth)


# control flow


@production("cond", _scaled(2.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    operand = Type(g.any_number(), g.any_shape())
    text = "lax.cond($0, lambda @1_0: $1, lambda @2_0: $2, $3)"
    children, binds = [Type("b"), kind, kind, operand], [[], [operand], [operand], []]
    return g.node("cond", kind, text, children, depth, binds)


@production("switch", _any)
def _(g: Grammar, kind: Type, depth: int) -> Node:
    operand = Type(g.any_number(), g.any_shape())
    text = "lax.switch($0, [lambda @1_0: $1, lambda @2_0: $2, lambda @3_0: $3], $4)"
    index = Type(g.rng.choice(("i4", "i4", "u4", "i1")))
    children, binds = [index, kind, kind, kind, operand], [[], [operand], [operand], [operand], []]
    return g.node("switch", kind, text, children, depth, binds)


@production("fori_loop", _scaled(1.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    low, count = g.rng.choice((0, 0, -2, 3)), g.rng.choice((0, 1, 3, 4))
    text = f"loop({low}, {low + count}, lambda @0_0, @0_1: $0, $1)"
    return g.node("fori_loop", kind, text, [kind, kind], depth, [[Type("i4"), kind], []])


@production("index in a loop", _shaped(1.0, _any, ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    """An index that is known once the loop is unrolled, and clamped."""
    loop = "loop(0, 6, lambda @1_0, @1_1: (lambda @1_2: $1)(row[@1_0 - 1]), row[0])"
    children, binds = [Type(kind.dtype, (4,)), kind], [[], [Type("i4"), kind, kind]]
    return g.node("index in a loop", kind, f"(lambda row: {loop})($0)", children, depth, binds)


@production("while", _scaled(0.7, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    """A loop whose end is known, or known only at run time, or different for each row."""
    test = f"lambda c: c[0] < {g.rng.choice((0, 2, 5))}"
    turn = "lambda c: (c[0] + 2, (lambda @0_0: $0)(c[1]))"
    how = g.rng.choice(("known", "by the run", "rows"))
    if how == "known":
        text = f"lax.while_loop({test}, {turn}, (np.int32(0), $1))[1]"
        return g.node("while", kind, text, [kind, kind], depth, [[kind], []])
    row, counter = kind, "$2 % 4"
    text = f"lax.while_loop({test}, {turn}, (n, x))[1]"
    if how == "rows" and kind.shape:
        row, counter = Type(kind.dtype, kind.shape[1:]), f"(np.arange({kind.shape[0]}) + $2) % 4"
        text = f"jax.vmap(lambda n, x: {text})"
    else:
        text = f"(lambda n, x: {text})"
    text = f"{text}(({counter}).astype(jnp.int32), $1)"
    return g.node("while", kind, text, [row, kind, Type("i4")], depth, [[row], [], []])


@production("scan carry", _scaled(1.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    row = Type(g.any_number(), ())
    n = g.rng.choice(((3,), (4,)))
    options = f"reverse={g.rng.random() < 0.4}, unroll={g.rng.choice((1, 2))}"
    text = f"lax.scan(lambda @0_0, @0_1: ($0, @0_1), $1, $2, {options})[0]"
    children, binds = [kind, kind, Type(row.dtype, n)], [[kind, row], [], []]
    return g.node("scan carry", kind, text, children, depth, binds)


@production("scan rows", _shaped(1.0, _any, (3,), (4,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    one, carry = Type(kind.dtype, kind.shape[1:]), Type(g.any_number())
    turn = "lambda @0_0, @0_1: ((lambda @1_0, @1_1: $1)(@0_0, @0_1), $0)"
    text = f"lax.scan({turn}, $2, $3, reverse={g.rng.random() < 0.4})[1]"
    children, binds = [one, carry, carry, kind], [[carry, one], [carry, one], [], []]
    return g.node("scan rows", kind, text, children, depth, binds)


@production("scan of nothing", _scaled(0.1, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "lax.scan(lambda @0_0, @0_1: ($0, @0_1), $1, jnp.zeros((0, 3)))[0]"
    binds = [[kind, Type("none", (3,))], []]
    return g.node("scan of nothing", kind, text, [kind, kind], depth, binds)


@production("map", _shaped(0.7, _any, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    one = Type(g.any_number())
    text, children = "lax.map(lambda @0_0: $0, $1)", [Type(kind.dtype), Type(one.dtype, kind.shape)]
    return g.node("map", kind, text, children, depth, [[one], []])


@production("vmap", _shaped(1.0, _any, (3,), (4,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    one = Type(g.any_number(), kind.shape[1:])
    text = "jax.vmap(lambda @0_0: $0)($1)"
    children = [Type(kind.dtype, kind.shape[1:]), Type(one.dtype, kind.shape)]
    return g.node("vmap", kind, text, children, depth, [[one], []])


@production("associative_scan", _shaped(0.4, _number, (3,), (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("associative_scan", kind, "lax.associative_scan(jnp.add, $0)", [kind], depth)


# custom rules and transformations


@production("call", _scaled(2.0, _any))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    operand = Type(g.any_number(), g.any_shape())
    how = g.rng.choice(("jax.jit", "jax.checkpoint", "jax.jit", "jax.custom_batching.custom_vmap"))
    how = how if "custom_vmap" not in how else "jax.checkpoint"
    text = f"{how}(lambda @0_0: $0)($1)"
    return g.node("call", kind, text, [kind, operand], depth, [[operand], []])


@production("called twice", _shaped(0.4, _is("f"), (20,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "(lambda f: f(f($1) - $2))(jax.jit(lambda @0_0: $0))"
    return g.node("called twice", kind, text, [kind, kind, kind], depth + 1, [[kind], [], []])


def _custom(name: str, how: str) -> None:
    """Enter functions with a custom derivative, which use only their argument."""

    def make(g: Grammar, kind: Type, depth: int) -> Node:
        outside, g.sealed = g.sealed, len(g.scope)
        with g.without(NOT_BACKWARD):
            rule = g.node(name, kind, f"{how}(lambda @0_0: $0)", [kind], depth, [[kind]])
        g.sealed = outside
        return Node(name, kind, "$0($1)", (rule, g.expression(kind, depth)))

    production(name, lambda k: float(k.dtype == "f"))(make)


_custom("custom jvp", "with_jvp")
_custom("custom vjp", "with_vjp")


@production("root", _scaled(0.3, lambda k: float(k.dtype == "f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("root", kind, "root_of($0)", [kind], depth)


@production("linear solve", _scaled(0.3, lambda k: float(k.dtype == "f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    return g.node("linear solve", kind, "solution_of($0)", [kind], depth)


@production("grad inside", _shaped(0.7, lambda k: float(k.dtype == "f"), (), (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jax.grad(lambda @0_0: $0)($1)"
    with g.without(NOT_BACKWARD):
        return g.node("grad inside", kind, text, [Type("f"), kind], depth, [[kind], []])


@production("jvp inside", _scaled(0.4, lambda k: float(k.dtype == "f")))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jax.jvp(lambda @0_0: $0, ($1,), ($2,))[1]"
    with g.without(("custom vjp", "extremes at the run's indices")):
        return g.node("jvp inside", kind, text, [kind, kind, kind], depth, [[kind], [], []])


# jax.random


@production("random floats", _shaped(0.6, _is("f"), (), (3,), (2, 3)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    single = g.mode.name(kind.dtype) == "float32"
    names = ["uniform", *(["normal"] if single else []), "exponential", "laplace"]
    text = f"jax.random.{g.rng.choice(names)}($0, {kind.shape}, {g.dtype(kind.dtype)})"
    return g.node("random floats", kind, text, [Type("key")], depth)


@production("random bits", _shaped(0.6, _is("u"), (), (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = f"jax.random.bits($0, {kind.shape}, {g.dtype(kind.dtype)})"
    return g.node("random bits", kind, text, [Type("key")], depth)


@production("random integers", _shaped(0.6, lambda k: float(k.dtype == "i4"), (), (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    high = g.rng.choice((6, 100, 2**31 - 1))
    text = f"jax.random.randint($0, {kind.shape}, -5, {high}, jnp.int32)"
    return g.node("random integers", kind, text, [Type("key")], depth)


@production("random bools", _shaped(0.6, _is("b"), (), (3,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = f"jax.random.bernoulli($0, 0.5, {kind.shape})"
    return g.node("random bools", kind, text, [Type("key")], depth)


@production("words of a key", _shaped(0.4, lambda k: float(k.dtype == "u4"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = f"jax.random.key_data($0)[{g.rng.randrange(2)}]"
    return g.node("words of a key", kind, text, [Type("key")], depth)


@production("key of words", _shaped(0.4, lambda k: float(k.dtype == "u4"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jax.random.bits(jax.random.wrap_key_data(jnp.stack([$0, $1])), (), jnp.uint32)"
    return g.node("key of words", kind, text, [kind, kind], depth)


@production("key of a seed", _shaped(0.4, lambda k: float(k.dtype == "u4"), ()))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jax.random.bits(jax.random.key($0), (), jnp.uint32)"
    return g.node("key of a seed", kind, text, [Type("i4")], depth)


@production("odd permutation", _shaped(0.5, _number, (4,)))
def _(g: Grammar, kind: Type, depth: int) -> Node:
    text = "jax.random.permutation($0, $1)"
    return g.node("odd permutation", kind, text, [Type("key"), kind], depth)
