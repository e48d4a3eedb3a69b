"""The messages of a ULog file that are whole, and where they continue after damage.

The format (https://docs.px4.io/main/en/dev_log/ulog_file_format) is a header of 16 bytes, then
messages that begin with size (2 bytes) and type (1 byte). pyulog accepts a file that ends within a
message, and may never finish a damaged one, so the chain of messages is checked here first.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jaxquat.recordings.topics import report_damage

MAGIC = b"ULog\x01\x12\x35"  # the first bytes of a log
_HEADER = 16
_FLAGS = 27  # the byte whose lowest bit marks appended data
_TYPES = b"FIMPQARDSOLCB"
_LONGEST = 10_000  # bytes: the longest message of an unknown type that is accepted
_SYNC = b"\x08\0S\x2f\x73\x13\x20\x25\x0c\xbb\x12"  # PX4 writes it to find messages again
_NO_TOPIC = "a message of no topic begins"


def whole_messages(file: Path, skip_damaged: bool) -> bytes:
    """Return the header and the whole messages; the argument is that of ``read_ulog``."""
    content = file.read_bytes()
    if len(content) < _HEADER or not content.startswith(MAGIC):
        raise ValueError(f"{file}: wanted a ULog file, got one that begins with {content[:7]!r}")
    appended = _appended(content)
    if appended:  # their messages will follow as any others do
        content = content[:_FLAGS] + bytes([content[_FLAGS] & 0xFE]) + content[_FLAGS + 1 :]
    messages, topics = [], set()
    at = ignored = _HEADER  # ignored bytes are neither messages nor damage
    while at < len(content):
        message = _message(content, at)
        problem = _problem(message, topics, len(content))
        if appended and message.end > appended[0]:
            ignored += appended[0] - at
            at = appended.pop(0)
        elif not problem:
            if message.kind == b"A":
                topics.add(content[at + 4 : at + 6])
            messages.append(message)
            at = message.end
        elif not skip_damaged:
            got, hint = f"{problem} at byte {at} of {len(content)}", "skip_damaged=True reads on"
            raise ValueError(f"{file}: cannot be read as ULog, {got}; {hint}")
        elif problem == _NO_TOPIC:
            at = message.end
        else:
            if messages and messages[-1].kind == b"D":  # the damage may begin in it
                messages.pop()
            end = appended[0] if appended else len(content)
            found = content.find(_SYNC, at + 1, end)
            at = end if found < 0 else found
    parts = [content[message.start : message.end] for message in messages]
    damaged = len(content) - ignored - sum(map(len, parts))
    if damaged:
        text = f"{file}: skipped {damaged} damaged bytes of {len(content)}"
        report_damage(text, skip_damaged, 5)
    return content[:_HEADER] + b"".join(parts)


class _Message(NamedTuple):
    kind: bytes
    topic: bytes
    start: int
    end: int


def _message(content: bytes, at: int) -> _Message:
    size = int.from_bytes(content[at : at + 2], "little")
    return _Message(content[at + 2 : at + 3], content[at + 3 : at + 5], at, at + 3 + size)


def _problem(message: _Message, topics: set[bytes], last: int) -> str:
    """Return what is wrong with a message of a log of ``last`` bytes, "" if nothing is."""
    if message.start + 3 <= last:
        length = message.end - message.start
        known = message.kind in _TYPES or (message.kind != b"\0" and length <= _LONGEST)
        if length == 3 or not known:
            return "no message begins"
    if message.end > last:
        return "an unfinished message begins"
    return _NO_TOPIC if message.kind == b"D" and message.topic not in topics else ""


def _appended(content: bytes) -> list[int]:
    """Return the positions where appended data begin, from the flags in the first message."""
    flags = int.from_bytes(content[_FLAGS : _FLAGS + 1], "little")
    if content[_HEADER + 2 : _HEADER + 3] != b"B" or not flags & 1:
        return []
    places = [int.from_bytes(content[k : k + 8], "little") for k in (35, 43, 51)]
    return sorted(place for place in places if _HEADER < place < len(content))
