"""Pictures: what the artists hold against the mathematics, units on the axes, and nothing left behind."""

import shutil
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import jaxquat as jq

mpl.use("Agg")
from matplotlib import pyplot
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from PIL import Image
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from jaxquat import plot

MOMENTS, AXES = (
    np.array([1.0, 2.0, 2.5]),
    np.array([0.9, 0.1, -0.3, 0.3]) / np.linalg.norm([0.9, 0.1, -0.3, 0.3]),
)
BODY = jq.Body.from_principal(jnp.asarray(MOMENTS), jnp.asarray(AXES))
INERTIA = np.asarray(BODY.inertia)
START = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.array([0.4, 1.0, -0.7]))
HISTORY = np.array([[4.0, 3.0, 2.0, 1.5, 1.2], [5.0, 2.0, 1.0, 0.5, 0.4]])
FIT = jq.Fit(
    None, HISTORY, np.zeros(2, int), np.array([[4.0, 2.2, 1.3, 1.4], [5.0, 1.1, 0.7, 0.6]]), 5, 1, 2
)
LEVEL = jnp.array([1.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def free():
    """Four seconds of the free body, with nothing of the library."""

    def derivative(t, y):
        q, omega = y[:4], y[4:]
        spun = np.concatenate([[-q[1:] @ omega], q[0] * omega + np.cross(q[1:], omega)]) / 2
        return np.concatenate([spun, np.linalg.solve(INERTIA, -np.cross(omega, INERTIA @ omega))])

    t = 0.1 * np.arange(41)
    found = solve_ivp(
        derivative,
        (0, 4),
        np.concatenate([START.q, START.omega]),
        "DOP853",
        t,
        rtol=1e-13,
        atol=1e-13,
    ).y.T
    q = found[:, :4] / np.linalg.norm(found[:, :4], axis=1, keepdims=True)
    return jq.Path(jnp.asarray(t), jq.State(jnp.asarray(q), jnp.asarray(found[:, 4:])), (), ())


def turning(rate=0.5, rows=9):
    """A turn about body x at a constant rate [rad/s], a row a second."""
    t = np.arange(float(rows))
    q = np.stack([np.cos(rate * t / 2), np.sin(rate * t / 2), 0 * t, 0 * t], -1)
    return jq.Path(
        jnp.asarray(t),
        jq.State(jnp.asarray(q), jnp.asarray(np.tile([rate, 0.0, 0.0], (rows, 1)))),
        (),
        (),
    )


def labelled(ax, name):
    """The line of this name, and those drawn just before it (in space its two parts)."""
    (number,) = [k for k, line in enumerate(ax.lines) if line.get_label() == name]
    return number


def curve(ax, name):
    """(n, 3) points of a curve in space, both of its parts."""
    number = labelled(ax, name)
    points = np.concatenate(
        [np.stack(line.get_data_3d(), -1) for line in ax.lines[number - 2 : number]]
    )
    return points[np.all(np.isfinite(points), axis=1)]


DRAWN = {
    "attitude_error": (
        lambda path, ax: plot.attitude_error(path, LEVEL, ax=ax),
        False,
        ["s", "deg"],
    ),
    "rates": (lambda path, ax: plot.rates(path, ax=ax), False, ["s", "rad/s"]),
    "torque": (
        lambda path, ax: plot.torque(path, lambda t, s, p: -s.omega, ax=ax),
        False,
        ["s", "N m"],
    ),
    "fan": (
        lambda path, ax: plot.fan(path.t, path.state.omega.T, "rate [rad/s]", ax=ax),
        False,
        ["s", "rad/s"],
    ),
    "fit_history": (lambda path, ax: plot.fit_history(FIT, ax=ax), False, [None, None]),
    "work_precision": (
        lambda path, ax: plot.work_precision({"a": ([1, 2], [1, 0.5])}, "wall time [s]", ax=ax),
        False,
        ["s", "rad"],
    ),
    "body_axes": (lambda path, ax: plot.body_axes(path, ax=ax), True, [None] * 3),
    "polhode": (lambda path, ax: plot.polhode(path, BODY, ax=ax), True, ["rad/s"] * 3),
    "momentum_sphere": (
        lambda path, ax: plot.momentum_sphere(path, BODY, ax=ax),
        True,
        ["N m s"] * 3,
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_axes_units_and_nothing_left_in_pyplot(name, free):
    """Given axes are drawn into; without, a figure that pyplot does not know; every quantity with its unit."""
    draw, space, units = DRAWN[name]
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
    """A turn at .5 rad/s away from the target; the rates of the path; a torque of everything that it may depend on."""
    path = turning()
    (line,) = plot.attitude_error(path, LEVEL).lines
    angle = np.minimum(0.5 * np.arange(9), 2 * np.pi - 0.5 * np.arange(9))
    np.testing.assert_allclose(line.get_ydata(), np.rad2deg(angle), atol=1e-12)
    np.testing.assert_array_equal(line.get_xdata(), np.arange(9))
    np.testing.assert_allclose(
        plot.attitude_error(path, path.state.q).lines[0].get_ydata(), 0, atol=1e-12
    )
    np.testing.assert_array_equal(
        [line.get_ydata() for line in plot.rates(free).lines], free.state.omega.T
    )

    held = path._replace(command=jnp.ones((9, 3)))
    ax = plot.torque(held, lambda t, state, gain, command: gain * t * state.q[1:] + command, 3.0)
    wanted = 1 + 3 * np.arange(9) * np.stack(
        [np.sin(0.25 * np.arange(9)), np.zeros(9), np.zeros(9)]
    )
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], wanted, atol=1e-12)


def test_the_bands_of_a_fan_hold_their_share_of_the_members():
    """Members 0 to 100 at each time, in any order: the middle 50 % are those from 25 to 75, the middle 90 % from 5 to 95."""
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


def test_validation_stands_where_it_was_evaluated():
    """Five updates in chunks of two: evaluated after 0, 2, 4 and 5; the best start is drawn in colour, the other in grey."""
    ax = plot.fit_history(FIT)
    training, validation = (ax.lines[labelled(ax, name)] for name in ("training", "validation"))
    np.testing.assert_array_equal(training.get_xydata().T, [np.arange(5), HISTORY[1]])
    np.testing.assert_array_equal(validation.get_xydata().T, [[0, 2, 4, 5], FIT.validation[1]])
    np.testing.assert_array_equal(ax.lines[labelled(ax, "other starts")].get_ydata(), HISTORY[0])
    np.testing.assert_array_equal(ax.lines[labelled(ax, "taken: 5 updates")].get_xdata(), [5, 5])
    assert ax.get_yscale() == "log"
    gap = replace(FIT, history=np.where(HISTORY == 2.0, np.nan, HISTORY))
    assert plot.fit_history(gap).get_yscale() == "log"
    alone = plot.fit_history(jq.Fit(None, HISTORY[0] - 2, 0, None, 5, None, 10))
    assert alone.get_yscale() == "linear"
    assert [text.get_text() for text in alone.get_legend().get_texts()] == [
        "training",
        "taken: 5 updates",
    ]


def test_the_slope_of_work_and_precision_is_the_order():
    work = np.array([10.0, 20.0, 40.0])
    ax = plot.work_precision(
        {f"order {p}": (work, 3 * work**-p) for p in (2.0, 4.0)}, "torque evaluations"
    )
    slopes = [
        np.polyfit(np.log(line.get_xdata()), np.log(line.get_ydata()), 1)[0] for line in ax.lines
    ]
    np.testing.assert_allclose(slopes, [-2, -4])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_the_polhode_lies_on_both_ellipsoids(free, monkeypatch):
    """As do the surfaces drawn: w.Iw = 2 E, |Iw| = L; of the two the curve is the section."""
    omega = np.asarray(START.omega)
    energy, momentum = omega @ INERTIA @ omega, np.linalg.norm(INERTIA @ omega)
    drawn = {}
    for name in ("plot_surface", "plot_wireframe"):
        monkeypatch.setattr(
            Axes3D,
            name,
            lambda ax, *points, name=name, **_: drawn.__setitem__(
                name, np.reshape(points, (3, -1)).T
            ),
        )
    ax = plot.polhode(free, BODY)
    points = curve(ax, "polhode")
    assert {tuple(row) for row in points} == {tuple(row) for row in np.asarray(free.state.omega)}
    np.testing.assert_allclose(
        np.einsum("ni,ij,nj->n", points, INERTIA, points), energy, rtol=1e-11
    )
    np.testing.assert_allclose(np.linalg.norm(points @ INERTIA, axis=1), momentum, rtol=1e-11)
    corners, mesh = drawn["plot_surface"], drawn["plot_wireframe"]
    assert len(corners) == len(mesh) > 1000
    np.testing.assert_allclose(
        np.einsum("ni,ij,nj->n", corners, INERTIA, corners), energy, rtol=1e-12
    )
    np.testing.assert_allclose(np.linalg.norm(mesh @ INERTIA, axis=1), momentum, rtol=1e-12)


def test_curves_on_the_momentum_sphere_are_those_of_equal_energy(free):
    """Radius |I w|; the energy at the asked share between that of an outer axis and that of the middle one; the separatrix."""
    radius = np.linalg.norm(INERTIA @ np.asarray(START.omega))
    ax = plot.momentum_sphere(free, BODY, shares=(0.3,))
    inverse = np.linalg.inv(INERTIA)

    def share(points):
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), radius, rtol=1e-11)
        doubled = np.einsum("ni,ij,nj->n", points, inverse, points) / radius**2
        outer = np.where(doubled > 1 / MOMENTS[1], 1 / MOMENTS[0], 1 / MOMENTS[2])
        return (doubled - outer) / (1 / MOMENTS[1] - outer)

    for k in (0, 3, 5, 7):  # two parts each; after the first the entry of the legend
        parts = [np.stack(line.get_data_3d(), -1) for line in ax.lines[k : k + 2]]
        points = np.concatenate([part[np.isfinite(part[:, 0])] for part in parts])
        assert len(points) >= 241
        np.testing.assert_allclose(share(points), 0.3, rtol=1e-12)
    np.testing.assert_allclose(share(curve(ax, "separatrix")), 1.0, rtol=1e-12)
    followed = share(curve(ax, "momentum"))
    assert np.ptp(followed) < 1e-10
    assert 0 < followed[0] < 1


