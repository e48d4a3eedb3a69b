"""The field against the official program, the Sun against an almanac, shadows by tracing rays."""

import datetime
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT
from marks import some

import jaxquat as jq
from jaxquat import environment, quaternion
from jaxquat.dynamics import igrf
from jaxquat.dynamics.environment import _days, _height, _sun

EPOCH = datetime.datetime(2026, 3, 20, 12)
PLACE = np.array([-3.1e6, 4.9e6, 3.6e6])
# Year, distance from the centre [km], colatitude, longitude [deg]; north, east, down [nT]: by the
# official program igrf14syn (test/IGRF14_test_geocentric.txt of the Julia package
# SatelliteToolboxGeomagneticField 1.3.0), and the last four by ppigrf 2.1.0.
CENTRIC = np.array(
    [
        [1900.0, 6610.46, 68.00, 165.11, 27405.59329, 3074.66838, 17132.54518],
        [1914.7, 7383.70, 17.72, 54.39, 6897.54460, 877.72025, 35611.59066],
        [1951.8, 7370.86, 20.85, 338.08, 6015.74268, -3108.11885, 34529.90243],
        [1955.1, 6469.45, 49.09, 46.84, 23775.96209, 1982.61524, 39454.78664],
        [1981.6, 6788.01, 73.92, 225.53, 24324.39524, 4513.16697, 17735.53536],
        [2004.0, 6673.27, 51.52, 11.31, 22745.08267, 269.34493, 31278.63714],
        [2018.4, 6538.36, 33.93, 54.66, 14525.28391, 3416.90654, 48737.96633],
        [2027.9, 6518.00, 45.06, 138.29, 23401.96250, -4296.86589, 42525.97951],
        [1965.0, 7200.00, 95.00, 200.00, 23007.33031, 4281.50906, -4190.33468],
        [2010.0, 6600.00, 179.00, 10.00, 11235.93069, -9245.36923, -46378.45302],
        [2025 + 182.5 / 365, 6878.00, 120.00, -60.00, 14764.43872, -2503.53230, -11062.38736],
        [2028.0, 6878.00, 150.00, 135.00, 2583.69706, 595.33934, -51718.82881],
    ]
)
# As above, with heights above the ellipsoid and geodetic axes (IGRF14_test_geodetic.txt).
GEODETIC = np.array(
    [
        [1971.9, 372.19, 4.23, 244.39, -1032.48029, 117.36753, 48759.11091],
        [1990.6, 34.18, 34.51, 24.06, 16779.17251, 1244.60056, 46474.73203],
        [2012.2, 77.18, 4.81, 190.69, 750.03774, 394.68103, 55395.16588],
        [2015.4, 102.02, 0.18, 144.10, -1181.36633, 1162.36891, 54316.84382],
        [2022.1, 829.10, 46.47, 114.85, 17590.40262, -1731.07191, 33147.28408],
        [2027.0, 101.99, 68.54, 277.27, 24647.90876, -2283.98317, 29268.17197],
    ]
)
FIELD, SLOPES, env = jax.jit(igrf.field), jax.jit(jax.jacfwd(igrf.field, 2)), environment
DENSITY = jax.jit(environment.density)
SUNLIGHT = jax.jit(lambda t, places: environment.sunlight(EPOCH, t, places))


def date(year):
    first, last = (datetime.datetime(int(year) + k, 1, 1) for k in (0, 1))
    return first + (last - first) * (year - int(year))


def axes(colatitude, longitude):
    """Rows north, east and down, in Earth-fixed axes."""
    c, s = np.cos(np.deg2rad(colatitude)), np.sin(np.deg2rad(colatitude))
    x, y = np.cos(np.deg2rad(longitude)), np.sin(np.deg2rad(longitude))
    return np.array([[-c * x, -c * y, s], [-y, x, 0.0], [-s * x, -s * y, -c]])


def geodetic(height, colatitude, longitude):
    """The Earth-fixed place [m] of a height above WGS 84."""
    a, b = 6378137.0, 6356752.314245
    down = axes(colatitude, longitude)[2]
    scale = np.diag([a * a, a * a, b * b])
    return -scale @ down / np.sqrt(down @ scale @ down) - height * down


