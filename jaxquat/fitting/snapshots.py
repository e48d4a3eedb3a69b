"""A long run on disk: numbered snapshots, each complete or absent.

A snapshot is one file: a SHA-256, then the fingerprint of the run and the arrays in NumPy's format.
It is written as ``<number>.unfinished`` and renamed. If the newest is damaged, an error names an
intact older one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._internal import disk
from jaxquat._internal.checks import is_key, place

KEPT = 2
"""Number of snapshots that are kept: the newest, and one to fall back on."""

_FINISHED, _UNFINISHED = ".snapshot", ".unfinished"


def directory(value: Any) -> Path:
    """Return ``snapshot_dir`` as the absolute path of a directory, created if necessary."""
    path = place("snapshot_dir", value).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"snapshot_dir: wanted a directory that can be made, got {error}"
        raise OSError(message) from error
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
        arrays = [_plain(leaf) for leaf in jax.tree.leaves(tree)]
        about = {"fingerprint": self.fingerprint, "dtypes": [str(x.dtype) for x in arrays]}
        file = io.BytesIO()
        np.savez(file, *arrays, about=json.dumps(about))
        content = file.getvalue()
        unfinished = self.path / f"{number}{_UNFINISHED}"
        try:
            unfinished.write_bytes(hashlib.sha256(content).digest() + content)
            unfinished.rename(unfinished.with_suffix(_FINISHED))
        except OSError as error:
            there = self._files(_FINISHED)
            left = f"the snapshot after update {there[-1].stem} is still there: " if there else ""
            raise OSError(
                f"snapshot_dir: wanted to write the snapshot after update {number} to {self.path}, "
                f"got {error}; {left}make room or permission, "
                "then the same call continues from there"
            ) from error
        finally:
            for old in self._files(_UNFINISHED) + self._files(_FINISHED)[:-KEPT]:
                old.unlink()

    def newest(self, like: Any) -> Any:
        """Return the newest snapshot or None; ValueError if damaged or of another run."""
        for old in self.path.glob("*/fit.json"):
            way_out = "finish that fit with this version, or give another directory"
            got = f"{old.parent}, which version 0.2.0 or before wrote; {way_out}"
            raise ValueError(f"snapshot_dir: wanted snapshots of this version, got {got}")
        files = self._files(_FINISHED)[::-1]
        if not files:
            return None
        content = _intact(files[0])
        if content is None:
            intact = next((older for older in files[1:] if _intact(older)), None)
            way_out = f"there is no other intact one: remove {self.path} to begin anew"
            if intact is not None:
                way_out = f"the one after update {intact.stem} is intact: remove {files[0]} to go"
                way_out += " on from there"
            got = f"a damaged one in {files[0]}"
            raise ValueError(f"snapshot_dir: wanted an intact snapshot, got {got}; {way_out}")
        with np.load(io.BytesIO(content)) as saved:
            about = json.loads(str(saved["about"]))
            self._check_fingerprint(about["fingerprint"])
            arrays = [saved[f"arr_{k}"].view(dtype) for k, dtype in enumerate(about["dtypes"])]
        leaves, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, map(_like, leaves, arrays))

    def _check_fingerprint(self, there: dict[str, Any]) -> None:
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

    def _files(self, suffix: str) -> list[Path]:
        """Return the files ``<number><suffix>``, in rising order."""
        files = (file for file in self.path.glob(f"*{suffix}") if file.stem.isdecimal())
        return sorted(files, key=lambda file: int(file.stem))


def _intact(file: Path) -> bytes | None:
    """Return the content of a snapshot behind its digest, None if it is damaged."""
    written = file.read_bytes()
    sha, content = written[:32], written[32:]
    return content if hashlib.sha256(content).digest() == sha else None


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _like(leaf: Any, saved: np.ndarray) -> Any:
    """Return the saved leaf, as a key if ``leaf`` is one."""
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
    return saved