def test_a_sphere_has_no_curves_and_a_symmetric_body_no_loops_about_the_equal_axes():
    path = turning()
    counts = []
    for moments in ([1.0, 1.0, 1.0], [1.0, 1.0, 1.5]):
        ax = plot.momentum_sphere(path, jq.Body.from_principal(jnp.array(moments)), shares=(0.5,))
        points = np.concatenate([np.stack(line.get_data_3d(), -1) for line in ax.lines[:-1]])
        assert np.nanmax(np.abs(np.linalg.norm(points, axis=1) - 0.5)) < 1e-12
        counts.append(
            sum(
                line.get_color() == "0.45" and line.get_label().startswith("_") for line in ax.lines
            )
        )
    assert counts == [0, 4]  # the two circles of latitude, in two parts each


def test_body_axes_are_the_columns_of_the_rotation(free):
    ax = plot.body_axes(free, frames=2)
    columns = Rotation.from_quat(np.asarray(free.state.q)[:, [1, 2, 3, 0]]).as_matrix()
    for k, name in enumerate("xyz"):
        number = labelled(ax, f"body {name}")
        front, behind = (np.stack(line.get_data_3d(), -1) for line in ax.lines[number - 2 : number])
        points = np.where(np.isfinite(front), front, behind)
        np.testing.assert_allclose(points, columns[:, :, k], atol=1e-14)
        view = np.array(
            [np.cos(np.deg2rad(ax.azim)), np.sin(np.deg2rad(ax.azim)), np.tan(np.deg2rad(ax.elev))]
        )
        assert np.all(behind[np.isfinite(behind[:, 0])] @ view < 0)
        last = np.stack(ax.lines[number + 2].get_data_3d(), -1)
        np.testing.assert_allclose(last, [np.zeros(3), columns[-1, :, k]], atol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_box_sides_are_those_of_the_box(dtype):
    sides = jnp.array([0.3, 0.5, 1.1], dtype)
    found = plot.box_sides(jq.Body.box(jnp.asarray(2.0, dtype), sides), 2.0)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, sides, rtol=20 * jnp.finfo(dtype).eps)
    plate = plot.box_sides(
        jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0], dtype)), 6.0
    )  # a^2 = I2 + I3 - I1 and so on
    np.testing.assert_allclose(plate, np.sqrt([4.0, 2.0, 0.0]), rtol=1e-6)


