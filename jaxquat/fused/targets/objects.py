"""Object code on disk: a file ``KEY.o`` of the cache folder for each kernel.

The key is the hash of everything that the code depends on. A file holds FORMAT, its key, the hash
of the code, and the code; anything else is not used. Since the code is executed, neither is a file
or a folder that another user owns or can write to.
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
    """The cache folder: $JAXQUAT_CACHE, or that of the user.

    None if the variable is set to nothing, or if the user has no home, or one that does not exist.
    """
    own = os.environ.get("JAXQUAT_CACHE")
    if own is not None:
        return Path(own).expanduser() if own else None
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification wants relative paths ignored
        return Path(shared) / "jaxquat"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "jaxquat" if home.is_dir() else None


def _private(status: os.stat_result) -> bool:
    """Whether a file belongs to this user and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@contextlib.contextmanager
def _opened_folder(make: bool) -> Iterator[int | None]:
    """A descriptor of the cache folder, or None if there is none that can be trusted.

    With a descriptor it stays the same folder whatever its path comes to name. A folder or file
    that others can change is not used, with a warning, since what lies there is executed.
    """
    folder = _folder()
    if folder is None:
        yield None
        return
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        if make and "JAXQUAT_CACHE" in os.environ:
            warnings.warn(
                f"JAXQUAT_CACHE: no kernel is kept, {error}", RuntimeWarning, stacklevel=2
            )
        yield None
        return
    try:
        fine = _private(os.fstat(descriptor))
        if not fine:
            _warn(folder)
        yield descriptor if fine else None
    finally:
        os.close(descriptor)


def _warn(path: Path) -> None:
    message = (
        f"{path}: kernels are neither read nor kept here, for others than you can write to it, "
        "or own it; chmod go-w, or set JAXQUAT_CACHE"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def read(key: bytes, suffix: str = "o") -> bytes | None:
    """What was kept under a key; None if there is no file of it that is whole and ours."""
    with _opened_folder(make=False) as folder:
        if folder is None:
            return None
        try:  # no links; and a pipe in place of the file must not block
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(f"{key.hex()}.{suffix}", flags, dir_fd=folder)
        except OSError:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not _private(status):
                _warn((_folder() or Path()) / f"{key.hex()}.{suffix}")
                return None
            try:
                data = file.read()
            except OSError:
                return None
    head, code = data[: len(FORMAT) + 64], data[len(FORMAT) + 64 :]
    return code if head == FORMAT + key + hashlib.sha256(code).digest() else None


def write(key: bytes, code: bytes, suffix: str = "o") -> None:
    """Keeps object code, or other bytes, in a file, all of it or nothing.

    Others may write the same file. A folder that cannot be written to is no error.
    """
    with _opened_folder(make=True) as folder:
        if folder is None:
            return
        name = f".{secrets.token_hex(8)}"
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(FORMAT + key + hashlib.sha256(code).digest() + code)
                os.replace(name, f"{key.hex()}.{suffix}", src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(name, dir_fd=folder)
        except OSError:
            pass
