"""Fits on disk: an interrupted one ends with the same bits, and nothing damaged, foreign or half written goes unnoticed."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxquat as jq
from jaxquat import snapshots

DATA = jax.random.normal(jax.random.key(1), (20, 3))


def loss(params, batch, key):
    return jnp.mean((batch @ params["x"] - params["y"]) ** 2) + 0.1 * params["y"] * jax.random.normal(key)


def fit(**changes):
    given = {"params": {"x": jnp.ones(3), "y": jnp.array(0.5)}, "optimizer": optax.adam(0.1), "data": DATA, "batch": 4}
    fixed = {"steps": 20, "chunk": 4, "checkpoint_every": 3, "key": jax.random.key(0), "progress": False}
    return jq.fit(**{"loss": loss, **given, **fixed, **changes})


def assert_same_bits(got, wanted):
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A directory after 20 updates, and that fit without a directory."""
    path = tmp_path_factory.mktemp("ended") / "fit"
    assert_same_bits(fit(checkpoint_dir=path), plain := fit())
    return path, plain


@pytest.fixture
def copied(ended, tmp_path):
    shutil.copytree(ended[0], tmp_path / "fit")
    return tmp_path / "fit", ended[1]


def numbers(path):
    return sorted(entry.name for entry in path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": optax.noisy_sgd(0.1, 0.1, key=jax.random.key(5))},
        {
            "params": {"x": jnp.ones((2, 3), jnp.float32), "y": jnp.array([0.5, 3.0], jnp.float32)},
            "data": DATA.astype(jnp.float32),
            "loss": lambda p, b, k: jnp.mean((b @ p["x"] - p["y"]) ** 2),
            "validation": lambda p: jnp.sum(p["y"] ** 2),
            "starts": 2,
        },
    ],
    ids=["adam", "noisy", "starts"],
)
def test_more_steps_continue_to_the_same_bits(changes, tmp_path):
    """Ends within a chunk and within two writes, where the interrupted fit evaluates and the other does not."""
    part = fit(**changes, steps=7, checkpoint_dir=tmp_path)
    assert numbers(tmp_path) == ["6", "7"]
    whole = fit(**changes)
    assert_same_bits(part.history, whole.history[..., :7])
    assert_same_bits(fit(**changes, checkpoint_dir=tmp_path), whole)
    assert numbers(tmp_path) == ["18", "20"]


def test_an_ended_fit_is_read_and_not_made_again(ended):
    def never(params, batch, key):
        raise AssertionError

    assert_same_bits(fit(loss=never, checkpoint_dir=ended[0]), ended[1])
    with pytest.raises(ValueError, match="steps: wanted at least the 20 updates that checkpoint_dir has, got 19"):
        fit(steps=19, checkpoint_dir=ended[0])


def test_a_fit_that_patience_ended_stays_ended(tmp_path):
    """The validation loss grows from the start; with more patience the fit goes on."""
    given = {"optimizer": optax.sgd(0.01), "validation": lambda p: -jnp.sum(p["x"] ** 2) * 0.0 + 1.0, "checkpoint_dir": tmp_path}
    assert fit(**given, patience=2).history.shape == (8,)
    assert fit(**given, patience=2).history.shape == (8,)
    assert fit(**given, patience=3).history.shape == (12,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("params", {"x": jnp.ones(3), "y": jnp.array(0.25)}),
        ("params", {"x": jnp.ones(3), "z": jnp.array(0.5)}),
        ("optimizer", optax.sgd(0.1)),
        ("data", DATA.at[7, 1].add(1e-15)),
        ("batch", 5),
        ("key", jax.random.key(1)),
        ("key", jax.random.key(0, impl="rbg")),
        ("validation", lambda p: p["y"]),
    ],
)
def test_the_states_of_another_fit_are_refused(name, value, ended):
    with pytest.raises(ValueError, match="checkpoint_dir: wanted the states of this fit, got in .* differs in .*" + name) as error:
        fit(**{name: value}, checkpoint_dir=ended[0])
    assert ("data" in str(error.value)) == (name == "data")


