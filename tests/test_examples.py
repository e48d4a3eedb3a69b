"""The examples in short forms, each against numbers that somebody derived."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
FAST, SLOW = DATA / "broad_07_fast_rotation.csv.gz", DATA / "broad_02_slow_rotation.csv.gz"


def example(name):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tmp_path, name, *arguments):
    """Exit status, output and errors of an example in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py"), *map(str, arguments)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# Inertia.


def test_inertia_is_within_its_standard_errors(monkeypatch, tmp_path):
    """Fifteen seconds of telemetry; one in 60 of such tests would fail by chance, this seed does not."""
    module = example("identify_inertia")
    telemetry = module.simulated(1, seconds=15.0)
    module.write(tmp_path / "telemetry.csv", telemetry)
    found = module.identify(module.read(tmp_path / "telemetry.csv"))
    off = np.asarray(found.params["inertia"]) - module.TRUE
    error = np.asarray(found.standard_errors["inertia"])
    assert np.all(np.abs(off) < 3 * error)
    assert np.all(error < 5e-3 * np.abs(module.TRUE))
    assert len(found.flat) == 0
    spread = 3 / np.sqrt(2 * telemetry.rate.size)
    np.testing.assert_allclose(found.sigma, module.NOISE, rtol=spread)


def test_the_simulator_of_the_inertia_example_is_exact_to_its_noise():
    """Two schemes and two steps agree far below the noise, so the standard errors are those of the noise alone."""
    module = example("identify_inertia")
    torque = jnp.asarray(module.simulated(3, seconds=2.0).torque)
    arguments = jq.Body(module.matrix(module.TRUE)), jnp.array([0.8, -0.5, 1.0]), torque, module.PERIOD
    fine = jax.jit(lambda *x: module.rates(*x, 0.02, step=jq.crouch_grossman4, finer=10))(*arguments[:3])
    coarse = jax.jit(lambda *x: module.rates(*x, 0.02))(*arguments[:3])
    np.testing.assert_allclose(coarse, fine, rtol=0, atol=1e-4 * module.NOISE)


def test_inertia_example_refuses_other_columns(tmp_path):
    module = example("identify_inertia")
    (tmp_path / "bad.csv").write_text("t,wx\n0,1\n")
    with pytest.raises(ValueError, match=r"bad.csv: wanted the columns t,rate_x,.*, got t,wx"):
        module.read(tmp_path / "bad.csv")


@pytest.mark.slow
def test_inertia_example(tmp_path):
    """The whole of it: errors below 0.5 % and 3 sigma at 60 s, a prediction that the noise of its start limits."""
    code, out, err = run(tmp_path, "identify_inertia")
    assert code == 0, err
    rows = [line.split() for line in out.splitlines() if line.startswith("I")]
    assert len(rows) == 6
    assert all(abs(float(row[-2])) < 3 and abs(float(row[-1])) < 0.5 for row in rows)
    rms = {line[:12].strip(): float(line.split()[-1]) for line in out.splitlines() if line.startswith(("first", "ident", "true"))}
    assert rms["identified"] < 2 * rms["true inertia"] < 0.05 * rms["first guess"]
    assert (tmp_path / "identify_inertia.png").stat().st_size > 10_000


# Gyroscope.


def a_recording(seed, calibration, module):
    """Five seconds of rest and 24 s of motion at 50 Hz, seen by a gyroscope with the errors of a calibration; gaps in the reference."""
    dt, rest, moving = 0.02, 250, 1200
    t = dt * np.arange(rest + moving)
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, (3, 3))
    envelope = np.clip((t - rest * dt) / 2.0, 0.0, 1.0)

    def rate(t, envelope):
        waves = [np.sin(2 * np.pi * f * t[:, None] + phase[k]) for k, f in enumerate((0.21, 0.37, 0.53))]
        return envelope[:, None] * sum(waves)

    q = np.asarray(jq.kinematics.integrate(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.asarray(rate(t, envelope)), dt, order=6)).copy()
    late = t - float(calibration.offset)
    shifted = rate(late, np.clip((late - rest * dt) / 2.0, 0.0, 1.0))
    gyro = jq.sensors.Gyro(*calibration[:3], noise=jnp.array(1e-5), walk=jnp.array(0.0))
    measured = np.asarray(jq.sensors.measure(gyro, jnp.asarray(shifted), dt, jax.random.key(seed)))
    q[rest : rest + 7] = np.nan
    q[rest + 600 : rest + 640] = np.nan
    return jq.recordings.Recording(t, measured, q, np.arange(len(t)) >= rest)


