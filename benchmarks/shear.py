"""Measure a Brownian spheroid in a shear flow against the Fokker-Planck equation.

    python benchmarks/shear.py [--bodies 2000] [--write]

It prints three tables; ``--write`` puts those that docs/noise.md has into it. The flow is
``u_x = g y``, D is the diffusion coefficient of the spheroid's axis, and Pe is g/D. The axis
(x, y, z) is simulated with ``stochastic.brownian``; its distribution in theory is ``stationary`` of
examples/brownian.py, which has the derivation. Standard errors are those of independent bodies.

The intrinsic viscosity is the shear stress that spheroids add, per volume fraction, viscosity mu
of the fluid and g. A spheroid without torque resists the three parts of the rate of strain E,
along its axis n, between n and the plane across it, and in this plane, with 2 mu times X, Y and Z.
These are integrals of G. B. Jeffery, Proc. R. Soc. A 102, 1922, 161-179, here as by R. Simha,
J. Phys. Chem. 44, 1940, 25-34. Thermal torques turn it against the flow, which costs
``3 k T B n.E n`` of power per spheroid, with ``B = (r^2 - 1)/(r^2 + 1)`` (L. G. Leal and E. J.
Hinch, J. Fluid Mech. 46, 1971, 685-703). So the intrinsic viscosity is

    3 X <x^2 y^2> + Y <x^2 + y^2 - 4 x^2 y^2> + Z <z^2 + x^2 y^2> + 2 F <x y>/Pe,

``F = 3 B zeta/(2 mu V)``, with the volume V and the resistance zeta to turns of the axis. Without
flow, where ``<x y> = B Pe/30``, it is ``(X + 2 Y + 2 Z)/5 + F B/15``; Simha gives the limits of
thin rods and of flat discs. E. J. Hinch and L. G. Leal, J. Fluid Mech. 52, 1972, 683-712, give
those of strong flow, Pe much larger than ``r^3 + r^-3``. No public text has H. A. Scheraga's table
of Pe between (J. Chem. Phys. 23, 1955, 1526-1532).
"""

import argparse
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq
from examples import brownian as example

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "noise.md"
RATIOS, PECLETS = (10.0, 0.1), {0.1: 1e-2, 1.0: 1e-3, 10.0: 2e-4, 100.0: 4e-5}  # with steps [1/D]
LONG_STEPS = (0.2, 0.1, 0.05)  # g dt
ROWS, EVERY = 200, 250
EDGES = np.linspace(-90.0, 90.0, 19)  # deg, of the classes of the angle from the flow
MOMENTS = {
    "<x²>": lambda x, y, z: x * x,
    "<y²>": lambda x, y, z: y * y,
    "<xy>": lambda x, y, z: x * y,
}


def spheroid(ratio):
    """Return the semi-axes of a spheroid with its axis along body z."""
    return jnp.array([1.0, 1.0, ratio])


def resistances(ratio):
    """Return X, Y, Z and F of the head of the module."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    u, size = 0.5 * (nodes + 1), ratio ** (2 / 3)
    x, weights = size * (u / (1 - u)) ** 2, weights * size * u / (1 - u) ** 3

    def integral(across, along, power=0.0):
        return weights @ (x**power / ((x + 1) ** across * (x + ratio**2) ** along))

    plane = 1 / (ratio * integral(3, 0.5))
    axial = plane / 3 * (2 * integral(3, 0.5, 1) / integral(2, 1.5, 1) + 1)
    between = 2 / (ratio * (ratio**2 + 1) * integral(2, 1.5))
    zeta = float(jq.flow.rotational_resistance(spheroid(ratio), 1.0)[0])
    return axial, between, plane, 3 * shape(ratio) * zeta / (8 / 3 * np.pi * ratio)


def shape(ratio):
    """Return Bretherton's constant B of a spheroid."""
    return (ratio**2 - 1) / (ratio**2 + 1)


def viscosity_of(ratio, peclet):
    """Return the function of the axis whose mean is the intrinsic viscosity."""
    axial, between, plane, thermal = resistances(ratio)

    def viscosity(x, y, z):
        both = (x * y) ** 2
        strain = 3 * axial * both + between * (x * x + y * y - 4 * both) + plane * (z * z + both)
        return strain + 2 * thermal * x * y / peclet

    return viscosity


