"""An asteroid that tumbles for sixteen years, under the tides of Earth and Sun.

    python examples/toutatis.py

(4179) Toutatis passed the Earth in December 1992, and radar showed its attitude on seventeen days
(Y. Takahashi, M. W. Busch and D. J. Scheeres, Astron. J. 146, 2013, 95, table 1). It spins about
its long axis while this axis precesses. The program integrates its orbit, flies it under the
gravity gradients of Earth and Sun, fits the attitude and the rate at the first picture and the two
ratios of its moments by ``jq.least_squares``, and predicts the attitude in November 2008 with its
standard error. Seventeen pictures of sixteen days do not say how often it has turned until then,
with torques or without. With the picture of 2008 as an eighteenth the fit meets all of them, with
the number of turns that it begins with, which may not be the true one. All is drawn to
toutatis.png.
"""

import datetime
import os
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import jaxquat as jq
from jaxquat import plot, quaternion

matplotlib.use("Agg")
import matplotlib.pyplot as plt

jax.config.update("jax_enable_x64", True)

# UTC; Euler angles 3-1-3 from body to ecliptic axes [deg]; rates about body axes [deg/day].
SEEN = """
    1992-12-02T21:40  122.2  86.5 107.0  -35.6   7.2  -97.0
    1992-12-03T19:30   86.3  81.8  24.5  -16.4 -29.1  -91.9
    1992-12-04T18:10   47.8  60.7 284.0   29.1 -23.2  -97.8
    1992-12-05T18:50   14.6  39.4 207.1   33.3   8.2  -92.2
    1992-12-06T17:30  331.3  23.7 151.6    6.6  34.5  -95.8
    1992-12-07T17:20  222.5  25.4 143.9   12.8  25.4 -104.1
    1992-12-08T16:40  169.8  45.5 106.9  -31.1 -21.9  -97.7
    1992-12-09T17:50  137.3  71.3  22.3   11.8 -36.9  -94.9
    1992-12-10T17:20  103.1  85.2 292.6   35.8  -8.9  -97.9
    1992-12-11T09:40   77.0  85.7 225.5   31.0  17.0  -96.3
    1992-12-12T09:20   42.8  70.2 133.2   -1.3  37.0  -95.9
    1992-12-13T08:10   13.7  44.4  51.9  -38.3  17.9  -97.3
    1992-12-14T07:50  323.7  14.0   0.0  -70.5 -30.6  -91.1
    1992-12-15T07:50  193.2  24.4  21.4   22.1 -26.6  -96.6
    1992-12-16T07:10  165.1  46.4 310.6   33.4  -3.4  -93.7
    1992-12-17T06:49  130.6  76.1 234.9   12.6  33.9  -94.0
    1992-12-18T07:09   91.6  81.6 142.4  -24.3  29.6 -102.0
"""
LATER = "2008-11-23T10:45   86.2  85.0   0.3   -0.4 -36.2  -98.9"
PUBLISHED = "1992-11-09T17:49:47 145.498 65.865 241.524 14.51 33.529 -98.709"
BEGIN = datetime.datetime.fromisoformat(PUBLISHED.split()[0])
MOMENTS = jnp.array([3.0836, 3.235])  # about the body axes 1 and 2; that about axis 3 is 1
STEP = 0.02  # days, at most

# The orbit: ecliptic and equinox J2000, astronomical units and days, at 2001-10-18 (TDB, a minute
# from UTC, which makes no difference).
ORBIT_EPOCH = datetime.datetime(2001, 10, 18)
# Semi-major axis, eccentricity; inclination, node, argument of perihelion, mean anomaly [deg]: the
# osculating elements of the catalogue of Celestia 1.6 (data/asteroids.ssc).
ELEMENTS = 2.5100537, 0.6342274, 0.46959, 128.24788, 274.78070, 86.28120
# Masses [1/mass of the Sun], positions and velocities from the Sun, of JPL's ephemeris DE421 (W. M.
# Folkner, J. G. Williams and D. H. Boggs, IPN Progress Report 42-178, 2009); Earth with the Moon.
PLANETS = """
    408523.719 -0.6360685  0.3321053  0.0412544 -0.009448511 -0.018026780  0.000298902
    328900.56   0.9054605  0.4157560 -0.0000022 -0.007458840  0.015570575 -0.000000086
    3098703.59  1.2943588 -0.4814869 -0.0418952  0.005416351  0.014309849  0.000166632
    1047.34864 -0.3815363  5.1292782 -0.0127635 -0.007627635 -0.000203219  0.000171557
    3497.9018   3.1413927  8.5056106 -0.2729178 -0.005536811  0.001920859  0.000186790
"""
GM_SUN = 0.01720209895**2  # Gauss's constant [au^3/day^2]
GM_EARTH = GM_SUN / 328900.56
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.06), "frameon": False}  # a legend
EVERY = 0.25  # days, between the positions that torques interpolate


