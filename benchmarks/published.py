"""Rebuild figures and tables of others, as far as public text allows: tables of docs/validation.md.

    python benchmarks/published.py [--only errors] [--write]

``--write`` puts the tables into the page. F. Zhao and B. G. M. van Wachem (Acta Mech. 224, 2013,
3091-3109) and Z. Terze, A. Mueller and D. Zlatar (Multibody Syst. Dyn. 38, 2016, 201-225) describe
their problems in full text and figures only. So the problems here are of the same kinds, with
bodies and torques of our own and exact motions where there are any: tables ``errors`` and
``constants``. A. Hoffmann's table (Application of Quaternions, 10.1) is rebuilt to every digit by
the functions of examples/validation/hoffmann.py: table ``hoffmann``.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pages import put

import jaxquat as jq
from jaxquat.schemes import formulations, munthe_kaas, pcdm

jax.config.update("jax_enable_x64", True)

import jeffery  # noqa: E402

from examples.validation import hoffmann as his  # noqa: E402
from examples.validation import problems  # noqa: E402
from examples.validation.tops import steady_precession  # noqa: E402

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "validation.md"
SCHEMES = ("zhao", "pcdm1", "rkmk4", "formulation1", "formulation2")
STEPS = (5, 10, 20, 40)  # a second
SHOWN = (0, -1)  # those of them that the page shows
SECONDS = jnp.arange(11.0)
ONE = jnp.array([1.0, 0.0, 0.0, 0.0])
UP = jnp.array([0.0, 0.0, 1.0])
NORMALISERS = {munthe_kaas: "correct_norm", pcdm: "correct_norm", formulations: "normalize"}


class Case(NamedTuple):
    """A body, the torque on it, and its State at all SECONDS."""

    body: jq.Body
    torque: Callable
    states: jq.State


# The problems.


def ellipsoid():
    """Return a body with the moments of an ellipsoid with semi-axes in the ratio 3 : 2 : 1."""
    return jq.Body.from_principal(jnp.array([0.5, 1.0, 1.3]))


def driven(body, attitude):
    """Return the case of a body whose torque is given in time, as its attitude is."""
    state, torque = problems.prescribed(body, attitude)
    return Case(body, torque, jax.vmap(state)(SECONDS))


def sphere():
    """Return a sphere that a torque turns to and fro about one axis."""
    body = jq.Body.from_principal(0.4 * jnp.ones(3))
    return driven(body, lambda t: jq.quaternion.exp((t + jnp.sin(2.0 * t)) * UP))


def free():
    """Return the ellipsoid without torque, at first nearly about its middle axis."""
    body, start = ellipsoid(), jq.State(ONE, jnp.array([0.3, 1.5, -0.4]))
    states = jax.vmap(lambda t: jq.exact.free_body(body, t, start))(SECONDS)
    return Case(body, jq.torques.zero, states)


def top():
    """Return a heavy top in steady precession."""
    body = jq.Body.from_principal(jnp.array([1.0, 1.0, 0.5]))
    states = jax.vmap(lambda t: steady_precession(body, 1.0, t, 1.0, 5.0))(SECONDS)
    return Case(body, jq.torques.heavy_top(1.0, UP), states)


def sheared():
    """Return a prolate spheroid 5 : 1 in simple shear, relaxation time x shear rate = 1.

    Its motion is that of 200 steps a second of ``rkmk6``; of half as many, it is the same to 1e-11.
    """
    body, damping = jeffery.heavy(1.0)
    rate = jq.flow.jeffery_rate(jeffery.spheroid(5.0), jeffery.SHEAR)
    torque = lambda t, state, params: damping * (rate(t, state) - state.omega)  # noqa: E731
    q = jq.quaternion.exp(jnp.array([0.4, 1.1, 0.0]))
    start = jq.State(q, rate(0.0, q))
    half, fine = (
        jq.rollout(jq.rkmk6, body, torque, start, jq.grid(0.0, 1 / n, 10 * n, save_every=n)).state
        for n in (100, 200)
    )
    assert float(jnp.max(jq.quaternion.distance(half.q, fine.q))) < 1e-11
    return Case(body, torque, fine)


FREE = "free ellipsoid"
CASES = {
    "driven sphere": sphere,
    "driven ellipsoid": lambda: driven(ellipsoid(), lambda t: problems.manufactured(t)[0]),
    FREE: free,
    "heavy top": top,
    "spheroid in shear": sheared,
}


# The tables.


def marched(case, name):
    """Yield the states at all seconds, for each number of steps."""
    march = problems.marcher(jq.schemes.SCHEMES[name], case.torque, chunk=5)
    for n in STEPS:
        states = [jax.tree.map(lambda x: x[0], case.states)]
        for k in range(len(SECONDS) - 1):
            states.append(march(case.body, states[-1], float(k), float(k + 1), n))
        yield jax.tree.map(lambda *x: jnp.stack(x), *states)


def table(columns, rows):
    """Return the lines of a table in Markdown."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (columns, *rows))
    return [head, "|" + "---|" * len(columns), *lines]


