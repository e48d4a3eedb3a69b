"""A long run on disk: numbered snapshots, each complete or absent.

They have NumPy's format, with checksums. Each is written as ``<number>.unfinished`` and renamed.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._internal import disk
from jaxquat._internal.checks import is_key

KEPT = 2  # snapshots: the newest, and one to fall back on
_FINISHED, _UNFINISHED = ".snapshot", ".unfinished"


def digest(tree: Any) -> str:
    """Return the SHA-256 of the paths, dtypes, shapes and bits of the leaves."""
    return disk.digest(jax.tree.map(_plain, tree))


class Snapshots(NamedTuple):
    """The snapshots of one run."""

    path: Path  # an existing directory
    run: str  # identifies the run

    def save(self, number: int, tree: Any) -> None:
        """Write a snapshot, then delete all but the last ``KEPT``; after an OSError all stay."""
        arrays = [_plain(leaf) for leaf in jax.tree.leaves(tree)]
        dtypes = [str(x.dtype) for x in arrays]  # NumPy's format has not all of them
        file, unfinished = io.BytesIO(), self.path / f"{number}{_UNFINISHED}"
        np.savez(file, *arrays, run=self.run, dtypes=dtypes)
        try:
            unfinished.write_bytes(file.getvalue())
            unfinished.rename(unfinished.with_suffix(_FINISHED))
        except OSError as error:
            wanted = f"to write the snapshot after update {number} to {self.path}"
            hint = "make room or permission, then the same call continues from the last one"
            raise OSError(f"snapshot_dir: wanted {wanted}, got {error}; {hint}") from error
        finally:
            for old in self._files(_UNFINISHED) + self._files(_FINISHED)[:-KEPT]:
                old.unlink()

    def newest(self, like: Any) -> Any:
        """Return the newest snapshot or None; ValueError if damaged or of another run."""
        files = self._files(_FINISHED)
        if not files:
            return None
        try:
            with np.load(io.BytesIO(files[-1].read_bytes())) as saved:
                run, dtypes, *arrays = (saved[name] for name in saved.files)
        except Exception as error:  # damaged bytes may raise anything
            got = f"{error}; remove {files[-1]} to go on from the one before, or to begin anew"
            raise ValueError(f"snapshot_dir: wanted an intact snapshot, got {got}") from error
        if str(run) != self.run:
            got = f"in {self.path} one of other params, data, key, batch size, starts, optimiser or"
            hint = "give another directory, or the arguments of that fit"
            got += f" times of validation; {hint}"
            raise ValueError(f"snapshot_dir: wanted snapshots of this fit, got {got}")
        leaves, structure = jax.tree.flatten(like)
        arrays = [x.view(str(dtype)) for x, dtype in zip(arrays, dtypes, strict=True)]
        return jax.tree.unflatten(structure, map(_like, leaves, arrays))

    def _files(self, suffix: str) -> list[Path]:
        """Return the files ``<number><suffix>``, in rising order."""
        files = (file for file in self.path.glob(f"*{suffix}") if file.stem.isdecimal())
        return sorted(files, key=lambda file: int(file.stem))


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _like(leaf: Any, saved: np.ndarray) -> Any:
    """Return the saved leaf, as a key if ``leaf`` is one."""
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
    return saved
