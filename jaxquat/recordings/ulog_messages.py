"""The messages of a ULog file that are whole, and where they continue after damage.

The format is described at https://docs.px4.io/main/en/dev_log/ulog_file_format: a header of 16
bytes, then messages, each of which begins with its size (2 bytes) and its type (1 byte). pyulog
silently accepts a file that ends within a message, and may never finish reading a damaged one. So
the chain of messages is checked here first.

The format has messages of synchronization for a start after damage, but older logs have none, and
all messages up to the next one would be lost. A chain of messages is as certain a sign.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

MAGIC = b"ULog\x01\x12\x35"
"""The first bytes of a log."""

_HEADER = 16
_FLAGS = 27  # where the bit is that tells of appended data
_TYPES = b"FIMPQARDSOLCB"
_LONGEST = 10_000  # bytes: the longest message of an unknown type that is accepted
_CHAIN, _LONG = 10, 2000  # messages in a row, and bytes, that hardly are a coincidence
_UNFINISHED, _NO_TOPIC = "an unfinished message begins", "a message of no topic begins"


def whole_messages(file: Path, cut_short: bool, skip_damaged: bool) -> bytes:
    """The header and the whole messages of a file; the arguments are those of ``read_ulog``.

    If data were appended after the log proper, the log proper may end within a message. Without
    that message the appended ones follow as any others do, so the flag that tells of them is
    cleared.
    """
    content = file.read_bytes()
    if len(content) < _HEADER or not content.startswith(MAGIC):
        raise ValueError(f"{file}: wanted a ULog file, got one that begins with {content[:7]!r}")
    appended = _appended(content)
    if appended:
        content = content[:_FLAGS] + bytes([content[_FLAGS] & 0xFE]) + content[_FLAGS + 1 :]
    at, spans, lengths, ignored = _HEADER, [], {}, _HEADER
    while at < len(content):
        message = _message(content, at)
        if appended and message.end > appended[0]:
            ignored += appended[0] - at
            at = appended.pop(0)
            continue
        problem = _problem(message, at, len(content), lengths, skip_damaged)
        if not problem:
            if message.kind == b"A":
                lengths[content[at + 4 : at + 6]] = None
            elif message.kind == b"D":
                lengths[message.topic] = message.end - at
            spans.append((at, message.end))
            at = message.end
        elif skip_damaged:
            end = appended[0] if appended else len(content)
            if problem == _NO_TOPIC and _is_chain(content, message.end, end, lengths):
                at = message.end
            else:
                at = _resume(content, at, end, lengths, spans)
        elif problem == _UNFINISHED and cut_short:
            ignored += len(content) - at
            break
        else:
            hint = "skip_damaged=True reads what is after it"
            if problem == _UNFINISHED:
                hint = "cut_short=True reads what is before it"
            got = f"{problem} at byte {at} of {len(content)}"
            raise ValueError(f"{file}: cannot be read as ULog, {got}; {hint}")
    skipped = len(content) - ignored - sum(end - start for start, end in spans)
    if skipped:
        text = f"{file}: skipped {skipped} damaged bytes of {len(content)}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    return content[:_HEADER] + b"".join(content[start:end] for start, end in spans)


class _Message(NamedTuple):
    """What a message states at its beginning; the topic is that of data."""

    kind: bytes
    topic: bytes
    end: int


def _message(content: bytes, at: int) -> _Message:
    size = int.from_bytes(content[at : at + 2], "little")
    return _Message(content[at + 2 : at + 3], content[at + 3 : at + 5], at + 3 + size)


def _problem(
    message: _Message, at: int, end: int, lengths: Mapping[bytes, int | None], one_length: bool
) -> str:
    """What is wrong with the message at a byte of a file that ends at ``end``; "" if nothing is.

    ``lengths`` has those of the last message of each topic that is subscribed; with
    ``one_length`` all messages of a topic must have the same.
    """
    length, is_data = message.end - at, message.kind == b"D"
    if at + 3 <= end:
        known = message.kind in _TYPES or (message.kind != b"\0" and length <= _LONGEST)
        other = one_length and is_data and lengths.get(message.topic) not in (None, length)
        if length == 3 or not known or other:
            return "no message begins"
    if message.end > end:
        return _UNFINISHED
    return _NO_TOPIC if is_data and message.topic not in lengths else ""


def _resume(
    content: bytes,
    at: int,
    end: int,
    lengths: Mapping[bytes, int | None],
    spans: list[tuple[int, int]],
) -> int:
    """The position after damage at a byte, or ``end``: from there on, messages follow one another.

    The damage may begin earlier, in what looked like a message, so the last message of data is
    removed from ``spans``, with what follows it and is neither a format nor a subscription.
    """
    while spans and content[spans[-1][0] + 2] not in b"DFA":
        at = spans.pop()[0]
    if spans and content[spans[-1][0] + 2] == ord("D"):
        at = spans.pop()[0]
    return next((k for k in range(at + 1, end) if _is_chain(content, k, end, lengths)), end)


def _is_chain(content: bytes, at: int, end: int, lengths: Mapping[bytes, int | None]) -> bool:
    """Whether ten messages, or some up to the end, follow one another and none is a coincidence.

    They have known types and no extraordinary lengths, those of data the length of their topic.
    """
    for _ in range(_CHAIN):
        kind, topic, after = _message(content, at)
        length = after - at
        known = lengths.get(topic) if kind == b"D" else None
        usual = length == known if known else 3 < length <= _LONG
        if not usual or after > end or kind not in _TYPES:
            return False
        if after == end:
            break
        at = after
    return True


def _appended(content: bytes) -> list[int]:
    """The positions where appended data begin, from the flags in the first message."""
    flags = int.from_bytes(content[_FLAGS : _FLAGS + 1], "little")
    if content[_HEADER + 2 : _HEADER + 3] != b"B" or not flags & 1:
        return []
    places = [int.from_bytes(content[k : k + 8], "little") for k in (35, 43, 51)]
    return sorted(place for place in places if _HEADER < place < len(content))