@pytest.mark.parametrize(("dtype", "error"), [(jnp.float64, 0.07), (jnp.float32, 0.1)])
def test_the_field_is_that_of_the_official_program(dtype, error):
    """In nT; the program itself has constants of the ellipsoid and dates in single precision."""
    for rows, place in ((CENTRIC, None), (GEODETIC, geodetic)):
        for year, height, colatitude, longitude, *right in rows:
            frame = axes(colatitude, longitude)
            here = -1e3 * height * frame[2]
            if place:
                here = place(1e3 * height, colatitude, longitude)
            gauss = igrf.coefficients(_days(date(year)), 13)
            field = FIELD(gauss, jnp.zeros((), dtype), jnp.asarray(here, dtype))
            assert field.dtype == dtype
            np.testing.assert_allclose(1e9 * frame @ np.asarray(field), right, rtol=0, atol=error)


def test_the_field_in_inertial_axes_is_that_of_the_place_below():
    """At an epoch in 2022.1 and 5000 s later, when the Earth has turned under the inertial axes."""
    year, height, colatitude, longitude, *right = GEODETIC[4]
    frame, fixed = axes(colatitude, longitude), geodetic(1e3 * height, colatitude, longitude)
    field = jax.jit(lambda t, place: environment.magnetic_field(date(year), t, place))
    for t in (0.0, 5000.0):
        turn = environment.earth_attitude(date(year), t)
        there = field(t, quaternion.rotate(turn, jnp.asarray(fixed)))
        north_east_down = 1e9 * frame @ np.asarray(quaternion.rotate_inverse(turn, there))
        np.testing.assert_allclose(north_east_down, right, rtol=0, atol=0.1)


def test_the_secular_variation_is_the_difference_of_two_epochs():
    """The coefficients are linear in time, so a day later is a day later, to rounding."""
    gauss, later = (igrf.coefficients(_days(EPOCH) + days, 13) for days in (0.0, 1.0))
    place = jnp.asarray(PLACE)
    change = FIELD(gauss, jnp.asarray(86400.0), place) - FIELD(gauss, jnp.asarray(0.0), place)
    right = FIELD(later, jnp.asarray(0.0), place) - FIELD(gauss, jnp.asarray(0.0), place)
    assert 1e-11 < np.linalg.norm(right) < 1e-9  # T, tens of nT in a year
    np.testing.assert_allclose(change, right, rtol=1e-3, atol=1e-17)  # years of 365 days


def test_the_dipole_is_tilted_to_the_first_three_coefficients():
    """B = 3 (m.u) u - m, in units of (a/r)^3, with m = (g11, h11, g10) of 2025 [nT]."""
    m, r = np.array([-1410.3, 4545.5, -29350.0]), np.linalg.norm(PLACE)
    u = PLACE / r
    gauss = igrf.coefficients(_days(datetime.datetime(2025, 1, 1)), 1)
    field = 1e9 * FIELD(gauss, jnp.asarray(0.0), jnp.asarray(PLACE))
    np.testing.assert_allclose(field, (6.3712e6 / r) ** 3 * (3 * m @ u * u - m), rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "error", "degree"),
    some(
        [("float64", 1e-13, 5), ("float64", 1e-13, 13), ("float32", 1e-5, 13)],
        quick=[("float64", 1e-13, 5)],
    ),
)
@pytest.mark.parametrize("place", [PLACE, [0.0, 0.0, 6.9e6], [0.0, 0.0, -6.5e6]])
def test_the_field_has_neither_divergence_nor_curl(place, dtype, error, degree):
    """Also on the axis of the Earth, where longitudes have no meaning."""
    gauss, zero = igrf.coefficients(_days(EPOCH), degree), jnp.zeros((), dtype)
    slopes = SLOPES(gauss, zero, jnp.asarray(place, dtype))
    size = np.abs(slopes).max()
    assert 1e-12 < size < 1e-10  # T/m
    np.testing.assert_allclose(np.trace(slopes), 0, atol=error * size)
    np.testing.assert_allclose(slopes, np.transpose(slopes), rtol=0, atol=error * size)


