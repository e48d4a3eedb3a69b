"""Tests of recordings, written, read back or refused, and of the model of a gyroscope."""

import dataclasses
import functools
import gzip
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT, run

import jaxquat as jq
from jaxquat import quaternion, recordings

DATA = ROOT.parent / "shared" / "data"
REAL = {"broad_07_fast_rotation.csv.gz": 117.7, "broad_02_slow_rotation.csv.gz": 113.0}
HEADER = "t,gyr_x,gyr_y,gyr_z,q_w,q_x,q_y,q_z,movement"


def some_recording(n=20):
    rng = np.random.default_rng(0)
    q = np.asarray(quaternion.random(jax.random.key(0), (n,)), np.float64).copy()
    q[3:5] = np.nan
    return recordings.Recording(0.01 * np.arange(n), rng.normal(size=(n, 3)), q, np.arange(n) > 7)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_what_is_written_is_read_back_to_the_last_bit(tmp_path, name):
    recording = some_recording()
    recordings.write(tmp_path / name, recording)
    again = recordings.read(tmp_path / name)
    for field in dataclasses.fields(recording):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(recording, field.name))


def test_a_recording_says_in_one_line_how_long_fast_and_complete_it_is():
    """The line describes 20 samples at 100 Hz, of which two have no reference.

    A notebook shows a table of the same facts.
    """
    recording = some_recording()
    line = "<Recording: 20 samples, duration 0.19 s, rate 100 Hz, reference lost 10 %>"
    assert repr(recording) == line
    with pytest.raises(dataclasses.FrozenInstanceError):
        recording.t = recording.t + 1.0


@pytest.mark.parametrize("times", [[0.0, 0.0, 0.0], [0.2, 0.1, 0.0], [0.0, np.inf, np.inf]])
def test_times_that_do_not_increase_have_no_rate(times):
    t = np.array(times)
    text = repr(recordings.Recording(t, np.zeros((3, 3))))
    assert text == f"<Recording: 3 samples, duration {t[-1] - t[0]:g} s, channels gyro>"


def test_a_path_is_no_recording_but_the_error_says_how_one_is_made_of_it(tmp_path):
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.1, 1.0]))
    body = jq.Body.sphere(1.0, 0.1)
    path = jq.rollout(jq.lie_euler, body, jq.torques.zero, start, jq.grid(0.0, 0.1, 5))
    for refuses in (
        lambda: recordings.write(tmp_path / "a.csv", path),
        lambda: recordings.windows(path, 2, 1),
        lambda: recordings.windows_by_time(path, 0.2, 0.1),
    ):
        with pytest.raises(TypeError, match=r"^recording: .* got a Path; use jq.rec") as error:
            refuses()
    line = str(error.value).split("; use ")[1]
    recordings.write(tmp_path / "a.csv", eval(line, {"jq": jq, "np": np, "path": path}))
    again = recordings.read(tmp_path / "a.csv")
    np.testing.assert_array_equal(again.t, path.t)
    np.testing.assert_array_equal(again.gyro, path.state.omega)
    np.testing.assert_array_equal(again.q, path.state.q)


def test_the_order_of_file_and_recording_is_said_where_it_is_wrong():
    with pytest.raises(TypeError, match=r"^recording: wanted a .*, got 'a.csv'; the order is jq"):
        recordings.write(some_recording(), "a.csv")


