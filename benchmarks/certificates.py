"""Measure the certificate of every scheme: the tables of docs/schemes.md and its two pictures.

    python benchmarks/certificates.py [--schemes rkmk4 ...] [--tables Rounding ...]
                                      [--write] [--plot]
    python benchmarks/certificates.py --noise [--write]

``--write`` puts the tables into docs/schemes.md where it has them, ``--plot`` draws
docs/work_precision.png and work_precision_all.png. examples/validation/problems.py has the problems
with known answers. ``--noise`` measures the stochastic schemes (examples/validation/noise.py), for
docs/noise.md.
"""

import argparse
import functools
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

jax.config.update("jax_enable_x64", True)
# Programs run in the thread that calls them. One that waits for work takes processor time, too.
jax.config.update("jax_cpu_enable_async_dispatch", False)

import jaxquat as jq  # noqa: E402
from examples.validation import noise, problems  # noqa: E402
from examples.validation.tops import coning  # noqa: E402
from jaxquat.plot import COLOURS  # noqa: E402

ROOT = Path(__file__).parents[1]

BY_SCAN = jq.RolloutOptions(engine="scan")


# What the measurements share.


def body_of(name):
    """Return the body of FREE, HEAVY and DRIVEN, or a symmetric one where the scheme needs it."""
    if name == "symmetric_top_bm4":
        return jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0]))
    return problems.reference_body()


def start(name, q=problems.TILTED):
    """Return the start of FREE, HEAVY and DRIVEN for a scheme."""
    return problems.start_of(name, jnp.asarray(q), jnp.asarray(problems.OMEGA0))


