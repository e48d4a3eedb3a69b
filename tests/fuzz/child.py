"""The process that runs programs: it reads requests and writes answers, each a line of JSON.

It imports jaxquat. The parent does not, so it survives when a kernel ends the child. A request is
checked by ``check_program`` or ``check_rollout``: the scan and the kernel run, and differences that
have an explanation are dropped, as the package's docstring says (``by_inputs``, ``judged``,
``_again_without_subnormals``).

An answer has "status": "ok", "invalid" (the scan refuses) or "broken" (the fuzzer itself raised);
"failures", each with the output that differs; and lists of outputs that are "invalid", "accepted",
"vanished", "subnormal" or have "no scalar form".
"""

import functools
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import grammar, oracle, planted, programs, rollouts
from .derivatives import differentiated
from .grammar import Mode

FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")  # all other output goes to stderr
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    import jax

    jax.config.update("jax_enable_x64", sys.argv[1] == "x64")
    for number, line in enumerate(sys.stdin):
        request = json.loads(line) | ({"planted": sys.argv[2]} if len(sys.argv) > 2 else {})
        start = time.time()
        try:
            answer = (check_program if request["kind"] == "program" else check_rollout)(request)
        except Exception:
            answer = {"status": "broken", "error": traceback.format_exc()[-3000:]}
        answer["seconds"] = time.time() - start
        if number % 20 == 19:
            jax.clear_caches()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


# a program, by one engine


