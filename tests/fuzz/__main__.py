"""``python -m tests.fuzz``."""

import argparse
import collections
import sys
import time
from pathlib import Path

from . import programs
from .reducing import reduced, snippet
from .running import Children


def main() -> int:
    """The exit status is 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the next has the next")
    parser.add_argument("--expressions", type=int, default=20, help="of a program")
    parser.add_argument("--without", default="", help="productions left out, by commas")
    parser.add_argument("--planted", help="an error planted in the child")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--values-only", action="store_true", help="no gradients")
    parser.add_argument("--out", type=Path, help="a folder for the reduced programs")
    parser.add_argument("--stop-after", type=int, default=10**9, help="findings")
    given = parser.parse_args()
    without = [name.strip() for name in given.without.split(",") if name.strip()]
    totals: collections.Counter[str] = collections.Counter()
    children, start = Children(given.planted), time.monotonic()
    findings = 0
    try:
        for number, seed in enumerate(range(given.seed, given.seed + given.programs)):
            program = programs.draw(seed, given.expressions, without)
            answer = children.ask(program.request(forward=seed % 4 == 0, gradient=not given.values_only))
            status = answer["status"]
            totals["expressions"] += len(program.expressions)
            totals["invalid"] += len(answer.get("invalid", ()))
            totals["no scalar form"] += len(answer.get("no scalar form", ()))
            totals["accepted by conditioning"] += len(answer.get("accepted", ()))
            totals["vanished"] += len(answer.get("vanished", ()))
            failures = answer.get("failures", [])
            bad = status in ("crash", "hang", "broken") or bool(failures)
            if answer.get("invalid"):
                print(f"seed {seed}: invalid {answer.get('error', '')[-300:]} {answer.get('errors', '')}", flush=True)
            if bad:
                findings += 1
                totals[{"crash": "crashes", "hang": "hangs", "broken": "broken"}.get(status, "differences")] += max(
                    1, len({f["output"] for f in failures})
                )
                print(f"seed {seed}: {status} {answer.get('signal', '')} {answer.get('error', '')[-600:]}")
                for failure in failures:
                    print("   ", failure)
                if not given.no_reduce and status != "broken":
                    small, why = reduce_program(children, program, answer)
                    text = snippet(small, why)
                    print("    reduced:", {k: v.render() for k, (_, v) in small.expressions.items()})
                    print("   ", why.get("signal", ""), why.get("failures", "")[:2] if why.get("failures") else "")
                    if given.out:
                        given.out.mkdir(parents=True, exist_ok=True)
                        (given.out / f"seed{seed}.py").write_text(text + "\n")
                    else:
                        print(text)
            if number % 10 == 9 or bad:
                seconds = time.monotonic() - start
                print(f"{number + 1} programs, {seconds:.0f} s: {summary(totals)}", flush=True)
            if findings >= given.stop_after:
                break
    finally:
        children.end()
    print(summary(totals))
    return int(findings > 0)


def reduce_program(children: Children, program: programs.Program, answer: dict) -> tuple[programs.Program, dict]:
    """The reduced program and its answer."""
    last = answer
    kinds = {f.get("kind", "raises") for f in answer.get("failures", [])}

    def failing(candidate: programs.Program) -> bool:
        nonlocal last
        found = children.ask(candidate.request(gradient="gradient" in kinds or "value" not in kinds), 120)
        same = found["status"] == answer["status"] and found["status"] in ("crash", "hang")
        same = same or any(f.get("kind", "raises") in kinds for f in found.get("failures", []))
        if same:
            last = found
        return same

    names = [f["output"] for f in sorted(answer.get("failures", []), key=lambda f: f.get("kind") != "value")]
    return reduced(program, failing, names), last


def summary(totals: collections.Counter) -> str:
    """One line."""
    names = ("differences", "crashes", "hangs", "broken", "invalid", "no scalar form", "accepted by conditioning", "vanished")
    return f"{totals['expressions']} expressions, " + ", ".join(f"{totals[name]} {name}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
