"""``python -m tests.fuzz``."""

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
    """The exit status is 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=0)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first program; the next has the next"
    )
    parser.add_argument("--expressions", type=int, default=20, help="of a program")
    parser.add_argument("--without", default="", help="productions left out, by commas")
    parser.add_argument("--planted", help="an error planted in the child")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--values-only", action="store_true", help="no gradients")
    parser.add_argument("--out", type=Path, help="a folder for the reduced programs")
    parser.add_argument(
        "--verbose", action="store_true", help="the time of each, and what is accepted"
    )
    parser.add_argument("--stop-after", type=int, default=10**9, help="findings")
    given = parser.parse_args()
    without = [name.strip() for name in given.without.split(",") if name.strip()]
    totals: collections.Counter[str] = collections.Counter()
    children, start, findings = Children(given.planted), time.monotonic(), 0
    work = [((k + 1) / given.programs, "program", given.seed + k) for k in range(given.programs)]
    work += [((k + 1) / given.rollouts, "rollout", given.seed + k) for k in range(given.rollouts)]
    try:
        for number, (_, kind, seed) in enumerate(sorted(work)):
            findings += one(kind, seed, children, totals, given, without)
            if number % 10 == 9:
                print(
                    f"{number + 1} of {len(work)}, {time.monotonic() - start:.0f} s:",
                    summary(totals),
                    flush=True,
                )
            if findings >= given.stop_after:
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
    given: argparse.Namespace,
    without: list[str],
) -> int:
    """Run the program or rollout of a seed, count, report; 1 if something is wrong with it."""
    if kind == "program":
        drawn: Any = programs.draw(seed, given.expressions, without)
        request = drawn.request(**({"gradient": False} if given.values_only else {}))
    else:
        drawn = rollouts.draw(seed, without)
        request = drawn.request()
    answer = children.ask(request)
    if answer["status"] in ("crash", "hang"):  # XLA divides constants by zero while it compiles
        alone = children.ask(request | {"scan alone": True})
        if alone["status"] == answer["status"]:
            lost = list(drawn.expressions) if kind == "program" else ["rollout"]
            error = f"the scan alone: {alone['status']} {alone.get('signal', '')}"
            answer = {"status": "ok", "invalid": lost, "error": error}
    if given.verbose:
        print(
            f"{kind} {seed}: {answer.get('seconds', 0):.1f} s {answer.get('accepted', '')}",
            flush=True,
        )
        for name in answer.get("accepted", ()) if kind == "program" else ():
            print(
                "    accepted",
                drawn.expressions[name][1].render()[:200] if name in drawn.expressions else name,
            )
    failures, status = answer.get("failures", []), answer["status"]
    totals["expressions" if kind == "program" else "rollouts"] += (
        len(drawn.expressions) if kind == "program" else 1
    )
    for name in ("invalid", "no scalar form", "accepted", "vanished", "subnormal"):
        totals[name if kind == "program" else f"{name} (rollouts)"] += len(answer.get(name, ()))
    if answer.get("invalid"):
        print(
            f"{kind} {seed}: invalid {answer.get('error', '')[-400:]} {answer.get('errors', '')}",
            flush=True,
        )
    if status not in ("crash", "hang", "broken") and not failures:
        return 0
    outputs = len({f["output"] for f in failures})
    totals[
        {"crash": "crashes", "hang": "hangs", "broken": "broken"}.get(status, "differences")
    ] += max(1, outputs)
    print(
        f"{kind} {seed}: {status} {answer.get('signal', '')} {answer.get('error', '')[-1500:]}",
        flush=True,
    )
    for failure in failures:
        print("   ", failure, flush=True)
    if given.no_reduce or status == "broken":
        return 1
    small, why = (reduce_program if kind == "program" else reduce_rollout)(children, drawn, answer)
    print(
        "    reduced:",
        {k: v.render() for k, v in trees(small).items()},
        getattr(small, "options", ""),
    )
    print("   ", why.get("signal", ""), why.get("failures", [])[:2], flush=True)
    text = snippet(small, why) if kind == "program" else rollouts.snippet(small)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / f"{kind}{seed}.py").write_text(text + "\n")
    else:
        print(text, flush=True)
    return 1


def trees(drawn: Any) -> dict[str, Any]:
    """The expressions by name."""
    return {
        k: v[1] if isinstance(v, tuple) and not hasattr(v, "render") else v
        for k, v in drawn.expressions.items()
    }


def reduce_rollout(
    children: Children, rollout: rollouts.Rollout, answer: dict
) -> tuple[rollouts.Rollout, dict]:
    """The least rollout found that fails still, and its answer."""
    tries, last = 60, answer
    kinds = {f.get("kind", "raises") for f in answer.get("failures", [])}
    while tries > 0:
        for candidate in rollouts.smaller(rollout):
            tries -= 1
            found = children.ask(candidate.request(), 120)
            same = found["status"] == answer["status"] and found["status"] in ("crash", "hang")
            if same or any(f.get("kind", "raises") in kinds for f in found.get("failures", [])):
                rollout, last = candidate, found
                break
            if tries <= 0:
                break
        else:
            break
    return rollout, last


def reduce_program(
    children: Children, program: programs.Program, answer: dict
) -> tuple[programs.Program, dict]:
    """The reduced program and its answer."""
    last = answer
    kinds = {f.get("kind", "raises") for f in answer.get("failures", [])}

    def failing(candidate: programs.Program) -> bool:
        nonlocal last
        found = children.ask(
            candidate.request(
                gradient="gradient" in kinds
                or ("value" not in kinds and bool(program.request()["gradient"]))
            ),
            120,
        )
        same = found["status"] == answer["status"] and found["status"] in ("crash", "hang")
        same = same or any(f.get("kind", "raises") in kinds for f in found.get("failures", []))
        if same:
            last = found
        return same

    names = [
        f["output"]
        for f in sorted(answer.get("failures", []), key=lambda f: f.get("kind") != "value")
    ]
    return reduced(program, failing, names), last


def summary(totals: collections.Counter) -> str:
    """One line."""
    parts = [f"{totals['expressions']} expressions, {totals['rollouts']} rollouts"]
    parts += [f"{totals[name]} {name}" for name in ("differences", "crashes", "hangs", "broken")]
    for name in ("invalid", "no scalar form", "accepted", "vanished", "subnormal"):
        parts.append(f"{totals[name]} + {totals[f'{name} (rollouts)']} {name}")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
