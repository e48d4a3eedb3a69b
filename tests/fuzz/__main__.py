"""``python -m tests.fuzz``: draws programs and rollouts, runs them, prints the differences."""

import argparse
import collections
import sys
import time
from pathlib import Path
from typing import Any

from . import programs, rollouts
from .reducing import reduced, snippet
from .running import Children


def main() -> int:
    """Run the command line; return the exit status, 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=0)
    seeds = "of the first program; the next programs have the next seeds"
    parser.add_argument("--seed", type=int, default=0, help=seeds)
    parser.add_argument("--expressions", type=int, default=20, help="in a program")
    parser.add_argument("--without", default="", help="productions to leave out, comma-separated")
    parser.add_argument("--planted", help="an error planted in the child")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--values-only", action="store_true", help="no gradients")
    parser.add_argument("--out", type=Path, help="a folder for the reduced programs")
    verbose = "print the time of each, and the accepted outputs"
    parser.add_argument("--verbose", action="store_true", help=verbose)
    parser.add_argument("--stop-after", type=int, default=10**9, help="a number of findings")
    options = parser.parse_args()
    without = [name.strip() for name in options.without.split(",") if name.strip()]
    totals: collections.Counter[str] = collections.Counter()
    children, start, findings = Children(options.planted), time.monotonic(), 0
    count, first = options.programs, options.seed
    work = [((k + 1) / count, "program", first + k) for k in range(count)]
    count = options.rollouts
    work += [((k + 1) / count, "rollout", first + k) for k in range(count)]
    try:
        for number, (_, kind, seed) in enumerate(sorted(work)):
            findings += one(kind, seed, children, totals, options, without)
            if number % 10 == 9:
                seconds = f"{time.monotonic() - start:.0f} s"
                print(f"{number + 1} of {len(work)}, {seconds}:", summary(totals), flush=True)
            if findings >= options.stop_after:
                break
    finally:
        children.end()
    print(summary(totals))
    return int(findings > 0)


def one(
    kind: str,
    seed: int,
    children: Children,
    totals: collections.Counter,
    options: argparse.Namespace,
    without: list[str],
) -> int:
    """Run the program or rollout of a seed, count, report; 1 if something is wrong, else 0."""
    if kind == "program":
        drawn: Any = programs.draw(seed, options.expressions, without)
        request = drawn.request(**({"gradient": False} if options.values_only else {}))
    else:
        drawn = rollouts.draw(seed, without)
        request = drawn.request()
    answer = children.ask(request)
    if answer["status"] in ("crash", "hang"):  # perhaps XLA's, which divides constants by zero
        alone = children.ask(request | {"scan alone": True})
        if alone["status"] == answer["status"]:
            lost = list(drawn.expressions) if kind == "program" else ["rollout"]
            error = f"the scan alone: {alone['status']} {alone.get('signal', '')}"
            answer = {"status": "ok", "invalid": lost, "error": error}
    label, error = f"{kind} {seed}:", answer.get("error", "")
    if options.verbose:
        seconds = f"{answer.get('seconds', 0):.1f} s"
        print(label, seconds, answer.get("accepted", ""), flush=True)
        for name in answer.get("accepted", ()) if kind == "program" else ():
            known = name in drawn.expressions
            print("    accepted", drawn.expressions[name][1].render()[:200] if known else name)
    failures, status = answer.get("failures", []), answer["status"]
    if kind == "program":
        totals["expressions"] += len(drawn.expressions)
    else:
        totals["rollouts"] += 1
    for name in ("invalid", "no scalar form", "accepted", "vanished", "subnormal"):
        totals[name if kind == "program" else f"{name} (rollouts)"] += len(answer.get(name, ()))
    if answer.get("invalid"):
        print(label, "invalid", error[-400:], answer.get("errors", ""), flush=True)
    if status not in ("crash", "hang", "broken") and not failures:
        return 0
    outputs = len({f["output"] for f in failures})
    plurals = {"crash": "crashes", "hang": "hangs", "broken": "broken"}
    totals[plurals.get(status, "differences")] += max(1, outputs)
    print(label, status, answer.get("signal", ""), error[-1500:], flush=True)
    for failure in failures:
        print("   ", failure, flush=True)
    if options.no_reduce or status == "broken":
        return 1
    small, why = (reduce_program if kind == "program" else reduce_rollout)(children, drawn, answer)
    texts = {name: tree.render() for name, tree in trees(small).items()}
    print("    reduced:", texts, getattr(small, "options", ""))
    print("   ", why.get("signal", ""), why.get("failures", [])[:2], flush=True)
    text = snippet(small, why) if kind == "program" else rollouts.snippet(small)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{kind}{seed}.py").write_text(text + "\n")
    else:
        print(text, flush=True)
    return 1


def trees(drawn: Any) -> dict[str, Any]:
    """The trees of the expressions, by name."""
    return {
        k: v[1] if isinstance(v, tuple) and not hasattr(v, "render") else v
        for k, v in drawn.expressions.items()
    }


def reduce_rollout(
    children: Children, rollout: rollouts.Rollout, answer: dict
) -> tuple[rollouts.Rollout, dict]:
    """The smallest rollout, within 60 tries, that still fails, and its answer."""
    tries, last = 60, answer
    while tries > 0:
        for candidate in rollouts.smaller(rollout):
            tries -= 1
            reply = children.ask(candidate.request(), 120)
            if fails_alike(answer, reply):
                rollout, last = candidate, reply
                break
            if tries <= 0:
                break
        else:
            break
    return rollout, last


def fails_alike(answer: dict, other: dict) -> bool:
    """Whether ``other`` has the same crash or hang as ``answer``, or a failure of the same kind."""
    if other["status"] == answer["status"] and other["status"] in ("crash", "hang"):
        return True
    kinds = {f.get("kind", "raises") for f in answer.get("failures", [])}
    return any(f.get("kind", "raises") in kinds for f in other.get("failures", []))


def reduce_program(
    children: Children, program: programs.Program, answer: dict
) -> tuple[programs.Program, dict]:
    """The reduced program and its answer."""
    last, failures = answer, answer.get("failures", [])
    kinds = {f.get("kind", "raises") for f in failures}
    gradient = not kinds.isdisjoint(("gradient", "tangent", "second"))
    gradient = gradient or ("value" not in kinds and bool(program.request()["gradient"]))

    def failing(candidate: programs.Program) -> bool:
        nonlocal last
        reply = children.ask(candidate.request(gradient=gradient), 120)
        same = fails_alike(answer, reply)
        if same:
            last = reply
        return same

    names = [f["output"] for f in sorted(failures, key=lambda f: f.get("kind") != "value")]
    return reduced(program, failing, names), last


def summary(totals: collections.Counter) -> str:
    """The counts, in one line."""
    parts = [f"{totals['expressions']} expressions, {totals['rollouts']} rollouts"]
    parts += [f"{totals[name]} {name}" for name in ("differences", "crashes", "hangs", "broken")]
    for name in ("invalid", "no scalar form", "accepted", "vanished", "subnormal"):
        parts.append(f"{totals[name]} + {totals[f'{name} (rollouts)']} {name}")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
