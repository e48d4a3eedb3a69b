"""The numbers of paper.md: clauses whose numbers come from tables of the documentation.

    python docs/paper/numbers.py            # prints the clauses as they should be
    python docs/paper/numbers.py --write    # writes their numbers into paper.md

Scripts in ``benchmarks/`` print the tables. tests/test_paper.py finds every clause in paper.md, and
no other number.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PAPER = FOLDER / "paper.md"
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"

CONDITIONS = [
    "64 and 1024 bodies in single precision",
    "NVIDIA H200 GPU, 1024 steps",
    "1024 free bodies",
    "over 300 s at steps of 0.05 s",
]
"""Numbers that say what was measured: constants of the benchmarks."""


def table(page, *columns):
    """Return the rows of the first table of a page with these columns, as dictionaries.

    The second column of a name gets the name and " 2". Empty cells of the first column repeat it.
    """
    header, rows = None, []
    for line in (FOLDER.parent / page).read_text().splitlines():
        cells = [cell.replace("`", "").strip() for cell in line.split("|")][1:-1]
        if header is None:
            if set(columns) <= set(cells):
                header = [f"{x} 2" if x in cells[:k] else x for k, x in enumerate(cells)]
        elif not line.startswith("|"):
            return rows[1:]
        else:
            cells[0] = cells[0] or rows[-1][header[0]]
            rows.append(dict(zip(header, cells, strict=True)))
    raise LookupError(f"{page}: no table with the columns {columns}")


def row(rows, **wanted):
    """Return the first row with these texts."""
    return next(x for x in rows if all(x[key] == value for key, value in wanted.items()))


def rounded(*numbers):
    """Return the smallest and the largest number, in two digits, or as integers from 10 on."""
    return [f"{x:.0f}" if x >= 10 else f"{x:.2g}" for x in (min(numbers), max(numbers))]


def extremes(rows, key):
    """Return the smallest and the largest number of a column, rounded."""
    return rounded(*(float(x[key]) for x in rows))


def schemes():
    """Return the clauses about the integrators."""
    names = table("schemes.md", "name", "order", "source")
    errors = table("schemes.md", "scheme", "FREE", "HEAVY", "DRIVEN")
    drifts = table("schemes.md", "scheme", "energy FREE", "momentum FREE")
    lifted, components = row(errors, scheme="rkmk4"), row(errors, scheme="formulation2")
    problems = ("FREE", "HEAVY", "DRIVEN")
    low, high = rounded(*(float(components[key]) / float(lifted[key]) for key in problems))
    kept, explicit = row(drifts, scheme="simo_wong"), row(drifts, scheme="rkmk4")
    return [
        f"{len(names)} integrators of order up to {max(int(x['order']) for x in names)}",
        f"{low} to {high} times smaller",
        f"by {kept['energy FREE']} over 100,000 steps",
        f"that of `rkmk4` by {explicit['energy FREE']}",
    ]


def speeds():
    """Return the clauses about times."""
    times = table("performance.md", "bodies", "engine", "forward ms", "ratio", "gradient ms")
    numbers = [{"bodies": "64, float32"}, {"bodies": "1024, float32"}]
    scans = [row(times, engine="scan", **x) for x in numbers]
    others = [row(times, engine="diffrax Tsit5", **x) for x in numbers]
    by_hand = [x["ratio"] for x in times if x["engine"] == "C by hand"]
    kernels = [x for x in times if x["engine"] == "fused"]
    gpu = table("scaling.md", "bodies", "fused: forward ms")
    mujoco = row(table("performance.md", "bodies", "fused / MuJoCo RK4"), bodies="1024")
    plans = table("performance.md", "problem", "plans", "ratio", "commands apart")
    one, thousand = (
        row(plans, problem="quadrotor", plans=n, Hessian="gauss-newton") for n in ("1", "1000")
    )
    faster = rounded(*(float(x["scan: forward ms"]) / float(x["fused: forward ms"]) for x in gpu))
    return [
        "forward pass is {} to {} times as fast".format(*extremes(scans, "ratio")),
        "and its gradient {} to {} times".format(*extremes(scans, "ratio 2")),
        "diffrax takes {} to {} and".format(*extremes(others, "ratio")),
        "{} to {} times as long".format(*extremes(others, "ratio 2")),
        f"takes {min(by_hand)} to {max(by_hand)} times the kernel's time",
        "cost {} to {} forward passes".format(*extremes(kernels, "gradient / forward")),
        f"{int(gpu[-1]['bodies']):,} bodies take {gpu[-1]['fused: forward ms']} ms",
        "the kernel is {} to {} times as fast".format(*faster),
        f"{mujoco['fused / MuJoCo RK4']} times as many steps per second",
        f"is {one['ratio']} times crocoddyl's for one quadrotor",
        f"and {thousand['ratio']} times for each of {int(thousand['plans']):,} in a batch",
    ]


def comparisons():
    """Return the clauses about validation."""
    basilisk = table("validation.md", "step [s]", "attitude [rad]", "wheels [rad/s]")
    close = row(basilisk, **{"step [s]": "0.05"})
    cases = {x["case"] for x in table("validation.md", "case", "jaxquat to the median")}
    words = {4: "four", 5: "five", 6: "six"}
    return [
        f"within {close['attitude [rad]']} rad",
        f"{words[len(cases)]} of NASA's check cases",
    ]


def clauses():
    """Return all clauses."""
    return schemes() + speeds() + comparisons()


def without_breaks(text):
    """Return a text in one line."""
    return " ".join(text.split())


def written(text):
    """Return the paper with the numbers of the clauses, as far as their words are in it."""
    for clause in clauses():
        words = [re.escape(part) for part in re.split(NUMBER, clause)]
        pattern = NUMBER.join(words).replace(r"\ ", r"\s+")
        numbers = re.findall(NUMBER, clause)

        def with_numbers(found, numbers=numbers):
            new = iter(numbers)
            return re.sub(NUMBER, lambda _: next(new), found[0])

        text = re.sub(pattern, with_numbers, text)
    return text


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAPER.write_text(written(PAPER.read_text()))
    print("\n".join(clauses()))