def test_columns_stand_in_any_order_and_others_are_ignored(tmp_path):
    path = tmp_path / "a.csv"
    lines = "movement,note,q_z,q_y,q_x,q_w,gyr_z,gyr_y,gyr_x,t", "0,x,,,,,3,2,1,0.5", ""
    path.write_text("\n".join([*lines, "1,y,0,0,0,1,6,5,4,0.75", ""]))
    got = recordings.read(path)
    np.testing.assert_array_equal(got.t, [0.5, 0.75])
    np.testing.assert_array_equal(got.gyro, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(got.q, [[np.nan] * 4, [1, 0, 0, 0]])
    np.testing.assert_array_equal(got.movement, [False, True])


GOOD = "0.0,1,2,3,1,0,0,0,0"
MALFORMED = {
    "nothing": ("", "line 1, column t: missing from the header, got an empty file"),
    "column missing": (
        f"{HEADER.replace(',gyr_y', '')}\n{GOOD}",
        "line 1, column gyr_y: missing from the header",
    ),
    "empty rate": (
        f"{HEADER}\n0.1,1,,3,1,0,0,0,0",
        "line 2, column gyr_x: wanted finite numbers, or NaN in all of them, got [1.0, nan, 3.0]",
    ),
    "movement": (f"{HEADER}\n0,1,2,3,1,0,0,0,2", "line 2, column movement: wanted 0 or 1, got 2.0"),
    "digits of Python": (
        f"{HEADER}\n0,1_0,2,3,1,0,0,0,1",
        "line 2, column gyr_x: wanted a number, got '1_0'",
    ),
    "long row": (f"{HEADER}\n{GOOD},5", "line 2, column movement: wanted 9 cells, got 10"),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_by_file_line_and_column(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        recordings.read(path)
    assert str(path) in str(error.value)


def damaged():
    data = bytearray(gzip.compress(f"{HEADER}\n{GOOD}\n".encode() * 20))
    data[20:23] = b"\xff\xff\xff"
    return bytes(data)


NOT_TEXT = {
    "damaged": damaged(),
    "binary": gzip.compress(b"\xff\xfe\x00"),
    "cut short": gzip.compress(b"t" * 4000)[:-9],
    "not gzip": b"not gzip",
}


@pytest.mark.parametrize("kind", NOT_TEXT)
def test_a_file_that_is_no_text_is_refused(tmp_path, kind):
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(NOT_TEXT[kind])
    with pytest.raises(ValueError, match="cannot be read as text in UTF-8") as error:
        recordings.read(path)
    assert str(path) in str(error.value)


def test_a_file_of_somebody_else_is_refused_with_how_to_name_its_columns(tmp_path):
    (tmp_path / "a.csv").write_text("t,ax,ay\n0,1,2\n1,1,2\n")
    message = r"column gyr_x: missing from the header, got t, ax, ay; columns="
    with pytest.raises(ValueError, match=message):
        recordings.read(tmp_path / "a.csv")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    rows = f"{HEADER}\n0,1,2,3,1,0,0,0,1\n1,1,2,3,1,0,0,0,1\n"
    (tmp_path / "marked.csv").write_text(rows, encoding="utf-8-sig")
    np.testing.assert_array_equal(recordings.read(tmp_path / "marked.csv").t, [0.0, 1.0])


def test_a_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        recordings.read(tmp_path / "nowhere.csv")


def sampled_at(t):
    t = np.asarray(t, float)
    n = len(t)
    q = np.tile([1.0, 0, 0, 0], (n, 1))
    return recordings.Recording(t, np.zeros((n, 3)), q, np.ones(n, bool))


K = np.arange(1000)
UNIFORM = {
    "exact": (0.01 * K, 0.01),
    "late start": (1.7e9 + 0.0035 * K, 0.0035),
    "285.7 Hz rounded to milliseconds": (np.round(K / 285.714, 3), 1 / 285.714),
    "285.7 Hz cut to milliseconds": (np.floor(1e3 * K / 285.714) / 1e3, 1 / 285.714),
    "off by 0.0009 of the interval": (0.003 * (K + 0.0009 * (K == 500)), 0.003),
}
NOT_UNIFORM = {
    "off by 0.0012 of the interval": (0.003 * (K + 0.0012 * (K == 500)), 1e-3),
    "within a tolerance of 0.1 but not of 0.01": (0.003 * (K + 0.05 * (K == 500)), 0.01),
    "one missing": (0.01 * np.delete(K, 500), 1e-3),
    "one missing in milliseconds": (np.round(np.delete(K, 500) / 400, 3), 1e-3),
    "600 Hz in milliseconds": (np.round(K / 600, 3), 1e-3),
}


@pytest.mark.parametrize("case", UNIFORM)
def test_the_spacing_of_uniform_samples_is_their_mean_one(case):
    t, wanted = UNIFORM[case]
    tolerance = 1e-3 / 999 if "milli" not in case else 1e-3
    assert sampled_at(t).spacing() == pytest.approx(wanted, rel=tolerance)


@pytest.mark.parametrize("case", NOT_UNIFORM)
def test_samples_that_are_not_uniform_have_no_spacing(case):
    t, tolerance = NOT_UNIFORM[case]
    message = rf"t: wanted samples .* s apart to within {tolerance:g} of that, got t = .* was due"
    with pytest.raises(ValueError, match=message):
        sampled_at(t).spacing(tolerance)
    assert sampled_at(t).spacing(1.0) > 0


# These tests check the gyroscope.


def a_gyro(dtype=jnp.float64, noise=0.0, walk=0.0):
    bias, scale = [0.01, -0.02, 0.03], [0.01, -0.02, 0.005]
    values = bias, scale, [1e-3, -2e-3, 3e-3, 4e-3, -5e-3, 6e-3], noise, walk
    return jq.gyro.Gyro(*(jnp.asarray(x, dtype) for x in values))


def test_what_the_gyroscope_measures_is_corrected():
    gyro, omega, key = a_gyro(), jax.random.normal(jax.random.key(1), (50, 3)), jax.random.key(2)
    measured = jq.gyro.measure(key, gyro, omega, 0.01)
    axes = np.array([[1, 1e-3, -2e-3], [3e-3, 1, 4e-3], [-5e-3, 6e-3, 1]])
    matrix = np.diag(1 + np.array(gyro.scale)) @ axes
    wanted = np.asarray(omega) @ matrix.T + np.asarray(gyro.bias)
    np.testing.assert_allclose(measured, wanted, rtol=0, atol=1e-15)
    np.testing.assert_allclose(jq.gyro.correct(gyro, measured), omega, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(jq.gyro.measure(key, jq.gyro.Gyro.ideal(), omega, 0.01), omega)


def test_the_noise_of_the_gyroscope_has_the_stated_densities():
    """The variance of a sample is noise^2/dt, and the variance of the bias is bias_random_walk^2 t.

    The estimates from 4000 runs are within 5 of their standard errors.
    """
    n, dt, runs = 50, 0.04, 4000
    keys = jax.random.split(jax.random.key(3), runs)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def measured(gyro, key):
        return jq.gyro.measure(key, gyro, jnp.zeros((n, 3)), dt)

    still = a_gyro()._replace(bias=jnp.zeros(3))
    white = measured(still._replace(noise=jnp.array(0.3)), keys)
    walk = measured(still._replace(bias_random_walk=jnp.array(0.2)), keys)
    spread = 5 * np.sqrt(2 / (3 * runs))
    np.testing.assert_allclose(np.var(white, axis=(0, 2)), 0.3**2 / dt, rtol=spread)
    np.testing.assert_array_equal(walk[:, 0], 0)
    wanted = 0.2**2 * dt * np.arange(1, n)
    np.testing.assert_allclose(np.var(walk, axis=(0, 2))[1:], wanted, rtol=spread)


def test_rates_of_float32_are_measured_in_float32():
    omega = jax.random.normal(jax.random.key(1), (5, 3), jnp.float32)
    gyro = a_gyro(jnp.float32, 1e-3, 1e-4)
    measured = jax.eval_shape(jq.gyro.measure, jax.random.key(2), gyro, omega, 0.01)
    assert measured.dtype == jnp.float32


def test_the_gradient_by_the_gyroscope_is_that_of_central_differences():
    omega = jax.random.normal(jax.random.key(1), (5, 3), jnp.float64)

    def loss(gyro):
        return jnp.sum(jq.gyro.measure(jax.random.key(2), gyro, omega, 0.01) ** 2)

    gyro = a_gyro(noise=1e-3, walk=1e-4)
    gradient, loss = jax.jit(jax.grad(loss))(gyro), jax.jit(loss)
    for k, leaf in enumerate(gradient):
        shifted = [gyro._replace(**{gyro._fields[k]: gyro[k] + s}) for s in (1e-6, -1e-6)]
        central = (loss(shifted[0]) - loss(shifted[1])) / 2e-6
        np.testing.assert_allclose(jnp.sum(leaf), central, rtol=1e-7, atol=1e-7)


# These tests run the example on its own recording, and on the real ones where they are present.


def drift(stdout, row):
    """Return the root mean square in a row of the table."""
    return float(next(line for line in stdout.splitlines() if line.startswith(row)).split()[-1])


@pytest.mark.slow
@pytest.mark.needs("matplotlib")
def test_the_example_makes_a_recording_where_it_is_given_none(tmp_path):
    code, out, err = run(tmp_path, "gyro_attitude")
    assert code == 0, err
    assert (tmp_path / "gyro_attitude.png").stat().st_size > 10_000
    assert 0.1 < drift(out, "bias removed") < 0.5 * drift(out, "raw")


@pytest.mark.slow
@pytest.mark.needs("matplotlib")
def test_the_example_refuses_a_bad_file_in_one_line(tmp_path):
    (tmp_path / "bad.csv").write_text(f"{HEADER}\n{GOOD}\n0.1,1,x2,3,1,0,0,0,0")
    assert run(tmp_path, "gyro_attitude", "bad.csv") == (
        1,
        "",
        "bad.csv: line 3, column gyr_y: wanted a number, got 'x2'\n",
    )


@pytest.mark.slow
@pytest.mark.needs("matplotlib")
def test_the_example_refuses_a_file_that_is_not_there_in_one_line(tmp_path):
    code, _, err = run(tmp_path, "gyro_attitude", "nowhere.csv")
    assert code == 1
    assert "No such file" in err
    assert "Traceback" not in err


@pytest.mark.needs("matplotlib")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [next(iter(REAL)), *(pytest.param(x, marks=pytest.mark.weekly) for x in [*REAL][1:])]
)
def test_the_example_on_a_real_recording(tmp_path, name):
    """Removing the bias at rest reduces the drift in 60 s.

    The drift falls from over 10 degrees to below 4.
    """
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not beside this checkout: download BROAD, doi 10.3390/data6070072")
    code, out, err = run(tmp_path, "gyro_attitude", str(DATA / name))
    assert code == 0, err

    def row(start, words):
        """Return the cells of a row of the table, without the words of its name."""
        return next(line for line in out.splitlines() if line.startswith(start)).split()[words:]

    columns = row("after", 2)
    raw = dict(zip(columns, row("raw", 1), strict=True))
    removed = dict(zip(columns, row("bias removed", 2), strict=True))
    assert f"movement {REAL[name]} s" in out
    assert 10 < float(raw["60"]) < 17
    assert float(removed["60"]) < 4