def errors():
    """Return the table of attitude errors against the step."""
    rows = []
    for title, make in CASES.items():
        case = make()
        for name in SCHEMES:
            if title == "spheroid in shear" and jq.schemes.SCHEMES[name].torques != "any":
                continue
            off = [
                float(jnp.max(jq.quaternion.distance(states.q, case.states.q)))
                for states in marched(case, name)
            ]
            order = np.log2(off[-2] / off[-1])
            shown = (f"{off[k]:.1e}" for k in SHOWN)
            rows.append([title, f"`{name}`", *shown, f"{order:.2f}"])
            print(title, name, *off, file=sys.stderr)
    steps = [f"h = {1 / STEPS[k]:g}" for k in SHOWN]
    return table(["problem", "scheme", *steps, "order"], rows)


def constants():
    """Return the table of what the free ellipsoid should keep."""
    case, rows = free(), []
    energy_of = jax.vmap(lambda state: jq.dynamics.energy(case.body, state))
    momentum_of = jax.vmap(lambda state: jq.dynamics.momentum(case.body, state))
    for name in SCHEMES:
        kept = list(marched(case, name))
        raws = list(without_normalising(case, name))
        for n, states, raw in [(STEPS[k], kept[k], raws[k]) for k in SHOWN]:
            energy, momentum = energy_of(states), momentum_of(states)
            turned = jnp.linalg.norm(momentum - momentum[0], axis=1) / jnp.linalg.norm(momentum[0])
            norm = jnp.linalg.norm(raw.q, axis=1)
            drifts = jnp.abs(energy / energy[0] - 1), turned, jnp.abs(norm - 1)
            cells = (f"{float(jnp.max(x)):.1e}" for x in drifts)
            rows.append([f"`{name}`", f"{1 / n:g}", *cells])
    return table(["scheme", "h", "energy", "momentum", "norm, never normalised"], rows)


def without_normalising(case, name):
    """Return what ``marched`` yields if the scheme leaves q as its formulas give it."""
    normalisers, left = {module: vars(module)[used] for module, used in NORMALISERS.items()}, []

    def leave(q):
        left.append(name)
        return q

    for module, used in NORMALISERS.items():
        vars(module)[used] = leave
    states = list(marched(case, name))
    for module, used in NORMALISERS.items():
        vars(module)[used] = normalisers[module]
    assert left, f"{name} was not traced anew"
    return states


def hoffmann():
    """Return Hoffmann's table, and what the schemes would have given otherwise."""
    inertia, start = np.asarray(his.BODY.inertia), (np.asarray(ONE), np.zeros(3))
    together = his.simultaneous(*start, inertia, lambda k, q: 5.0 * (k == 0) * np.ones(3), 0.1, 11)
    push = problems.marcher(jq.rkmk6, lambda t, state, params: 5.0 * jnp.ones(3))
    pushed = push(his.BODY, his.REST, 0.0, 0.1, 100)
    ends = {
        "Half-Quat, components one after the other": his.excited("half_quat").q[-1],
        "Half-Quat, components together": together,
        'Full-Quat, "manipulated"': his.excited("full_quat").q[-1],
        "Full-Quat, corrected": his.excited("full_quat_corrected").q[-1],
        "exact motion": jq.exact.free_body(his.BODY, 1.0, pushed).q,
    }
    printed = ["69.49, 17.12, 41.26", "", "65.56, 18.11, 38.64", "", ""]
    rows = [
        [name, *(f"{x:.4f}" for x in his.angles(jnp.asarray(q))), text]
        for (name, q), text in zip(ends.items(), printed, strict=True)
    ]
    return table(["[deg]", "φ", "θ", "ψ", "printed φ, θ, ψ"], rows)


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = {"hoffmann": hoffmann, "errors": errors, "constants": constants}
    parser.add_argument("--only", choices=tables)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args()
    for name in [options.only] if options.only else tables:
        text = "\n".join(tables[name]())
        print(f"{text}\n", flush=True)
        if options.write:
            begin, end = f"<!-- published: {name} -->", f"<!-- end of {name} -->"
            put(PAGE, begin, end, text)


if __name__ == "__main__":
    main()
