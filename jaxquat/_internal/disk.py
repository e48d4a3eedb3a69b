"""Digests of arrays, because zarr passes on flipped bits, and one writer at a time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def digest(tree: Any) -> str:
    """Return the SHA-256 of the paths, dtypes, shapes and bits of leaves that are NumPy arrays."""
    sha = hashlib.sha256()
    for path, array in jax.tree_util.tree_leaves_with_path(tree):
        sha.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


@contextlib.contextmanager
def only_writer(name: str, folder: Path, lock: str) -> Iterator[None]:
    """Lock the file ``lock`` in a folder by flock; it exists only while a process writes there."""
    # Nothing is locked without flock (Windows, some file systems) or if the file cannot be created.
    # BlockingIOError names another writer and its host.
    file, path = _locked(name, folder, folder / lock), folder / lock
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                path.unlink()  # while it is locked: later it might be another writer's file
            file.close()


def _locked(name: str, folder: Path, path: Path) -> BinaryIO | None:
    """Return the file at ``path``, open and locked; None if nothing can be locked."""
    while fcntl is not None:
        try:
            file = open(path, "a+b", buffering=0)  # noqa: SIM115, it stays open
        except OSError:  # nothing else can be written there either, and the writer will report it
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with file:
                file.seek(0)
                who = file.read().decode(errors="replace") or "another process"
            raise BlockingIOError(
                f"{name}: wanted a folder to which nobody else writes, got {folder}, to which "
                f"{who} is writing; wait until it has ended, or give another folder"
            ) from error
        except OSError:  # the file system has no locks
            file.close()
            path.unlink(missing_ok=True)
            return None
        if _is_at(file, path):
            with contextlib.suppress(OSError):  # a full disk
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
            return file
        file.close()  # its writer has ended and removed it
    return None


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
