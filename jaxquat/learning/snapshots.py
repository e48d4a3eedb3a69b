"""A long run on disk: numbered snapshots, each complete or not there.

A snapshot is a folder with the arrays as orbax-checkpoint writes them and a file with the fingerprint of the run and the digests of
the other files: orbax reads a flipped bit in an array without a word. It is written beside its name and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._checks import missing_package, place

KEPT = 2
"""Snapshots that stay: the newest, and one to fall back on."""

_ABOUT, _UNFINISHED = "fit.json", ".unfinished"


def directory(name: str, value: Any) -> Path:
    """``value`` as the absolute path of a directory, made if it is not there; TypeError or OSError otherwise."""
    path = place(name, value).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{name}: wanted a directory that can be made, got {error}") from error
    _orbax(name)
    return path


def digest(tree: Any) -> str:
    """SHA-256 of the paths, dtypes, shapes and bits of the leaves."""
    sha = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = _plain(leaf)
        sha.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def save(name: str, path: Path, number: int, tree: Any, fingerprint: dict[str, Any]) -> None:
    """Write snapshot ``number``, then delete all but the last ``KEPT``.

    OSError if it cannot be written; those there stay.
    """
    _remove_unfinished(path)
    unfinished = path / f"{number}{_UNFINISHED}"
    arrays = {str(k): _plain(leaf) for k, leaf in enumerate(jax.tree.leaves(tree))}
    try:
        with _orbax(name).PyTreeCheckpointer() as checkpointer:  # it refuses arrays of size zero
            checkpointer.save(
                unfinished / "state", {k: array for k, array in arrays.items() if array.size}
            )
        about = json.dumps(
            {"fingerprint": fingerprint, "files": _digests(unfinished / "state")}, sort_keys=True
        )
        (unfinished / _ABOUT).write_text(f"{about}\n{_sha(about.encode())}\n")
        unfinished.rename(path / str(number))
    except (
        Exception
    ) as error:  # a full disk is an OSError or, from the writer below orbax, a ValueError
        _remove_unfinished(path)
        there = _numbers(path)
        raise OSError(
            f"{name}: wanted to write the state after update {number} to {path}, got {error}; "
            + (f"that after update {there[-1]} is still there: " if there else "")
            + "make room or permission, then the same call goes on from what is there"
        ) from error
    for old in _numbers(path)[:-KEPT]:
        shutil.rmtree(path / str(old))


def newest(name: str, path: Path, like: Any, fingerprint: dict[str, Any]) -> Any:
    """The newest snapshot as a tree of the structure of ``like``, in numpy; None if there is none.

    Raises:
        ValueError: it is damaged, or that of a run with another fingerprint.
    """
    numbers = _numbers(path)
    if not numbers:
        return None
    folder = path / str(numbers[-1])
    found, damage = _checked(folder)
    if damage:
        intact = next((k for k in reversed(numbers[:-1]) if not _checked(path / str(k))[1]), None)
        way_out = (
            f"that after update {intact} is intact: remove {folder} to go on from there"
            if intact is not None
            else f"there is no other intact one: remove {path} to begin anew"
        )
        raise ValueError(
            f"{name}: wanted an intact state, got a damaged one in {folder} ({damage}); {way_out}"
        )
    if found != fingerprint:
        differences = ", ".join(
            f"{key} ({found.get(key)} there, {fingerprint.get(key)} here)"
            for key in sorted({*found, *fingerprint})
            if found.get(key) != fingerprint.get(key)
        )
        raise ValueError(
            f"{name}: wanted the states of this fit, got in {path} those of a fit that differs in {differences}; "
            "give another directory, or the arguments of that fit"
        )
    with _orbax(name).PyTreeCheckpointer() as checkpointer:
        arrays = checkpointer.restore(folder / "state")
    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(
        structure, [_like(leaf, arrays.get(str(k))) for k, leaf in enumerate(leaves)]
    )


def _orbax(name: str) -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(missing_package(name, "orbax-checkpoint", "store")) from error
    return ocp


def _numbers(path: Path) -> list[int]:
    return sorted(
        int(entry.name) for entry in path.iterdir() if entry.name.isdecimal() and entry.is_dir()
    )


def _remove_unfinished(path: Path) -> None:
    """What a killed or failed write has left."""
    for entry in path.glob(f"*{_UNFINISHED}"):
        if entry.name.removesuffix(_UNFINISHED).isdecimal():
            shutil.rmtree(entry, ignore_errors=True)


def _checked(folder: Path) -> tuple[dict[str, Any], str]:
    """The fingerprint, and what is damaged in the folder ("" if nothing): orbax reads only what has been found intact."""
    try:
        about, sha = (folder / _ABOUT).read_bytes().splitlines()
        if _sha(about) != sha.decode():
            return {}, f"{_ABOUT} is not as it was written"
        written = json.loads(about)
        found = _digests(folder / "state")
    except (OSError, ValueError) as error:
        return {}, f"{_ABOUT} or a file beside it cannot be read: {error}"
    changed = [name for name, sha in written["files"].items() if found.get(name) != sha]
    return written["fingerprint"], f"{', '.join(changed)} not as written" if changed else ""


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): _sha(file.read_bytes()) for file in files}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as numpy has it; of a typed key, its data."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(leaf: Any, saved: np.ndarray | None) -> Any:
    if saved is None:
        return leaf
    return (
        jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
        if _is_key(leaf)
        else saved
    )


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
