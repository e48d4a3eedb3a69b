"""LLVM code of kernels, which run the time loop of ``timeloop``.

Every value of a scalar program is a vector with one lane for each member, so one operation is one
line of text: ``%v7 = fmul <8 x float> %v5, %v6``. Each module builds on the ones before:

- ``text``: the lines of a function, the integers that it computes, loops and branches;
- ``memory``: where values lie;
- ``programs``: the line of each scalar operation, and the routines that programs call;
- ``lanes``: the operands, results and variables of a time loop. ``timeloop`` is written with it.

``host`` puts the time loop into an LLVM module for this processor: ``host.ll`` finds the operands
and the members, on several threads. ``objects`` keeps object code on disk.
"""

from importlib import resources
from string import Template


def template(name: str, **values: object) -> str:
    """Return the text of a file of this folder, with ``$name`` replaced by its value."""
    return Template((resources.files(__name__) / name).read_text("utf-8")).substitute(values)
