"""Rods that a flow turns and heat shakes: where do they point, and how fast do they diffuse?

    python examples/brownian.py [--bodies 2000]

Rods of 5 by 0.5 micrometres float in water of 20 degrees, in the shear flow ``u_x = g y``. Without
noise each stays on one of Jeffery's orbits. Thermal noise, with the diffusion coefficient D of the
axis, moves them from orbit to orbit, and they reach a distribution that depends on the Peclet
number Pe = g/D alone. The program simulates it with ``stochastic.brownian`` and compares it with
the solution of the Fokker-Planck equation (``stationary`` below).

Then it fits D to the tracks of 100 rods in 100 pictures: from one picture to the next Jeffery's
motion is known, so the difference is noise. All is drawn to brownian.png.
"""

import argparse
import math
import time
from functools import cache, partial

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import Normalize
from matplotlib.patheffects import withStroke

RATIO = 10.0  # of length to thickness
SEMI_AXES = jnp.array([0.25e-6, 0.25e-6, RATIO * 0.25e-6])  # m
VISCOSITY, HEAT = 1.0e-3, 1.380649e-23 * 293.15  # Pa s, J
PECLETS, STEPS = (1.0, 10.0, 100.0), (2e-3, 5e-4, 5e-5)  # a step is in units of 1/D
ROWS, EVERY = 100, 400
MAPPED = 1  # which of them is drawn as a distribution on the sphere
TRACKED = 3000.0  # the Peclet number of the track that is drawn
MOMENTS = {"n_x^2": lambda x, y, z: x * x, "n_x n_y": lambda x, y, z: x * y}
VIEW = np.deg2rad([-24.0, 20.0])  # azimuth and elevation


# Theory: the Fokker-Planck equation on the sphere.


def harmonics(degree, axes):
    """Return real spherical harmonics at unit vectors (N, 3): l (K,), m (K,), values (N, K).

    They are those of even l and m, even in z, up to the degree: what the distribution of an axis
    in a shear flow consists of. m < 0 are the sines.
    """
    x, y, z = axes.T
    around, first, table = np.ones_like(x + 1j), math.sqrt(1 / (4 * np.pi)), {}
    for m in range(0, degree + 1, 2):
        older, old = np.zeros_like(z), np.full_like(z, first * math.sqrt(2 if m else 1))
        for l in range(m, degree + 1):
            if l % 2 == 0:
                table[l, m] = old * around.real
                if m:
                    table[l, -m] = old * around.imag
            rise = math.sqrt((4 * (l + 1) ** 2 - 1) / ((l + 1) ** 2 - m * m))
            older, old = (
                old,
                rise * (z * old - math.sqrt((l * l - m * m) / (4 * l * l - 1)) * older),
            )
        around = around * (x + 1j * y) ** 2
        first *= math.sqrt((2 * m + 3) * (2 * m + 5) / ((2 * m + 2) * (2 * m + 4)))
    l, m = np.array(list(table)).T
    return l, m, np.stack(list(table.values()), axis=1)