@pytest.mark.parametrize("degree", some([3, 13], [3]))
def test_the_gradient_of_the_field_is_that_of_differences(degree):
    def field(t, place):
        return 1e9 * environment.magnetic_field(EPOCH, t, place, degree)

    field = jax.jit(field)
    by_time, by_place = jax.jit(jax.jacfwd(field, (0, 1)))(100.0, PLACE)
    at = lambda t, place: np.asarray(field(t, place))
    for k, step in enumerate(100.0 * np.eye(3)):
        slope = (at(100.0, PLACE + step) - at(100.0, PLACE - step)) / 200.0
        np.testing.assert_allclose(
            by_place[:, k], slope, rtol=0, atol=1e-9 * np.abs(by_place).max()
        )
    slope = (at(101.0, PLACE) - at(99.0, PLACE)) / 2.0
    np.testing.assert_allclose(by_time, slope, rtol=1e-6)


def test_functions_broadcast():
    t, places = np.arange(2.0)[:, None] * 60.0, np.stack([PLACE, -PLACE, 1.1 * PLACE])
    together = SUNLIGHT(t, places), DENSITY(places)
    fields = jax.jit(lambda t, x: environment.magnetic_field(EPOCH, t, x, 2))
    assert fields(t, places).shape == (2, 3, 3)
    np.testing.assert_allclose(fields(t, places)[1, 2], fields(60.0, places[2]), rtol=1e-12)
    assert (together[0].shape, together[1].shape) == ((2, 3), (3,))
    assert jax.eval_shape(lambda t: environment.sun_direction(EPOCH, t), t).shape == (2, 1, 3)


# The mean equinox of date, in UTC: directions and distances [AU] of the apparent Sun, by astropy
# 8.0.2 (get_sun, transformed to PrecessedGeocentric).
SUN = {
    "1905-07-01T00:00": ([-0.1473325, 0.9073871, 0.3936265], 1.01674591),
    "1950-01-01T00:00": ([0.173748, -0.9034827, -0.3918297], 0.98324362),
    "1975-10-10T06:30": ([-0.9596438, -0.2580084, -0.1118727], 0.99863834),
    "1992-10-13T00:00": ([-0.9402747, -0.3123254, -0.1354117], 0.99760834),
    "2000-01-01T12:00": ([0.1800521, -0.9024894, -0.3912725], 0.98332767),
    "2010-04-05T18:00": ([0.9620452, 0.250375, 0.108542], 1.00049420),
    "2020-11-21T03:00": ([-0.5111196, -0.7885994, -0.3418591], 0.98785641),
    "2026-03-20T12:00": ([0.99999794, -0.001862833, -0.00080586753], 0.99588574),
    "2029-08-15T21:45": ([-0.8021506, 0.5478655, 0.2374821], 1.01267932),
}


@pytest.mark.parametrize("when", SUN)
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_the_sun_is_where_an_almanac_has_it(when, dtype):
    """To 0.01 degrees and 1e-4 of the distance, at the epoch and from half a day before it."""
    (right, distance), exact = SUN[when], datetime.datetime.fromisoformat(when)
    for hours in (0.0, 12.0):
        epoch, t = exact - datetime.timedelta(hours=hours), jnp.asarray(3600.0 * hours, dtype)
        direction = np.asarray(environment.sun_direction(epoch, t), float)
        assert np.rad2deg(np.linalg.norm(np.cross(direction, right))) < 0.01
        assert direction @ right > 0
        far = _sun(_days(epoch), t)[1] * 6378137.0 / 1.495978707e11
        np.testing.assert_allclose(far, distance, rtol=1e-4)


def test_the_earth_turns_by_sidereal_time():
    """Meeus, Astronomical Algorithms, examples 12.a and 12.b, in hours, minutes and seconds."""
    for day, t, (h, m, s) in ((0.0, 0.0, (13, 10, 46.3668)), (0.0, 69660.0, (8, 34, 57.0896))):
        epoch = datetime.datetime(1987, 4, 10) + datetime.timedelta(days=day)
        for turn in (
            environment.earth_attitude(epoch, t),
            environment.earth_attitude(epoch + datetime.timedelta(seconds=t), 0.0),
        ):
            x = quaternion.rotate(turn, jnp.array([1.0, 0.0, 0.0]))
            angle = np.arctan2(x[1], x[0]) % (2 * np.pi)
            np.testing.assert_allclose(angle, (h + m / 60 + s / 3600) * np.pi / 12, atol=1e-8)


def test_epochs_are_dates_or_julian_dates():
    utc = datetime.datetime(2026, 3, 20, 12, tzinfo=datetime.UTC)
    east = utc.astimezone(datetime.timezone(datetime.timedelta(hours=2)))
    by_date, julian = environment.earth_attitude(EPOCH, 0.0), 2461120.0
    for epoch in (utc, east, julian):
        np.testing.assert_allclose(environment.earth_attitude(epoch, 0.0), by_date, atol=1e-12)


