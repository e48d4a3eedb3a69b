"""LLVM code of kernels, which run the time loop of ``timeloop``.

Every value of a scalar program is a vector with one lane for each member, so one operation is one
line of text: ``%v7 = fmul <8 x float> %v5, %v6``.
"""

from importlib import resources
from string import Template


def template(name: str, **values: object) -> str:
    """Return the text of a file of this folder, with ``$name`` replaced by its value."""
    return Template((resources.files(__name__) / name).read_text("utf-8")).substitute(values)
