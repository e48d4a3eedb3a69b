"""An asteroid that tumbles: its moments of inertia from seventeen radar pictures.

    python examples/toutatis.py

(4179) Toutatis passed the Earth in December 1992, and radar showed its attitude on seventeen days
(Y. Takahashi, M. W. Busch and D. J. Scheeres, Astron. J. 146, 2013, 95, table 1). It is a free body
that spins about its long axis while this axis precesses. The program flies it with the published
state, fits the attitude and the rate at the first picture and the two ratios of its moments by
``jq.least_squares``, and predicts the attitude in November 2008 with its standard error. Without
the torques of Earth and Sun that prediction is far from what radar saw. All is drawn to
toutatis.png.
"""

import datetime
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

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
MOMENTS = jnp.array([3.0836, 3.235])  # about the body axes 1 and 2; that about axis 3 is 1
STEP = 0.02  # days, at most


def read(lines):
    """Return days after the published state (n,), attitudes (n, 4) and rates [rad/day] (n, 3)."""
    day = datetime.timedelta(days=1)
    begin = datetime.datetime.fromisoformat(PUBLISHED.split()[0])
    rows = [line.split() for line in lines.strip().splitlines()]
    days = np.array([(datetime.datetime.fromisoformat(row[0]) - begin) / day for row in rows])
    numbers = jnp.deg2rad(jnp.array([[float(x) for x in row[1:]] for row in rows]))
    q = jax.vmap(lambda angles: jq.euler.to_quaternion(angles, "ZXZ"))(numbers[:, :3])
    return days, q, numbers[:, 3:]


DAYS, ATTITUDES, RATES = read(SEEN)


def flight(params, days):
    """Return the path of the free asteroid through these days (n,), from the first of them on."""
    moments = jnp.append(params["moments"], 1.0)
    body = jq.Body.from_principal(moments)
    start = jq.State(
        quaternion.multiply(params["q"], quaternion.exp(params["turn"])), params["rate"]
    )
    grid = jq.grid_at(days, substeps=int(np.ceil(np.diff(days).max() / STEP)))
    return jq.rollout(jq.rkmk4, body, jq.torques.zero, start, grid)


def missed(params):
    """Return the rotation vectors from the attitudes of a flight to those seen [rad], (17, 3)."""
    off = jax.vmap(quaternion.relative)(flight(params, DAYS).state.q, ATTITUDES)
    return quaternion.log(off)


def rms(params):
    """Return the root mean square of the angles between flight and pictures [deg]."""
    angles = jnp.linalg.norm(jax.jit(missed)(params), axis=1)
    return float(jnp.rad2deg(jnp.sqrt(jnp.mean(angles**2))))


def published():
    """Return the parameters of the published state, at the time of the first picture."""
    _, q, rate = read(PUBLISHED)
    params = {"moments": MOMENTS, "q": q[0], "turn": jnp.zeros(3), "rate": rate[0]}
    last = jax.jit(lambda: flight(params, np.linspace(0.0, DAYS[0], 24)).final)()
    return params | {"q": last.q, "rate": last.omega}


def fit(first):
    """Return the fit of moments, attitude and rate: eight numbers."""
    params = {"moments": first["moments"], "turn": first["turn"], "rate": first["rate"]}

    def residuals(params):
        return missed(params | {"q": first["q"]}).ravel()

    return jq.least_squares(residuals, params, progress=False)


def predict(estimate, first, days):
    """Return the attitudes (n, 4) at these days, and the standard errors of the angles [deg]."""

    def at_all(params):
        return flight(params | {"q": first["q"]}, days).state.q

    def turned(params):
        return quaternion.log(jax.vmap(quaternion.relative)(q, at_all(params)))

    q = jax.jit(at_all)(estimate.params)
    errors = estimate.predict(turned).standard_errors
    return q, np.rad2deg(np.linalg.norm(np.asarray(errors), axis=1))


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