def read(lines):
    """Return days after the published state (n,), attitudes (n, 4) and rates [rad/day] (n, 3)."""
    day = datetime.timedelta(days=1)
    rows = [line.split() for line in lines.strip().splitlines()]
    days = np.array([(datetime.datetime.fromisoformat(row[0]) - BEGIN) / day for row in rows])
    numbers = jnp.deg2rad(jnp.array([[float(x) for x in row[1:]] for row in rows]))
    q = jax.vmap(lambda angles: jq.euler.to_quaternion(angles, "ZXZ"))(numbers[:, :3])
    return days, q, numbers[:, 3:]


DAYS, ATTITUDES, RATES = read(SEEN)
LATER_DAY, LATER_ATTITUDE, _ = read(LATER)
ROWS = np.concatenate([DAYS, np.linspace(DAYS[-1], LATER_DAY[0], 367)[1:]])  # at most 16 days apart
PUBLISHED_PARAMS = {"moments": MOMENTS, "turn": jnp.zeros(3)}
PUBLISHED_PARAMS |= dict(zip(("q", "rate"), (x[0] for x in read(PUBLISHED)[1:]), strict=True))


def kepler():
    """Return position (3,) and velocity (3,) of the asteroid from the Sun, from its elements."""
    a, e, *angles = ELEMENTS
    inclination, node, perihelion, mean = np.deg2rad(angles)
    anomaly = mean
    for _ in range(20):  # Newton's method for Kepler's equation
        anomaly -= (anomaly - e * np.sin(anomaly) - mean) / (1.0 - e * np.cos(anomaly))
    minor, cos, sin = a * np.sqrt(1.0 - e**2), np.cos(anomaly), np.sin(anomaly)
    speed = np.sqrt(GM_SUN / a**3) / (1.0 - e * cos)
    plane = np.array([[a * (cos - e), minor * sin, 0.0], [-a * sin, minor * cos, 0.0]])
    plane[1] *= speed
    q = jq.euler.to_quaternion(jnp.array([node, inclination, perihelion]), "ZXZ")
    return plane @ np.asarray(quaternion.to_matrix(q)).T


def orbits(days):
    """Return the positions (n, 3) [au] of the asteroid from the Earth and from the Sun.

    Sun, asteroid, and five planets attract each other as points; days (n,) are after the published
    state, in rising order. Mercury, Uranus and Neptune would change the position relative to the
    Earth by 0.1 %, Earth and Moon apart by 0.2 % in 2004, so a torque is wrong by less than 1 %.
    """
    rows = np.array([line.split() for line in PLANETS.strip().splitlines()], float)
    begin = np.concatenate([np.zeros((1, 2, 3)), kepler()[None], rows[:, 1:].reshape(-1, 2, 3)])
    mass = GM_SUN * np.concatenate([[1.0, 0.0], 1.0 / rows[:, 0]])

    def slope(_, state):
        x, v = state.reshape(2, -1, 3)
        between = x[None] - x[:, None]
        cubed = (np.sum(between**2, axis=2) + np.eye(len(x))) ** 1.5
        return np.concatenate([v, np.sum((mass / cubed)[..., None] * between, axis=1)]).ravel()

    after = (ORBIT_EPOCH - BEGIN) / datetime.timedelta(days=1)
    state = begin.transpose(1, 0, 2).ravel()
    parts = []
    for end, some in ((days[0], days < after), (days[-1], days >= after)):
        options = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-13, "dense_output": True}
        solution = solve_ivp(slope, (after, end), state, **options).sol
        parts.append(solution(days[some]).T.reshape(-1, 2, len(mass), 3)[:, 0])
    x = np.concatenate(parts)
    return x[:, 1] - x[:, 3], x[:, 1] - x[:, 0]


FROM_EARTH, FROM_SUN = map(jnp.asarray, orbits(np.arange(0.0, LATER_DAY[0] + EVERY, EVERY)))


