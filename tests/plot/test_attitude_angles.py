"""Euler angles against time: their numbers, names and looks, and where the curves are broken."""

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxquat as jq

mpl.use("Agg")
from jaxquat import plot


def about(axis, angles):
    """A path that turns about a coordinate axis by these angles [deg], a row a second."""
    half = np.deg2rad(angles) / 2
    q = np.zeros((len(half), 4))
    q[:, 0], q[:, 1 + "xyz".index(axis)] = np.cos(half), np.sin(half)
    return jq.Path(jnp.arange(float(len(half))), jq.State(jnp.asarray(q), jnp.zeros((len(q), 3))))


def drawn(ax):
    """The numbers of the lines by their names, (n, 3) altogether."""
    return {line.get_label(): line.get_ydata() for line in ax.lines}


@pytest.mark.parametrize(("axis", "name"), [("z", "yaw"), ("x", "roll")])
def test_a_turn_is_an_angle_that_is_broken_between_180_and_minus_180(axis, name):
    """By 50 deg a row it is 150 at row 3 and 200, that is -160, at row 4; the others are 0."""
    ax = plot.euler_angles(about(axis, 50.0 * np.arange(7)))
    values = drawn(ax)
    assert list(values) == ["yaw", "pitch", "roll"]
    wanted = [0, 50, 100, 150, np.nan, -160, -110, -60]
    for other, angles in values.items():
        np.testing.assert_allclose(angles, wanted if other == name else np.zeros(8), atol=1e-9)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 1, 2, 3, 4, 4, 5, 6])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_in_a_loop_no_line_joins_the_sides_of_gimbal_lock(dtype):
    """The pitch of a turn about y by 8 deg a row is 8 k, from 90 deg on 180 - 8 k.

    There yaw and roll change by a half turn, which no line shows.
    """
    path = about("y", 8.0 * np.arange(40))
    state = path.state._replace(q=path.state.q.astype(dtype))
    values = drawn(plot.euler_angles(jq.Path(path.t, state)))
    for angles in values.values():
        steps = np.abs(np.diff(angles))
        assert np.nanmax(steps) < 8.001
    pitch = np.rad2deg(np.arcsin(np.sin(np.deg2rad(8.0 * np.arange(40)))))
    kept = np.append(True, np.diff(values["pitch"]) != 0)  # rows are twice at a jump
    np.testing.assert_allclose(values["pitch"][kept], pitch, atol=1e-3)
    turned = np.abs(values["yaw"][np.isfinite(values["yaw"])])
    assert set(np.round(turned)) == {0.0, 180.0}


def test_a_fast_change_near_the_lock_is_no_jump():
    """Past the lock by 5 deg yaw changes by most of a half turn, which rows 0.2 deg apart show.

    The attitude is pitch(t) and then a bank of 5 deg to the side of it.
    """
    pitch = np.deg2rad(np.arange(60.0, 120.0, 0.2))
    bank = Rotation.from_euler("X", 5, degrees=True)
    q = (bank * Rotation.from_euler("Y", pitch[:, None])).as_quat()[:, [3, 0, 1, 2]]
    path = jq.Path(jnp.arange(float(len(q))), jq.State(jnp.asarray(q), jnp.zeros((len(q), 3))))
    values = drawn(plot.euler_angles(path))
    assert all(np.all(np.isfinite(angles)) for angles in values.values())
    assert np.ptp(values["yaw"]) > 150


@pytest.mark.parametrize(
    ("order", "names", "colours"),
    [
        ("ZXZ", ["1st about body z", "2nd about body x", "3rd about body z"], [2, 0, 3]),
        ("xyz", ["1st about world x", "2nd about world y", "3rd about world z"], [0, 1, 2]),
        ("YXZ", ["1st about body y", "2nd about body x", "3rd about body z"], [1, 0, 2]),
    ],
)
def test_other_orders_are_named_by_their_axes_and_are_those_of_scipy(order, names, colours):
    """Angles about x, y and z have the colours of these axes; no two look the same."""
    rng = np.random.default_rng(0)
    turns = Rotation.from_rotvec(np.cumsum(0.05 * rng.normal(size=(50, 3)), axis=0) + 0.8)
    q = turns.as_quat()[:, [3, 0, 1, 2]]
    path = jq.Path(jnp.arange(50.0), jq.State(jnp.asarray(q), jnp.zeros((50, 3))))
    ax = plot.euler_angles(path, order)
    values = drawn(ax)
    assert list(values) == names
    wanted = turns.as_euler(order, degrees=True)
    np.testing.assert_allclose(np.stack(list(values.values()), -1), wanted, atol=1e-10)
    assert [line.get_color() for line in ax.lines] == [plot.COLOURS[k] for k in colours]
    assert ax.get_ylabel() == "Euler angle [deg]"


def test_an_attitude_that_is_lost_is_a_gap():
    path = about("x", 10.0 * np.arange(6))
    q = path.state.q.at[2].set(jnp.nan)
    values = drawn(plot.euler_angles(jq.Path(path.t, path.state._replace(q=q))))
    np.testing.assert_allclose(values["roll"], [0, 10, np.nan, 30, 40, 50], atol=1e-9)
