"""The Earth of the check cases, and the agreement with NASA's simulators where their data are."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT

import jaxquat as jq
from examples.validation import check_cases as cases
from examples.validation import earth

DATA = ROOT.parent / "shared" / "data" / "nesc"
WGS84 = earth.Earth()


def test_gravity_is_the_gradient_of_its_potential():
    def potential(x):
        r = jnp.linalg.norm(x)
        legendre = 0.5 * (3 * (x[2] / r) ** 2 - 1)
        return WGS84.mu / r * (1 - WGS84.j2 * (WGS84.radius / r) ** 2 * legendre)

    x = jnp.array([4.1e6, -3.3e6, 3.9e6])
    np.testing.assert_allclose(WGS84.gravity(x), jax.jit(jax.grad(potential))(x), rtol=1e-13)


@jax.jit
def there_and_back(*place):
    slopes = jax.jacfwd(WGS84.position, (0, 1, 2))(*place)
    return WGS84.geodetic(WGS84.position(*place)), earth.north_east_down(*place[:2]), slopes


@pytest.mark.parametrize("place", [(0.0, 0.0, 9144.0), (0.7, -2.0, 0.0), (-1.5, 3.0, 30e3)])
def test_geodetic_coordinates_and_positions_invert_each_other(place):
    again, frame, slopes = there_and_back(*place)
    np.testing.assert_allclose(again, place, rtol=1e-14, atol=4e-9)
    # Down is where the altitude falls fastest, north is along the meridian.
    for axis, slope in zip(np.eye(3), slopes, strict=True):
        sign = -1 if axis[2] else 1
        got = jq.quaternion.rotate(frame, jnp.asarray(axis))
        np.testing.assert_allclose(got, sign * slope / np.linalg.norm(slope), atol=1e-12)


@pytest.mark.parametrize(
    ("geopotential", "temperature", "pressure"),
    [
        (0, 288.15, 101325.0),
        (11e3, 216.65, 22632.06),
        (20e3, 216.65, 5474.889),
        (32e3, 228.65, 868.0187),
        (47e3, 270.65, 110.9063),
        (71e3, 214.65, 3.956420),
    ],
)
def test_the_atmosphere_is_that_of_the_standard(geopotential, temperature, pressure):
    """US Standard Atmosphere 1976, table I, at the bases of the layers."""
    altitude = 6356766.0 * geopotential / (6356766.0 - geopotential)
    density, sound = earth.atmosphere(jnp.asarray(altitude))
    np.testing.assert_allclose(sound, np.sqrt(1.4 * earth.GAS * temperature), rtol=1e-9)
    np.testing.assert_allclose(density, pressure / (earth.GAS * temperature), rtol=2e-6)


def test_a_table_may_have_wind_and_another_earth():
    """In a wind that carries it, a body feels no force; a sphere has gravity of a point mass."""
    table = {
        "number": "x",
        "title": "adrift",
        "mass": 1.0,
        "inertia": [1.0, 1.0, 1.0],
        "area": 1.0,
        "altitude": 1000.0,
        "velocity": [30.0, 20.0, 0.0],
        "drag": 0.5,
        "wind": [[0.0, 30.0, 0.0, 0.0], [2000.0, 30.0, 40.0, 0.0]],
        "earth": {"rotation": 0.0, "flattening": 0.0, "j2": 0.0},
        "seconds": 0.1,
    }
    case = cases.Case(**json.loads(json.dumps(table)))
    body, start = cases.start_of(case)
    now = cases.situation(case, 0.0, start)
    np.testing.assert_allclose(now.flow, np.zeros(3), atol=1e-6)
    np.testing.assert_allclose(now.velocity / cases.FOOT, [30.0, 20.0, 0.0], atol=1e-9)
    tau, force = cases.acting(case)(0.0, start, None)
    r = WGS84.radius + 1000 * cases.FOOT
    np.testing.assert_allclose(np.linalg.norm(force), body.mass * WGS84.mu / r**2, rtol=1e-9)
    np.testing.assert_array_equal(tau, np.zeros(3))


def test_damping_relative_to_the_earth_leaves_a_body_at_rest_on_it_alone():
    spin = -np.rad2deg(WGS84.rotation)  # facing east, north is -y and the Earth turns about north
    rest = cases.BRICK | {"rates": (0.0, spin, 0.0), "euler": (90.0, 0.0, 0.0)}
    moments = {}
    for against in ("Earth", "inertial"):
        case = cases.Case("x", "at rest", **rest, damping=(-1.0, -1.0, -1.0), against=against)
        now = cases.situation(case, 0.0, cases.start_of(case)[1])
        np.testing.assert_allclose(now.flow, np.zeros(3), atol=1e-9)
        moments[against] = np.asarray(now.omega)
    np.testing.assert_allclose(moments["Earth"], np.zeros(3), atol=1e-18)
    np.testing.assert_allclose(moments["inertial"], [0.0, -WGS84.rotation, 0.0], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the histories of TM-2015-218675 in {DATA}")
def test_the_brick_is_where_the_two_best_simulators_have_it():
    rows = {row.quantity.name: row for row in cases.compared(cases.CASES[1], DATA)}
    for number in ("01", "04"):
        assert rows["Euler angles"].ours[number] < 1e-7
        assert rows["body rates"].ours[number] < 1e-9
    for name in ("altitude", "longitude", "velocity", "Euler angles", "body rates"):
        assert rows[name].ratio <= 3


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the histories of TM-2015-218675 in {DATA}")
def test_the_damped_brick_has_two_readings_and_each_has_its_simulators():
    """Euler angles [deg] after 30 s: the readings are 8.9e-2 apart, each within 5e-3 of its own."""
    for case, near, far in ((2, ("04",), ("05", "06")), (3, ("05", "06"), ("04",))):
        rows = cases.compared(cases.CASES[case], DATA)
        angles = next(row for row in rows if row.quantity.name == "Euler angles")
        assert all(angles.ours[number] < 5e-3 for number in near)
        assert all(0.085 < angles.ours[number] < 0.095 for number in far)
