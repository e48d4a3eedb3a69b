"""The certificate of every scheme, measured: the tables of docs/schemes.md and docs/work_precision.png.

    python benchmarks/certificates.py [--schemes rkmk4 ...] [--tables Rounding ...] [--write] [--plot]

Problems with known answers come from tests/problems.py. ``--write`` puts the tables into docs/schemes.md, ``--plot`` draws.
"""

import argparse
import importlib
import re
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import jaxquat as jq  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import problems  # noqa: E402  # pyright: ignore[reportMissingImports]

STEPS = {
    0: (40, 80, 160),
    1: (200, 400, 800),
    2: (40, 80, 160),
    3: (30, 60, 120),
    4: (30, 60, 120),
    5: (30, 60, 120),
    6: (20, 40, 80),
}
VARIANTS = {
    "formulation1": "stage torque at unit q",
    "formulation2": "stage torque at unit q",
    "half_quat": "sequential assignment",
    "full_quat": "manipulated, sequential",
    "full_quat_corrected": "simultaneous",
    "no_squish": "turns 3 2 1 2 3",
    "symmetric_top": "axis of the closest pair last",
    "symmetric_top_suzuki4": "axis of the closest pair last",
    "symmetric_top_bm4": "moments .6, .6, 1",
    "no_squish_kl6": "turns 3 2 1 2 3",
    "lgvi": "Newton, 6 evaluations",
    "lie_midpoint": "Newton, 6 evaluations",
    "simo_wong": "Newton, 6 evaluations",
}
ROOMS = ("munthe_kaas", "frozen_frames", "commutator_free", "pcdm", "splitting", "implicit")
MODULES = [importlib.import_module(f"jaxquat.schemes.{room}") for room in ROOMS]
REFERENCES: dict[tuple[bool, bool], tuple] = {}


def body_of(name):
    """The body of FREE, HEAVY and DRIVEN, or a symmetric one where the scheme wants it."""
    return (
        jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0]))
        if name == "symmetric_top_bm4"
        else problems.reference_body()
    )


def start(name, q=problems.TILTED):
    """Of FREE, HEAVY and DRIVEN."""
    return problems.start_of(name, jnp.asarray(q), jnp.asarray(problems.OMEGA0))


