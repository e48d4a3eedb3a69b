"""A long run on disk: numbered snapshots through orbax-checkpoint, each complete or not there, each with a digest of its bits.

Orbax writes beside the final name and renames. It checks its own tables when it reads, but not the numbers: a flipped bit in those
is found by the digest.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

KEPT = 2
"""Snapshots that stay: the newest, and one to fall back on."""


def directory(name: str, value: Any) -> Path:
    """``value`` as the absolute path of a directory, made if it is not there; TypeError or OSError otherwise."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}: wanted the path of a directory, got {value!r}")
    path = Path(os.path.abspath(os.fspath(value)))
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
    leaves = {str(k): _plain(leaf) for k, leaf in enumerate(jax.tree.leaves(tree))}
    about = np.frombuffer(json.dumps(fingerprint, sort_keys=True).encode(), np.uint8)
    content = {
        "leaves": {k: array for k, array in leaves.items() if array.size},  # orbax refuses arrays of size zero
        "fingerprint": about,
        "digest": np.frombuffer(_content_digest(leaves, about).encode(), np.uint8),
    }
    _remove_unfinished(path)
    try:
        with _orbax(name).PyTreeCheckpointer() as checkpointer:
            checkpointer.save(path / str(number), content)
    except Exception as error:  # a full disk is an OSError or, from the writer below orbax, a ValueError
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
    try:
        leaves, found = _read(name, path / str(numbers[-1]))
    except Exception as damage:
        intact = next((k for k in reversed(numbers[:-1]) if _is_intact(name, path / str(k))), None)
        way_out = (
            f"that of update {intact} is intact: remove {path / str(numbers[-1])} to go on from there"
            if intact is not None
            else f"there is no other intact one: remove {path} to begin anew"
        )
        raise ValueError(
            f"{name}: wanted an intact state, got a damaged one in {path / str(numbers[-1])} ({damage}); {way_out}"
        ) from damage
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
    restored = [_like(leaf, leaves.get(str(k))) for k, leaf in enumerate(jax.tree.leaves(like))]
    return jax.tree.unflatten(jax.tree.structure(like), restored)


def _orbax(name: str) -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(f'{name}: wanted the package orbax-checkpoint, got none: pip install "jaxquat[store]"') from error
    return ocp


def _numbers(path: Path) -> list[int]:
    return sorted(int(entry.name) for entry in path.iterdir() if entry.name.isdecimal() and entry.is_dir())


def _remove_unfinished(path: Path) -> None:
    """What a killed or failed write has left."""
    for entry in path.glob("*.orbax-checkpoint-tmp*"):
        if entry.name.split(".")[0].isdecimal():
            shutil.rmtree(entry, ignore_errors=True)


def _read(name: str, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Leaves by number and fingerprint; ValueError, or whatever orbax raises, if it is damaged."""
    with _orbax(name).PyTreeCheckpointer() as checkpointer:
        content = checkpointer.restore(folder)
    leaves, about = content["leaves"], content["fingerprint"]
    written, found = content["digest"].tobytes().decode(errors="replace"), _content_digest(leaves, about)
    if found != written:
        raise ValueError(f"SHA-256 {found[:12]}, written was {written[:12]}")
    return leaves, json.loads(about.tobytes())


def _is_intact(name: str, folder: Path) -> bool:
    try:
        _read(name, folder)
    except Exception:
        return False
    return True


def _content_digest(leaves: dict[str, np.ndarray], about: np.ndarray) -> str:
    return digest([{k: array for k, array in leaves.items() if array.size}, about])


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as numpy has it; of a typed key, its data."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(leaf: Any, saved: np.ndarray | None) -> Any:
    if saved is None:
        return leaf
    return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf)) if _is_key(leaf) else saved


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