def test_damage_is_found_wherever_it_is(copied):
    """Every file cut short, emptied, deleted, or with any of some bits flipped: refused, or read with the right bits."""
    path, _ = copied
    folder, rng = path / "20", random.Random(0)
    like = jq.fitting._Run({"x": jnp.ones(3), "y": jnp.array(0.5)}, *[()] * 5)
    like = like._replace(state=optax.adam(0.1).init(like.params), skipped=jnp.array(0), history=np.zeros(0), validation=np.zeros(0))
    leaves, fingerprint = snapshots._read("checkpoint_dir", folder)
    whole = snapshots.newest("checkpoint_dir", path, like, fingerprint)
    assert len(leaves) == len(jax.tree.leaves(whole)) - 1  # the validation is empty
    refused = 0
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        content = file.read_bytes()
        flipped = [bytearray(content) for _ in range(4)]
        for bits in flipped:
            bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
        for damaged in [None, b"", content[: len(content) // 2], *flipped]:
            file.unlink() if damaged is None else file.write_bytes(damaged)
            try:
                assert_same_bits(snapshots.newest("checkpoint_dir", path, like, fingerprint), whole)
            except ValueError as error:
                refused += 1
                assert f"checkpoint_dir: wanted an intact state, got a damaged one in {folder}" in str(error)  # noqa: PT017
                assert f"that of update 18 is intact: remove {folder} to go on from there" in str(error)  # noqa: PT017
            file.write_bytes(content)
    assert refused > 10


def test_the_way_out_of_damage(copied):
    path, plain = copied
    for file in (path / "20").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="that of update 18 is intact: remove .*20 to go on from there"):
        fit(checkpoint_dir=path)
    shutil.rmtree(path / "20")
    assert_same_bits(fit(checkpoint_dir=path), plain)
    for folder in path.iterdir():
        (folder / "_METADATA").unlink()
    with pytest.raises(ValueError, match="no other intact one: remove .*fit to begin anew"):
        fit(checkpoint_dir=path)


@contextlib.contextmanager
def full_disk(size):
    """No file may grow beyond ``size`` bytes."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 1000], ids=["first byte", "later"])
def test_a_full_disk_costs_nothing_but_time(size, tmp_path):
    """The first folder can be made and its files not, or the large one of them not."""
    changes = {"params": {"x": jnp.linspace(1.0, 2.0, 600).reshape(3, 200), "y": jnp.array(0.5)}}
    fit(**changes, steps=7, checkpoint_dir=tmp_path)
    with full_disk(size), pytest.raises(OSError, match="checkpoint_dir: .*after update 9 .*that after update 7 is still there"):
        fit(**changes, checkpoint_dir=tmp_path)
    assert numbers(tmp_path) == ["6", "7"]
    assert_same_bits(fit(**changes, checkpoint_dir=tmp_path), fit(**changes))


def test_what_a_kill_leaves_is_removed_and_what_is_not_ours_is_not(copied):
    path, _ = copied
    ours, other = path / "21.orbax-checkpoint-tmp", path / "notes.orbax-checkpoint-tmp"
    ours.mkdir()
    other.mkdir()
    fit(steps=21, checkpoint_dir=path)
    assert numbers(path) == ["20", "21", other.name]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (5, TypeError, "checkpoint_dir: wanted the path of a directory, got 5"),
        (__file__, OSError, "checkpoint_dir: wanted a directory that can be made, got .*File exists"),
    ],
)
def test_errors(value, error, message):
    with pytest.raises(error, match=message):
        fit(checkpoint_dir=value)


def test_without_orbax(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r'checkpoint_dir: .*orbax-checkpoint.*pip install "jaxquat\[store\]"'):
        fit(checkpoint_dir=tmp_path)


KILLED = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, sys.argv[2])
import test_snapshots
test_snapshots.fit(steps=1000, chunk=4, checkpoint_every=5, checkpoint_dir=sys.argv[1])
"""


@pytest.mark.slow
def test_a_killed_fit_ends_with_the_same_bits(tmp_path):
    """Killed at six random moments, most of them within a write: 5 updates take less than a millisecond, a write 20."""
    rng, made = random.Random(time.time_ns()), 0
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path, Path(__file__).parent])
        while max((int(name) for name in numbers(tmp_path) if name.isdecimal()), default=0) <= made:
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        made = max(int(name) for name in numbers(tmp_path) if name.isdecimal())
        assert made < 1000
    settings = {"steps": 1000, "chunk": 4, "checkpoint_every": 5}
    assert_same_bits(fit(**settings, checkpoint_dir=tmp_path), fit(**settings))