def test_calibration_is_found_from_motion(tmp_path):
    """The numbers that made the recording, from a reference with gaps; the prior holds an exact fit back by less than 2 %."""
    module = example("calibrate_gyro")
    true = module.Calibration(
        jnp.array([2e-3, -1e-3, 1.5e-3]),
        jnp.array([4e-3, -3e-3, 2e-3]),
        1e-3 * jnp.array([3.0, -2.0, 1.0, 2.0, -4.0, 5.0]),
        jnp.array(5e-3),
    )
    train = a_recording(0, true, module)
    found, error = module.calibrate(train, iterations=3)
    for value, wanted, spread in zip(found, true, error, strict=True):
        assert np.all(np.asarray(spread) > 0)
        assert np.all(np.abs(value - wanted) < 0.5 * spread)  # sigma is a degree, the reference exact
    np.testing.assert_allclose(found.bias, true.bias, atol=4e-5)
    np.testing.assert_allclose(found.offset, true.offset, atol=1e-4)


def test_calibration_example_refuses_in_one_line(tmp_path):
    code, out, err = run(tmp_path, "calibrate_gyro", "only.csv")
    assert (code, out) == (1, "")
    assert "wanted two recordings" in err
    code, out, err = run(tmp_path, "calibrate_gyro", "nowhere.csv", "nowhere.csv")
    assert (code, out) == (1, "")
    assert "nowhere.csv" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("train", "test", "limit"), [(FAST, SLOW, 0.5), (SLOW, FAST, 0.5)], ids=["fast to slow", "slow to fast"])
def test_calibration_holds_on_another_recording(tmp_path, train, test, limit):
    """Calibration halves the error of the static bias on a recording that it has not seen."""
    if not (train.exists() and test.exists()):
        pytest.skip("the recordings are not beside this checkout: download BROAD, doi 10.3390/data6070072")
    code, out, err = run(tmp_path, "calibrate_gyro", train, test)
    assert code == 0, err
    word, *cells = out.splitlines()[-1].split()
    assert word == "rms_deg"
    rms = {name: float(value) for name, value in (cell.split("=") for cell in cells)}
    assert list(rms) == ["raw", "static", "calibrated"]
    assert rms["calibrated"] < limit * rms["static"] < 0.3 * rms["raw"]
    assert (tmp_path / "calibrate_gyro.png").stat().st_size > 10_000


# The network.


@pytest.mark.parametrize("network", ["jax", "equinox", "flax"])
def test_networks_are_the_same_function(network):
    """As many parameters, and the plain one's arithmetic where its numbers are put into the others."""
    if network != "jax":
        pytest.importorskip(network)
    module = example("neural_torque")
    params, apply = module.NETWORKS[network](jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 3 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3
    omega = jnp.array([0.3, -0.2, 0.9])
    leaves = jax.tree.leaves(params)
    matrices = [leaf if leaf.shape[1] == n else leaf.T for leaf, n in zip([x for x in leaves if x.ndim == 2], (3, 16, 16), strict=True)]
    vectors = [x for x in leaves if x.ndim == 1]
    hidden = jnp.tanh(matrices[0] @ omega + vectors[0])
    assert apply(params, omega).shape == (3,)
    if network == "jax":
        wanted = matrices[2] @ jnp.tanh(matrices[1] @ hidden + vectors[1]) + vectors[2]
        np.testing.assert_allclose(apply(params, omega), wanted, rtol=1e-14)
