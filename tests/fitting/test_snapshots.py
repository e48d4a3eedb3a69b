"""Fits on disk: an interrupted one ends with the same bits.

Nothing that is damaged, half written or of another fit goes unnoticed.
"""

import contextlib
import dataclasses
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
from commands import ROOT
from marks import some

import jaxquat as jq
from jaxquat.fitting.snapshots import Snapshots

DATA = jax.random.normal(jax.random.key(1), (4, 3))


def loss(params, batch, key):
    return jnp.mean((batch @ params["x"] - params["y"]) ** 2)


def fit(**changes):
    arguments = {
        "loss": loss,
        "params": {"x": jnp.ones(3), "y": jnp.array(0.5)},
        "optimizer": optax.adam(0.1),
        "data": DATA,
        "steps": 20,
        "key": jax.random.key(0),
    }
    fields = {name: changes.pop(name) for name in jq.FitOptions._fields if name in changes}
    options = {"chunk": 4, "snapshot_every": 3, "progress": False, **fields}
    return jq.fit(**arguments | changes, options=jq.FitOptions(**options))


def assert_same_bits(got, wanted):
    """Of two pytrees or two fits."""
    if isinstance(got, jq.Fit):
        got, wanted = dataclasses.asdict(got), dataclasses.asdict(wanted)
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A directory after 20 updates, and that fit without a directory."""
    path = tmp_path_factory.mktemp("ended") / "fit"
    assert_same_bits(fit(snapshot_dir=path), plain := fit())
    return path, plain


@pytest.fixture
def copied(ended, tmp_path):
    shutil.copytree(ended[0], tmp_path / "fit")
    return tmp_path / "fit", ended[1]


def numbers(path):
    return sorted(entry.name.removesuffix(".snapshot") for entry in path.iterdir())


BATCHES = {
    "loss": lambda params, batch, key: loss(params, batch, key) * jax.random.uniform(key),
    "optimizer": optax.sgd(0.1, momentum=0.9),
    "batch_size": 2,
}
STARTS = {
    "params": {"x": jnp.ones((2, 3), jnp.float32), "y": jnp.array([0.5, 3.0], jnp.float32)},
    "data": DATA.astype(jnp.float32),
    "validation": lambda params: jnp.sum(params["y"] ** 2),
    "starts": 2,
}


@pytest.mark.parametrize("changes", some(["batches", "starts"], ["starts"]))
def test_more_steps_continue_to_the_same_bits(changes, tmp_path):
    """The interrupted fit ends within a chunk and between two writes.

    There it evaluates its validation, and the other does not.
    """
    changes = {"batches": BATCHES, "starts": STARTS}[changes]
    part = fit(**changes, steps=7, snapshot_dir=tmp_path)
    assert numbers(tmp_path) == ["6", "7"]
    whole = fit(**changes)
    assert_same_bits(part.history, whole.history[..., :7])
    assert_same_bits(fit(**changes, snapshot_dir=tmp_path), whole)
    assert numbers(tmp_path) == ["18", "20"]


def test_a_second_fit_in_one_directory_is_refused_by_name(tmp_path, monkeypatch):
    """The second begins while the first writes a snapshot; the first goes on."""
    wanted, write, messages = fit(), Snapshots.save, []

    def interfered(self, number, tree):
        with pytest.raises(BlockingIOError) as caught:
            fit(snapshot_dir=tmp_path)
        messages.append(str(caught.value))
        write(self, number, tree)

    monkeypatch.setattr(Snapshots, "save", interfered)
    assert_same_bits(fit(snapshot_dir=tmp_path, snapshot_every=10), wanted)
    start = f"snapshot_dir: wanted a folder to which nobody else writes, got {tmp_path}, to which "
    assert [message.startswith(f"{start}process {os.getpid()} on ") for message in messages] == [
        True,
        True,
    ]
    assert numbers(tmp_path) == ["10", "20"]


def test_an_ended_fit_is_read_and_not_made_again(ended):
    def never(params, batch, key):
        raise AssertionError

    assert_same_bits(fit(loss=never, snapshot_dir=ended[0]), ended[1])
    message = "steps: wanted at least the 20 updates that snapshot_dir has, got 19"
    with pytest.raises(ValueError, match=message):
        fit(steps=19, snapshot_dir=ended[0])


def test_a_fit_that_patience_ended_stays_ended(tmp_path):
    """The validation loss never falls; with more patience the fit goes on."""
    changes = {
        "optimizer": optax.sgd(0.01),
        "validation": lambda p: -jnp.sum(p["x"] ** 2) * 0.0 + 1.0,
        "snapshot_dir": tmp_path,
    }
    assert fit(**changes, patience=2).history.shape == (8,)
    assert fit(**changes, patience=2).history.shape == (8,)
    assert fit(**changes, patience=3).history.shape == (12,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("params", {"x": jnp.ones(3), "y": jnp.array(0.25)}),
        ("params", {"x": jnp.ones(3), "z": jnp.array(0.5)}),
        ("optimizer", optax.sgd(0.1)),
        ("data", DATA.at[2, 1].add(1e-15)),
        ("batch_size", 3),
        ("key", jax.random.key(1)),
        ("key", jax.random.key(0, impl="rbg")),
        ("validation", lambda p: p["y"]),
    ],
)
def test_the_states_of_another_fit_are_refused(name, value, ended):
    with pytest.raises(ValueError, match="snapshot_dir: wanted snapshots of this fit, got in "):
        fit(**{name: value}, snapshot_dir=ended[0])


def test_every_leaf_comes_back(tmp_path):
    """Keys with their kind, arrays of size zero, single numbers, short floats."""
    tree = {
        "key": jax.random.split(jax.random.key(3, impl="rbg"), 2),
        "empty": jnp.zeros((2, 0)),
        "half": jnp.array([1.5, -jnp.inf], jnp.bfloat16),
        "count": jnp.array(3, jnp.int32),
    }
    disk = Snapshots(tmp_path, "")
    disk.save(1, tree)
    got = disk.newest(jax.tree.map(jnp.zeros_like, tree))
    assert got["key"].dtype == tree["key"].dtype
    got["key"], tree["key"] = jax.random.key_data(got["key"]), jax.random.key_data(tree["key"])
    assert_same_bits(got, tree)


def test_damage_changes_nothing_that_is_read(tmp_path):
    """The file emptied, cut short, or with a bit flipped: only dates in it are not checked."""
    tree = {"x": jnp.linspace(0.0, 1.0, 50), "n": jnp.array(3)}
    disk, refused = Snapshots(tmp_path, "a run"), 0
    disk.save(20, tree)
    file = tmp_path / "20.snapshot"
    content = file.read_bytes()
    flipped = [bytearray(content) for _ in range(96)]
    for k, bits in enumerate(flipped):
        bits[len(bits) * k // 96] ^= 1 << k % 8
    for damaged in [b"", content[: len(content) // 2], *flipped]:
        file.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            refused += 1
            assert_same_bits(disk.newest(tree), tree)
            refused -= 1
    assert refused > 60


def test_the_way_out_of_damage(copied):
    path, plain = copied
    newest = path / "20.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"remove .*20\.snapshot to go on from the one before"):
        fit(snapshot_dir=path)
    newest.unlink()
    assert_same_bits(fit(snapshot_dir=path), plain)


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


@pytest.mark.slow
def test_a_full_disk_costs_nothing_but_time(copied):
    path, _ = copied
    message = "snapshot_dir: .*after update 21 .*the same call continues from the last one"
    with full_disk(0), pytest.raises(OSError, match=message):
        fit(steps=21, snapshot_dir=path)
    assert numbers(path) == ["18", "20"]
    assert_same_bits(fit(steps=21, snapshot_dir=path), fit(steps=21))


def test_a_disk_that_is_full_in_the_midst_of_it(tmp_path):
    """A small file can be written, a large one cannot."""
    disk, large = Snapshots(tmp_path, ""), jax.random.normal(jax.random.key(0), (1000,))
    disk.save(1, jnp.zeros(3))
    message = "snapshot_dir: .*after update 2 .*the same call continues from the last one"
    with full_disk(2000), pytest.raises(OSError, match=message):
        disk.save(2, large)
    assert numbers(tmp_path) == ["1"]
    np.testing.assert_array_equal(disk.newest(jnp.ones(3)), np.zeros(3))


def test_what_a_kill_leaves_is_removed_and_what_is_not_ours_is_not(copied):
    path, _ = copied
    ours, other = path / "21.unfinished", path / "notes.unfinished"
    ours.touch()
    other.touch()
    fit(steps=21, snapshot_dir=path)
    assert numbers(path) == ["20", "21", other.name]


def test_a_directory_below_a_file_is_refused():
    message = "snapshot_dir: wanted a directory .* made, got .*File exists"
    with pytest.raises(OSError, match=message):
        fit(snapshot_dir=__file__)


KILLED = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
sys.path[:0] = sys.argv[2:]
import test_snapshots
test_snapshots.fit(steps=6000, chunk=4, snapshot_every=5, snapshot_dir=sys.argv[1])
"""


FOLDERS = [Path(__file__).parent, ROOT / "tests"]


def newest_of(path):
    return max((int(name) for name in numbers(path) if name.isdecimal()), default=0)


@pytest.mark.slow
def test_a_killed_fit_ends_with_the_same_bits(tmp_path):
    """Killed at five random moments, most of them within a write: writes take most of the time."""
    rng, written = random.Random(time.time_ns()), 0
    for _ in range(5):
        command = [sys.executable, "-c", KILLED, tmp_path, *FOLDERS]
        process = subprocess.Popen(command)
        while newest_of(tmp_path) <= written:
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        written = newest_of(tmp_path)
        assert written < 6000
    settings = {"steps": 6000, "chunk": 4, "snapshot_every": 5}
    assert_same_bits(fit(**settings, snapshot_dir=tmp_path), fit(**settings))
