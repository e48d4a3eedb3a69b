"""Pictures: the numbers that artists hold, the units on the axes, and nothing left in pyplot."""

import io
import shutil
import subprocess
import sys
from dataclasses import replace

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.animation import writers
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import jaxquat as jq

mpl.use("Agg")
from matplotlib import pyplot
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from PIL import Image
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from jaxquat import plot

MOMENTS = np.array([1.0, 2.0, 2.5])
AXES = np.array([0.9, 0.1, -0.3, 0.3]) / np.linalg.norm([0.9, 0.1, -0.3, 0.3])
BODY = jq.Body.from_principal(jnp.asarray(MOMENTS), jnp.asarray(AXES))
INERTIA = np.asarray(BODY.inertia)
START = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.array([0.4, 1.0, -0.7]))
LEVEL = jnp.array([1.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def free():
    """Four seconds of the free body, integrated without the library."""

    def derivative(t, y):
        q, omega = y[:4], y[4:]
        spun = np.concatenate([[-q[1:] @ omega], q[0] * omega + np.cross(q[1:], omega)]) / 2
        return np.concatenate([spun, np.linalg.solve(INERTIA, -np.cross(omega, INERTIA @ omega))])

    t, start = 0.1 * np.arange(41), np.concatenate([START.q, START.omega])
    y = solve_ivp(derivative, (0, 4), start, "DOP853", t, rtol=1e-13, atol=1e-13).y.T
    q = y[:, :4] / np.linalg.norm(y[:, :4], axis=1, keepdims=True)
    return jq.Path(jnp.asarray(t), jq.State(jnp.asarray(q), jnp.asarray(y[:, 4:])))


def turning(rate=0.5, rows=9):
    """A turn about body x at a constant rate [rad/s], a row a second."""
    t = np.arange(float(rows))
    q = np.stack([np.cos(rate * t / 2), np.sin(rate * t / 2), 0 * t, 0 * t], -1)
    omega = np.tile([rate, 0.0, 0.0], (rows, 1))
    return jq.Path(jnp.asarray(t), jq.State(jnp.asarray(q), jnp.asarray(omega)))


def labelled(ax, name):
    """The number of the line of this name; in space its two parts are drawn just before it."""
    (number,) = [k for k, line in enumerate(ax.lines) if line.get_label() == name]
    return number


def curve(ax, name):
    """(n, 3) points of a curve in space, both of its parts."""
    number = labelled(ax, name)
    parts = [np.stack(line.get_data_3d(), -1) for line in ax.lines[number - 2 : number]]
    points = np.concatenate(parts)
    return points[np.all(np.isfinite(points), axis=1)]


ROUND = 0.5 * np.exp(-1j * np.linspace(0.0, np.pi, 9))
MARGINS = jq.control.Margins(
    *[np.ones(2)] * 3, np.array([1.0, 0.4]), 1.0, ROUND, np.stack([ROUND, -ROUND])
)
DRAWN = {  # how to draw, and the units on the axes; three of them for a picture in space
    "attitude_error": (lambda path, ax: plot.attitude_error(path, LEVEL, ax=ax), ["s", "deg"]),
    "euler_angles": (lambda path, ax: plot.euler_angles(path, ax=ax), ["s", "deg"]),
    "rates": (lambda path, ax: plot.rates(path, ax=ax), ["s", "rad/s"]),
    "torque": (lambda path, ax: plot.torque(path, braking, ax=ax), ["s", "N m"]),
    "fan": (
        lambda path, ax: plot.fan(path.t, path.state.omega.T, "rate [rad/s]", ax=ax),
        ["s", "rad/s"],
    ),
    "nyquist": (lambda path, ax: plot.nyquist(MARGINS, ax=ax), [None, None]),
    "body_axes": (lambda path, ax: plot.body_axes(path, ax=ax), [None] * 3),
    "momentum_sphere": (lambda path, ax: plot.momentum_sphere(path, BODY, ax=ax), ["N m s"] * 3),
    "track": (lambda path, ax: plot.track(moved(path), ax=ax), ["m"] * 3),
}


def moved(path):
    """The path with positions on a helix along x."""
    t = path.t
    positions = jnp.stack([3.0 * t, jnp.cos(t), jnp.sin(t)], axis=1)
    state = path.state._replace(position=positions, velocity=jnp.zeros_like(positions))
    return replace(path, state=state)


def braking(t, state, params):
    return -state.omega


@pytest.mark.parametrize("name", DRAWN)
def test_axes_units_and_nothing_left_in_pyplot(name, free):
    """A function draws into axes that it gets, or into a figure that pyplot does not know."""
    draw, units = DRAWN[name]
    space = len(units) == 3
    own = Figure().add_subplot(projection="3d") if space else Figure().add_subplot()
    assert draw(free, own) is own
    assert own.lines
    ax = draw(free, None)
    assert ax.figure is not own.figure
    labels = [ax.get_xlabel(), ax.get_ylabel(), *([ax.get_zlabel()] if space else [])]
    assert all(labels)
    for label, unit in zip(labels, units, strict=True):
        assert label.endswith(f"[{unit}]") if unit else "[" not in label
    assert pyplot.get_fignums() == []
    other = Figure().add_subplot() if space else Figure().add_subplot(projection="3d")
    with pytest.raises(TypeError, match="ax: wanted"):
        draw(free, other)


def test_curves_hold_the_numbers(free):
    """A turn at .5 rad/s away from the target; the rates; a torque of all its arguments."""
    path = turning()
    (line,) = plot.attitude_error(path, LEVEL).lines
    angle = np.minimum(0.5 * np.arange(9), 2 * np.pi - 0.5 * np.arange(9))
    np.testing.assert_allclose(line.get_ydata(), np.rad2deg(angle), atol=1e-12)
    np.testing.assert_array_equal(line.get_xdata(), np.arange(9))
    (line,) = plot.attitude_error(path, path.state.q).lines
    np.testing.assert_allclose(line.get_ydata(), 0, atol=1e-12)
    curves = [line.get_ydata() for line in plot.rates(free).lines]
    np.testing.assert_array_equal(curves, free.state.omega.T)

    def torque(t, state, gain, command):
        return gain * t * state.q[1:] + command

    ax = plot.torque(replace(path, command=jnp.ones((9, 3))), torque, 3.0)
    t = np.arange(9)
    right = 1 + 3 * t * np.stack([np.sin(0.25 * t), np.zeros(9), np.zeros(9)])
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], right, atol=1e-12)


