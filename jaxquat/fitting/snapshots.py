"""A long run on disk: numbered snapshots, each complete or absent.

A folder has orbax's arrays and ``fit.json``: the fingerprint of the run, and the digests of all
files, because orbax silently reads a flipped bit. It is written as ``<number>.unfinished`` and
renamed. If the newest is damaged, an error names an intact older one.
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

_ABOUT, _ARRAYS, _UNFINISHED = "fit.json", "state", ".unfinished"


def directory(value: Any) -> Path:
    """Return ``snapshot_dir`` as the absolute path of a directory, created if necessary."""
    path = place("snapshot_dir", value).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"snapshot_dir: wanted a directory that can be made, got {error}"
        raise OSError(message) from error
    _orbax()
    return path


def digest(tree: Any) -> str:
    """Return the SHA-256 of the paths, dtypes, shapes and bits of the leaves."""
    return disk.digest(jax.tree.map(_plain, tree))


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one run."""

    path: Path  # an existing directory
    fingerprint: dict[str, Any]  # identifies the run, by values that JSON returns unchanged

    def only_writer(self) -> contextlib.AbstractContextManager[None]:
        """Lock the directory against other writers; BlockingIOError if it is locked already."""
        return disk.only_writer("snapshot_dir", self.path, "lock")

    def save(self, number: int, tree: Any) -> None:
        """Write a snapshot, then delete all but the last ``KEPT``; after an OSError all stay."""
        unfinished = self.path / f"{number}{_UNFINISHED}"
        arrays = {str(k): _plain(leaf) for k, leaf in enumerate(jax.tree.leaves(tree))}
        full = {name: array for name, array in arrays.items() if array.size}  # orbax refuses others
        self._remove_unfinished()
        try:
            with _orbax().PyTreeCheckpointer() as checkpointer:
                checkpointer.save(unfinished / _ARRAYS, full)
            content = {"fingerprint": self.fingerprint, "files": _digests(unfinished / _ARRAYS)}
            about = json.dumps(content, sort_keys=True)
            (unfinished / _ABOUT).write_text(f"{about}\n{_sha(about.encode())}\n")
            unfinished.rename(self.path / str(number))
        except Exception as error:  # a full disk: an OSError, or a ValueError of orbax's writer
            self._remove_unfinished()
            numbers = self._numbers()
            left = f"the snapshot after update {numbers[-1]} is still there: " if numbers else ""
            raise OSError(
                f"snapshot_dir: wanted to write the snapshot after update {number} to {self.path}, "
                f"got {error}; {left}make room or permission, "
                "then the same call continues from there"
            ) from error
        for old in self._numbers()[:-KEPT]:
            shutil.rmtree(self.path / str(old))

    def newest(self, like: Any) -> Any:
        """Return the newest snapshot or None; ValueError if damaged or of another run."""
        folders = [self.path / str(number) for number in reversed(self._numbers())]
        if not folders:
            return None
        there, damage = _checked(folders[0])
        if damage:
            intact = next((older for older in folders[1:] if not _checked(older)[1]), None)
            way_out = f"there is no other intact one: remove {self.path} to begin anew"
            if intact is not None:
                way_out = f"the one after update {intact.name} is intact: remove {folders[0]} to go"
                way_out += " on from there"
            got = f"a damaged one in {folders[0]} ({damage})"
            raise ValueError(f"snapshot_dir: wanted an intact snapshot, got {got}; {way_out}")
        if there != self.fingerprint:
            differences = ", ".join(
                f"{name} ({there.get(name)} there, {self.fingerprint.get(name)} here)"
                for name in sorted({*there, *self.fingerprint})
                if there.get(name) != self.fingerprint.get(name)
            )
            raise ValueError(
                "snapshot_dir: wanted the snapshots of this fit, "
                f"got in {self.path} those of a fit that differs in {differences}; "
                "give another directory, or the arguments of that fit"
            )
        with _orbax().PyTreeCheckpointer() as checkpointer:
            arrays = checkpointer.restore(folders[0] / _ARRAYS)
        leaves, structure = jax.tree.flatten(like)
        saved = [_like(leaf, arrays.get(str(k))) for k, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, saved)

    def _numbers(self) -> list[int]:
        folders = (entry for entry in self.path.iterdir() if entry.is_dir())
        return sorted(int(folder.name) for folder in folders if folder.name.isdecimal())

    def _remove_unfinished(self) -> None:
        for entry in self.path.glob(f"*{_UNFINISHED}"):
            if entry.name.removesuffix(_UNFINISHED).isdecimal():
                shutil.rmtree(entry, ignore_errors=True)


def _orbax() -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(missing_package("snapshot_dir", "orbax-checkpoint", "store")) from error
    return ocp


def _checked(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the fingerprint in a folder, and a description of the damage there, "" if intact."""
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
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _like(leaf: Any, saved: np.ndarray | None) -> Any:
    """Return the saved leaf as a key if ``leaf`` is one; ``leaf`` itself if none was saved."""
    if saved is None:
        return leaf
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
    return saved