@cache
def basis(degree):
    """Return nodes (N, 3) and weights (N,) of a quadrature on the sphere, and harmonics there.

    The nodes are on a quarter of the sphere and stand for all of it. The integrals of two harmonics
    and ``n_x n_y`` are exact.
    """
    n = degree + 2
    z, weights = np.polynomial.legendre.leggauss(n)
    z, phi = np.meshgrid(z[n // 2 :], np.pi * np.arange(n) / n, indexing="ij")
    around = np.sqrt(1 - z * z) * np.exp(1j * phi)
    axes = np.stack([around.real, around.imag, z], axis=-1).reshape(-1, 3)
    return axes, np.repeat(weights[n // 2 :], n) * 4 * np.pi / n, *harmonics(degree, axes)


def stationary(ratio, peclet, degree=60):
    """Return the coefficients (K,) of the stationary distribution in ``harmonics``.

    The axis n of a spheroid follows ``dn/dt = W n + B (E n - n (n.E n))`` with
    ``B = (r^2 - 1)/(r^2 + 1)`` (Jeffery 1922). The second part is ``B grad h`` with
    ``h = n.E n/2 = g n_x n_y/2``, a harmonic of degree 2, and ``2 grad f . grad h`` is
    ``lap(f h) - f lap h - h lap f``. In the stationary state the mean of
    ``D lap f + dn/dt . grad f`` is zero for each harmonic f, so

        (lap_i + Pe (turn_ij + B/2 (6 + lap_j - lap_i) h_ij)) c_j = 0,

    with ``lap = -l (l + 1)``, ``turn`` of the vorticity, and ``h_ij`` the integral of ``f_i h f_j``
    for g = 1. Row l = 0 is zero: no probability is lost, and c_0 makes it 1.
    """
    axes, weights, l, m, values = basis(degree)
    lap, shape = -l * (l + 1.0), (ratio**2 - 1) / (ratio**2 + 1)
    h = (values.T * (weights * axes[:, 0] * axes[:, 1] / 2)) @ values
    turn = 0.5 * m[:, None] * ((l[:, None] == l) & (m[:, None] == -m))
    drift = turn + 0.5 * shape * (6 + lap - lap[:, None]) * h
    matrix, first = np.diag(lap) + peclet * drift, math.sqrt(1 / (4 * np.pi))
    later = np.linalg.solve(matrix[1:, 1:], -first * matrix[1:, 0])
    return np.concatenate([[first], later])


def degree_of(coefficients):
    """Return the largest l."""
    return 2 * (math.isqrt(len(coefficients)) - 1)


def density(coefficients, axes):
    """Return the density [1/sr] at unit vectors (N, 3)."""
    return harmonics(degree_of(coefficients), axes)[2] @ coefficients


def mean(coefficients, function):
    """Return the mean of ``function(x, y, z)``, a polynomial that is even in z and in (x, y)."""
    axes, weights, *_, values = basis(degree_of(coefficients))
    return (weights * (values @ coefficients)) @ function(*axes.T)


def density_of_angle(coefficients, angle):
    """Return the density [1/deg] of the angle [deg] in the plane of the flow, modulo 180 deg."""
    z, weights = np.polynomial.legendre.leggauss(degree_of(coefficients) + 2)
    z, phi = np.meshgrid(z, np.deg2rad(angle), indexing="ij")
    around = np.sqrt(1 - z * z) * np.exp(1j * phi)
    axes = np.stack([around.real, around.imag, z], axis=-1).reshape(-1, 3)
    return weights @ density(coefficients, axes).reshape(z.shape) * np.pi / 90


# Simulation.


def axis_of(q):
    """Return the axis of the rod in the world."""
    return jq.quaternion.rotate(q, jnp.array([0.0, 0.0, 1.0]))


def shear_of(rate):
    """Return the velocity gradient of the flow ``u_x = rate y`` [1/s]."""
    return rate * jnp.zeros((3, 3)).at[0, 1].set(1.0)


@partial(jax.jit, static_argnames=("rows", "every"))
def simulate(keys, semi_axes, diffusivity, rate, dt, rows, every):
    """Return the axes (bodies, rows, 3) of spheroids, random at first, after each ``every`` steps.

    ``diffusivity`` [1/s] is that of the axis of a spheroid with its axis along body z.
    """

    def one(key):
        attitude, noise = jax.random.split(key)
        damping = jq.flow.rotational_resistance(semi_axes / semi_axes[0], 1.0)
        toward = jq.flow.jeffery_rate(semi_axes, shear_of(rate))
        return jq.rollout(
            jq.stochastic.brownian(damping, diffusivity * damping[0], toward),
            jq.Body.from_principal(jnp.ones(3)),  # not used: there is no inertia
            jq.torques.zero,
            jq.State(jq.quaternion.random(attitude), jnp.zeros(3)),
            jq.grid(0.0, dt, rows * every, save_every=every),
            noise=noise,
            options=jq.RolloutOptions(save=lambda t, state, *_: axis_of(state.q)),
        ).saved[1:]

    return jax.vmap(one)(keys)


def mean_and_error(values):
    """Return the mean of values (bodies, rows), and its standard error; bodies are independent."""
    means = np.mean(values, axis=1)
    return np.mean(means), np.std(means) / math.sqrt(len(means))


def fit_diffusivity(axes, rate, dt):
    """Fit the diffusion coefficient [1/s] to tracks (bodies, rows, 3). Return it and its error.

    Without noise an axis n would be at ``M n/|M n|`` after dt, with M the motion of a point in the
    flow ``W + B E`` (F. P. Bretherton, J. Fluid Mech. 14, 1962, 284-304). Noise turns it from there
    by an angle a with ``<cos a> = exp(-2 D dt)``; the relative error is of the order ``rate dt``.
    """
    phase = rate * dt * RATIO / (RATIO**2 + 1)
    moved = np.eye(3)
    moved[:2, :2] = [
        [np.cos(phase), RATIO * np.sin(phase)],
        [-np.sin(phase) / RATIO, np.cos(phase)],
    ]
    expected = axes[:, :-1] @ moved.T
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    away = 0.5 * np.sum((axes[:, 1:] - expected) ** 2, axis=-1)  # 1 - cos a
    error = np.std(away) / math.sqrt(away.size) / (2 * dt)
    return -np.log1p(-np.mean(away)) / (2 * dt), error


# The picture.


def camera():
    """Return the unit vectors (3, 3) to the right, upwards and towards the eye."""
    azimuth, elevation = VIEW
    c, s = np.cos(azimuth), np.sin(azimuth)
    towards = np.array([np.cos(elevation) * c, np.cos(elevation) * s, np.sin(elevation)])
    right = np.array([-s, c, 0.0])
    return np.stack([right, np.cross(towards, right), towards])


def draw_ball(ax, colour, pixels=640):
    """Draw the unit sphere; ``colour(axes)`` returns the colours (N, 3) of its points (N, 3)."""
    side = np.linspace(-1.01, 1.01, pixels)
    a, b = np.meshgrid(side, side)
    size = np.hypot(a, b)
    depth = np.sqrt(np.maximum(1 - size**2, 0.0))
    flat = np.stack([a, b, depth], axis=-1) / np.maximum(size, 1.0)[..., None]
    surface = colour(flat.reshape(-1, 3) @ camera()).reshape(pixels, pixels, 3)
    shaded = surface * (0.72 + 0.28 * depth[..., None])
    edge = np.clip((1.0 - size) * pixels / 2.02 + 0.5, 0.0, 1.0)
    ax.imshow(np.dstack([shaded, edge]), extent=(-1.01, 1.01) * 2, origin="lower", zorder=2)
    for name, end in zip(("flow", "gradient", "vorticity"), np.eye(3), strict=True):
        x, y, nearer = camera() @ np.outer(end, (1.0, 1.28))
        ax.plot(x, y, color="0.35", linewidth=1.0, zorder=3 if nearer[0] > 0 else 1)
        at = 1.1 * x[1], 1.1 * y[1]
        label = ax.text(*at, name, ha="center", va="center", fontsize=9, zorder=6)
        label.set_path_effects([withStroke(linewidth=2.5, foreground="w", alpha=0.85)])
    ax.set(xlim=(-1.3, 1.3), ylim=(-1.46, 1.36), aspect="equal")
    ax.set_axis_off()


def draw_line(ax, points, **style):
    """Draw a curve (N, 3) on the sphere; what is behind it is faint."""
    a, b, depth = camera() @ points.T
    for shown, order, alpha in ((depth > 0, 4, 1.0), (depth <= 0, 3, 0.16)):
        x, y = np.where(shown, (a, b), np.nan)
        ax.plot(x, y, zorder=order, alpha=alpha, solid_capstyle="round", **style)


def folded(axes):
    """Return the angle [deg], from -90 to 90, and the height |z| of axes, whose ends are alike."""
    angle = np.rad2deg(np.arctan2(axes[..., 1], axes[..., 0]))
    return (angle + 90.0) % 180.0 - 90.0, np.abs(axes[..., 2])


def draw_distribution(ax, axes, coefficients):
    """Draw the simulated density on the upper half of the sphere, the theory on the lower one."""
    angle, height = folded(axes.reshape(-1, 3))
    edges = np.linspace(-90, 90, 61), np.linspace(0, 1, 19)
    counts = np.histogram2d(angle, height, edges)[0] / angle.size
    simulated = counts / (4 * np.pi / counts.size)

    def values(n):
        above = n[:, 2] > 0
        angle, height = folded(n[above])
        row, column = np.digitize(angle, edges[0][1:-1]), np.digitize(height, edges[1][1:-1])
        result = np.empty(len(n))
        result[above], result[~above] = simulated[row, column], density(coefficients, n[~above])
        return result

    norm = Normalize(0.0, np.quantile(simulated, 0.995))
    magma = plt.get_cmap("magma")
    draw_ball(ax, lambda n: magma(norm(values(n)))[:, :3])
    circle = np.linspace(0, 2 * np.pi, 400)
    equator = np.stack([np.cos(circle), np.sin(circle), 0 * circle], axis=1)
    a, b, depth = camera() @ equator.T
    ax.plot(*np.where(depth > 0, (a, b), np.nan), color="w", linewidth=0.8, zorder=4)
    return plt.cm.ScalarMappable(norm, magma)


def draw(simulated, theories, orbits, track, text):
    """Draw orbits and a track, the distribution on the sphere, and that of the angle."""
    figure = plt.figure(figsize=(12.0, 4.1), layout="constrained")
    still, noisy, angles = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 1.15))
    draw_ball(still, lambda n: np.full((len(n), 3), 0.96))
    for orbit in orbits:
        draw_line(still, orbit, color=plot.COLOURS[0], linewidth=1.2)
    draw_line(still, track, color=plot.COLOURS[1], linewidth=1.0)
    still.set_title(f"without noise (blue), at Pe = {TRACKED:g} (red)")
    still.text(0.0, -1.12, text, ha="center", va="top")
    shown = draw_distribution(noisy, simulated[MAPPED], stationary(RATIO, PECLETS[MAPPED], 30))
    bar = noisy.inset_axes((-0.8, -1.18, 1.6, 0.08), transform=noisy.transData)
    figure.colorbar(shown, cax=bar, location="bottom", label="density [1/sr]")
    noisy.set_title(f"Pe = {PECLETS[MAPPED]:g}: simulated above, theory below")
    edges, fine = np.linspace(-90, 90, 31), np.linspace(-90, 90, 361)
    for k, colour in enumerate((plot.COLOURS[3], plot.COLOURS[1], plot.COLOURS[0])):
        angle, _ = folded(simulated[k])
        rows = np.stack([np.histogram(row, edges, density=True)[0] for row in angle])
        middles, error = 0.5 * (edges[1:] + edges[:-1]), np.std(rows, axis=0) / len(rows) ** 0.5
        angles.plot(fine, density_of_angle(theories[k], fine), color=colour, linewidth=1.4)
        style = {"color": colour, "markersize": 4, "linewidth": 0, "elinewidth": 1}
        label = f"Pe = {PECLETS[k]:g}"
        angles.errorbar(middles, np.mean(rows, axis=0), error, fmt="o", label=label, **style)
    angles.set(xlabel="angle from the flow [deg]", ylabel="density [1/deg]")
    angles.set(xticks=(-90, -45, 0, 45, 90), xlim=(-90, 90), ylim=(0, None))
    angles.set_title("simulated (points) and theory (lines)")
    angles.legend(frameon=False)
    angles.spines[["top", "right"]].set_visible(False)
    figure.savefig("brownian.png", dpi=125)


def jeffery_orbits():
    """Return orbits (orbits, rows, 3) of rods without noise that start across the flow."""
    toward = jq.flow.jeffery_rate(SEMI_AXES, shear_of(1.0))
    turn = 2 * np.pi * (RATIO + 1 / RATIO)
    grid = jq.grid(0.0, turn / 2000, 2000)
    tilts = jnp.deg2rad(jnp.array([-90.0, -75.0, -45.0, -15.0]))

    def orbit(tilt):
        start = jq.quaternion.exp(jnp.stack([tilt, 0.0, 0.0]))
        return axis_of(jq.kinematics.rollout_of_attitude(toward, start, grid).q)

    return np.asarray(jax.jit(jax.vmap(orbit))(tilts))


def main():
    """Simulate, fit, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=2000)
    bodies = parser.parse_args().bodies
    true = HEAT / float(jq.flow.rotational_resistance(SEMI_AXES, VISCOSITY)[0])
    keys, began = jax.random.split(jax.random.key(1905), bodies), time.perf_counter()
    simulated, theories = [], []
    for peclet, step in zip(PECLETS, STEPS, strict=True):
        axes = simulate(keys, SEMI_AXES, true, peclet * true, step / true, ROWS, EVERY)
        simulated.append(np.asarray(axes, float)[:, ROWS // 2 :])
        theories.append(stationary(RATIO, peclet))
    seconds = time.perf_counter() - began
    print(f"{bodies} rods, {ROWS * EVERY} steps each at Pe 1, 10 and 100: {seconds:.1f} s")
    for peclet, axes, theory in zip(PECLETS, simulated, theories, strict=True):
        for name, moment in MOMENTS.items():
            value, error = mean_and_error(moment(*np.moveaxis(axes, -1, 0)))
            exact = mean(theory, moment)
            print(f"Pe {peclet:g}: <{name}> = {value:.4f} +- {error:.4f}, theory {exact:.4f}")
    rate, dt = 10.0 * true, 1e-3 / true
    tracks = simulate(
        jax.random.split(jax.random.key(1922), 100), SEMI_AXES, true, rate, dt / 10, 100, 10
    )
    value, error = fit_diffusivity(np.asarray(tracks, float), rate, dt)
    print(f"D = {value:.4f} +- {error:.4f} /s from 100 tracks, true {true:.4f} /s")
    text = f"fitted to 100 tracks: D = {value:.4f} ± {error:.4f} /s\ntrue: {true:.4f} /s"
    track = simulate(keys[3:4], SEMI_AXES, true, TRACKED * true, 2e-6 / true, 2000, 20)[0]
    draw(simulated, theories, jeffery_orbits(), np.asarray(track, float), text)
    print("drawn to brownian.png")


if __name__ == "__main__":
    main()