def test_a_track_holds_positions_and_body_axes_at_equal_scales():
    """A turn about body x by a right angle per row of three: y points along z, then along -y."""
    path = moved(turning(rate=0.5 * np.pi, rows=3))
    ax = plot.track(path, frames=3, size=0.5, label="helix")
    curve = np.stack(ax.lines[0].get_data_3d(), -1)
    np.testing.assert_array_equal(curve, path.state.position)
    ends = [np.stack(line.get_data_3d(), -1) for line in ax.lines[1:] if len(line.get_data_3d()[0])]
    assert len(ends) == 9
    tips = np.array([end[1] - end[0] for end in ends]).reshape(3, 3, 3)  # axis, row, component
    turned_y = 0.5 * np.array([[0, 1, 0], [0, 0, 1], [0, -1, 0]])
    np.testing.assert_allclose(tips[0], np.tile([0.5, 0, 0], (3, 1)), atol=1e-12)
    np.testing.assert_allclose(tips[1], turned_y, atol=1e-12)
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["helix", "body x", "body y", "body z"]
    sides = np.ptp([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()], axis=1)
    ratios = ax._box_aspect / sides
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)
    plot.track(path, ax=ax)
    assert ax.get_legend_handles_labels()[1] == labels
    with pytest.raises(ValueError, match="path: wanted states with position"):
        plot.track(turning())


