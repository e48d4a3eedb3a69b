"""A long compilation says so on a terminal, and nowhere else."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="needs pseudo-terminals")

FOLDER = Path(importlib.util.find_spec("jaxquat").origin).with_name("_internal")
BLOCKS = f"""
import sys
import time
sys.path.append({str(FOLDER)!r})
import progress  # without JAX, which takes longer to import than all of this

progress.SECONDS = 0.3
with progress.announced("the first"):
    time.sleep(0.01)
with progress.announced("the second"), progress.announced("what is inside"):
    time.sleep(0.6)
with progress.announced("the third"):  # goes on with what was announced
    time.sleep(0.01)
time.sleep(progress.GAP + 0.1)
with progress.announced("a later one"):
    time.sleep(0.01)
"""


def written(**environment):
    """What the blocks write to a terminal on stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", BLOCKS]
    subprocess.run(command, stderr=theirs, env=os.environ | environment, check=True)
    os.write(theirs, b".")  # so that there is something to read
    text = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    return text.removesuffix(".")


def test_blocks_that_follow_each_other_are_announced_once():
    lines = written().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("jaxquat: compiling the second, 0 s")


def test_an_environment_variable_switches_it_off():
    assert written(JAXQUAT_PROGRESS="0") == ""


def test_nothing_is_written_to_a_file():
    command = [sys.executable, "-c", BLOCKS]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