def interpolated(table):
    """Return ``position(t)``, linear between the rows of a table (n, 3)."""

    def position(t):
        row = jnp.floor(t / EVERY)
        k = row.astype(int)
        return table[k] + (t / EVERY - row) * (table[k + 1] - table[k])

    return position


@jax.jit
def fly(params, days, tides):
    """Return the path of the asteroid through these days (n,), from the first of them on.

    Earth and Sun turn it with their gravity gradients, times ``tides``. A torque is in units of the
    moment about axis 3, as the moments are.
    """
    body = jq.Body.from_principal(jnp.append(params["moments"], 1.0))
    start = jq.State(
        quaternion.multiply(params["q"], quaternion.exp(params["turn"])), params["rate"]
    )
    torque = jq.torques.total(
        jq.torques.gravity_gradient(body, tides * GM_EARTH, interpolated(FROM_EARTH)),
        jq.torques.gravity_gradient(body, tides * GM_SUN, interpolated(FROM_SUN)),
    )
    grid = jq.grid_at(days, substeps=int(np.ceil(np.diff(ROWS).max() / STEP)))
    return jq.rollout(jq.rkmk4, body, torque, start, grid)


def flight(params, days=ROWS, tides=1.0):
    """Return the same; that all flights have as many rows makes them one program."""
    return fly(params, jnp.asarray(days), jnp.asarray(tides))


def missed(params, tides=1.0):
    """Return the rotation vectors from the attitudes of a flight to those seen [rad], (18, 3)."""
    q = flight(params, tides=tides).state.q
    q = jnp.concatenate([q[: len(DAYS)], q[-1:]])
    seen = jnp.concatenate([ATTITUDES, LATER_ATTITUDE])
    return quaternion.log(jax.vmap(quaternion.relative)(q, seen))


def rms(params, tides=1.0):
    """Return the root mean square of the angles to the pictures of 1992, and that to 2008 [deg]."""
    angles = np.rad2deg(np.linalg.norm(np.asarray(missed(params, tides)), axis=1))
    return np.sqrt(np.mean(angles[:-1] ** 2)), angles[-1]


def axes_off(q):
    """Return the angles between the three axes of this attitude and of that seen in 2008 [deg]."""
    flown, seen = (np.asarray(quaternion.to_matrix(x)) for x in (q, LATER_ATTITUDE[0]))
    return np.rad2deg(np.arccos(np.clip(np.sum(flown * seen, axis=0), -1.0, 1.0)))


def published(tides=1.0):
    """Return the parameters of the published state, moved to the time of the first picture."""
    last = flight(PUBLISHED_PARAMS, np.linspace(0.0, DAYS[0], len(ROWS)), tides).final
    return PUBLISHED_PARAMS | {"q": last.q, "rate": last.omega}


def fit(first, pictures):
    """Return the fit of moments, attitude and rate, eight numbers, to the first pictures of 18."""
    params = {"moments": first["moments"], "turn": first["turn"], "rate": first["rate"]}

    def residuals(params):
        return missed(params | {"q": first["q"]})[:pictures].ravel()

    return jq.least_squares(residuals, params, options=jq.LeastSquaresOptions(ftol=1e-5))


def moments_of(estimate):
    """Return the two ratios with their standard errors, as text."""
    values, errors = estimate.params["moments"], estimate.standard_errors["moments"]
    pairs = zip(("I1/I3", "I2/I3"), values, errors, strict=True)
    return ", ".join(f"{name} = {value:.2f} +- {error:.2f}" for name, value, error in pairs)


def predict(estimate, first, tides=1.0):
    """Return the standard errors of the attitude at the days ROWS [deg]."""

    def turned(params):
        q = flight(params | {"q": first["q"]}, ROWS, tides).state.q
        return quaternion.log(jax.vmap(quaternion.relative)(jax.lax.stop_gradient(q), q))

    errors = estimate.predict(turned).standard_errors
    return np.rad2deg(np.linalg.norm(np.asarray(errors), axis=1))


@jax.jit
@jax.vmap
def in_2008(params):
    """Return the attitude at the picture of 2008 for many parameters."""
    return flight(params).final.q


def draws(estimate, first, number=256):
    """Return attitudes of 2008 (number, 4) for parameters drawn from the errors of a fit."""
    values, unravel = ravel_pytree(estimate.params)
    root = estimate.covariance.root
    normals = np.random.default_rng(1).standard_normal((number, root.shape[1]))
    params = jax.vmap(unravel)(values + jnp.asarray(normals @ root.T))
    return in_2008(params | {"q": jnp.tile(first["q"], (number, 1))})