# Shadow.


def behind(angle, radius=6.878e6):
    """A place [m] whose direction has this angle [rad] from that away from the Sun."""
    sun = np.asarray(environment.sun_direction(EPOCH, 0.0))
    across = np.cross(sun, [0.0, 0.0, 1.0])
    across /= np.linalg.norm(across)
    return radius * (np.sin(angle) * across - np.cos(angle) * sun)


def traced(place, n=500):
    """The fraction of rays from a place to the Sun's disc that miss the sphere of the Earth."""
    sun, distance = _sun(_days(EPOCH), jnp.asarray(0.0))
    centre = np.asarray(sun) * float(distance) * 6378137.0
    to_sun = centre - place
    u = np.cross(to_sun, [0.0, 0.0, 1.0])
    u /= np.linalg.norm(u)
    v = np.cross(to_sun, u) / np.linalg.norm(to_sun)
    x, y = np.meshgrid(*[(np.arange(n) + 0.5) / n * 2 - 1] * 2)
    disc = x * x + y * y < 1.0
    rays = to_sun + 6.957e8 * (x[disc][:, None] * u + y[disc][:, None] * v)
    rays /= np.linalg.norm(rays, axis=1)[:, None]
    along = -rays @ place
    nearest = np.sqrt(np.maximum(place @ place - along**2, 0.0))
    return np.mean((along < 0) | (nearest > 6378137.0))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_half_shadow_is_that_of_rays(dtype):
    """The library takes both discs for flat, which costs 1e-3."""
    edge = np.arcsin(6378137.0 / 6.878e6)
    angles = edge + np.array([-0.006, -0.0045, -0.003, -0.0015, 0.0, 0.0015, 0.003, 0.0045, 0.006])
    places = np.stack([behind(angle) for angle in angles])
    light = SUNLIGHT(jnp.zeros((), dtype), jnp.asarray(places, dtype))
    right = [traced(place) for place in places]
    assert right[0] == 0.0 and right[-1] == 1.0 and 0.4 < right[4] < 0.6  # noqa: PT018
    np.testing.assert_allclose(light, right, rtol=0, atol=2e-3)
    assert light[0] == 0 and light[-1] == 1  # noqa: PT018


