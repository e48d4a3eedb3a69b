"""A failure made small: first the outputs are bisected, then the tree of the expression shrinks, then the bodies."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from .grammar import Node, Type
from .programs import Program

TRIES = 60


def reduced(program: Program, failing: Callable[[Program], bool], names: list[str]) -> Program:
    """The least program found that fails still. ``names`` are tried first, each alone."""
    program = _fewer(program, failing, names)
    tries = TRIES
    for name in list(program.expressions):
        while tries > 0:
            place, tree = program.expressions[name]
            for smaller in shrunk(tree):
                tries -= 1
                candidate = program._replace(expressions={**program.expressions, name: (place, smaller)})
                if failing(candidate):
                    program = candidate
                    break
                if tries <= 0:
                    break
            else:
                break
    return program


def _fewer(program: Program, failing: Callable[[Program], bool], names: list[str]) -> Program:
    """Fewer outputs: one alone if one fails alone, else by halves."""

    def only(chosen: list[str]) -> Program:
        return program._replace(expressions={k: program.expressions[k] for k in chosen})

    for name in [n for n in names if n in program.expressions][:3]:
        if failing(only([name])):
            return only([name])
    chosen = list(program.expressions)
    parts = 2
    while len(chosen) > 1:
        size = -(-len(chosen) // parts)
        for k in range(0, len(chosen), size):
            piece = chosen[k : k + size]
            rest = chosen[:k] + chosen[k + size :]
            if failing(only(piece)):
                chosen, parts = piece, 2
                break
            if parts > 2 and rest and failing(only(rest)):
                chosen, parts = rest, max(2, parts - 1)
                break
        else:
            if parts >= len(chosen):
                break
            parts = min(len(chosen), 2 * parts)
    return only(chosen)


def shrunk(tree: Node) -> Iterator[Node]:
    """Trees with a node replaced by one of its descendants of the same type, or by a leaf; large steps first."""
    places = sorted(_places(tree), key=lambda item: -item[1].size())
    for (path, node), (kind) in itertools.product(places, ("child", "leaf")):
        if kind == "child":
            options = [n for _, n in _places(node) if n is not node and n.type == node.type and n.size() < node.size()]
            options = [n for n in options if n.free() <= node.free()]
            options = sorted(options, key=lambda n: n.size())[:3]
        else:
            options = [n for n in _leaves(node.type) if node.size() > 1]
        for option in options:
            yield _put(tree, path, option)


def _leaves(kind: Type) -> list[Node]:
    name = {("f", (3,)): "held['x']", ("f", ()): "held['y']", ("f", (4,)): "held['z']", ("f", (2, 3)): "held['m']",
            ("f", (20,)): "held['w']", ("b", (3,)): "held['b']", ("b", ()): "held['c']", ("i4", ()): "held['k']",
            ("i4", (3,)): "held['i4']", ("u4", (3,)): "held['u4']", ("i1", (3,)): "held['i1']", ("i1", ()): "held['i1'][0]",
            ("u4", ()): "held['u4'][0]", ("key", ()): "held['key']"}.get((kind.dtype, kind.shape))  # fmt: skip
    zero = f"jnp.zeros({kind.shape}, jnp.bool_)" if kind.dtype == "b" else "" if kind.dtype in "fhkey" else f"jnp.zeros({kind.shape}, jnp.{'u' if kind.dtype[0] == 'u' else ''}int{8 * int(kind.dtype[1])})"
    return [Node("input", kind, text) for text in (name, zero) if text]


def _places(tree: Node, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Node]]:
    found = [(path, tree)]
    for number, child in enumerate(tree.children):
        found += _places(child, (*path, number))
    return found


def _put(tree: Node, path: tuple[int, ...], node: Node) -> Node:
    if not path:
        return node
    children = list(tree.children)
    children[path[0]] = _put(children[path[0]], path[1:], node)
    return tree._replace(children=tuple(children))


def snippet(program: Program, answer: dict[str, Any]) -> str:
    """A program that runs on its own: prints what both engines give for the body that differs."""
    import numpy as np

    from . import programs

    failure = next((f for f in answer.get("failures", []) if "body" in f), {"body": 0, "kind": "value"})
    request = program.request()
    text = programs.text_of(program.mode, request["expressions"])
    used = {name for name in ("with_jvp", "with_vjp", "root_of", "solution_of", "bounded") if f"{name}(" in text.split("def torque")[1]}
    prelude = programs.PRELUDE.split("\n\n\n")
    text = "\n\n\n".join([p for p in prelude if "def step" in p or any(f"def {u}" in p for u in used)] + [text[len(programs.PRELUDE) :]])
    data = programs.data_of(program.mode, program.seed, 72)
    body = failure["body"]
    lines = ["import jax, jax.numpy as jnp, numpy as np", "from jax import lax", "from numpy import array, float32, float64, inf, nan, "
             "int8, int16, int32, int64, uint8, uint16, uint32, uint64", "import jaxquat as jq"]  # fmt: skip
    if program.mode.x64:
        lines.append('jax.config.update("jax_enable_x64", True)')
    lines += [text, f"F = jnp.{program.mode.name('f')}"]
    with np.printoptions(floatmode="unique", threshold=10000, linewidth=110):
        used_names = {k for k in data["held"] if f"held['{k}']" in text}
        held = {k: data["held"][k][body] for k in sorted(used_names)}
        lines.append("held = {" + ", ".join(f"{k!r}: {v!r}" for k, v in held.items() if k != "key") + "}")
        if "key" in held:
            lines.append(f"held['key'] = jax.random.wrap_key_data(jnp.array({held['key'].tolist()}, jnp.uint32))")
        if not held:
            lines.append("held = {'none': np.zeros(2)}")
        lines.append("params = {" + ", ".join(f"{k!r}: {v[body]!r}" for k, v in data["params"].items() if f"params['{k}']" in text) + "}")
        aux = {k: list(e[1].type.shape) for k, e in program.expressions.items() if e[0] == "rate"}
        aux = "{" + ", ".join(f"{k!r}: jnp.zeros({tuple(v)}, F)" for k, v in aux.items()) + "}"
        lines.append(f"start = jq.State(jnp.array({data['q'][body]!r}), jnp.array({data['omega'][body]!r}), {aux})")
        t0 = data["t0"][body]
    lines.append(f'''

@jax.jit
def run(start, held, params, engine):
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5], F))
    grid = jq.grid({t0!r}, 0.5, {programs.STEPS})
    path = jq.rollout(step, body, torque, start, grid, params, inputs=held, save=save, engine=engine)
    return path.saved, path.state.aux
'''.replace("@jax.jit", '@__import__("functools").partial(jax.jit, static_argnames="engine")'))  # fmt: skip
    if failure["kind"] == "value":
        lines.append('for engine in ("scan", "fused"):\n    print(engine, run(start, held, params, engine))')
    else:
        lines.append('''
def loss(start, held, params, engine):
    saved, aux = run(start, held, params, engine)
    return sum(jnp.sum(x * ((jnp.arange(x.size) % 3 * 0.5 + 0.5).reshape(x.shape)).astype(x.dtype)).astype(F)
               for x in jax.tree.leaves((OUTPUT)) if jnp.issubdtype(x.dtype, jnp.floating))

for engine in ("scan", "fused"):
    print(engine, jax.grad(loss, (0, 1, 2), allow_int=True)(start, held, params, engine))'''.replace(
            "OUTPUT", f"saved[{failure['output']!r}]" if failure["output"] == "omega" or program.expressions.get(failure["output"], ("save",))[0] == "save"
            else f"aux[{failure['output']!r}]"))  # fmt: skip
    return "\n".join(lines)
