"""Spin a free body in MuJoCo, MJX and jaxquat: errors, energy, momentum, and steps a second.

    pip install mujoco mujoco-mjx
    python benchmarks/free_body.py [--only errors] [--write]

The body is that of FREE (examples/validation/problems.py): moments 0.6, 0.8 and 1 kg m^2, without
torque, known in closed form. All programs run in float64. ``errors`` is the table of
docs/migration.md: the angle to the exact attitude after 10 s with two steps, its order, and how far
energy and momentum are from those of the start, after 10 s and after 1000 s. ``speed`` is that of
docs/performance.md, in millions of steps a second: of MuJoCo by ``mujoco.rollout`` on all cores, of
the others compiled by JAX. The last two columns are medians of ratios of neighbouring runs.
"""

import argparse
import os
import time
from functools import cache, partial
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco  # pyright: ignore[reportMissingImports]
import numpy as np
from mujoco import mjx  # pyright: ignore[reportMissingImports]
from mujoco import rollout as threads  # pyright: ignore[reportMissingImports]
from pages import put

import jaxquat as jq
from examples.validation import problems

jax.config.update("jax_enable_x64", True)

DOCS = Path(__file__).parents[1] / "docs"
INERTIA, OMEGA = problems.MOMENTS, problems.OMEGA0
ONE = np.array([1.0, 0.0, 0.0, 0.0])
STEPS = (0.01, 0.005)  # s
MODEL = """<mujoco><option timestep="{step}" integrator="{integrator}" gravity="0 0 0"/><worldbody>
<body><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.6 0.8 1"/></body></worldbody>
</mujoco>"""


@cache
def model(integrator, step):
    """Return MuJoCo's model of the body."""
    return mujoco.MjModel.from_xml_string(MODEL.format(integrator=integrator, step=step))


def by_mujoco(integrator, step, count):
    """Return attitude and rate after so many steps of MuJoCo."""
    data = mujoco.MjData(model(integrator, step))
    data.qpos[3:], data.qvel[3:] = ONE, OMEGA
    for _ in range(count):
        mujoco.mj_step(model(integrator, step), data)
    if data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number:  # it began anew
        return np.full(4, np.nan), np.full(3, np.nan)
    return data.qpos[3:], data.qvel[3:]


@cache
def mjx_program(integrator, step):
    """Return the compiled ``march(data, count)`` of MJX, and the data at the start."""
    on_device = mjx.put_model(model(integrator, step))
    data = mjx.make_data(on_device)
    data = data.replace(qpos=data.qpos.at[3:].set(ONE), qvel=data.qvel.at[3:].set(OMEGA))

    def march(data, count):
        return jax.lax.fori_loop(0, count, lambda _, now: mjx.step(on_device, now), data)

    return march, data


def by_mjx(integrator, step, count):
    """Return attitude and rate after so many steps of MJX."""
    march, data = mjx_program(integrator, step)
    data = jax.jit(march)(data, count)
    return data.qpos[3:], data.qvel[3:]


def by_jaxquat(scheme, step, count):
    """Return attitude and rate after so many steps."""
    start = jq.State(jnp.asarray(ONE), jnp.asarray(OMEGA))
    end = jax.jit(lambda: spun(scheme, "scan", step, count, start))()
    return end.q, end.omega


def spun(scheme, engine, step, count, start):
    """Return the last state of one body."""
    body, grid = problems.reference_body(), jq.grid(0.0, step, count, save_every=count)
    options = jq.RolloutOptions(engine=engine)
    return jq.rollout(scheme, body, jq.torques.zero, start, grid, options=options).final


ROWS = {
    "MuJoCo `Euler`": partial(by_mujoco, "Euler"),
    "MuJoCo `implicitfast`": partial(by_mujoco, "implicitfast"),
    "MuJoCo `RK4`": partial(by_mujoco, "RK4"),
    "MJX `Euler`": partial(by_mjx, "Euler"),
    "MJX `implicitfast`": partial(by_mjx, "implicitfast"),
    "MJX `RK4`": partial(by_mjx, "RK4"),
    "`rkmk4`": partial(by_jaxquat, jq.rkmk4),
    "`no_squish`": partial(by_jaxquat, jq.no_squish),
}