def test_the_film_shows_the_box_at_its_times(tmp_path, monkeypatch):
    """Eight seconds at twice the speed and 2 frames a second: 9 frames; a turn about x keeps the face x where it is."""
    body = jq.Body.box(1.0, jnp.array([0.3, 0.5, 1.1]))
    faces, ax = [], Figure(figsize=(3, 3)).add_subplot(projection="3d")
    given = Poly3DCollection.set_verts
    monkeypatch.setattr(
        Poly3DCollection,
        "set_verts",
        lambda box, verts, *rest: (faces.append(verts), given(box, verts, *rest)),
    )
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
def test_an_mp4_shows_what_the_figure_shows(tmp_path, monkeypatch):
    """Decoded again: nine frames, each the drawn one but for what compression loses; no others are as near."""
    ffmpeg = (
        shutil.which("ffmpeg")
        or pytest.importorskip("imageio_ffmpeg", reason="ffmpeg is not installed").get_ffmpeg_exe()
    )
    monkeypatch.setitem(mpl.rcParams, "animation.ffmpeg_path", ffmpeg)
    figure = Figure(
        figsize=(3.01, 3.01), dpi=100
    )  # an odd number of pixels, which the codec does not take
    film = plot.animate(
        turning(),
        BODY,
        tmp_path / "turn.mp4",
        fps=2,
        speed=2.0,
        ax=figure.add_subplot(projection="3d"),
    )
    wide, high = 300, 300
    raw = subprocess.run(
        [
            ffmpeg,
            "-v",
            "error",
            "-i",
            tmp_path / "turn.mp4",
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-",
        ],
        check=True,
        capture_output=True,
    )
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
    film = plot.animate(
        turning(), BODY, fps=2, speed=2.0, ax=Figure(figsize=(3, 3)).add_subplot(projection="3d")
    )
    assert film._repr_html_().count("data:image/png;base64") == 9
    assert pyplot.get_fignums() == []


