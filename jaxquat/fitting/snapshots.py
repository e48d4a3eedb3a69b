"""A long run on disk: numbered snapshots, each complete or absent.

A snapshot is a folder, named by its number, with the arrays as orbax-checkpoint writes them and a
file ``fit.json``. This file holds the fingerprint of the run, which says to which run the snapshot
belongs, and the digests of all other files, because orbax silently reads an array with a flipped
bit.

A snapshot is written under another name and then renamed, so a kill leaves either all of it or a
folder ``<number>.unfinished`` that the next write removes. The two newest are kept. A snapshot is
checked before it is read. If the newest is damaged, an error names an intact older one: a person
decides whether to go back to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._internal import disk
from jaxquat._internal.checks import is_key, missing_package, place

KEPT = 2
"""Number of snapshots that are kept: the newest, and one to fall back on."""

_ARGUMENT = "snapshot_dir"
"""The argument of ``fit`` that the errors name."""

_ABOUT, _ARRAYS, _UNFINISHED = "fit.json", "state", ".unfinished"


def directory(value: Any) -> Path:
    """``value`` as the absolute path of a directory, created if it does not exist.

    Raises:
        TypeError: it is not a path.
        OSError: the directory cannot be created.
        ImportError: orbax-checkpoint is not installed.
    """
    path = place(_ARGUMENT, value).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{_ARGUMENT}: wanted a directory that can be made, got {error}"
        raise OSError(message) from error
    _orbax()
    return path


def digest(tree: Any) -> str:
    """SHA-256 of the paths, dtypes, shapes and bits of the leaves."""
    return disk.digest(jax.tree.map(_plain, tree))


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one run.

    Attributes:
        path: an existing directory.
        fingerprint: identifies the run, by values that JSON returns unchanged.
    """

    path: Path
    fingerprint: dict[str, Any]

    def only_writer(self) -> contextlib.AbstractContextManager[None]:
        """Lock the directory against other writers; BlockingIOError if it is locked already."""
        return disk.only_writer(_ARGUMENT, self.path, "lock")

    def save(self, number: int, tree: Any) -> None:
        """Write snapshot ``number``, then delete all but the last ``KEPT``.

        OSError if it cannot be written; the existing snapshots stay.
        """
        self._remove_unfinished()
        unfinished = self.path / f"{number}{_UNFINISHED}"
        arrays = {str(k): _plain(leaf) for k, leaf in enumerate(jax.tree.leaves(tree))}
        try:
            self._write(unfinished, arrays)
            unfinished.rename(self.path / str(number))
        except Exception as error:
            # A full disk gives an OSError or, from the library that orbax writes with, a
            # ValueError.
            self._remove_unfinished()
            raise self._unwritten(number, error) from error
        for old in self._numbers()[:-KEPT]:
            shutil.rmtree(self.path / str(old))

    def newest(self, like: Any) -> Any:
        """The newest snapshot, in numpy, as a tree like ``like``; None if there is none.

        Raises:
            ValueError: it is damaged, or belongs to a run with another fingerprint.
        """
        numbers = self._numbers()
        if not numbers:
            return None
        folder = self.path / str(numbers[-1])
        fingerprint, damage = _checked(folder)
        if damage:
            raise self._damaged(numbers, damage)
        if fingerprint != self.fingerprint:
            raise self._foreign(fingerprint)
        with _orbax().PyTreeCheckpointer() as checkpointer:
            arrays = checkpointer.restore(folder / _ARRAYS)
        leaves, structure = jax.tree.flatten(like)
        saved = [_like(leaf, arrays.get(str(k))) for k, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, saved)

    def _write(self, folder: Path, arrays: dict[str, np.ndarray]) -> None:
        with _orbax().PyTreeCheckpointer() as checkpointer:  # orbax refuses arrays of size zero
            full = {name: array for name, array in arrays.items() if array.size}
            checkpointer.save(folder / _ARRAYS, full)
        content = {"fingerprint": self.fingerprint, "files": _digests(folder / _ARRAYS)}
        about = json.dumps(content, sort_keys=True)
        (folder / _ABOUT).write_text(f"{about}\n{_sha(about.encode())}\n")

    def _numbers(self) -> list[int]:
        folders = (entry for entry in self.path.iterdir() if entry.is_dir())
        return sorted(int(folder.name) for folder in folders if folder.name.isdecimal())

    def _remove_unfinished(self) -> None:
        """Remove what a killed or failed write left behind."""
        for entry in self.path.glob(f"*{_UNFINISHED}"):
            if entry.name.removesuffix(_UNFINISHED).isdecimal():
                shutil.rmtree(entry, ignore_errors=True)

    def _unwritten(self, number: int, error: Exception) -> OSError:
        numbers = self._numbers()
        left = f"the snapshot after update {numbers[-1]} is still there: " if numbers else ""
        return OSError(
            f"{_ARGUMENT}: wanted to write the snapshot after update {number} to {self.path}, "
            f"got {error}; {left}make room or permission, "
            "then the same call continues from there"
        )

    def _damaged(self, numbers: list[int], damage: str) -> ValueError:
        folder = self.path / str(numbers[-1])
        older = (k for k in reversed(numbers[:-1]) if not _checked(self.path / str(k))[1])
        intact = next(older, None)
        if intact is None:
            way_out = f"there is no other intact one: remove {self.path} to begin anew"
        else:
            way_out = (
                f"the one after update {intact} is intact: remove {folder} to go on from there"
            )
        return ValueError(
            f"{_ARGUMENT}: wanted an intact snapshot, "
            f"got a damaged one in {folder} ({damage}); {way_out}"
        )

    def _foreign(self, there: dict[str, Any]) -> ValueError:
        here = self.fingerprint
        differences = ", ".join(
            f"{name} ({there.get(name)} there, {here.get(name)} here)"
            for name in sorted({*there, *here})
            if there.get(name) != here.get(name)
        )
        return ValueError(
            f"{_ARGUMENT}: wanted the snapshots of this fit, "
            f"got in {self.path} those of a fit that differs in {differences}; "
            "give another directory, or the arguments of that fit"
        )


def _orbax() -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(missing_package(_ARGUMENT, "orbax-checkpoint", "store")) from error
    return ocp


def _checked(folder: Path) -> tuple[dict[str, Any], str]:
    """The fingerprint in a folder, and a description of the damage there, "" if there is none."""
    try:
        about, sha = (folder / _ABOUT).read_bytes().splitlines()
        if _sha(about) != sha.decode():
            return {}, f"{_ABOUT} is not as it was written"
        written = json.loads(about)
        digests = _digests(folder / _ARRAYS)
    except (OSError, ValueError) as error:
        return {}, f"{_ABOUT} or a file beside it cannot be read: {error}"
    changed = [name for name, sha in written["files"].items() if digests.get(name) != sha]
    return written["fingerprint"], f"{', '.join(changed)} not as written" if changed else ""


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): _sha(file.read_bytes()) for file in files}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as a numpy array; for a typed key, its data."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _like(leaf: Any, saved: np.ndarray | None) -> Any:
    """The saved leaf, as a key if ``leaf`` is one; ``leaf`` itself if none was saved (size 0)."""
    if saved is None:
        return leaf
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
    return saved