def test_the_shadow_is_a_cone():
    """At its tip both discs are equal; behind it a ring of the Sun is left."""
    distance = float(_sun(_days(EPOCH), jnp.asarray(0.0))[1]) * 6378137.0
    tip = distance * 6378137.0 / (6.957e8 - 6378137.0)
    light = SUNLIGHT(0.0, np.stack([behind(0.0, r) for r in (0.999 * tip, 2.0 * tip)]))
    assert light[0] == 0.0
    size = np.arcsin(6378137.0 / (2 * tip)) / np.arcsin(6.957e8 / (distance + 2 * tip))
    np.testing.assert_allclose(light[1], 1.0 - size**2, rtol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_light_has_derivatives_everywhere(dtype):
    """In half-shadow those of differences; 0 in the light and in the middle of the shadow."""
    light = jax.jit(jax.value_and_grad(lambda x: environment.sunlight(EPOCH, 0.0, x)))
    edge = np.arcsin(6378137.0 / 6.878e6)
    for angle in (0.0, edge - 0.1, np.pi / 2, np.pi):
        value, slope = light(jnp.asarray(behind(angle), dtype))
        assert value in (0.0, 1.0)
        np.testing.assert_array_equal(slope, 0.0)
    place, step = behind(edge + 0.001), 50.0
    _, slope = light(jnp.asarray(place, dtype))
    if dtype == jnp.float64:
        for k, unit in enumerate(np.eye(3)):
            far, near = (light(jnp.asarray(place + x * unit))[0] for x in (step, -step))
            np.testing.assert_allclose(slope[k], (far - near) / (2 * step), rtol=1e-3, atol=1e-9)
    exact = light(jnp.asarray(place))[1]
    np.testing.assert_allclose(slope, exact, rtol=0, atol=2e-3 * np.abs(exact).max())


# Air.


def test_density_is_that_of_the_table_and_hardly_jumps():
    """Where a row ends, the next begins within 0.7 %; in float32 within 1e-4 of float64."""
    rows = {
        0: 1.225,
        110: 9.661e-8,
        200: 2.789e-10,
        400: 3.725e-12,
        500: 6.967e-13,
        1000: 3.019e-15,
    }
    up = np.array([1.0, 0.0, 0.0])
    for height, right in rows.items():
        for dtype, error in ((jnp.float64, 1e-9), (jnp.float32, 3e-4)):
            place = jnp.asarray((6378137.0 + 1e3 * height + 1e-3) * up, dtype)
            np.testing.assert_allclose(DENSITY(place), right, rtol=max(error, 1e-6))
        if height:
            below = DENSITY((6378137.0 + 1e3 * height - 1e-3) * up)
            np.testing.assert_allclose(below, right, rtol=7e-3)
    beyond = DENSITY((6378137.0 + 1268e3) * up)
    np.testing.assert_allclose(beyond, 3.019e-15 / np.e, rtol=1e-12)
    value, slope = jax.jit(jax.value_and_grad(environment.density))(6.878e6 * up)
    np.testing.assert_allclose(slope[0] / value, -1 / 60.828e3, rtol=1e-9)


@pytest.mark.parametrize("colatitude", [0.0, 30.0, 45.0, 89.0, 90.0, 140.0, 180.0])
def test_heights_are_those_above_the_ellipsoid(colatitude):
    for height in (-100.0, 0.0, 5e5, 2e6):
        found = _height(jnp.asarray(geodetic(height, colatitude, 20.0)))
        np.testing.assert_allclose(found, height, rtol=6e-6, atol=1e-3)


# Orbits.


@pytest.mark.parametrize("eccentricity", [0.0, 0.1, 0.7, 0.95, 0.99])
def test_an_orbit_obeys_newton_and_has_its_elements(eccentricity):
    a, mu = 4.2e7, 3.986004418e14
    orbit = environment.kepler_orbit(
        a, 1.1, eccentricity=eccentricity, ascending_node=0.7, perigee=2.0, anomaly=-0.3
    )
    slopes = jax.jit(jax.vmap(lambda t: jax.jvp(orbit, (t,), (jnp.ones_like(t),))))
    period = 2 * np.pi * np.sqrt(a**3 / mu)
    (x, v), (dx, dv) = slopes(jnp.linspace(0.0, period, 200))
    x, v, far = np.asarray(x), np.asarray(v), np.linalg.norm(x, axis=1)
    np.testing.assert_allclose(dx, v, rtol=1e-9, atol=1e-9 * np.abs(v).max())
    pull = -mu * x / far[:, None] ** 3
    np.testing.assert_allclose(dv, pull, rtol=1e-8, atol=1e-9 * np.abs(pull).max())
    np.testing.assert_allclose(x[-1], x[0], atol=1e-6 * a)
    energy, momentum = 0.5 * np.sum(v * v, axis=1) - mu / far, np.cross(x, v)
    np.testing.assert_allclose(energy, -0.5 * mu / a, rtol=1e-10)
    normal = np.array([np.sin(0.7) * np.sin(1.1), -np.cos(0.7) * np.sin(1.1), np.cos(1.1)])
    size = np.sqrt(mu * a * (1 - eccentricity**2))
    np.testing.assert_allclose(momentum, np.tile(size * normal, (200, 1)), atol=1e-9 * size)
    if eccentricity:
        towards = np.cross(v[0], momentum[0]) / mu - x[0] / far[0]  # the perigee
        node = np.array([np.cos(0.7), np.sin(0.7), 0.0])
        right = np.cos(2.0) * node + np.sin(2.0) * np.cross(normal, node)
        np.testing.assert_allclose(towards, eccentricity * right, atol=1e-9)
        passes, _ = orbit(0.3 / np.sqrt(mu / a**3))
        np.testing.assert_allclose(passes, a * (1 - eccentricity) * right, atol=1e-7 * a)


def test_an_orbit_carries_a_gravity_gradient():
    """A circular one: the torque is that of the position in ``torques``."""
    orbit = environment.kepler_orbit(6.9e6, 0.9)
    body = jq.Body(jnp.diag(jnp.array([1.0, 2.0, 2.5])))
    state = jq.State(quaternion.exp(jnp.array([0.3, 0.2, 0.1])), jnp.zeros(3))
    torque = jq.torques.gravity_gradient(body, position=lambda t: orbit(t)[0])
    place = orbit(700.0)[0]
    here = state._replace(position=place, velocity=orbit(700.0)[1])
    right = jq.torques.gravity_gradient(body)(0.0, here, None).torque
    np.testing.assert_allclose(torque(700.0, state, None), right, rtol=1e-12)


# Declination.


def test_declination_is_that_of_the_official_program(monkeypatch):
    """Also Punta Arenas in 1950, 17.16 degrees by the official program."""
    monkeypatch.setattr(igrf, "field", FIELD)  # compiled once for all dates
    for year, height, colatitude, longitude, north, east, _ in GEODETIC:
        angle = environment.declination(
            date(year), np.deg2rad(90 - colatitude), np.deg2rad(longitude), 1e3 * height
        )
        np.testing.assert_allclose(angle, np.arctan2(east, north), rtol=0, atol=1e-4)
    punta = environment.declination(date(1950.0), np.deg2rad(-53.16), np.deg2rad(-70.91))
    np.testing.assert_allclose(np.rad2deg(punta), 17.16, atol=0.005)


def test_the_line_of_its_docstring_turns_to_true_north():
    """Body forward to magnetic north; after the turn it points north by the declination east."""
    angle = 0.3
    magnetic = quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 2]))  # forward is magnetic north
    turn = quaternion.exp(jnp.array([0.0, 0.0, -angle]))
    forward = quaternion.rotate(quaternion.multiply(turn, magnetic), jnp.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(forward, [np.sin(angle), np.cos(angle), 0.0], atol=1e-15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of astrojax: it asks for float64
def test_the_recipe_with_two_line_elements_runs_in_the_axes_of_the_environment():
    """Earth-fixed positions are those of astrojax, and an orbit takes a day over 15.2."""
    astrojax = pytest.importorskip("astrojax", reason="no astrojax is installed")
    page, names = (ROOT / "docs" / "control.md").read_text(), {}
    code = re.findall(r'```python title="two_line_elements.py"\n(.*?)```', page, re.DOTALL)[0]
    astrojax.set_dtype(jnp.float64)
    with jax.numpy_dtype_promotion("standard"):
        exec(code, names)
        t = jnp.linspace(0.0, 6000.0, 7)
        fixed = jax.vmap(names["satellite"].state_itrf)(t)[:, :3]
        turned = quaternion.rotate(env.earth_attitude(EPOCH, t), fixed)
        places = jax.vmap(names["orbit"])(t)
        np.testing.assert_allclose(turned, places, atol=0.01)
        final = names["path"](jnp.array([0.0, 0.0, 0.01])).final
    assert not np.array_equal(final.omega, [0.0, 0.01, 0.0])
    assert abs(np.linalg.norm(final.q) - 1.0) < 1e-12


# Errors.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: env.sun_direction(2026.2, 0.0), r"^epoch: wanted a datetime or Julian d"),
        (lambda: env.sun_direction(datetime.datetime(1899, 12, 31), 0.0), r"^epoch: .*1899"),
        (lambda: env.sun_direction(datetime.datetime(2030, 1, 2), 0.0), r"^epoch: .*2030"),
        (lambda: env.sun_direction(EPOCH, 1.3e8), r"^t: wanted times from 1900 to 2030, got"),
        (lambda: env.density(np.array([6.37e6, 0, 0])), r"^position: wanted heights above"),
        (lambda: env.magnetic_field(EPOCH, 0.0, 6e-3 * PLACE), r"^position: wanted heights"),
        (lambda: env.magnetic_field(EPOCH, 0.0, np.zeros(3)), r"^position: wanted heights"),
        (lambda: env.magnetic_field(EPOCH, 0.0, PLACE, 14), r"^degree: wanted at most 13"),
        (lambda: env.declination(EPOCH, 47.4, 0.1), r"^latitude: wanted up to pi/2 rad"),
        (lambda: env.kepler_orbit(7e6, eccentricity=1.0), r"^eccentricity: wanted a number"),
    ],
)  # fmt: skip
def test_what_the_models_do_not_cover_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_places_written_inside_of_jit_are_checked():
    with pytest.raises(ValueError, match=r"^position: wanted heights above the ground"):
        jax.jit(lambda: env.density(np.array([6e6, 0.0, 0.0])))()