def draw(estimate, first, errors):
    """Draw the long axis on the sky, the spin in the body, and the error of the prediction."""
    params = {**estimate.params, "q": first["q"]}
    days = np.linspace(DAYS[0], DAYS[-1], 400)
    path = jax.jit(lambda: flight(params, days))()
    figure = plt.figure(figsize=(12.5, 4.2), layout="constrained")
    sky: Any = figure.add_subplot(1, 3, 1, projection="polar")
    sky.plot(*long_axes(path.state.q), color=plot.COLOURS[0], lw=1.3, label="fitted")
    coloured = {"c": DAYS, "cmap": "plasma", "zorder": 3}
    sky.scatter(*long_axes(ATTITUDES), s=34, label="seen by radar", **coloured)
    sky.set_title("the long axis on the sky\n(angle from the ecliptic pole [deg])")
    sky.set_rlabel_position(250)
    sky.legend(loc="lower left", bbox_to_anchor=(-0.16, -0.14), frameon=False)

    spin = figure.add_subplot(1, 3, 2)
    moments = np.append(estimate.params["moments"], 1.0)
    omega = np.rad2deg(np.asarray(path.state.omega))
    size = np.sqrt(np.mean(omega**2 @ moments) / moments)  # of the ellipsoid of one energy
    circle, thin = np.linspace(0.0, 2.0 * np.pi, 200), {"color": "0.6", "lw": 0.6}
    for angle in np.linspace(0.0, np.pi, 12, endpoint=False):
        x, y, z = np.sin(angle), np.cos(angle), np.cos(angle) + 0.0 * circle
        around = np.stack([x * np.cos(circle), x * np.sin(circle), z], axis=1)
        along = np.stack([x * np.sin(circle), y * np.sin(circle), np.cos(circle)], axis=1)
        for points in (around, along):
            draw_on_ellipsoid(spin, size, size * points, **thin)
    draw_on_ellipsoid(spin, size, omega, color=plot.COLOURS[0], lw=2.0)
    for day, rate in zip((DAYS - DAYS[0]) / np.ptp(DAYS), np.rad2deg(RATES), strict=True):
        point = {"color": plt.get_cmap("plasma")(day), "marker": "o", "ms": 5}
        draw_on_ellipsoid(spin, size, np.asarray(rate)[None], **point)
    spin.set(aspect="equal", xticks=[], yticks=[])
    spin.set_title("the spin in the body, on the\nellipsoid of its energy")
    spin.set_axis_off()

    later = figure.add_subplot(1, 3, 3)
    later.semilogy(1992.92 + (errors[0] - DAYS[0]) / 365.25, errors[1], color=plot.COLOURS[1])
    later.axhline(180.0, color="0.6", lw=0.8)
    later.set(xlabel="year", ylabel="standard error of the attitude [deg]")
    later.set_title("what seventeen pictures say\nabout later years, without torques")
    later.spines[["top", "right"]].set_visible(False)
    figure.savefig("toutatis.png", dpi=125)


def main():
    """Fly, fit, predict, print, draw."""
    first = published()
    print(f"published state: {rms(first):.2f} deg rms from the seventeen pictures")
    estimate = fit(first)
    fitted = {**estimate.params, "q": first["q"]}
    print(f"fitted: {rms(fitted):.2f} deg rms")
    values, errors = estimate.params["moments"], estimate.standard_errors["moments"]
    for name, value, error in zip(("I1/I3", "I2/I3"), values, errors, strict=True):
        print(f"  {name} = {value:.2f} +- {error:.2f}")
    day, q, _ = read(LATER)
    days = np.concatenate([DAYS[:1], np.geomspace(1.0, day[0] - DAYS[0], 200) + DAYS[0]])
    predicted, spread = predict(estimate, first, days)
    matrices = [np.asarray(quaternion.to_matrix(x)) for x in (predicted[-1], q[0])]
    angles = np.rad2deg(np.arccos(np.clip(np.sum(matrices[0] * matrices[1], axis=0), -1.0, 1.0)))
    print(f"2008-11-23: standard error {spread[-1]:.0f} deg; the axes are off by", angles.round())
    flown = jax.jit(lambda: flight(first, np.array([DAYS[0], day[0]])).final.q)()
    matrix = np.asarray(quaternion.to_matrix(flown))
    angles = np.rad2deg(np.arccos(np.clip(np.sum(matrix * matrices[1], axis=0), -1.0, 1.0)))
    print("  with the published state:", angles.round())
    draw(estimate, first, (days, spread))


if __name__ == "__main__":
    main()