def drifts(q, omega):
    """Return the relative changes of the energy and of the momentum in the world."""
    omega = np.asarray(omega)
    momentum = np.asarray(jq.quaternion.rotate(jnp.asarray(q), jnp.asarray(INERTIA * omega)))
    energy = INERTIA @ omega**2 / (INERTIA @ OMEGA**2) - 1
    return energy, np.linalg.norm(momentum - INERTIA * OMEGA) / np.linalg.norm(INERTIA * OMEGA)


def errors():
    """Return the table of errors."""
    exact = jnp.asarray(problems.REFERENCE["FREE"][2])
    head = [f"error at h = {step:g} s [rad]" for step in STEPS]
    head += ["order", "energy", "momentum", "energy after 1000 s"]
    lines = [f"| integrator | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for name, march in ROWS.items():
        ends = [march(step, round(10 / step)) for step in STEPS]
        off = [float(jq.quaternion.distance(jnp.asarray(q), exact)) for q, _ in ends]
        energy, momentum = drifts(*ends[0])
        long = drifts(*march(STEPS[0], round(1000 / STEPS[0])))[0]
        cells = [*(f"{x:.1e}" for x in off), f"{np.log2(off[0] / off[1]):.2f}"]
        cells += [
            f"{energy:+.1e}",
            f"{momentum:.1e}",
            f"{long:+.1e}" if np.isfinite(long) else "diverges",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + f"\n\n{versions()}"


def programs(bodies, count):
    """Return functions that advance the bodies by so many steps, by name."""
    step, cores = STEPS[0], os.cpu_count() or 1
    draw = np.random.default_rng(0)
    omega = draw.normal(size=(bodies, 3))
    starts = jq.State(jnp.asarray(np.tile(ONE, (bodies, 1))), jnp.asarray(omega))
    runs = {}
    for integrator in ("implicitfast", "RK4"):
        one = model(integrator, step)
        data = [mujoco.MjData(one) for _ in range(min(cores, bodies))]
        states = np.zeros((bodies, mujoco.mj_stateSize(one, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        states[:, 4], states[:, -3:] = 1.0, omega  # time, position, attitude; two velocities
        runs[f"MuJoCo `{integrator}`"] = partial(
            threads.rollout, one, data, states, nstep=count, persistent_pool=True
        )
    march, data = mjx_program("RK4", step)
    each = jax.vmap(lambda omega: march(data.replace(qvel=data.qvel.at[3:].set(omega)), count).qpos)
    runs["MJX `RK4`"] = partial(jax.jit(each), starts.omega)
    for engine in ("scan", "fused"):
        fly = partial(spun, jq.rkmk4, engine, step, count)
        runs[f"`rkmk4`, {engine}"] = partial(jax.jit(jax.vmap(fly)), starts)
    return runs


def timed(run):
    """Return the seconds of a call."""
    began = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - began


def speed(turns=9):
    """Return the table of steps a second."""
    lines = []
    for bodies, count in ((1, 4000), (64, 1000), (1024, 250)):
        runs = programs(bodies, count)
        for run in runs.values():
            timed(run)  # compiles
        seconds = np.array([[timed(run) for run in runs.values()] for _ in range(turns)])
        times = dict(zip(runs, seconds.T, strict=True))
        rates = [bodies * count / np.median(x) / 1e6 for x in seconds.T]
        ratios = [
            np.median(times[name] / times["`rkmk4`, fused"])
            for name in ("MuJoCo `RK4`", "MJX `RK4`")
        ]
        if not lines:
            head = ["bodies", *runs, "fused / MuJoCo `RK4`", "fused / MJX `RK4`"]
            lines = [f"| {' | '.join(head)} |", "|---:" * len(head) + "|"]
        cells = [f"{x:.2g}" if x < 10 else f"{x:.0f}" for x in (*rates, *ratios)]
        lines.append(f"| {bodies} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + f"\n\n{versions()}"


def versions():
    """Return a sentence that names what was measured, and when."""
    names = ("mujoco", "mujoco-mjx", "jax")
    measured = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return f"With {measured}, in {time.strftime('%B %Y')}."


TABLES = {"errors": (errors, "migration.md"), "speed": (speed, "performance.md")}


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    options = parser.parse_args()
    for name in [options.only] if options.only else TABLES:
        measure, page = TABLES[name]
        text = measure()
        print(f"\n{text}\n", flush=True)
        if options.write:
            put(DOCS / page, f"<!-- free body: {name} -->", f"<!-- end of {name} -->", text)


if __name__ == "__main__":
    main()