def long_axes(q):
    """Return longitudes [rad] and angles from the ecliptic pole [deg] of the long axes (n,)."""
    x, y, z = np.asarray(quaternion.to_matrix(q))[..., 2].T
    return np.arctan2(y, x), np.rad2deg(np.arccos(z))


def draw_on_ellipsoid(ax, size, points, **style):
    """Draw a curve (n, 3) on the ellipsoid with these semi-axes (3,); what is behind is faint."""
    right, up = np.array([-0.6, 0.0, -0.8]), np.array([0.32, 0.92, -0.24])
    nearer = points / size**2 @ np.cross(right, up) > 0
    for shown, alpha in ((nearer, 1.0), (~nearer, 0.25)):
        ax.plot(*np.where(shown, (points @ right, points @ up), np.nan), alpha=alpha, **style)


def angles_between(one, other):
    """Return the angles between attitudes, pair by pair [deg]."""
    turn = jax.vmap(lambda a, b: quaternion.log(quaternion.relative(a, b)))(one, other)
    return np.rad2deg(np.linalg.norm(np.asarray(turn), axis=1))


def encounters():
    """Return the days of the closest approaches to the Earth, and the distances [au]."""
    squared = np.sum(np.asarray(FROM_EARTH) ** 2, axis=1)
    before, here, after = squared[:-2], squared[1:-1], squared[2:]
    lowest = np.flatnonzero((here < before) & (here <= after) & (here < 0.1**2))
    before, here, after = before[lowest], here[lowest], after[lowest]
    slope, bend = (after - before) / 2.0, after - 2.0 * here + before  # of a parabola
    days = EVERY * (1.0 + lowest - slope / bend)
    return days, np.sqrt(here - slope**2 / (2.0 * bend))


def year(days):
    """Return the year of these days after the published state."""
    return 1992.0 + (BEGIN.timetuple().tm_yday + np.asarray(days)) / 365.25


def draw_december(figure, fitted):
    """Draw the long axis on the sky, and the spin in the body, seen and fitted, in 1992."""
    navy, red = plot.COLOURS[:2]
    path = flight(fitted, np.linspace(DAYS[0], DAYS[-1], len(ROWS)))
    sky: Any = figure.add_subplot(2, 2, 1, projection="polar")
    sky.plot(*long_axes(path.state.q), color=navy, lw=1.3, label="fitted")
    ends = long_axes(flight(fitted).state.q[: len(DAYS)]), long_axes(ATTITUDES)
    sky.plot(*np.stack(ends).transpose(1, 0, 2), color=red, lw=1.0)
    sky.plot(*long_axes(ATTITUDES), "o", color=red, ms=5, label="seen by radar")
    sky.set_title("December 1992: the long axis on the sky\n(angle from the ecliptic pole [deg])")
    sky.set_rlabel_position(250)
    sky.legend(**BELOW)

    spin = figure.add_subplot(2, 2, 2)
    moments = np.append(fitted["moments"], 1.0)
    omega = np.rad2deg(np.asarray(path.state.omega))
    size = np.sqrt(np.mean(omega**2 @ moments) / moments)  # of the ellipsoid of one energy
    circle, thin = np.linspace(0.0, 2.0 * np.pi, 200), {"color": navy, "lw": 0.3}
    for angle in np.linspace(0.0, np.pi, 12, endpoint=False):
        x, y, z = np.sin(angle), np.cos(angle), np.cos(angle) + 0.0 * circle
        around = np.stack([x * np.cos(circle), x * np.sin(circle), z], axis=1)
        along = np.stack([x * np.sin(circle), y * np.sin(circle), np.cos(circle)], axis=1)
        for points in (around, along):
            draw_on_ellipsoid(spin, size, size * points, **thin)
    draw_on_ellipsoid(spin, size, omega, color=navy, lw=2.0)
    for rate in np.rad2deg(RATES):
        draw_on_ellipsoid(spin, size, rate[None], color=red, marker="o", ms=5)
    spin.set(aspect="equal", xticks=[], yticks=[])
    spin.set_title("the spin in the body, on the\nellipsoid of its energy")
    spin.set_axis_off()


