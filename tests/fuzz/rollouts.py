"""Whole rollouts: scheme, controller, inputs, save, batch and checkpoints drawn at random.

``draw(seed)`` draws options and expressions, ``text_of`` puts these into the functions ``torque``,
``init``, ``update`` and ``save``, and ``compiled`` makes one function of these, whose first
argument is the engine.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import derivatives
from .grammar import Grammar, Mode, Node, Type
from .programs import PRELUDE

ANY = (  # schemes for any torque; those in ATTITUDE need one that depends only on the attitude
    "lie_euler", "rkmk2", "rkmk3", "rkmk4", "zhao", "formulation1", "half_quat",
)  # fmt: skip
ATTITUDE = (  # the last does not move bodies
    "no_squish", "symmetric_top", "pcdm1", "symmetric_top_suzuki4", "simo_wong",
    "lgvi", "lie_midpoint",
)  # fmt: skip
STATE = {"t": Type("f"), "state.q": Type("f", (4,)), "state.omega": Type("f", (3,))}
PARAMS = {
    "params['gains']": Type("f", (3,)), "params['scale']": Type("f"),
    "params['level']": Type("i4", (3,)),
}  # fmt: skip
INPUTS = {
    "x": Type("f", (3,)), "u": Type("u4", (3,)), "i": Type("i4"), "b": Type("b", (3,)),
    "key": Type("key"),
}  # fmt: skip
MEMORY = {
    "total": Type("f", (3,)), "count": Type("i4"), "flag": Type("b", (3,)),
    "byte": Type("u1", (3,)), "key": Type("key"),
}  # fmt: skip
COMMAND = {"push": Type("f", (3,)), "step": Type("i4"), "on": Type("b", (3,))}


class Rollout(NamedTuple):
    """Options, and the expressions by the name of their place."""

    mode: Mode
    seed: int
    options: dict[str, Any]
    expressions: dict[str, Node]

    def request(self, **more: object) -> dict[str, object]:
        """The request to a child."""
        request = {"kind": "rollout", "mode": list(self.mode), "seed": self.seed}
        return request | {"options": self.options, "text": text_of(self)} | more


def draw(seed: int, without: Sequence[str] = ()) -> Rollout:
    """The rollout of a seed."""
    rng = random.Random(f"rollout {seed}")
    mode = (Mode(False, True), Mode(True, False), Mode(True, True))[seed // 25 % 3]
    sample, count = rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 4))
    steps = sample * count * rng.choice((1, 2))
    divisors = [d for d in range(1, steps + 1) if steps % d == 0]
    options = {
        "controller": rng.random() < 0.6, "inputs": rng.random() < 0.6, "aux": rng.random() < 0.4,
        "save": rng.random() < 0.5, "attitude": rng.random() < 0.2, "steps": steps,
        "sample_every": sample, "save_every": rng.choice(divisors),
        "bodies": rng.choice((None, None, 1, 3, 17, 33)),
        "checkpoint": rng.choice(("none", "none", "sqrt", 1, 2, 5, steps, steps + 3)),
        "gradient": rng.random() < 0.75, "traced grid": rng.random() < 0.5,
        "uneven grid": rng.random() < 0.25,
    }  # fmt: skip
    options["derivative"] = random.Random(f"derivative {seed}").choice(derivatives.KINDS)
    options["attitude"] = options["attitude"] and not options["aux"]
    options["moving"] = random.Random(f"moving {seed}").random() < 0.3
    options["scheme"] = rng.choice(ATTITUDE if options["attitude"] else ANY)
    if not options["controller"] and not options["inputs"]:
        options["sample_every"] = 1
    if options["gradient"]:
        without = [*without, *derivatives.without(options["derivative"])]
    grammar = Grammar(rng, mode, [*without, "root"])

    def drawn(
        names: dict[str, Type], dtype: str, shape: tuple[int, ...] = (), depth: int = 3
    ) -> Node:
        grammar.names = names
        return grammar.expression(Type(dtype, shape), rng.randint(1, depth))

    options["moving"] = options["moving"] and options["scheme"] != "lie_midpoint"
    state = dict(STATE)
    if options["attitude"]:
        del state["state.omega"]
    if options["moving"]:
        state["state.position"] = Type("f", (3,))
    if options["moving"] and not options["attitude"]:
        state["state.velocity"] = Type("f", (3,))
    if options["aux"]:
        state["state.aux['lag']"] = Type("f", (3,))
    value = {f"value[{k!r}]": v for k, v in INPUTS.items()} if options["inputs"] else {}
    memory = {f"memory[{k!r}]": v for k, v in MEMORY.items()}
    command = {}
    if options["controller"]:
        command = {f"command[{k!r}]": v for k, v in COMMAND.items()}
    elif options["inputs"]:
        command = {f"command[{k!r}]": v for k, v in INPUTS.items()}
    outer = state | PARAMS | command
    expressions = {"torque": drawn(outer, "f", (3,)), "drag": drawn(outer, "f")}
    if options["aux"]:
        expressions["lag"] = drawn(outer, "f", (3,))
    if options["moving"]:
        expressions["force"] = drawn(outer, "f", (3,))
    if options["controller"]:
        inner = dict(STATE) | PARAMS | memory | value
        for name, kind in (COMMAND | {k: v for k, v in MEMORY.items() if k != "key"}).items():
            expressions[name] = drawn(inner, kind.dtype, kind.shape)
    if options["save"]:
        everything = outer | dict(STATE)
        for number in range(3):
            dtype = rng.choice(("f", "f", "i4", "b", "u1"))
            expressions[f"save{number}"] = drawn(everything, dtype, grammar.any_shape())
    return Rollout(mode, seed, options, expressions)


def text_of(rollout: Rollout) -> str:
    """The functions of a rollout: torque, and init, update and save if it has them."""
    o, e = rollout.options, {name: node.render() for name, node in rollout.expressions.items()}
    command = ", command" if o["controller"] or o["inputs"] else ""
    push = " + 0.1 * bounded(command['x'])" if o["inputs"] else ""
    push = " + 0.1 * command['push']" if o["controller"] else push
    damping = "" if o["attitude"] else " - 0.1 * state.omega"
    lines = [PRELUDE, f"def torque(t, state, params{command}):"]
    lines += [f"    tau = bounded({e['torque']}) + bounded({e['drag']}){push}{damping}"]
    lag = f", {{'lag': bounded({e['lag']}) - state.aux['lag']}}" if o["aux"] else ""
    load = f"jq.Wrench(tau, bounded({e['force']}))" if o["moving"] else "tau"
    lines += [f"    return {load}{lag}"]
    if o["controller"]:
        lines += [
            "\n\ndef init(start, params):",
            "    F = start.q.dtype",
            "    return {'total': jnp.zeros(3, F), 'count': jnp.asarray(0, jnp.int32),",
            "            'flag': jnp.zeros(3, bool),",
            "            'byte': jnp.zeros(3, jnp.uint8), 'key': jax.random.key(5)}",
            "\n\ndef update(t, state, memory, params, value):",
            f"    command = {{'push': bounded({e['push']}), 'step': {e['step']}, 'on': {e['on']}}}",
            f"    memory = {{'total': 0.9 * memory['total'] + bounded({e['total']}),",
            f"              'count': memory['count'] + 1 + {e['count']},",
            f"              'flag': {e['flag']}, 'byte': {e['byte']},",
            "              'key': jax.random.split(memory['key'])[0]}",
            "    return command, memory",
        ]
    if o["save"]:
        saved = ", ".join(f"'{k}': {v}" for k, v in e.items() if k.startswith("save"))
        lines += [f"\n\ndef save(t, state, params{command}):"]
        lines += [f"    return {{'omega': state.omega, {saved}}}"]
    return "\n".join(lines)


def compiled(request: dict[str, Any], gradient: bool) -> tuple[Callable[..., Any], Any]:
    """``function(engine, *arguments)`` for one body, and the arguments of all bodies."""
    import jax
    import jax.numpy as jnp
    import jaxquat as jq
    from jax import lax

    mode, o = Mode(*request["mode"]), request["options"]
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "jq": jq}
    exec(request["text"], names)
    kind = np.dtype(mode.name("f"))
    rng = np.random.default_rng(request["seed"])
    bodies = o["bodies"] or 1
    q = rng.normal(size=(bodies, 4))
    number = lambda *shape: rng.normal(size=(bodies, *shape)).astype(kind)
    q = (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(kind)
    start = jq.State(q, number(3), {"lag": number(3)} if o["aux"] else ())
    if o["moving"]:
        moving = np.random.default_rng([request["seed"], 1])
        place = moving.normal(size=(2, bodies, 3)).astype(kind)
        start = start._replace(position=place[0], velocity=place[1])
    integers = lambda *shape: rng.integers(-5, 6, (bodies, *shape)).astype(np.int32)
    words = lambda *shape: rng.integers(0, 2**32, (bodies, *shape), np.uint32)
    params = {"gains": number(3), "scale": number(), "level": integers(3)}
    samples = o["steps"] // o["sample_every"]
    inputs = {
        "x": number(samples, 3), "u": words(samples, 3), "b": number(samples, 3) > 0,
        "i": integers(samples), "key": words(samples, 2),
    }  # fmt: skip
    uneven = np.cumsum(rng.uniform(0.02, 0.2, (bodies, o["steps"] + 1)), axis=1).astype(kind)
    t0, dt = np.resize([0.0, 0.5], bodies), np.resize([0.1, 0.05, 0.2], bodies)
    grid = t0.astype(kind), dt.astype(kind), uneven
    moments = np.array([1.0, 1.0, 1.5] if "symmetric" in o["scheme"] else [1.0, 2.0, 2.5], kind)
    body = jq.Body.from_principal(jnp.asarray(moments), mass=1.5 if o["moving"] else None)
    controller = jq.Controller(names["init"], names["update"]) if o["controller"] else None

    def outputs(engine: str, start: Any, params: Any, inputs: Any, grid: Any) -> Any:
        t0, dt, times = grid
        through = jq.grid_at(times if o["traced grid"] else uneven[0])
        equal = (
            jq.grid(t0, dt, o["steps"]) if o["traced grid"] else jq.grid(0.25, 0.125, o["steps"])
        )
        keyed = inputs | {"key": jax.random.wrap_key_data(inputs["key"])}
        path = jq.rollout(
            jq.schemes.SCHEMES[o["scheme"]],
            body,
            names["torque"],
            start,
            dataclasses.replace(
                through if o["uneven grid"] else equal,
                sample_every=o["sample_every"],
                save_every=o["save_every"],
            ),
            params,
            controller=controller,
            inputs=keyed if o["inputs"] else None,
            options=jq.RolloutOptions(
                save=names.get("save"), checkpoint=o["checkpoint"], engine=engine
            ),
        )
        is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        raw = lambda x: jax.random.key_data(x) if is_key(x) else x
        parts = {"t": path.t, "state": path.state, "command": path.command}
        parts |= {"memory": path.memory, "saved": path.saved, "final": path.final}
        return jax.tree.map(raw, parts)

    arguments = (start, params, inputs, grid)
    if not gradient:
        return lambda engine, *x: {"value": outputs(engine, *x)}, arguments
    floats = jax.tree.map(lambda x: x if x.dtype.kind == "f" else None, arguments)
    others = jax.tree.map(lambda x: None if x.dtype.kind == "f" else x, arguments)

    def loss(floats: Any, others: Any, engine: str) -> Any:
        merged = jax.tree.map(
            lambda x, y: y if x is None else x, floats, others, is_leaf=lambda x: x is None
        )
        values = outputs(engine, *merged)
        total = jnp.zeros((), kind)
        for x in jax.tree.leaves({k: v for k, v in values.items() if k != "t"}):
            if jnp.issubdtype(x.dtype, jnp.floating):
                weights = (jnp.arange(x.size) % 3 * 0.5 + 0.5).reshape(x.shape)
                total = total + jnp.sum(x * weights.astype(x.dtype)).astype(kind)
        return total, values

    def both(engine: str, floats: Any, others: Any) -> Any:
        of_floats = lambda floats: loss(floats, others, engine)
        return derivatives.differentiated(o.get("derivative", "grad"), of_floats, floats)

    return both, (floats, others)


def smaller(rollout: Rollout) -> Iterator[Rollout]:
    """Simpler rollouts, large steps first."""
    from .reducing import shrunk

    o = rollout.options
    for change in (
        {"gradient": False}, {"derivative": "grad"}, {"bodies": None}, {"save": False},
        {"checkpoint": "none"}, {"traced grid": False}, {"uneven grid": False},
        {"scheme": "lie_euler"}, {"save_every": o["steps"]}, {"save_every": 1},
        {"steps": o["sample_every"], "save_every": o["sample_every"]},
    ):  # fmt: skip
        if any(o[k] != v for k, v in change.items()):
            yield rollout._replace(options=o | change)
    for name, tree in rollout.expressions.items():
        for option in shrunk(tree, False):
            yield rollout._replace(expressions=rollout.expressions | {name: option})


def snippet(rollout: Rollout) -> str:
    """The functions, and how to run them by both engines with this fuzzer."""
    request = rollout.request()
    return f"""{text_of(rollout)}

# options: {rollout.options}; to run it:
# from fuzz import child; print(child.check_rollout({request!r}))"""