def narrow(tree):
    """In float32."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def orders(name):
    """RMS slopes in attitude and rate over 64 forced bodies."""
    scheme = jq.SCHEMES[name]
    key = (scheme.torques == "any", name == "symmetric_top_bm4")
    if key not in REFERENCES:
        problem = problems.Forced(*key)
        REFERENCES[key] = problem, jax.tree.map(np.float64, problem.exact())
    problem, (q, omega) = REFERENCES[key]
    march, errors = problems.marcher(scheme.step, problem.torque, batch=True), []
    counts = problem.T * np.array(STEPS[scheme.order])
    for n in counts.tolist():
        end = march(problem.bodies(), problem.starts(name), 0.0, problem.T, n, problem.params)
        parts = (
            np.asarray(jq.quaternion.distance(end.q, jnp.asarray(q))),
            np.linalg.norm(end.omega - omega, axis=1),
        )
        errors.append([np.sqrt(np.mean(part**2)) for part in parts])
    return [f"{problems.slope(counts, np.array(errors)[:, k]):.2f}" for k in (0, 1)]


def errors_of(name):
    """Rotation angles at h = .05 on FREE, HEAVY, DRIVEN."""
    found = []
    for problem, (torque, q0, q, _) in problems.REFERENCE.items():
        if name == "symmetric_top_bm4" or (
            problem == "DRIVEN" and jq.SCHEMES[name].torques != "any"
        ):
            found.append("-")
            continue
        end = problems.marcher(jq.SCHEMES[name].step, torque)(
            body_of(name), start(name, q0), 0.0, 10.0, 200
        )
        found.append(f"{float(jq.quaternion.distance(end.q, jnp.asarray(q))):.1e}")
    return found


def marched(name, torque, q0, cast=lambda tree: tree):
    """Every hundredth state of 1e5 steps of .05, in float64 or what it is cast to."""
    step, body, begin = jq.SCHEMES[name].step, cast(body_of(name)), cast(start(name, q0))
    rolled = lambda: (
        jq.rollout(step, body, torque, begin, jq.grid(0.0, 0.05, 100_000), save_every=100).state
    )
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), jax.jit(rolled)())


def drifts(name):
    """Energy FREE and HEAVY, momentum FREE, norm, each in float64 and float32; the norm HEAVY without the norm controller."""
    body, found = body_of(name), []
    for cast in (lambda tree: tree, narrow):
        problem = ((jq.torques.zero, [1.0, 0, 0, 0]), (problems.heavy, problems.TILTED))
        free, heavy = (marched(name, torque, q0, cast) for torque, q0 in problem)
        column = []
        for states, weight in ((free, 0.0), (heavy, 1.0)):
            energy = np.asarray(jax.vmap(lambda s: jq.dynamics.energy(body, s))(states))
            energy = (
                energy + weight * np.asarray(jax.vmap(jq.quaternion.to_matrix)(states.q))[:, 2, 2]
            )
            column.append(np.abs(energy / energy[0] - 1).max())
        momentum = np.asarray(jax.vmap(lambda s: jq.dynamics.momentum(body, s))(free))
        column.append(
            np.linalg.norm(momentum - momentum[0], axis=1).max() / np.linalg.norm(momentum[0])
        )
        column.append(np.abs(np.linalg.norm(heavy.q, axis=1) - 1).max())
        found.append(column)
    cells = ["; ".join(size(column[k]) for column in found) for k in range(4)]
    if "norm" not in jq.SCHEMES[name].conserves or name.startswith("formulation"):
        return [*cells, "-"]
    kept = [module.correct_norm for module in MODULES]
    for module in MODULES:
        vars(module)["correct_norm"] = lambda q: q
    uncorrected = marched(name, problems.heavy, problems.TILTED)
    for module, function in zip(MODULES, kept, strict=True):
        vars(module)["correct_norm"] = function
    return [*cells, size(np.abs(np.linalg.norm(uncorrected.q, axis=1) - 1).max())]


def size(x):
    """One digit."""
    return f"{x:.0e}" if x < 10 else "diverges"  # NaN, too


def rounding(name):
    """64 free bodies with products of inertia, steps of .02: medians of what momentum and energy have lost, and how it grows."""
    cells, counts = [], (10_000, 100_000, 1_000_000)
    for dtype in (jnp.float32, jnp.float64):
        bodies = problems.FreeBodies(dtype, "given", symmetric=name == "symmetric_top_bm4")
        for errors in bodies.drifts(jq.SCHEMES[name].step, counts, "fused").T:
            cells.append(", ".join(f"{x:.1e}" for x in errors))
            cells.append(f"{-problems.slope(np.array(counts), errors):.2f}")
    return cells


def reversibility(name):
    """Error after 2000 steps of .01 forth and back, HEAVY."""
    step, body, begin = jq.SCHEMES[name].step, body_of(name), start(name)

    @jax.jit
    def run():
        far = jax.lax.scan(
            lambda s, k: (step(body, problems.heavy, 0.0, s, 0.01, None), None),
            begin,
            None,
            length=2000,
        )[0]
        return jax.lax.scan(
            lambda s, k: (step(body, problems.heavy, 0.0, s, -0.01, None), None),
            far,
            None,
            length=2000,
        )[0]

    back = run()
    return f"{float(jq.quaternion.distance(back.q, begin.q)) + float(np.abs(back.omega - begin.omega).max()):.0e}"


def gradient(name):
    """Forward and reverse mode against central differences of order 4: a loss of 20 steps by three torque parameters."""

    def loss(pull):
        torque = lambda t, state, p: jq.quaternion.rotate_inverse(state.q, p)  # noqa: E731
        path = jq.rollout(
            jq.SCHEMES[name].step,
            body_of(name),
            torque,
            start(name),
            jq.grid(0.0, 0.05, 20),
            pull,
            save_every=20,
        )
        return jnp.sum(path.state.q[-1] * jnp.arange(4.0)) + jnp.sum(path.state.omega[-1])

    at, h = jnp.array([0.3, -0.5, 0.8]), 1e-3
    moved = at[None, None] + h * jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * jnp.eye(3)[None]
    forward, reverse, (a, b, c, d) = jax.jit(
        lambda x: (jax.jacfwd(loss)(x), jax.grad(loss)(x), jax.vmap(jax.vmap(loss))(moved))
    )(at)
    wanted = (a - 8 * b + 8 * c - d) / (12 * h)
    return f"{max(np.abs(forward - wanted).max(), np.abs(reverse - wanted).max()) / np.abs(wanted).max():.0e}"


def microseconds(name, bodies):
    """A step of HEAVY in a rollout of 500, float32 as users run it, the best of five."""
    step = jq.SCHEMES[name].step
    body, begin = narrow((body_of(name), start(name)))
    begins = jax.tree.map(lambda x: jnp.broadcast_to(x, (bodies, *x.shape)), begin)
    one = lambda s, b: (
        jq.rollout(step, b, problems.heavy, s, jq.grid(0.0, 0.01, 500), save_every=500).state
    )
    run = jax.jit(jax.vmap(one, (0, None))).lower(begins, body).compile()
    times = []
    for _ in range(6):
        began = time.perf_counter()
        jax.block_until_ready(run(begins, body))
        times.append(time.perf_counter() - began)
    return f"{1e6 * min(times[1:]) / 500:.1f}"


COMPARISON = "Lie RK4 against Formulations I and II"
HEADS = {
    "Accuracy": "| scheme | variant | order q | omega | FREE | HEAVY | DRIVEN | torques | us, N = 1 | us, N = 64 | gradient |",
    "Conservation": "| scheme | energy FREE | energy HEAVY | momentum FREE | norm | norm without controller | forth and back |",
    "Rounding": "| scheme | float32: momentum | growth | energy | growth | float64: momentum | growth | energy | growth |",
}


def accuracy(name):
    """The cells of a scheme."""
    cells = [
        VARIANTS.get(name, ""),
        *orders(name),
        *errors_of(name),
        str(jq.SCHEMES[name].evaluations),
    ]
    return [*cells, microseconds(name, 1), microseconds(name, 64), gradient(name)]


def certificates(names, titles):
    """{title: Markdown table}."""
    cells = {
        "Accuracy": accuracy,
        "Conservation": lambda name: [*drifts(name), reversibility(name)],
        "Rounding": rounding,
    }
    rows = {title: [HEADS[title], "|" + "---|" * (HEADS[title].count("|") - 1)] for title in titles}
    for name in names:
        began = time.perf_counter()
        for title, lines in rows.items():
            if (
                title != "Rounding"
                or "momentum" in jq.SCHEMES[name].conserves
                or name in ("rkmk4", "zhao")
            ):
                lines.append("| " + " | ".join([f"`{name}`", *cells[title](name)]) + " |")
                print(lines[-1], flush=True)
        print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return {title: "\n".join(lines) for title, lines in rows.items()}


def averaged_rk4(body, torque, t, state, dt, params):
    """Runge-Kutta for the rate, one exponential of its averaged value for the attitude, as crazyflow and MJX have it."""

    def rate(t, q, omega):
        return jq.dynamics.derivative(body, torque, t, jq.State(q, omega), params)[0]

    q, w1 = state.q, state.omega
    turned = lambda omega, h: jq.quaternion.multiply(q, jq.quaternion.exp(h * omega))  # noqa: E731
    a1 = rate(t, q, w1)
    w2 = w1 + dt / 2 * a1
    a2 = rate(t + dt / 2, turned(w1, dt / 2), w2)
    w3 = w1 + dt / 2 * a2
    a3 = rate(t + dt / 2, turned(w2, dt / 2), w3)
    w4 = w1 + dt * a3
    a4 = rate(t + dt, turned(w3, dt), w4)
    q = jq.quaternion.correct_norm(turned((w1 + 2 * w2 + 2 * w3 + w4) / 6, dt))
    return jq.State(q, w1 + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4))


def cases():
    """{title: (body, torque, start, end of time, attitude there)}."""
    coning_state, coning_torque = jq.exact.prescribed(
        problems.reference_body(), lambda t: jq.exact.coning(t, 0.6, 4.0).q
    )
    fast = jq.Body.from_principal(jnp.array([15.234375, 15.234375, 0.46875]))
    fast_start = jq.State(jnp.array([-0.5, 0.5, 0.5, 0.5]), jnp.array([-4.61538, 0, 150.0]))
    fast_torque = jq.torques.heavy_top(147.15, jnp.array([0.0, 0, 1]))
    fast_end = problems.marcher(jq.symmetric_top_bm4, fast_torque)(
        fast, fast_start, 0.0, 1.0, 1600
    ).q
    found = {
        name: (
            problems.reference_body(),
            torque,
            jq.State(jnp.asarray(q0), jnp.asarray(problems.OMEGA0)),
            10.0,
            jnp.asarray(q),
        )
        for name, (torque, q0, q, _) in problems.REFERENCE.items()
    }
    found["fast heavy top"] = (fast, fast_torque, fast_start, 1.0, fast_end)
    found["coning"] = (
        problems.reference_body(),
        coning_torque,
        coning_state(0.0),
        3.0,
        coning_state(3.0).q,
    )
    return found


def comparison():
    """Terze, Mueller and Zlatar's: Lie RK4 against Formulations I and II at long steps, as a Markdown table."""
    lines = [
        "| problem | h | rkmk4 | formulation1 | formulation2 | best |",
        "|---|---|---|---|---|---|",
    ]
    names = ("rkmk4", "formulation1", "formulation2")
    for title, (body, torque, begin, end, wanted) in cases().items():
        marches = {name: problems.marcher(jq.SCHEMES[name].step, torque) for name in names}
        for h in {"fast heavy top": (0.01, 0.005), "coning": (0.05, 0.1, 0.3)}.get(
            title, (0.05, 0.1, 0.2, 0.4)
        ):
            n = round(end / h / 10) * 10
            found = {
                name: float(jq.quaternion.distance(march(body, begin, 0.0, end, n).q, wanted))
                for name, march in marches.items()
            }
            best = min(found, key=lambda name: found[name])
            lines.append(
                f"| {title} | {end / n:.3g} | "
                + " | ".join(f"{found[name]:.2e}" for name in names)
                + f" | {best} |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines)


def plot():
    """docs/work_precision.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [
        "rkmk4",
        "rkmk6",
        "cf4",
        "zhao",
        "pcdm1",
        "formulation1",
        "formulation2",
        "symmetric_top_suzuki4",
        "symmetric_top_bm4",
    ]
    methods = {name: (jq.SCHEMES[name].step, jq.SCHEMES[name].evaluations) for name in chosen} | {
        "averaged-rate RK4": (averaged_rk4, 4)
    }
    labels = {"formulation2": "ambient RK4 + normalise (formulation2)"}
    figure, axes = pyplot.subplots(2, 5, figsize=(20, 8), sharey="col")
    for column, (title, (body, torque, begin, end, wanted)) in enumerate(cases().items()):
        for color, (name, (step, evaluations)) in enumerate(methods.items()):
            attitude_only = name in jq.SCHEMES and jq.SCHEMES[name].torques != "any"
            if (title == "DRIVEN" and attitude_only) or (
                name == "symmetric_top_bm4" and title != "fast heavy top"
            ):
                continue
            points = []
            march = problems.marcher(step, torque)
            for n in (
                np.unique(
                    np.round(
                        end * 10.0 ** np.linspace(1.0, 2.6, 6) * (10 if end == 1.0 else 1) / 10
                    ).astype(int)
                )
                * 10
            ):
                last, seconds = march(body, begin, 0.0, end, int(n)), []
                for _ in range(2):
                    began = time.perf_counter()
                    last = jax.block_until_ready(march(body, begin, 0.0, end, int(n)))
                    seconds.append(time.perf_counter() - began)
                points.append(
                    (n * evaluations, min(seconds), float(jq.quaternion.distance(last.q, wanted)))
                )
            work, clock, errors = np.array(points).T
            style = {
                "linestyle": "--" if name in ("averaged-rate RK4", "formulation2") else "-",
                "color": f"C{color}",
                "marker": ".",
            }
            for row, x in enumerate((work, clock)):
                axes[row, column].loglog(
                    x, np.maximum(errors, 1e-14), label=labels.get(name, name), **style
                )
        axes[0, column].set(title=title, xlabel="torque evaluations")
        axes[1, column].set(xlabel="wall time [s], one body")
        print(title, file=sys.stderr, flush=True)
    for row in axes:
        row[0].set_ylabel("rotation angle error [rad]")
    handles = {
        label: line
        for axis in axes[0]
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=5)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(ROOT / "docs" / "work_precision.png", dpi=75)


def main():
    """Measure, print, and where asked write and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--schemes", nargs="*", default=list(jq.SCHEMES), choices=list(jq.SCHEMES), metavar="NAME"
    )
    parser.add_argument(
        "--tables",
        nargs="*",
        default=[*HEADS, COMPARISON],
        choices=[*HEADS, COMPARISON],
        metavar="TITLE",
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args()
    tables = certificates(options.schemes, [title for title in options.tables if title in HEADS])
    if COMPARISON in options.tables:
        tables[COMPARISON] = comparison()
    if options.write:
        page = ROOT / "docs" / "schemes.md"
        text = page.read_text()
        for title, table in tables.items():
            text = re.sub(
                rf"(## {title}\n.*?\n\n)\|.*?\n(\n|\Z)",
                lambda found, t=table: f"{found[1]}{t}\n{found[2]}",
                text,
                flags=re.S,
            )
        page.write_text(text)
    if options.plot:
        plot()


if __name__ == "__main__":
    main()