def compiled(
    request: dict[str, Any], expressions: dict[str, Any], gradient: bool
) -> tuple[Callable[..., Any], Any]:
    """``function(engine, *arguments)`` for one body, and the arguments of all bodies.

    Its result has "value", the outputs by name, and with ``gradient`` also the derivatives of the
    outputs or of their weighted sum (``derivatives``).
    """
    if request["kind"] == "rollout":
        return rollouts.compiled(request, gradient)
    import jax
    import jax.numpy as jnp
    import jaxquat as jq
    from jax import lax

    mode = Mode(*request["mode"])
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "jq": jq}
    text = programs.text_of(mode, expressions)
    for number in grammar.SUBNORMAL if request.get("normal") else ():
        text = text.replace(number.lstrip("-"), "0.0")
    exec(text, names)
    kind = jnp.dtype(mode.name("f"))
    bodies = programs.BODIES
    data = programs.data_of(mode, request["seed"], bodies)
    if request.get("normal"):
        data = jax.tree.map(_without_subnormals, data)
    chosen = request.get("only")  # the numbers of these bodies; None for all
    if chosen is not None:
        data = jax.tree.map(lambda x: x[np.asarray(chosen)], data)
    aux = {
        name: np.zeros((len(data["t0"]), *shape), kind)
        for name, (place, _, shape) in expressions.items()
        if place == "rate"
    }
    start = jq.State(data["q"], data["omega"], aux)
    body = jq.Body.from_principal(jnp.asarray([1.0, 2.0, 2.5], kind))

    def outputs(engine: str, start: Any, t0: Any, command: Any, params: Any) -> Any:
        inputs = command | {"key": jax.random.wrap_key_data(command["key"])}
        torque, save = names["torque"], names["save"]
        if engine == "fused" and "planted" in request:
            torque, save = (_of_four(planted.wrong(f, request["planted"])) for f in (torque, save))
        path = jq.rollout(
            names["step"], body, torque, start, jq.grid(t0, 0.5, programs.STEPS), params,
            inputs=inputs, options=jq.RolloutOptions(save=save, engine=engine),
        )  # fmt: skip
        return path.saved | jax.tree.map(lambda x: x[None], path.final.aux)

    if not gradient:
        arguments = (start, data["t0"], data["command"], data["params"])
        return lambda engine, *x: {"value": outputs(engine, *x)}, arguments

    def loss(floats: Any, others: Any, weights: Any, engine: str) -> Any:
        start, t0, command, params = jax.tree.map(
            lambda x, y: y if x is None else x, floats, others, is_leaf=lambda x: x is None
        )
        values = outputs(engine, start, t0, command, params)
        total = jnp.zeros((), kind)
        for name, x in values.items():
            if jnp.issubdtype(x.dtype, jnp.floating) and name in weights:
                pattern = (jnp.arange(x.size) % 3 * 0.5 + 0.5).reshape(x.shape).astype(x.dtype)
                total = total + jnp.sum(x * pattern * weights[name].astype(x.dtype)).astype(kind)
        return total, values

    arguments = (start, data["t0"], data["command"], data["params"])
    floats = jax.tree.map(lambda x: x if x.dtype.kind == "f" else None, arguments)
    others = jax.tree.map(lambda x: None if x.dtype.kind == "f" else x, arguments)
    smooth = sorted(request["smooth"])
    numbers = np.arange(bodies) if chosen is None else np.asarray(chosen)
    weights = {
        name: (numbers // 3 % len(smooth) == k).astype(kind)
        for k, name in enumerate(smooth)
        if name in [*expressions, "omega"]
    }

    def both(engine: str, floats: Any, others: Any, weights: Any) -> Any:
        of_floats = lambda floats: loss(floats, others, weights, engine)
        return differentiated(request.get("derivative", "grad"), of_floats, floats)

    return both, (floats, others, weights)


def _of_four(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, state, params, command: function(t, state, params, command)


def _without_subnormals(x: np.ndarray) -> np.ndarray:
    """An array with zeros in place of its subnormal numbers."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, x * 0, x) if x.dtype.kind == "f" else x


@functools.cache
def fast() -> dict[str, Any]:
    """The options in ``FAST`` that this version of XLA has; it compiles four times as fast."""
    import jax

    options = {}
    for name, value in FAST.items():
        try:
            jax.jit(lambda x: x + 1, compiler_options={name: value})(1.0)
        except Exception:
            continue
        options[name] = value
    return options


def jitted(function: Callable[..., Any], engine: str, alone: bool = False) -> Callable[..., Any]:
    """A function of numpy arrays of all bodies; ``alone``: of the first body, without vmap."""
    import jax

    one = lambda *x: function(engine, *x)
    if alone:
        single, first = jax.jit(one, compiler_options=fast()), lambda y: y[0]
        rows = lambda tree: jax.tree.map(lambda y: np.asarray(y)[None], tree)
        return lambda *x: rows(single(*jax.tree.map(first, x)))
    many = jax.jit(jax.vmap(one), compiler_options=fast())
    return lambda *x: jax.tree.map(np.asarray, many(*x))


def execute(function: Callable[..., Any], engine: str, arguments: Any, alone: bool = False) -> Any:
    """The results of ``jitted``."""
    return jitted(function, engine, alone)(*arguments)


def by_inputs(
    scan: Callable[..., Any], arguments: Any, wanted: Any, got: Any, request: dict[str, Any]
) -> tuple[Any, set[str]]:
    """The engine's values, replaced by the scan's where moved inputs explain the difference.

    The inputs are moved by some ulp. Also returns the outputs where values were replaced.
    """
    import jax

    samples = [scan(*oracle.moved_inputs(arguments, seed)) for seed in range(8)]
    accepted: set[str] = set()

    def judge(path: Any, a: np.ndarray, b: np.ndarray, *many: np.ndarray) -> np.ndarray:
        good = _admitted(path[0].key, a, b, np.stack(many))
        good &= ~oracle.close(a, b)
        for body in np.nonzero(good.reshape(len(a), -1).any(1))[0].tolist():
            accepted.add(output_of(path, body, request))
        return np.where(good, a, b)

    return jax.tree_util.tree_map_with_path(judge, wanted, got, *samples), accepted


def _admitted(kind: str, a: np.ndarray, b: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Which of the engine's values b the samples explain, or infinite slopes of the scan's a."""
    good = oracle.admitted(b, a, samples)
    if kind == "second" and a.dtype.kind == "f":
        good |= np.isnan(a)  # the scan multiplies more zeros by infinite slopes
    if kind == "gradient" and a.dtype.kind == "f":
        good |= np.isnan(a) & np.isinf(b)  # (x + y) inf, in the scan x inf + y inf
    return good


def output_of(path: Any, body: int, request: dict[str, Any]) -> str:
    """The expression that a value, or the gradient of a body, belongs to."""
    smooth = sorted(request["smooth"])
    number = request["only"][body] if request.get("only") else body
    return path[1].key if path[0].key in ("value", "tangent") else smooth[number // 3 % len(smooth)]


def agreement() -> dict[str, Any]:
    """The answer for engines that agree."""
    return {"status": "ok", "invalid": [], "no scalar form": [], "failures": [], "accepted": []}


def check_program(request: dict[str, Any]) -> dict[str, Any]:
    """The answer for a program."""
    import jax

    expressions = request["expressions"]
    request.setdefault("smooth", ["omega", *_smooth(request, expressions)])
    gradient = request.get("gradient", True)
    answer = agreement()
    try:
        function, arguments = compiled(request, expressions, gradient)
        scan = jitted(function, "scan")
        wanted = scan(*arguments)
    except Exception as error:
        bad = _culprits(request, expressions, gradient, "scan")
        if not bad or len(bad) == len(expressions):
            return answer | {
                "status": "invalid",
                "error": repr(error)[:1500],
                "invalid": list(expressions),
            }
        errors = {name: repr(e)[:400] for name, e in bad.items()}
        good = {k: v for k, v in expressions.items() if k not in bad}
        answer = check_program(request | {"expressions": good})
        errors = answer.get("errors", {}) | errors
        return answer | {"invalid": [*answer["invalid"], *bad], "errors": errors}
    if request.get("scan alone"):
        return answer
    try:
        got = execute(function, "fused", arguments)
    except Exception as error:
        return _without_what_raises(request, expressions, gradient, error, answer)
    if gradient and request.get("forward"):
        # check the kernel without a derivative too, where the other one agrees
        plain, plain_arguments = compiled(request, expressions, False)
        forward = execute(plain, "fused", plain_arguments)["value"]
        merged = lambda a, b, c: np.where(oracle.close(a, b), c, b)
        got["value"] = jax.tree.map(merged, wanted["value"], got["value"], forward)
    result = _compared(scan, function, arguments, wanted, got, request, expressions, gradient)
    if request.get("alone"):
        result["failures"] += _alone(function, arguments, got, request)
    return answer | result


def _alone(
    function: Callable[..., Any], arguments: Any, got: Any, request: dict[str, Any]
) -> list[dict[str, Any]]:
    """The differences between the kernel of one body, without vectors, and that of many bodies."""
    import jax

    single = execute(function, "fused", arguments, alone=True)
    first = jax.tree.map(lambda x: x[:1], got)
    failures = differences(first, single, request | {"only": [0]}, ulps=1e3)
    return [failure | {"kind": "alone"} for failure in failures.values()]


def _compared(
    scan: Callable[..., Any],
    function: Callable[..., Any],
    arguments: Any,
    wanted: Any,
    got: Any,
    request: dict[str, Any],
    expressions: dict[str, Any],
    gradient: bool,
    engine: str = "fused",
) -> dict[str, Any]:
    """The differences that neither other inputs nor other roundings explain."""
    if not differences(wanted, got, request):
        return {"failures": [], "accepted": []}
    got, accepted = by_inputs(scan, arguments, wanted, got, request)
    suspects = differences(wanted, got, request)
    if not suspects:
        return {"failures": [], "accepted": sorted(accepted)}
    names = {s["output"] for s in suspects.values()}
    places = {"torque"} if "omega" in names else set()
    chosen = {k: v for k, v in expressions.items() if k in names or v[0] in places}
    judgement = judged(request, chosen, gradient, suspects, engine)
    bad = {f["output"] for f in judgement["failures"]}
    return judgement | {"accepted": sorted((accepted | set(judgement["accepted"])) - bad)}


def check_rollout(request: dict[str, Any]) -> dict[str, Any]:
    """The answer for a whole rollout."""
    gradient = request["options"]["gradient"]
    request["smooth"] = ["gradient"]
    alone = request["options"]["bodies"] is None
    answer = agreement()
    function, arguments = compiled(request, {}, gradient)
    scan = jitted(function, "scan", alone)
    try:
        wanted = scan(*arguments)
    except Exception as error:
        return answer | {"status": "invalid", "error": repr(error)[:1500], "invalid": ["rollout"]}
    if request.get("scan alone"):
        return answer
    engine = "fused"
    try:
        got = execute(function, engine, arguments, alone)
    except Exception as error:
        if type(error).__name__ != "NotScalarError":
            return answer | {"failures": [{"output": "rollout", "raises": repr(error)[:600]}]}
        answer |= {"no scalar form": ["rollout"], "reasons": {"rollout": str(error)[:200]}}
        engine = "auto"
        try:
            got = execute(function, engine, arguments, alone)
        except Exception as error:
            failure = {"output": "rollout", "raises": f"auto: {error!r}"[:600]}
            return answer | {"failures": [failure]}
    return answer | _compared(scan, function, arguments, wanted, got, request, {}, gradient, engine)


def _without_what_raises(
    request: dict[str, Any],
    expressions: dict[str, Any],
    gradient: bool,
    error: Exception,
    answer: dict[str, Any],
) -> dict[str, Any]:
    """The answer if an expression raises: for the other expressions, and the error of this one."""
    bad = _culprits(request, expressions, gradient, "fused")
    bad = bad or _culprits(request, expressions, gradient, "fused", run=True)
    if not bad:
        return answer | {"failures": [{"output": "all", "raises": repr(error)[:400]}]}
    scalar = [name for name, e in bad.items() if type(e).__name__ == "NotScalarError"]
    errors = {name: repr(e)[:400] for name, e in bad.items() if name not in scalar}
    raised = [{"output": name, "raises": error} for name, error in errors.items()]
    kept = {k: v for k, v in expressions.items() if k not in bad}
    if kept:
        answer = check_program(request | {"expressions": kept})
    if scalar:
        chosen = {k: v for k, v in expressions.items() if k in scalar}
        raised += _fallback(request | {"expressions": chosen}, chosen, gradient)
    return answer | {
        "no scalar form": [*answer["no scalar form"], *scalar],
        "failures": answer["failures"] + raised,
        "reasons": answer.get("reasons", {}) | {name: str(bad[name])[:120] for name in scalar},
    }


def _smooth(request: dict[str, Any], expressions: dict[str, Any]) -> list[str]:
    return [name for name, (place, *_) in expressions.items() if place != "torque"]


def _culprits(
    request: dict[str, Any],
    expressions: dict[str, Any],
    gradient: bool,
    engine: str,
    run: bool = False,
) -> dict[str, Any]:
    """The expressions that raise when they run alone, with their errors."""
    import jax

    errors = {}
    for name, expression in expressions.items():
        try:
            function, arguments = compiled(request, {name: expression}, gradient)
            if run:
                execute(function, engine, arguments)
            else:
                jax.eval_shape(jax.vmap(lambda *x: function(engine, *x)), *arguments)  # noqa: B023
        except Exception as error:
            errors[name] = error
    return errors


def _fallback(
    request: dict[str, Any], expressions: dict[str, Any], gradient: bool
) -> list[dict[str, Any]]:
    """Failures of engine="auto", which must agree with the scan where there is no scalar form."""
    try:
        function, arguments = compiled(request, expressions, gradient)
        wanted = execute(function, "scan", arguments)
        got = execute(function, "auto", arguments)
    except Exception as error:
        return [{"output": name, "raises": f"auto: {error!r}"[:400]} for name in expressions]
    suspects = differences(wanted, got, request)
    if suspects:
        return judged(request, expressions, gradient, suspects, engine="auto")["failures"]
    return []


def differences(
    wanted: dict[str, Any], got: dict[str, Any], request: dict[str, Any], ulps: float = 32.0
) -> dict[str, dict[str, Any]]:
    """The first body and place that differ, by kind ("value", "gradient") and output.

    "bodies" are the first six bodies in which they differ.
    """
    import jax

    failures: dict[str, dict[str, Any]] = {}
    chosen = request.get("only")
    for kind, tree in wanted.items():
        paths = jax.tree_util.tree_flatten_with_path(tree)[0]
        for (path, a), b in zip(paths, jax.tree.leaves(got[kind]), strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                shapes = f"{a.shape} {a.dtype}, {b.shape} {b.dtype}"
                failure = {"output": path[0].key, "kind": kind, "raises": shapes}
                failures[f"{kind} shape"] = failure
                continue
            differs = ~oracle.close(a, b, ulps)
            for body in np.nonzero(differs.reshape(len(a), -1).any(1))[0].tolist():
                number = body if chosen is None else chosen[body]
                output = output_of((jax.tree_util.DictKey(kind), *path), body, request)
                place = tuple(np.argwhere(differs[body])[0].tolist())
                first = {
                    "output": output, "kind": kind, "body": number, "place": place,
                    "leaf": jax.tree_util.keystr(path),
                    "scan": repr(a[body][place].item()), "fused": repr(b[body][place].item()),
                    "bodies": [],
                }  # fmt: skip
                bodies = failures.setdefault(f"{kind} {output}", first)["bodies"]
                if len(bodies) < 6 and number not in bodies:
                    bodies.append(number)
    return failures


def judged(
    request: dict[str, Any],
    expressions: dict[str, Any],
    gradient: bool,
    suspects: dict[str, Any],
    engine: str = "fused",
) -> dict[str, Any]:
    """The suspects that other roundings explain ("accepted") and the others ("failures").

    Only the expressions and bodies of a program that are suspects run again.
    """
    import jax

    bodies = sorted({body for s in suspects.values() for body in s.get("bodies", ())})
    names = sorted({s["output"] for s in suspects.values()})
    if request["kind"] == "rollout":
        bodies = None
    elif not bodies:
        return {"failures": list(suspects.values()), "accepted": []}
    if bodies:
        bodies = (bodies * 24)[:24]
        request = request | {"only": bodies}
    function, arguments = compiled(request, expressions, gradient)
    wanted = execute(function, "scan", arguments)
    got = execute(function, engine, arguments)
    again = differences(wanted, got, request)
    if not again:
        return {"failures": [], "accepted": [], "vanished": names}
    samples = oracle.shaken(lambda *x: function("scan", *x), arguments)
    failures, accepted = {}, set()
    for kind, tree in wanted.items():
        paths = jax.tree_util.tree_flatten_with_path(tree)[0]
        leaves = zip(paths, jax.tree.leaves(got[kind]), jax.tree.leaves(samples[kind]), strict=True)
        for (path, a), b, many in leaves:
            differs = ~oracle.close(a, b)
            good = _admitted(kind, a, b, np.moveaxis(many, 1, 0))
            for body, *place in np.argwhere(differs).tolist():
                output = output_of((jax.tree_util.DictKey(kind), *path), body, request)
                at = (body, *place)
                if good[at]:
                    accepted.add(output)
                elif f"{kind} {output}" not in failures:
                    failures[f"{kind} {output}"] = {
                        "output": output, "kind": kind, "body": bodies[body] if bodies else body,
                        "place": place, "leaf": jax.tree_util.keystr(path),
                        "scan": repr(a[at].item()), "fused": repr(b[at].item()),
                        "samples": [repr(x.item()) for x in many[body][(slice(4), *place)]],
                    }  # fmt: skip
    if failures and bodies and not request.get("normal"):
        return _again_without_subnormals(request, expressions, gradient, failures, accepted, engine)
    return {
        "failures": list(failures.values()),
        "accepted": sorted(accepted - {f["output"] for f in failures.values()}),
    }


def _again_without_subnormals(
    request: dict[str, Any],
    expressions: dict[str, Any],
    gradient: bool,
    failures: dict[str, Any],
    accepted: set[str],
    engine: str,
) -> dict[str, Any]:
    """The failures that remain without subnormal numbers.

    XLA treats these as zero, except some constants.
    """
    request = request | {"normal": True}
    function, arguments = compiled(request, expressions, gradient)
    wanted, got = (execute(function, name, arguments) for name in ("scan", engine))
    suspects = differences(wanted, got, request)
    left = judged(request, expressions, gradient, suspects, engine)["failures"] if suspects else []
    names = {failure["output"] for failure in left}
    gone = {failure["output"] for failure in failures.values()} - names
    return {
        "failures": [f for f in failures.values() if f["output"] in names] or left,
        "accepted": sorted(accepted - names),
        "subnormal": sorted(gone),
    }


if __name__ == "__main__":
    main()