def test_the_colours_of_the_axes_differ_in_grey():
    """By a fifth of the way from black to white at least (luma of ITU-R BT.601), from white too."""
    rgb = np.array(
        [mpl.colors.to_rgb(colour) for colour in plot.panels.COLOURS[:3]] + [(1.0, 1.0, 1.0)]
    )
    assert np.diff(rgb @ [0.299, 0.587, 0.114]).min() > 0.2


def spring(t, state, params):
    return state.q


MANY = jq.Path(jnp.zeros((2, 3)), START, (), ())
LAST = jq.Path(jnp.arange(3.0), jax.tree.map(lambda x: x[None], START), (), ())
ERRORS = [
    (lambda: plot.rates(START), TypeError, "path: wanted a jq.Path, got State"),
    (lambda: plot.rates(MANY), ValueError, r"path: wanted one path, got times of shape \(2, 3\)"),
    (lambda: plot.rates(LAST), ValueError, "path: wanted the states of all rows"),
    (lambda: plot.rates(turning(), ax=3), TypeError, "ax: wanted matplotlib axes, got int"),
    (
        lambda: plot.attitude_error(turning(), jnp.ones((2, 4))),
        ValueError,
        r"target: wanted shape \(4,\) or \(9, 4\), got \(2, 4\)",
    ),
    (lambda: plot.torque(turning(), spring), ValueError, "torque spring: wanted an array of shape"),
    (lambda: plot.polhode(turning(), INERTIA), TypeError, "body: wanted a jq.Body, got ndarray"),
    (
        lambda: plot.polhode(turning(0.0), BODY),
        ValueError,
        "path: wanted a body that turns at the start",
    ),
    (lambda: plot.body_axes(turning(), frames=0), ValueError, "frames: wanted at least 1, got 0"),
    (
        lambda: plot.momentum_sphere(turning(), BODY, shares=(1.0,)),
        ValueError,
        "shares: wanted a number between 0 and 1",
    ),
    (
        lambda: plot.fan(np.arange(3), np.ones((0, 3)), "x [m]"),
        ValueError,
        r"values: wanted at least one member, got shape \(0, 3\)",
    ),
    (
        lambda: plot.fan(np.arange(3), np.ones((3, 2)), "x [m]"),
        ValueError,
        r"values: wanted shape .* got \(3, 2\) and t of \(3,\)",
    ),
    (
        lambda: plot.fan(np.arange(2), [[1, 2], [np.nan, 1]], "x [m]"),
        ValueError,
        "values: wanted finite .* got 1 .* number 1",
    ),
    (
        lambda: plot.fan(np.arange(2), np.ones((3, 2)), "x [m]", shares=(0.5, 50)),
        ValueError,
        r"shares: .* got 50",
    ),
    (
        lambda: plot.fan(np.arange(2), np.ones((3, 2)), "x [m]", shares=(1.0,)),
        ValueError,
        "shares: wanted a number between",
    ),
    (lambda: plot.fit_history(HISTORY), TypeError, "fit: wanted what jq.fit returns, got ndarray"),
    (lambda: plot.work_precision({}, "steps"), TypeError, "runs: wanted a mapping"),
    (
        lambda: plot.work_precision({"a": ([1, 2], [0, 1])}, "steps"),
        ValueError,
        "runs: wanted positive .* of a, got",
    ),
    (lambda: plot.box_sides(BODY, -1.0), ValueError, "mass: wanted positive"),
    (
        lambda: plot.animate(turning(), BODY, speed=0.0),
        ValueError,
        "speed: wanted positive values, got 0.0",
    ),
    (lambda: plot.animate(turning(), BODY, fps=0), ValueError, "fps: wanted at least 1, got 0"),
]


@pytest.mark.parametrize(
    ("draw", "kind", "message"), ERRORS, ids=[message for _, _, message in ERRORS]
)
def test_errors(draw, kind, message):
    with pytest.raises(kind, match=message):
        draw()


def test_a_film_without_its_writer_is_an_error(monkeypatch):
    monkeypatch.setattr(
        "jaxquat.plot.animation.writers.is_available", lambda name: name == "pillow"
    )
    with pytest.raises(
        ValueError,
        match=r"file: wanted a name that ends in .gif, because ffmpeg is not installed, got 'a.mp4'",
    ):
        plot.animate(turning(), BODY, "a.mp4")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("jaxquat.plot")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(jq, "plot")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError,
        match=r'^plot: wanted the package matplotlib, got none: pip install "jaxquat\[plot\]"$',
    ):
        from jaxquat import plot as _  # noqa: F401