def test_the_bands_of_a_fan_hold_their_share_of_the_members():
    """The members are 0 to 100 at each time, in any order.

    The middle 50 % of them are those from 25 to 75, the middle 90 % those from 5 to 95.
    """
    rng = np.random.default_rng(0)
    values = np.stack([rng.permutation(np.arange(101.0)) + k for k in range(4)], axis=1)
    t = np.tile(np.arange(4.0), (101, 1))
    ax = plot.fan(t, values, "angle [deg]", label="first")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 50 + np.arange(4))
    for band, (low, high) in zip(ax.collections, ((5, 95), (25, 75)), strict=True):
        vertices = band.get_paths()[0].vertices
        for k in range(4):
            at = vertices[vertices[:, 0] == k, 1]
            np.testing.assert_allclose([at.min(), at.max()], [low + k, high + k], rtol=1e-12)
    plot.fan(t, values + 1, "angle [deg]", label="second", ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first", "second"]
    assert ax.lines[0].get_color() != ax.lines[1].get_color()


def test_the_disks_of_a_nyquist_picture_end_at_the_factors_of_the_disk_margins():
    ax = plot.nyquist(MARGINS)
    assert np.array_equal(ax.lines[1].get_ydata(), -ROUND.imag)
    for patch, disk in zip(ax.patches, MARGINS.disk, strict=True):
        low, high = (2 - disk) / (2 + disk), (2 + disk) / (2 - disk)
        reach = np.array([-high, -low])
        np.testing.assert_allclose(patch.center[0] + patch.radius * np.array([-1, 1]), reach)


def test_curves_on_the_momentum_sphere_are_those_of_equal_energy(free):
    """Their energies are at shares of the way from that of an outer axis to that of the middle one.

    The radius is |I w|; the separatrix has the share 1.
    """
    radius = np.linalg.norm(INERTIA @ np.asarray(START.omega))
    ax = plot.momentum_sphere(free, BODY)
    inverse = np.linalg.inv(INERTIA)

    def share(points):
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), radius, rtol=1e-11)
        doubled = np.einsum("ni,ij,nj->n", points, inverse, points) / radius**2
        outer = np.where(doubled > 1 / MOMENTS[1], 1 / MOMENTS[0], 1 / MOMENTS[2])
        return (doubled - outer) / (1 / MOMENTS[1] - outer)

    lines = [line for line in ax.lines if line.get_color() == "0.45" and len(line.get_data_3d()[0])]
    assert len(lines) == 32  # four shares, two outer axes, two sides, two parts each
    for k in range(16):
        parts = [np.stack(line.get_data_3d(), -1) for line in lines[2 * k : 2 * k + 2]]
        points = np.concatenate([part[np.isfinite(part[:, 0])] for part in parts])
        assert len(points) >= 241
        np.testing.assert_allclose(share(points), (0.1, 0.35, 0.65, 0.9)[k % 8 // 2], rtol=1e-12)
    np.testing.assert_allclose(share(curve(ax, "separatrix")), 1.0, rtol=1e-12)
    followed = share(curve(ax, "momentum"))
    assert np.ptp(followed) < 1e-10
    assert 0 < followed[0] < 1


def test_a_sphere_has_no_curves_and_a_symmetric_body_no_loops_about_the_equal_axes():
    path = turning()
    counts = []
    for moments in ([1.0, 1.0, 1.0], [1.0, 1.0, 1.5]):
        ax = plot.momentum_sphere(path, jq.Body.from_principal(jnp.array(moments)))
        points = np.concatenate([np.stack(line.get_data_3d(), -1) for line in ax.lines[:-1]])
        assert np.nanmax(np.abs(np.linalg.norm(points, axis=1) - 0.5)) < 1e-12
        levels = [line for line in ax.lines if line.get_color() == "0.45"]
        counts.append(sum(line.get_label().startswith("_") for line in levels))
    assert counts == [0, 16]  # circles of latitude, two per share, in two parts each


def test_body_axes_are_the_columns_of_the_rotation(free):
    ax = plot.body_axes(free, frames=2)
    columns = Rotation.from_quat(np.asarray(free.state.q)[:, [1, 2, 3, 0]]).as_matrix()
    for k, name in enumerate("xyz"):
        number = labelled(ax, f"body {name}")
        front, behind = (np.stack(line.get_data_3d(), -1) for line in ax.lines[number - 2 : number])
        points = np.where(np.isfinite(front), front, behind)
        np.testing.assert_allclose(points, columns[:, :, k], atol=1e-14)
        azimuth, elevation = np.deg2rad(ax.azim), np.deg2rad(ax.elev)
        view = np.array([np.cos(azimuth), np.sin(azimuth), np.tan(elevation)])
        assert np.all(behind[np.isfinite(behind[:, 0])] @ view < 0)
        last = np.stack(ax.lines[number + 2].get_data_3d(), -1)
        np.testing.assert_allclose(last, [np.zeros(3), columns[-1, :, k]], atol=1e-14)


def test_the_film_shows_the_box_at_its_times(tmp_path, monkeypatch):
    """Eight seconds at twice the speed and 2 frames a second are 9 frames.

    A turn about x keeps the face x where it is.
    """
    body = jq.Body.box(1.0, jnp.array([0.3, 0.5, 1.1]))
    faces, ax = [], Figure(figsize=(1, 1)).add_subplot(projection="3d")
    set_verts = Poly3DCollection.set_verts

    def record(box, verts, *arguments):
        faces.append(verts)
        set_verts(box, verts, *arguments)

    monkeypatch.setattr(Poly3DCollection, "set_verts", record)
    plot.animate(turning(), body, tmp_path / "turn.gif", fps=2, speed=2.0, ax=ax)
    monkeypatch.undo()
    with Image.open(tmp_path / "turn.gif") as image:
        assert image.n_frames == 9
        assert image.info["duration"] == 500
    assert ax.texts[0].get_text() == "t = 8.00 s"
    corners = np.unique(np.round(faces[-1].reshape(-1, 3), 12), axis=0)
    half = np.array([0.3, 0.5, 1.1]) / np.linalg.norm([0.3, 0.5, 1.1])
    back = Rotation.from_rotvec([-4.0, 0, 0]).apply(corners)
    assert len(corners) == 8
    np.testing.assert_allclose(np.abs(back), np.tile(half, (8, 1)), atol=1e-11)
    np.testing.assert_allclose(ax.lines[0].get_data_3d()[0], [half[0], half[0] + 0.5], atol=1e-12)
    assert pyplot.get_fignums() == []


@pytest.mark.slow
def test_the_film_of_a_body_with_position_moves_it_along_its_path(tmp_path, monkeypatch):
    """Its centre is on the helix (50 + 3 t, cos t, sin t), within the error of cubics, h^4/384.

    The trail is where it has been; the view holds all of the path, with equal scales.
    """
    path = moved(turning())
    velocity = jnp.stack([jnp.full(9, 3.0), -jnp.sin(path.t), jnp.cos(path.t)], axis=1)
    positions = path.state.position.at[:, 0].add(50.0)
    path = replace(path, state=path.state._replace(position=positions, velocity=velocity))
    ax, faces = Figure(figsize=(1, 1)).add_subplot(projection="3d"), []
    film = plot.animate(path, BODY, tmp_path / "helix.gif", fps=1, speed=1.6, size=0.6, ax=ax)
    monkeypatch.setattr(Poly3DCollection, "set_verts", lambda box, verts: faces.append(verts))
    for number in (0, 3, 5):
        film._func(number)
        t = 1.6 * number
        corners = np.unique(np.round(faces[-1].reshape(-1, 3), 12), axis=0)
        centre = corners.mean(axis=0)
        np.testing.assert_allclose(centre, [50 + 3 * t, np.cos(t), np.sin(t)], rtol=0, atol=1 / 384)
        np.testing.assert_allclose(np.linalg.norm(corners - centre, axis=1), 0.3, rtol=1e-9)
        trail = np.stack(ax.lines[3].get_data_3d(), -1)
        assert len(trail) == number + 1
        np.testing.assert_allclose(trail[-1], centre, atol=1e-9)
    low, high = np.array([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()]).T
    assert low[0] > 45
    assert np.all(low < positions.min(axis=0) - 0.3)
    assert np.all(high > positions.max(axis=0) + 0.3)
    scales = ax._box_aspect / (high - low)
    np.testing.assert_allclose(scales, scales[0], rtol=1e-9)
    assert ax.get_xlabel() == "world x [m]"


@pytest.mark.slow
def test_an_mp4_shows_what_the_figure_shows(tmp_path, monkeypatch):
    """It is decoded again: each of nine frames is nearer to the drawn one than to any other."""
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        package = pytest.importorskip("imageio_ffmpeg", reason="ffmpeg is not installed")
        ffmpeg = package.get_ffmpeg_exe()
    monkeypatch.setitem(mpl.rcParams, "animation.ffmpeg_path", ffmpeg)
    # An odd number of pixels, which the codec does not take.
    figure, file = Figure(figsize=(3.01, 3.01), dpi=100), tmp_path / "turn.mp4"
    ax = figure.add_subplot(projection="3d")
    film = plot.animate(turning(), BODY, file, fps=2, speed=2.0, ax=ax)
    wide, high = 300, 300
    command = [ffmpeg, "-v", "error", "-i", file, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, capture_output=True)
    frames = np.frombuffer(raw.stdout, np.uint8).reshape(-1, high, wide, 3).astype(float)
    assert len(frames) == 9
    drawn = []
    for number in range(9):
        film._func(number)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn.append(np.asarray(canvas.buffer_rgba())[:high, :wide, :3].astype(float))
    apart = np.array([[np.abs(a - b).mean() for b in drawn] for a in frames])
    assert np.diag(apart).max() < 0.25 * (apart + 1e9 * np.eye(9)).min(), apart


def test_a_notebook_shows_the_film():
    ax = Figure(figsize=(3, 3)).add_subplot(projection="3d")
    film = plot.animate(turning(), BODY, fps=2, speed=2.0, ax=ax)
    assert film._repr_html_().count("data:image/png;base64") == 9
    assert pyplot.get_fignums() == []


def test_the_colours_of_the_axes_differ_in_grey():
    """They and white differ by a fifth of the way from black to white (luma of ITU-R BT.601)."""
    rgb = np.array([mpl.colors.to_rgb(name) for name in [*plot.COLOURS[:3], "white"]])
    assert np.diff(rgb @ [0.299, 0.587, 0.114]).min() > 0.2


def spring(t, state, params):
    return state.q


MANY = jq.Path(jnp.zeros((2, 3)), START)
SAVED = jq.Path(jnp.arange(3.0), ())


def fan(members, times=2, **options):
    plot.fan(np.arange(times), members, "x [m]", **options)


ERRORS = [
    (lambda: plot.rates(MANY), ValueError, r"path: wanted one path, got times of shape \(2, 3\)"),
    (lambda: plot.rates(SAVED), ValueError, "path: wanted the states of all rows"),
    (
        lambda: plot.attitude_error(turning(), jnp.ones((2, 4))),
        ValueError,
        r"target: wanted shape \(4,\) or \(9, 4\), got \(2, 4\)",
    ),
    (lambda: plot.torque(turning(), spring), ValueError, "torque spring: wanted an array of shape"),
    (
        lambda: plot.momentum_sphere(turning(0.0), BODY),
        ValueError,
        "path: wanted a body that turns at the start",
    ),
    (lambda: plot.body_axes(turning(), frames=0), ValueError, "frames: wanted at least 1, got 0"),
    (
        lambda: fan(np.ones((0, 3)), times=3),
        ValueError,
        r"values: wanted shape \(members, times\) with a member .* got \(0, 3\)",
    ),
    (
        lambda: fan(np.ones((3, 2)), times=3),
        ValueError,
        r"values: wanted shape .* got \(3, 2\) and t of \(3,\)",
    ),
    (
        lambda: fan([[1, 2], [np.nan, 1]]),
        ValueError,
        "values: wanted finite .* got 1 .* number 1",
    ),
    (
        lambda: plot.animate(turning(), BODY, speed=0.0),
        ValueError,
        "speed: wanted positive values, got 0.0",
    ),
    (
        lambda: plot.animate(turning(), BODY, size=1.0),
        ValueError,
        "size: wanted None for a body that only turns, got 1.0",
    ),
    (
        lambda: plot.animate(moved(turning()), BODY, size=-1.0),
        ValueError,
        "size: wanted positive values, got -1.0",
    ),
    (lambda: plot.animate(turning(), BODY, fps=0), ValueError, "fps: wanted at least 1, got 0"),
]


@pytest.mark.parametrize(
    ("draw", "kind", "message"), ERRORS, ids=[message for _, _, message in ERRORS]
)
def test_errors(draw, kind, message):
    with pytest.raises(kind, match=message):
        draw()


@pytest.mark.parametrize(("progress", "shown"), [(True, "5/5 [00:"), (False, "")])
def test_a_bar_counts_the_frames_while_a_file_is_written(progress, shown, tmp_path, capsys):
    ax = Figure(figsize=(1, 1)).add_subplot(projection="3d")
    plot.animate(turning(), BODY, tmp_path / "turn.gif", fps=1, speed=2.0, ax=ax, progress=progress)
    printed = capsys.readouterr().err
    assert shown in printed
    assert bool(printed) == progress
    assert not progress or "frames/s" in printed


def test_a_notebook_shows_new_axes_by_their_figure():
    for ax in (plot.rates(turning()), plot.body_axes(turning())):
        with Image.open(io.BytesIO(ax._repr_png_())) as picture:
            assert picture.format == "PNG"
            assert picture.width > 300


def test_a_film_without_its_writer_is_an_error(monkeypatch):
    monkeypatch.setattr(writers, "is_available", lambda name: name == "pillow")
    message = "file: wanted a name that ends in .gif, because ffmpeg is not installed, got 'a.mp4'"
    with pytest.raises(ValueError, match=message):
        plot.animate(turning(), BODY, "a.mp4")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("jaxquat.plot")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(jq, "plot")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r'^plot: wanted the package matplotlib, got none: pip install "jaxquat\[plot\]"$'
    with pytest.raises(ImportError, match=message):
        from jaxquat import plot as _  # noqa: F401