def narrow(tree):
    """Return the arrays in float32."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def angle(state, q):
    """Return the rotation angle [rad] between a state and an attitude."""
    return float(jq.quaternion.distance(state.q, jnp.asarray(q)))


def one_digit(x):
    """Print a number with one digit; NaN and anything beyond 10 diverge."""
    return f"{x:.0e}" if x < 10 else "diverges"


def row(cells):
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def header(columns):
    """Return the first two lines of a Markdown table."""
    return [row(columns), "|" + "---|" * len(columns)]


# The table of accuracy.


def errors_of(name):
    """Return the rotation angle errors at h = .05 on FREE, HEAVY and DRIVEN."""
    cells, any_torque = [], jq.schemes.SCHEMES[name].torques == "any"
    for problem, (torque, q0, q, _) in problems.REFERENCE.items():
        if name == "symmetric_top_bm4" or (problem == "DRIVEN" and not any_torque):
            cells.append("-")
            continue
        march = problems.marcher(jq.schemes.SCHEMES[name], torque)
        end = march(body_of(name), start(name, q0), 0.0, 10.0, 200)
        cells.append(f"{angle(end, q):.1e}")
    return cells


def microseconds(name, bodies=64):
    """Time a step of HEAVY in a rollout of 500, in float32 as users run it, the best of five."""
    scheme, grid = jq.schemes.SCHEMES[name], jq.grid(0.0, 0.01, 500, save_every=500)
    body, begin = narrow((body_of(name), start(name)))
    begins = jax.tree.map(lambda x: jnp.broadcast_to(x, (bodies, *x.shape)), begin)

    def one(state, body):
        return jq.rollout(scheme, body, problems.heavy, state, grid, options=BY_SCAN).state

    run = jax.jit(jax.vmap(one, (0, None))).lower(begins, body).compile()
    times = []
    for _ in range(6):
        began = time.perf_counter()
        jax.block_until_ready(run(begins, body))
        times.append(time.perf_counter() - began)
    return f"{1e6 * min(times[1:]) / 500:.1f}"


def accuracy(name):
    """Return the cells of a scheme."""
    return [*errors_of(name), microseconds(name)]


# The table of conservation.


def marched(name, torque, q0):
    """Return every hundredth of 1e5 steps of .05."""
    scheme, body, begin = jq.schemes.SCHEMES[name], body_of(name), start(name, q0)

    @jax.jit
    def run():
        grid = jq.grid(0.0, 0.05, 100_000, save_every=100)
        return jq.rollout(scheme, body, torque, begin, grid, options=BY_SCAN).state

    return run()


def conservation(name):
    """Return the largest relative drifts of energy (FREE and HEAVY) and momentum (FREE)."""
    body, energies = body_of(name), []
    free = marched(name, jq.torques.zero, [1.0, 0, 0, 0])
    for states, weight in ((free, 0.0), (marched(name, problems.heavy, problems.TILTED), 1.0)):
        kinetic = np.asarray(jax.vmap(lambda s: jq.dynamics.energy(body, s))(states))
        height = np.asarray(jax.vmap(jq.quaternion.to_matrix)(states.q))[:, 2, 2]
        energy = kinetic + weight * height
        energies.append(np.abs(energy / energy[0] - 1).max())
    momentum = np.asarray(jax.vmap(lambda s: jq.dynamics.momentum(body, s))(free))
    change = np.linalg.norm(momentum - momentum[0], axis=1).max() / np.linalg.norm(momentum[0])
    return [one_digit(x) for x in (*energies, change)]


# The table of rounding.


def rounding(name):
    """Return what momentum and energy have lost after 1e6 steps in float32, and how it grows.

    The numbers are medians over 64 free bodies with products of inertia, steps of .02. The power is
    fitted to 1e4, 1e5 and 1e6 steps.
    """
    cells, counts = [], (10_000, 100_000, 1_000_000)
    bodies = problems.FreeBodies(jnp.float32, "given", symmetric=name == "symmetric_top_bm4")
    for errors in bodies.drifts(jq.schemes.SCHEMES[name], counts, "fused").T:
        growth = -problems.slope(np.array(counts), errors)
        cells += [f"{errors[-1]:.1e}", f"{growth:.2f}"]
    return cells


SHORT = "Short steps"


def short_steps():
    """Return what 1e5 steps lose by rounding in float32 as they become shorter, by ``lgvi``."""
    lines = header(["turn a step [rad]", "momentum", "energy"])
    for h in (2e-2, 1e-4, 1e-5):
        bodies = problems.FreeBodies(jnp.float32, "given")
        bodies.h = h
        (errors,) = bodies.drifts(jq.lgvi, (100_000,), "fused")
        rate = float(jnp.linalg.norm(bodies.starts.omega[0]))
        lines.append(row([f"{rate * h:.1e}", *(f"{x:.1e}" for x in errors)]))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def has_rounding(name):
    """Return whether the table has this scheme: it conserves momentum, or serves to compare."""
    return "momentum" in jq.schemes.SCHEMES[name].conserves or name in ("rkmk4", "zhao")


# The table of orbits.


def orbit(name):
    """Return the largest errors of energy and angular momentum over 1e6 steps, and the growth.

    A tumbling body goes around a point mass, whose torque and force it feels: 1e6 steps of .01 are
    some hundred turns. The momentum is about the mass. "Second half" is the largest error of the
    energy in it, in units of that in the first.
    """
    pull = 2.3  # m^3/s^2
    moments = jnp.array([0.05, 0.09, 0.12])
    body = jq.Body.from_principal(moments, mass=1.3)
    begin = jq.State(
        jnp.asarray(problems.TILTED),
        jnp.array([1.5, 0.3, -0.8]),
        position=jnp.array([2.0, 0.0, 0.0]),
        velocity=jnp.array([0.0, 0.8, 0.75]),
    )
    field = jq.torques.total(
        jq.forces.point_mass(body, pull), jq.torques.gravity_gradient(body, pull)
    )

    def invariants(t, state, params):
        energy = jq.dynamics.energy(body, state) + jq.forces.potential(body, state, pull)
        return energy, jq.dynamics.momentum(body, state, about=jnp.zeros(3))

    scheme, grid = jq.schemes.SCHEMES[name], jq.grid(0.0, 0.01, 1_000_000, save_every=100)
    options = jq.RolloutOptions(save=invariants)
    run = jax.jit(lambda: jq.rollout(scheme, body, field, begin, grid, options=options).saved)
    energy, momentum = map(np.asarray, run())
    error = np.abs(energy / energy[0] - 1)
    half = len(error) // 2
    change = np.linalg.norm(momentum - momentum[0], axis=1).max() / np.linalg.norm(momentum[0])
    return [
        one_digit(error.max()),
        f"{error[half:].max() / error[:half].max():.1f}",
        one_digit(change),
    ]


def has_orbit(name):
    """Return whether the table has this scheme: it moves bodies by the Verlet method."""
    scheme = jq.schemes.SCHEMES[name]
    return scheme.translation and "momentum" in scheme.conserves and name != "symmetric_top_bm4"


# All tables that have a row for each scheme.

TABLES = {  # title: the function that measures a row, and the names of its cells
    "Accuracy": (accuracy, "FREE | HEAVY | DRIVEN | us"),
    "Conservation": (conservation, "energy FREE | energy HEAVY | momentum FREE"),
    "Rounding": (rounding, "momentum | growth | energy | growth"),
    "Orbits": (orbit, "energy | second half | angular momentum"),
}
ROWS = {"Rounding": has_rounding, "Orbits": has_orbit}  # which schemes they have; else all


def certificates(names, titles):
    """Measure the schemes, and return {title: Markdown table}."""
    tables = {title: header(["scheme", *TABLES[title][1].split(" | ")]) for title in titles}
    for name in names:
        began = time.perf_counter()
        for title, lines in tables.items():
            if ROWS.get(title, lambda name: True)(name):
                measure, _ = TABLES[title]
                lines.append(row([f"`{name}`", *measure(name)]))
                print(lines[-1], flush=True)
        print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return {title: "\n".join(lines) for title, lines in tables.items()}


def certificates_of_noise():
    """Measure the stochastic schemes, and return {title: Markdown table}."""
    tables = {}
    for title, (measure, columns) in noise.TABLES.items():
        began, lines = time.perf_counter(), header(columns.split(" | "))
        for cells in measure():
            lines.append(row(cells))
            print(lines[-1], flush=True)
        tables[title] = "\n".join(lines)
        print(f"{title}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return tables


# The comparison at long steps, and the picture.


def averaged_rk4(body, torque, t, state, dt, params):
    """Step as crazyflow and MJX do: Runge-Kutta for the rate, one exponential for the attitude.

    The exponential is that of the averaged rate.
    """

    def rate(t, q, omega):
        return jq.dynamics.derivative(body, torque, t, jq.State(q, omega), params).omega

    def turned(omega, h):
        return jq.quaternion.multiply(q, jq.quaternion.exp(h * omega))

    q, w1 = state.q, state.omega
    a1 = rate(t, q, w1)
    w2 = w1 + dt / 2 * a1
    a2 = rate(t + dt / 2, turned(w1, dt / 2), w2)
    w3 = w1 + dt / 2 * a2
    a3 = rate(t + dt / 2, turned(w2, dt / 2), w3)
    w4 = w1 + dt * a3
    a4 = rate(t + dt, turned(w3, dt), w4)
    q_end = jq.quaternion.correct_norm(turned((w1 + 2 * w2 + 2 * w3 + w4) / 6, dt))
    return jq.State(q_end, w1 + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4))


def cases():
    """Return {title: (body, torque, start, end of time, attitude there)}."""
    body = problems.reference_body()
    omega0 = jnp.asarray(problems.OMEGA0)
    known = {
        name: (body, torque, jq.State(jnp.asarray(q0), omega0), 10.0, jnp.asarray(q))
        for name, (torque, q0, q, _) in problems.REFERENCE.items()
    }
    fast = (problems.FAST, problems.FAST_TORQUE, problems.FAST_START, 1.0, problems.fast_end())
    state, torque = problems.prescribed(body, lambda t: coning(t, 0.6, 4.0))
    return known | {
        "fast heavy top": fast,
        "coning": (body, torque, state(0.0), 3.0, state(3.0).q),
    }


COMPARISON = "Lie RK4 against Formulations I and II"
LONG_STEPS = {"fast heavy top": (0.01,), "coning": (0.05, 0.3)}


def comparison():
    """Return the comparison of Terze, Mueller and Zlatar at long steps, as a Markdown table."""
    names = ("rkmk4", "formulation1", "formulation2")
    lines = header(["problem", "h", *names])
    for title, (body, torque, begin, end, q) in cases().items():
        marches = {name: problems.marcher(jq.schemes.SCHEMES[name], torque) for name in names}
        for h in LONG_STEPS.get(title, (0.5,)):
            n = round(end / h / 10) * 10
            ends = {name: march(body, begin, 0.0, end, n) for name, march in marches.items()}
            cells = [f"{angle(state, q):.2e}" for state in ends.values()]
            lines.append(row([title, f"{end / n:.3g}", *cells]))
            print(lines[-1], flush=True)
    return "\n".join(lines)


# Where a torque or a body needs care.

SWITCHES = "Torques that switch"
NEARLY_LINEAR = "Nearly linear bodies"
STIFF = "Strong drag"


def switches():
    """Return by how much of a step's impulse a torque that ends at 5 s is off, by ``rkmk4``.

    The body starts at rest and turns about a principal axis, so its momentum is the impulse.
    """
    torque, moment = jnp.array([0.0, 0.0, 0.3]), 1.0
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, moment]))
    begin = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))

    def cell(law, grid, h, inputs=None):
        end = jax.jit(lambda: jq.rollout(jq.rkmk4, body, law, begin, grid, inputs=inputs).final)()
        return f"{(moment * float(end.omega[2]) / float(torque[2]) - 5) / h + 0.0:.2g}"

    def until_5(t, state, params):
        return torque * (t < 5)

    def held(t, state, params, on):
        return torque * on

    lines = header(["5 s is", "h", "`u * (t < 5)`", "`inputs=`", "`inputs=` and `grid_at`"])
    for place, h, steps in (
        ("the end of a step", 0.1, 100),
        ("5/9 of a step", 0.09, 111),
        ("2/3 of a step", 0.03, 333),
    ):
        grid = jq.grid(0.0, h, steps)
        times = np.union1d(np.round(np.arange(steps + 1) * h, 12), 5.0)
        cells = [
            cell(until_5, grid, h),
            cell(held, grid, h, jnp.arange(steps) * h < 5 - 1e-9),
            cell(held, jq.grid_at(times), h, jnp.asarray(times[:-1] < 5)),
        ]
        lines.append(row([place, f"{h}", *cells]))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def nearly_linear():
    """Return the largest spin in 10 s about the axis of a moment 1e-4, the others 1: 0 is right.

    The bodies are 64, free, with rates across that axis.
    """
    names = ("no_squish", "no_squish_kl6", "symmetric_top", "rkmk4")
    lines = header(["axis", "rate [rad/s]", "h", *(f"`{name}`" for name in names)])
    angles = 0.1 + jnp.arange(64) * jnp.pi / 32
    for axis, rate, h in ((2, 1, 0.01), (2, 3, 0.01), (2, 3, 0.001), (1, 1, 0.01)):
        across = jnp.stack([rate * jnp.cos(angles), rate * jnp.sin(angles)], axis=1)
        omega = jnp.insert(across, axis, 0.0, axis=1)
        body = jq.Body.from_principal(jnp.ones(3).at[axis].set(1e-4))
        grid = jq.grid(0.0, h, round(10 / h))

        def spins(name, omega, body=body, grid=grid):
            begin = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), omega)
            return jq.rollout(
                jq.schemes.SCHEMES[name], body, jq.torques.zero, begin, grid
            ).state.omega

        fastest = {}
        for name in names:
            rates = jax.jit(jax.vmap(functools.partial(spins, name)))(omega)
            fastest[name] = float(jnp.abs(rates[..., axis]).max())
        cells = [f"{fastest[name]:.2g}" for name in names]
        lines.append(row([str(axis + 1), str(rate), str(h), *cells]))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def stiff():
    """Return errors of the attitude [rad] after 2 s under drag and a torque, in steps of 0.05 s.

    A dipole in a field, from rest. The reference is `rkmk4` in steps a tenth of the relaxation
    time, or for the shortest relaxation time the body without inertia.
    """
    damping = jnp.array([[1.2, 0.1, 0.0], [0.1, 0.8, 0.2], [0.0, 0.2, 1.0]])
    moments = jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]])
    begin = jq.State(jq.quaternion.exp(jnp.array([0.5, -0.8, 0.3])), jnp.zeros(3))

    def dipole(t, state, params):
        field = jq.quaternion.rotate_inverse(state.q, jnp.array([0.0, 0.6, 1.0]))
        return jnp.cross(jnp.array([0.3, -0.2, 0.5]), field)

    def end(scheme, torque, size, steps):
        body, grid = jq.Body(size * moments), jq.grid(0.0, 2.0 / steps, steps, save_every=steps)
        return jq.rollout(scheme, body, torque, begin, grid, options=BY_SCAN).final.q

    def terminal(t, q, params):
        return jnp.linalg.solve(damping, dipole(t, begin._replace(q=q), params))

    dragged = jq.torques.total(dipole, jq.torques.drag(damping))
    methods = {
        "`damp(no_squish)`": (jq.schemes.damp(jq.no_squish, damping), dipole),
        "`lie_midpoint`": (jq.schemes.lie_midpoint, dragged),
        "`rkmk4`": (jq.rkmk4, dragged),
    }
    ends = {
        name: jax.jit(functools.partial(end, *method), static_argnames="steps")
        for name, method in methods.items()
    }
    without_inertia = jax.jit(lambda: jq.kinematics.rollout_of_attitude(
        terminal, begin.q, jq.grid(0.0, 1e-3, 2000), order=6).q[-1])()  # fmt: skip
    lines = header(["x", *methods])
    for x in (0.01, 0.1, 1.0, 3.0, 10.0, 1e3, 1e8):
        size, reference, cells = 0.05 / x, without_inertia, []
        if x < 1e4:
            reference = ends["`rkmk4`"](size, steps=max(2000, round(20 / size)))
        for last_of in ends.values():
            error = float(jq.quaternion.distance(reference, last_of(size, steps=40)))
            cells.append(f"{error:.1e}" if error < 1.0 else "unstable")
        lines.append(row([f"{x:g}", *cells]))
        print(lines[-1], flush=True)
    return "\n".join(lines)


OTHERS = {  # tables without a row for each scheme
    SHORT: short_steps,
    SWITCHES: switches,
    NEARLY_LINEAR: nearly_linear,
    STIFF: stiff,
    COMPARISON: comparison,
}
PEERS = {"formulation2": "ambient RK4 + normalise"}  # a scheme, by the name of what peers do
MAIN = ("rkmk4", "rkmk6", "zhao", "symmetric_top_suzuki4", "formulation2", "averaged-rate RK4")
DRAWN = (*MAIN, "pcdm1", "formulation1", "symmetric_top_bm4")
REPEATS = 51  # of each run; the picture has the median of their times


def takes(name, title):
    """Return whether a method solves a case."""
    attitude_only = name in jq.schemes.SCHEMES and jq.schemes.SCHEMES[name].torques != "any"
    if title == "DRIVEN" and attitude_only:
        return False
    return name != "symmetric_top_bm4" or title == "fast heavy top"


def one_program(scheme, body, torque, chunk=10):
    """Return ``run(state, end, n)``, n steps from time 0 on in one program, whatever n is."""

    @jax.jit
    def run(state, end, n):
        dt = end / n

        def steps(k, state):
            grid = jq.grid(chunk * k * dt, dt, chunk, save_every=chunk)
            return jq.rollout(scheme, body, torque, state, grid, options=BY_SCAN).final

        return jax.lax.fori_loop(0, n // chunk, steps, state)

    return run


def work_and_errors(scheme, evaluations, body, torque, begin, end, q):
    """Return torque evaluations, processor times [s] and errors [rad], for six numbers of steps."""
    counts = end * 10.0 ** np.linspace(1.0, 2.6, 6) * (10 if end == 1.0 else 1)
    counts = 10 * np.unique(np.round(counts / 10).astype(int))
    run, points = one_program(scheme, body, torque), []
    for n in counts:
        error, seconds = angle(run(begin, end, n), q), []
        for _ in range(REPEATS):
            began = time.process_time()
            jax.block_until_ready(run(begin, end, n))
            seconds.append(time.process_time() - began)
        error = max(error, 1e-14) if np.isfinite(error) else np.inf
        points.append((n * evaluations, np.median(seconds), error))
    return np.array(points).T


def measured():
    """Return {title: {name of the method: (evaluations, seconds, errors)}}."""
    methods: dict[str, tuple[Any, Any]] = {"averaged-rate RK4": (averaged_rk4, 4)}
    for name in DRAWN:
        if name in jq.schemes.SCHEMES:
            methods[name] = (jq.schemes.SCHEMES[name], jq.schemes.SCHEMES[name].evaluations)
    curves = {}
    for title, (body, torque, begin, end, q) in cases().items():
        names = [name for name in DRAWN if takes(name, title)]
        case = (body, torque, begin, end, q)
        curves[title] = {name: work_and_errors(*methods[name], *case) for name in names}
        print(title, file=sys.stderr, flush=True)
    return curves


def draw_case(curves, names, panels):
    """Draw the errors of one problem against both kinds of work.

    Methods that do not take it get no curve; the others have the same colours with every problem.
    """
    for column, xlabel in enumerate(("torque evaluations", "processor time [s], one body")):
        for k, name in enumerate(names):
            curve = curves.get(name)
            work, errors = ([], []) if curve is None else (curve[column], curve[2])
            look = {"color": COLOURS[k % 6], "marker": "os^Dvx"[k % 6], "markersize": 5}
            dashes = ("-", "--", "-.")[k // 6 % 3]
            panels[column].loglog(work, errors, dashes, label=PEERS.get(name, name), **look)
        panels[column].set_xlabel(xlabel)
        panels[column].grid(alpha=0.3)
    panels[0].set_ylabel("rotation angle error [rad]")


def plot():
    """Draw docs/work_precision.png, one problem, and docs/work_precision_all.png, all of them."""
    curves = measured()
    pictures = {"work_precision": (MAIN, ["HEAVY"]), "work_precision_all": (DRAWN, [*curves])}
    for file, (names, titles) in pictures.items():
        size = (8.0, 0.9 + 3.0 * len(titles))
        figure = Figure(figsize=size, dpi=110, layout="constrained")
        rows = figure.subplots(len(titles), 2, sharey="row", squeeze=False)
        for title, panels in zip(titles, rows, strict=True):
            case = {name: curve for name, curve in curves[title].items() if name in names}
            draw_case(case, names, panels)
            panels[0].set_title(title, loc="left")
        lines = {line.get_label(): line for line in rows[0, 0].lines}
        look = {"ncols": 2 if len(lines) > 6 else 3, "frameon": False}
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", **look)
        figure.savefig(ROOT / "docs" / f"{file}.png")


# The program.


def write(tables, page):
    """Put the tables into a page of docs/ where it has them; rows of other schemes stay."""
    page = ROOT / "docs" / page
    text = page.read_text()
    for title, table in tables.items():
        above, heading, rest = text.partition(f"## {title}\n")
        if not heading:
            continue
        between, bar, rows = rest.partition("\n\n|")
        old, gap, below = (bar[2:] + rows).partition("\n\n")
        new = merged(old, table) if title in TABLES else table
        text = above + heading + between + "\n\n" + new + (gap or "\n") + below
    page.write_text(text)


def merged(old, new):
    """A table with the new rows in place of the old ones of their names, or at the end."""
    name = lambda row: row.split("|")[1].strip()  # noqa: E731
    head, rows = new.splitlines()[:2], {name(row): row for row in old.splitlines()[2:]}
    rows |= {name(row): row for row in new.splitlines()[2:]}
    return "\n".join([*head, *rows.values()])


def main():
    """Measure, print, and write and draw where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names, titles = list(jq.schemes.SCHEMES), [*TABLES, *OTHERS]
    parser.add_argument("--schemes", nargs="*", default=names, choices=names, metavar="NAME")
    parser.add_argument("--tables", nargs="*", default=titles, choices=titles, metavar="TITLE")
    parser.add_argument("--noise", action="store_true", help="measure the stochastic schemes")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    parser.add_argument("--plot", action="store_true", help="draw the two pictures")
    options = parser.parse_args()
    if options.noise:
        tables = certificates_of_noise()
        if options.write:
            write(tables, "noise.md")
        return
    tables = certificates(options.schemes, [title for title in options.tables if title in TABLES])
    tables |= {title: table() for title, table in OTHERS.items() if title in options.tables}
    if options.write:
        write(tables, "schemes.md")
    if options.plot:
        plot()


if __name__ == "__main__":
    main()