def draw_later(figure, errors, turned, cloud, flown, fitted_2008):
    """Draw what is known of later years, and of the picture of 2008."""
    navy, red, amber, teal = plot.COLOURS[:4]
    years = year(ROWS)
    later = figure.add_subplot(2, 2, 3)
    with_tides, without, with_2008 = errors
    later.semilogy(years, with_tides, color=navy, label="standard error, 17 pictures")
    later.semilogy(years, without, "--", color=navy, label="the same, without tides")
    later.semilogy(years, with_2008, color=teal, label="with the picture of 2008")
    later.semilogy(years, turned, color=red, lw=1.0, label="turned by the tides")
    later.axhline(180.0, color=navy, lw=0.5)
    for day, distance in zip(*encounters(), strict=True):
        later.axvline(year(day), color=amber, lw=1.0, zorder=0)
        place = (year(day) - 0.1, 0.12)
        later.annotate(f"{distance:.3f} au", place, rotation=90, ha="right", va="bottom")
    later.annotate("half a turn", (2008.9, 190.0), ha="right", va="bottom")
    later.set(xlabel="year", ylabel="angle [deg]", ylim=(0.1, 1e4), xlim=(1992.0, 2009.5))
    later.set_xticks(range(1992, 2009, 4))
    later.set_title("what the pictures say of later years\n(vertical: encounters with the Earth)")
    later.legend(ncols=2, **BELOW | {"bbox_to_anchor": (0.5, -0.12)})
    later.spines[["top", "right"]].set_visible(False)

    sky: Any = figure.add_subplot(2, 2, 4, projection="polar")
    sky.plot(*long_axes(cloud), ".", color=navy, ms=4, label="17 pictures allow")
    for q, marker, name in zip(flown, "x+", ("with", "without"), strict=True):
        label = f"published state, {name} tides"
        sky.plot(*long_axes(q[None]), marker, color=red, ms=10, mew=2, label=label)
    sky.plot(*long_axes(LATER_ATTITUDE), "*", color=amber, ms=17, mec=navy, label="seen by radar")
    options = {"color": teal, "ms": 17, "mew": 1.5, "mfc": "none", "label": "fitted to 18 pictures"}
    sky.plot(*long_axes(fitted_2008), "o", **options)
    sky.set_title("23 November 2008: the long axis on the sky")
    sky.set_rlabel_position(250)
    sky.legend(ncols=2, **BELOW)


def main():
    """Fly, fit, predict, print, draw."""
    passes = "  ".join(
        f"{BEGIN + datetime.timedelta(days=day):%Y-%m-%d} {distance:.4f}"
        for day, distance in zip(*encounters(), strict=True)
    )
    print(f"closest to the Earth [au]: {passes}")
    first = published()
    print(f"published state: {rms(first)[0]:.2f} deg rms from the seventeen pictures")
    estimate = fit(first, 17)
    fitted = {**estimate.params, "q": first["q"]}
    print(f"fitted: {rms(fitted)[0]:.2f} deg rms; {moments_of(estimate)}")
    second = fit(fitted, 18)
    whole = {**second.params, "q": first["q"]}

    print("2008-11-23, angles of the three axes from those seen [deg]:")
    flown = []
    for tides, name in ((1.0, "with"), (0.0, "without")):
        flown.append(flight(published(tides), tides=tides).final.q)
        print(f"  published state, {name} the tides:", axes_off(flown[-1]).round())
    errors = [predict(estimate, first, tides) for tides in (1.0, 0.0)]
    for tides, name, error in zip((1.0, 0.0), ("with", "without"), errors, strict=True):
        off = axes_off(flight(fitted, tides=tides).final.q).round()
        print(f"  fitted, {name} the tides: {off}, standard error {error[-1]:.0f}")
    errors.append(predict(second, first))
    near, later = rms(whole)
    print(f"  fitted to that picture, too: {later:.1f}, standard error {errors[-1][-1]:.1f}")
    print(f"    {near:.2f} deg rms from the pictures of 1992; {moments_of(second)}")
    turned = angles_between(flight(whole).state.q, flight(whole, tides=0.0).state.q)
    before = turned[np.searchsorted(ROWS, encounters()[0][3]) - 1]
    print(f"the tides turn it by {before:.0f} deg until 2004-09, {turned[-1]:.0f} until 2008-11")

    figure = plt.figure(figsize=(11.0, 10.5), layout="constrained")
    draw_december(figure, fitted)
    cloud = draws(estimate, first)
    draw_later(figure, errors, turned, cloud, flown, flight(whole).final.q[None])
    figure.savefig("toutatis.png", dpi=85)


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
