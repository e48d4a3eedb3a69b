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
_CHAIN, _LONG = 10, 2000  # so many messages in a row, at most this long, are no coincidence
_UNFINISHED, _NO_TOPIC = "an unfinished message begins", "a message of no topic begins"


def whole_messages(file: Path, skip_damaged: bool) -> bytes:
    """Return the header and the whole messages; the argument is that of ``read_ulog``."""
    content = file.read_bytes()
    if len(content) < _HEADER or not content.startswith(MAGIC):
        raise ValueError(f"{file}: wanted a ULog file, got one that begins with {content[:7]!r}")
    chain = _Chain(content)
    while chain.at < len(content):
        message = _message(content, chain.at)
        problem = chain.problem(message, skip_damaged)
        if message.end > chain.end and chain.appended:
            chain.ignore_to(chain.appended.pop(0))
        elif not problem:
            chain.add(message)
        elif skip_damaged:
            chain.skip_damage(message, problem)
        else:
            got = f"{problem} at byte {chain.at} of {len(content)}"
            hint = "skip_damaged=True reads the others"
            raise ValueError(f"{file}: cannot be read as ULog, {got}; {hint}")
    parts = [chain.content[one.start : one.end] for one in chain.messages]
    damaged = len(content) - chain.ignored - sum(map(len, parts))
    if damaged:
        text = f"{file}: skipped {damaged} damaged bytes of {len(content)}"
        report_damage(text, skip_damaged, 5)
    return chain.content[:_HEADER] + b"".join(parts)


class _Message(NamedTuple):
    kind: bytes
    topic: bytes
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def _message(content: bytes, at: int) -> _Message:
    size = int.from_bytes(content[at : at + 2], "little")
    return _Message(content[at + 2 : at + 3], content[at + 3 : at + 5], at, at + 3 + size)


class _Chain:
    """The whole messages of a log up to ``at``; ``lengths``: of the last message of each topic."""

    def __init__(self, content: bytes) -> None:
        self.appended = _appended(content)
        if self.appended:  # their messages will follow as any others do
            content = content[:_FLAGS] + bytes([content[_FLAGS] & 0xFE]) + content[_FLAGS + 1 :]
        self.content = content
        self.at = self.ignored = _HEADER  # ignored bytes are neither messages nor damage
        self.messages: list[_Message] = []
        self.lengths: dict[bytes, int | None] = {}

    @property
    def end(self) -> int:
        return self.appended[0] if self.appended else len(self.content)

    def problem(self, message: _Message, one_length: bool) -> str:
        """Return what is wrong with the next message, or ""; ``one_length`` counts per topic."""
        is_data, last = message.kind == b"D", len(self.content)
        if message.start + 3 <= last:
            known = message.kind in _TYPES or (message.kind != b"\0" and message.length <= _LONGEST)
            usual = (None, message.length)
            other = one_length and is_data and self.lengths.get(message.topic) not in usual
            if message.length == 3 or not known or other:
                return "no message begins"
        if message.end > last:
            return _UNFINISHED
        return _NO_TOPIC if is_data and message.topic not in self.lengths else ""

    def add(self, message: _Message) -> None:
        if message.kind == b"A":
            self.lengths[self.content[message.start + 4 : message.start + 6]] = None
        elif message.kind == b"D":
            self.lengths[message.topic] = message.length
        self.messages.append(message)
        self.at = message.end

    def ignore_to(self, at: int) -> None:
        self.ignored += at - self.at
        self.at = at

    def skip_damage(self, message: _Message, problem: str) -> None:
        """Go to where messages follow one another again, or to the end.

        A message of no topic is skipped alone. Other damage may begin in what looked like a
        message, so the last data are removed too, but no later formats and subscriptions.
        """
        if problem == _NO_TOPIC and self._continues(message.end):
            self.at = message.end
            return
        while self.messages and self.messages[-1].kind not in b"DFA":
            self.at = self.messages.pop().start
        if self.messages and self.messages[-1].kind == b"D":
            self.at = self.messages.pop().start
        places = range(self.at + 1, self.end)
        self.at = next((k for k in places if self._continues(k)), self.end)

    def _continues(self, at: int) -> bool:
        """Return whether ten messages, or all to the end, have known types and usual lengths."""
        for _ in range(_CHAIN):
            message = _message(self.content, at)
            known = self.lengths.get(message.topic) if message.kind == b"D" else None
            usual = message.length == known if known else 3 < message.length <= _LONG
            if not usual or message.end > self.end or message.kind not in _TYPES:
                return False
            if message.end == self.end:
                break
            at = message.end
        return True


def _appended(content: bytes) -> list[int]:
    """Return the positions where appended data begin, from the flags in the first message."""
    flags = int.from_bytes(content[_FLAGS : _FLAGS + 1], "little")
    if content[_HEADER + 2 : _HEADER + 3] != b"B" or not flags & 1:
        return []
    places = [int.from_bytes(content[k : k + 8], "little") for k in (35, 43, 51)]
    return sorted(place for place in places if _HEADER < place < len(content))
