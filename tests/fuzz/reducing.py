"""Reduction of a failure: the outputs are bisected, then the trees of the expressions shrink.

A candidate is kept if it still fails (``failing``), until no smaller one does or ``TRIES`` are used
up. ``snippet`` returns the result as a program that runs on its own.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .grammar import COMMAND, COMMAND_WIDE, Mode, Node, Type
from .programs import BODIES, STEPS, Program, data_of, text_of

TRIES = 60


def reduced(program: Program, failing: Callable[[Program], bool], names: list[str]) -> Program:
    """The smallest program found that still fails; each of ``names`` is first tried alone."""
    program = _fewer(program, failing, names)
    tries = TRIES
    for name in list(program.expressions):
        while tries > 0:
            place, tree = program.expressions[name]
            for smaller in shrunk(tree, place == "save"):
                tries -= 1
                expressions = program.expressions | {name: (place, smaller)}
                candidate = program._replace(expressions=expressions)
                if failing(candidate):
                    program = candidate
                    break
                if tries <= 0:
                    break
            else:
                break
    return program


def _fewer(program: Program, failing: Callable[[Program], bool], names: list[str]) -> Program:
    """The program with fewer outputs: a single one if it fails alone, else by bisection."""

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
            piece, remaining = chosen[k : k + size], chosen[:k] + chosen[k + size :]
            if failing(only(piece)):
                chosen, parts = piece, 2
                break
            if parts > 2 and remaining and failing(only(remaining)):
                chosen, parts = remaining, max(2, parts - 1)
                break
        else:
            if parts >= len(chosen):
                break
            parts = min(len(chosen), 2 * parts)
    return only(chosen)


def shrunk(tree: Node, is_saved: bool) -> Iterator[Node]:
    """Trees where one node is replaced by a descendant of its type or a leaf; large steps first.

    Saved values may have any type, so a descendant of any type may replace the entire tree there.
    """
    places = sorted(_places(tree), key=lambda item: -item[1].size())
    for (path, node), (kind) in itertools.product(places, ("child", "leaf")):
        if kind == "child":
            alike = lambda n: n.type == node.type or (is_saved and node is tree)  # noqa: B023
            options = [n for _, n in _places(node) if n is not node and alike(n)]
            options = [n for n in options if n.size() < node.size()]
            options = [n for n in options if n.free() <= node.free()]
            options = sorted(options, key=lambda n: n.size())[:3]
        else:
            options = [n for n in _leaves(node.type) if node.size() > 1]
        for option in options:
            yield _put(tree, path, option)


def _leaves(kind: Type) -> list[Node]:
    """The inputs of the type, and zeros."""
    command = COMMAND | COMMAND_WIDE
    names = [f"command[{name!r}]" for name, other in command.items() if other == kind]
    names += [f"command[{kind.dtype!r}][0]"] if kind.shape == () and kind.dtype in COMMAND else []
    if kind.kind in "iub":
        names.append(f"jnp.zeros({kind.shape}, jnp.{Mode(True, True).name(kind.dtype)})")
    return [Node("input", kind, name) for name in names]


def _places(tree: Node, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Node]]:
    """All nodes of a tree, each with its path: the numbers of the children on the way to it."""
    nodes = [(path, tree)]
    for number, child in enumerate(tree.children):
        nodes += _places(child, (*path, number))
    return nodes


def _put(tree: Node, path: tuple[int, ...], node: Node) -> Node:
    """The tree with ``node`` at a path."""
    if not path:
        return node
    children = list(tree.children)
    children[path[0]] = _put(children[path[0]], path[1:], node)
    return tree._replace(children=tuple(children))


IMPORTS = """import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy import *  # as numpy prints its arrays
from builtins import sum  # numpy's is another one

import jaxquat as jq
"""

SNIPPET = """

def run(start, command, params, engine):
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5], start.q.dtype))
    grid = jq.grid({t0!r}, 0.5, {steps})
    options = jq.RolloutOptions(save=save, engine=engine)
    path = jq.rollout(
        step, body, torque, start, grid, params, inputs=command, options=options
    )
    return {{**path.saved, **path.final.aux}}


def loss(start, command, params, engine):
    leaves = jax.tree.leaves({chosen})
    leaves = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    weights = [(jnp.arange(x.size) % 3 * 0.5 + 0.5).reshape(x.shape) for x in leaves]
    return sum(jnp.sum(x * w.astype(x.dtype)) for x, w in zip(leaves, weights))


run, loss = (jax.jit(f, static_argnames="engine") for f in (run, loss))
for engine in ("scan", "fused"):
    print(engine, {call})
"""


def snippet(program: Program, answer: dict[str, Any]) -> str:
    """A program that runs on its own and prints the results of both engines for a failing body."""
    failures = [failure for failure in answer.get("failures", []) if "body" in failure]
    failure = failures[0] if failures else {"body": 0, "kind": "value", "output": "omega"}
    expressions = program.request()["expressions"]
    data = data_of(program.mode, program.seed, BODIES)
    body = failure["body"]
    command, params = (
        {k: v[body] for k, v in data[name].items()} for name in ("command", "params")
    )
    aux = {name: shape for name, (place, _, shape) in expressions.items() if place == "rate"}
    words = command.pop("key").tolist()
    lines = [
        IMPORTS,
        f'jax.config.update("jax_enable_x64", {program.mode.x64})',
        text_of(program.mode, expressions),
        f"command = {command!r}",
        f"command['key'] = jax.random.wrap_key_data(jnp.array({words}, jnp.uint32))",
        f"params = {params!r}",
        f"q, omega = jnp.asarray({data['q'][body]!r}), jnp.asarray({data['omega'][body]!r})",
        f"aux = {{name: jnp.zeros(shape, q.dtype) for name, shape in {aux}.items()}}",
        "start = jq.State(q, omega, aux)",
    ]
    call = "run(start, command, params, engine)"
    if failure["kind"] == "gradient":
        call = "jax.grad(loss, (0, 1, 2), allow_int=True)(start, command, params, engine)"
    chosen = f"run(start, command, params, engine)[{failure['output']!r}]"
    t0 = data["t0"][body].item()
    with np.printoptions(threshold=10000, floatmode="unique"):
        return "\n".join(lines) + SNIPPET.format(t0=t0, steps=STEPS, chosen=chosen, call=call)
