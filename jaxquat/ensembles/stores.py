"""The outputs of all members in a zarr group on disk, and the digests of its complete chunks.

``digests``, in the folder of the first array (zarr warns of unknown files in that of a group), has
a SHA-256 for each complete chunk, written after the arrays. Chunks are checked when they are read,
because zarr silently returns a flipped bit, and NaN for a lost file.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxquat._internal import disk
from jaxquat._internal.checks import missing_package

_BELONGS = "ensemble"  # the attribute of the zarr group with the fingerprint of its run


@dataclass(frozen=True)
class Store:
    """A store that is open for writing."""

    folder: Path  # of the zarr group
    arrays: list[Any]  # zarr arrays (n, ...), in the order of the leaves of the outputs
    dtypes: list[np.dtype]  # of these leaves

    def digests(self) -> list[bytes]:
        """Return a digest for each complete chunk."""
        return self._digests.read_bytes().split(b"\n")[:-1] if self._digests.exists() else []

    def only_writer(self) -> contextlib.AbstractContextManager[None]:
        """Lock the store against other writers; BlockingIOError if it is locked already."""
        return disk.only_writer("store", self.folder, f"{self._about}/lock")

    def read(self, k: int, rows: slice, digest: bytes) -> list[np.ndarray]:
        """Return the outputs of these members of chunk k, which must have this digest."""
        try:
            pairs = zip(self.arrays, self.dtypes, strict=True)
            leaves = [np.asarray(array[rows]).astype(dtype, copy=False) for array, dtype in pairs]
        except Exception as error:  # zarr and its codecs raise many kinds
            raise self._damaged(k, rows, f"which cannot be read ({error})") from error
        if digest != disk.digest(leaves).encode():
            raise self._damaged(k, rows, "which is not as it was written")
        return leaves

    def write(self, k: int, rows: slice, leaves: list[np.ndarray]) -> None:
        """Write the outputs of these members, which completes chunk k."""
        try:
            for array, leaf in zip(self.arrays, leaves, strict=True):
                array[rows] = leaf.astype(array.dtype, copy=False)
            self._digests.touch()
            line = disk.digest(leaves).encode() + b"\n"
            with open(self._digests, "r+b", buffering=0) as file:
                file.truncate(k * len(line))
                file.seek(k * len(line))
                file.write(line)
        except OSError as error:
            raise _unwritten(error, self.folder) from error

    @property
    def _about(self) -> str:
        return self.arrays[0].path

    @property
    def _digests(self) -> Path:
        return self.folder / self._about / "digests"

    def _damaged(self, k: int, rows: slice, problem: str) -> ValueError:
        return ValueError(
            f"store: wanted chunks as they were written, got chunk {k} in {self.folder} (members "
            f"{rows.start} to {rows.stop - 1}), {problem}; remove the lines from {k + 1} on in "
            f"{self._digests}, and the same call simulates this chunk and those after it"
        )


def fingerprint(folder: Path) -> dict[str, Any] | None:
    """Return the fingerprint of the run that made the store; None if the folder does not exist."""
    if not folder.exists():
        return None
    zarr = _zarr()
    try:
        return dict(zarr.open_group(folder, mode="r").attrs[_BELONGS])
    except Exception as error:  # zarr raises many kinds for a damaged file
        wanted = "a new folder or the store of an ensemble"
        raise ValueError(f"store: wanted {wanted}, got {folder}, which is neither") from error


def create(folder: Path, run: dict[str, Any], n: int, chunk: int) -> None:
    """Make a store, all or nothing, by renaming, unless another process made one meanwhile."""
    beside = folder.with_name(f".{folder.name}.creating")
    with disk.only_writer("store", folder, f"{beside.absolute()}.lock"):
        if folder.exists():
            return
        try:
            shutil.rmtree(beside, ignore_errors=True)
            group = _zarr().open_group(beside, mode="w")
            for name, (shape, dtype) in run["outputs"].items():
                missing = float("nan") if "float" in dtype else 0  # of a member not yet simulated
                sizes = (chunk, *(max(k, 1) for k in shape))
                group.create_array(
                    name, shape=(n, *shape), chunks=sizes, dtype=_kept(dtype), fill_value=missing
                )
            group.attrs[_BELONGS] = run
            beside.rename(folder)
        except OSError as error:
            raise _unwritten(error, folder) from error


def attach(folder: Path, run: dict[str, Any]) -> Store:
    """Open a store for writing; ValueError if it is damaged or another run made it, with how."""
    there = fingerprint(folder) or {}
    others = {name: there.get(name) for name in run if run[name] != there.get(name)}
    differences = [f"{name} {run[name]} here, {x} there" for name, x in others.items()]
    if differences:
        wanted, got = "a new folder or the store of this run", "; ".join(differences)
        raise ValueError(f"store: wanted {wanted}, got {folder} of another run: {got}")
    dtypes = [np.dtype(dtype) for _, dtype in run["outputs"].values()]
    try:
        group = _zarr().open_group(folder, mode="r+")
        return Store(folder, [group[name] for name in run["outputs"]], dtypes)
    except Exception as error:  # zarr raises many kinds
        wanted = "the arrays of an ensemble as they were made"
        raise ValueError(f"store: wanted {wanted}, got in {folder}: {error}") from error


def _kept(dtype: str) -> np.dtype:
    """Return the dtype on disk: zarr has only NumPy's dtypes, which hold all others exactly."""
    wide = np.float32 if jnp.issubdtype(dtype, jnp.floating) else np.int32
    return np.dtype(dtype) if np.dtype(dtype).isbuiltin == 1 else np.dtype(wide)


def _unwritten(error: OSError, folder: Path) -> OSError:
    reason, place = error.strerror or error, folder.parent.absolute()
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    way_out = f"; with room in {place} the same call resumes" if full else ""
    return OSError(error.errno, f"store: could not be written ({reason}){way_out}")


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(missing_package("store", "zarr", "store")) from error
    return zarr