def simulate(bodies, ratio, peclet, step):
    """Return the axes (bodies, rows, 3) in the second half of the time, in steps of step/D."""
    keys = jax.random.split(jax.random.key(1955), bodies)
    axes = example.simulate(keys, spheroid(ratio), 1.0, peclet, step, ROWS, EVERY)
    return np.asarray(axes[:, ROWS // 2 :], float)


def beside(axes, distribution, moment):
    """Return a cell: the simulated mean, the error of its last digit, and the theory."""
    value, error = example.mean_and_error(moment(*np.moveaxis(axes, -1, 0)))
    digits = max(0, int(np.ceil(-np.log10(error))))
    exact = example.mean(distribution, moment)
    return f"{value:.{digits}f} ({error * 10**digits:.0f}), {exact:.{digits}f}"


def largest_deviation(axes, distribution):
    """Return the largest difference from theory in 18 classes of the angle, in standard errors."""
    angle, _ = example.folded(axes)
    shares = np.stack([np.histogram(row, EDGES)[0] / len(row) for row in angle])
    fine = EDGES[:-1, None] + np.arange(0.5, 10.0)  # middles of parts of 1 deg
    exact = example.density_of_angle(distribution, fine.ravel()).reshape(fine.shape).sum(axis=1)
    errors = np.std(shares, axis=0) / np.sqrt(len(shares))
    return np.max(np.abs(np.mean(shares, axis=0) - exact) / errors)


def distributions(bodies):
    """Return the rows of moments and viscosities."""
    rows = [
        f"| r | Pe | D dt | {' | '.join(MOMENTS)} | worst class | intrinsic viscosity |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ratio in RATIOS:
        for peclet, step in PECLETS.items():
            axes = simulate(bodies, ratio, peclet, step)
            exact = example.stationary(ratio, peclet)
            moments = [*MOMENTS.values(), viscosity_of(ratio, peclet)]
            cells = [beside(axes, exact, moment) for moment in moments]
            cells.insert(-1, f"{largest_deviation(axes, exact):.1f}")
            rows.append(f"| {ratio:g} | {peclet:g} | {step:g} | {' | '.join(cells)} |")
    return rows


def steps(bodies, ratio=10.0):
    """Return the rows of relative errors of <xy> in long steps."""
    rows = [
        f"| Pe | {' | '.join(f'g dt = {step:g}' for step in LONG_STEPS)} |",
        "|---|---|---|---|",
    ]
    moment = MOMENTS["<xy>"]
    for peclet in (10.0, 100.0):
        exact, cells = example.mean(example.stationary(ratio, peclet), moment), []
        for step in LONG_STEPS:
            axes = simulate(bodies, ratio, peclet, step / peclet)
            value, error = example.mean_and_error(moment(*np.moveaxis(axes, -1, 0)))
            cells.append(f"{100 * (value / exact - 1):.1f} % ({1000 * error / exact:.0f})")
        rows.append(f"| {peclet:g} | {' | '.join(cells)} |")
    return rows


def viscosity_of_simha(ratio):
    """Return the intrinsic viscosity without flow in the limit of thin rods, or of flat discs."""
    if ratio < 1:
        return 16 / (15 * ratio * np.arctan(1 / ratio))
    log = np.log(2 * ratio)
    return ratio**2 / (15 * log - 22.5) + ratio**2 / (5 * log - 2.5) + 14 / 15


def viscosity_of_hinch_and_leal(ratio):
    """Return the intrinsic viscosity in strong flow in the limit of thin rods, or of flat discs."""
    if ratio < 1:
        return 3.183 - 1.792 * ratio
    log = np.log(2 * ratio) - 1.5
    return 2 + (0.312 * ratio - 0.5) / log - 1.872 / ratio


def viscosities():
    """Return the rows of intrinsic viscosities in theory."""
    peclets = (1e-3, 1.0, 10.0, 100.0, 1e3, 1e5)
    names = " | ".join(f"Pe = {peclet:g}" for peclet in peclets[1:])
    rows = [f"| r | Simha | Pe = 0 | {names} | Hinch and Leal |", "|" + "---|" * 9]
    for ratio in (100.0, 20.0, 10.0, 5.0, 0.2, 0.1, 0.05, 0.01):
        cells = [viscosity_of_simha(ratio)]
        for peclet in peclets:
            distribution = example.stationary(ratio, peclet)
            cells.append(example.mean(distribution, viscosity_of(ratio, peclet)))
        cells.append(viscosity_of_hinch_and_leal(ratio))
        rows.append(f"| {ratio:g} | {' | '.join(f'{cell:#.4g}' for cell in cells)} |")
    return rows


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=2000)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/noise.md")
    options = parser.parse_args()
    text = PAGE.read_text()
    for measure in (
        viscosities,
        lambda: distributions(options.bodies),
        lambda: steps(options.bodies),
    ):
        table = "\n".join(measure())
        print(f"\n{table}", flush=True)
        # The header of a table says which one it is.
        old = re.escape(table.split("\n")[0]) + r"(?:\n\|[^\n]*)*"
        text = re.sub(old, lambda match, table=table: table, text)
    if options.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
