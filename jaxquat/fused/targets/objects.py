"""Object code on disk: a file ``KEY.o`` in the cache folder for each kernel.

A file has FORMAT, its key, the hash of the code, and the code; others are not used. The code is
executed, so a file or folder that another user owns or can write to is not used either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

FORMAT = b"jaxquat kernel 1\n"


def _folder() -> Path | None:
    """Return the cache folder, $JAXQUAT_CACHE or in the user's cache; None if there is none."""
    chosen = os.environ.get("JAXQUAT_CACHE")
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification says to ignore relative paths
        return Path(shared) / "jaxquat"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "jaxquat" if home.is_dir() else None


def _require_private(path: Path, status: os.stat_result) -> None:
    """Warn and raise PermissionError unless this user alone owns a file and can write to it."""
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        message = (
            f"{path}: kernels are neither read nor kept here, because other users can write to it "
            "or own it; chmod go-w, or set JAXQUAT_CACHE"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        raise PermissionError


@contextlib.contextmanager
def _opened_folder(make: bool) -> Iterator[int]:
    """Yield a descriptor of the cache folder, which renaming does not change; OSError if unsafe."""
    folder = _folder()
    if folder is None:
        raise FileNotFoundError
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        if make and "JAXQUAT_CACHE" in os.environ:
            warnings.warn(
                f"JAXQUAT_CACHE: no kernel is kept, {error}", RuntimeWarning, stacklevel=2
            )
        raise FileNotFoundError from error
    try:
        _require_private(folder, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def read(key: bytes, suffix: str = "o") -> bytes | None:
    """Return the code that was kept under a key, or None if no intact file of this user has it."""
    name = f"{key.hex()}.{suffix}"
    # follow no links; a pipe in place of the file must not block
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with (
            _opened_folder(make=False) as folder,
            open(name, "rb", opener=lambda *_: os.open(name, flags, dir_fd=folder)) as file,
        ):
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            _require_private((_folder() or Path()) / name, status)
            data = file.read()
    except OSError:
        return None
    head, code = data[: len(FORMAT) + 64], data[len(FORMAT) + 64 :]
    return code if head == FORMAT + key + hashlib.sha256(code).digest() else None


def write(key: bytes, code: bytes, suffix: str = "o") -> None:
    """Keep bytes in a file, completely or not at all; a folder that is read-only is no error."""
    name = f".{secrets.token_hex(8)}"
    with contextlib.suppress(OSError), _opened_folder(make=True) as folder:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(FORMAT + key + hashlib.sha256(code).digest() + code)
            os.replace(name, f"{key.hex()}.{suffix}", src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(name, dir_fd=folder)
