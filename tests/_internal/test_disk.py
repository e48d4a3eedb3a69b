"""One writer at a time, and digests that see every bit."""

import os
import signal
import socket
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from jaxquat._internal import disk

pytestmark = pytest.mark.skipif(disk.fcntl is None, reason="this system has no flock")

HOLD = """
import sys, time
from pathlib import Path
from jaxquat._internal import disk
with disk.only_writer("store", Path(sys.argv[1]), "lock"):
    print("writing", flush=True)
    time.sleep(60)
"""


def refusal(folder):
    with (
        pytest.raises(BlockingIOError) as caught,
        disk.only_writer("store", folder, "lock"),
    ):
        pass
    return str(caught.value)


def test_a_process_that_writes_is_named_and_one_that_was_killed_stops_nobody(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        assert f"process {process.pid} on {socket.gethostname()} is writing" in refusal(tmp_path)
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "lock").exists()
    with disk.only_writer("store", tmp_path, "lock"):
        assert f"process {os.getpid()} on" in refusal(tmp_path)
    assert not (tmp_path / "lock").exists()


def test_a_file_left_by_a_process_of_another_boot_stops_nobody(tmp_path):
    """Its number may be that of a process that lives now."""
    (tmp_path / "lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    with disk.only_writer("store", tmp_path, "lock"):
        pass


def test_an_interrupt_or_an_error_releases_the_lock(tmp_path):
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), disk.only_writer("store", tmp_path, "lock"):
            raise error
    assert not list(tmp_path.iterdir())


def test_a_lock_on_a_file_that_its_writer_has_removed_is_taken_anew(tmp_path, monkeypatch):
    """The writer ends between the opening of the file and its lock."""
    flock, calls = disk.fcntl.flock, []

    def late(file, kind):
        calls.append(file)
        if len(calls) == 1:
            (tmp_path / "lock").unlink()
        flock(file, kind)

    monkeypatch.setattr(disk.fcntl, "flock", late)
    with disk.only_writer("store", tmp_path, "lock"):
        assert len(calls) == 2
        assert f"process {os.getpid()} on" in refusal(tmp_path)


def test_without_locks_nobody_is_stopped(tmp_path, monkeypatch):
    """A file system without flock, a folder that cannot be written, and Windows."""

    class NoLocks:
        LOCK_EX, LOCK_NB = 2, 4

        def flock(self, file, kind):
            raise OSError(38, "Function not implemented")

    monkeypatch.setattr(disk, "fcntl", NoLocks())
    with disk.only_writer("store", tmp_path, "lock"), disk.only_writer("s", tmp_path, "lock"):
        assert not list(tmp_path.iterdir())
    monkeypatch.setattr(disk, "fcntl", None)
    with disk.only_writer("store", tmp_path / "missing", "lock"):
        pass
    monkeypatch.undo()
    with disk.only_writer("store", tmp_path / "missing", "lock"):
        pass


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, jnp.bfloat16])
def test_a_digest_is_that_of_paths_dtypes_shapes_and_bits(dtype):
    array = np.zeros((2, 3), dtype)
    changed = array.copy()
    changed[1, 2] = 1
    trees = [{"a": array}, {"b": array}, {"a": changed}, {"a": array.reshape(3, 2)}, [array]]
    trees.append({"a": array.view(np.uint8)})
    assert len({disk.digest(tree) for tree in trees}) == len(trees)
    assert disk.digest({"a": changed[:, ::-1]}) == disk.digest({"a": changed[:, ::-1].copy()})
