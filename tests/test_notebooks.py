"""Notebooks in a real kernel: figures, tables, progress bars, and those of examples/notebooks."""

import base64
import importlib.util
import re

import nbformat
import pytest
from commands import ROOT

FOLDER = ROOT / "examples" / "notebooks"
NAMES = ("fit_gains", "fly", "identify")
WIDGET = "application/vnd.jupyter.widget-view+json"

# What must hold after the last cell, with the reasons in numbers.
CHECKS = {
    # The losses are 0.353 and 0.385.
    "fit_gains": "assert loss(fit.params, unseen, None) < 0.93 * loss(initial, unseen, None)",
    # Of nine parameters none is off by four standard errors: by chance one in 1750 such logs.
    "identify": "assert fit.converged and np.abs(off).max() < 4\n"
    "assert abs(np.std(fit.residuals) / noise - 1) < 4 / np.sqrt(2 * fit.residuals.size)",
    # It is 0.05 m. The wind pushes with up to 0.25 * 6 * 1.45 N, a quarter of the weight.
    "fly": "assert jnp.all(jnp.isfinite(distance)) and jnp.sqrt(jnp.mean(late**2)) < 0.1",
}


def execute():
    """The program that runs the notebooks."""
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs_of(cell):
    """The outputs of a cell by their kind: "image/png", "stderr"; later ones win."""
    found = {}
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            found[output.name] = found.get(output.name, "") + output.text
        else:
            found.update(output.data)
    return found


def run(*cells, monkeypatch):
    """The outputs of these cells in a fresh kernel."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    return [outputs_of(cell) for cell in execute().executed(notebook).cells]


PATH = """
import jax, jax.numpy as jnp, jaxquat as jq, numpy as np, optax
from jaxquat import plot
q = jnp.array([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
path = jq.Path(jnp.array([0.0, 1.0]), jq.State(q, jnp.ones((2, 3))))
path
"""
FIT = """
fit = jq.fit(lambda p, batch, key: jnp.sum(p**2), jnp.ones(2), optax.sgd(0.1), steps=2,
             key=jax.random.key(0))
fit
"""
TABLES = (
    "jq.fit_covariance(lambda p: jnp.append(p, jnp.sum(p)), jnp.ones(2))",
    "jq.least_squares(lambda p: jnp.append(p, jnp.sum(p)), jnp.ones(2))",
    "jq.ensembles.run(jax.random.normal, jnp.sin, 9, jax.random.key(0),"
    " reduce=jq.ensembles.mean(), progress=False)",
    "jq.recordings.Recording(np.arange(3.0), np.ones((3, 3)))",
)
FIGURES = (
    "plot.rates(path).figure",
    "plot.body_axes(path).figure",
    "import matplotlib.pyplot",
    "plot.rates(path).figure",
)


@pytest.mark.slow
@pytest.mark.needs("ipywidgets")
def test_figures_tables_and_bars_in_a_kernel(monkeypatch):
    """Figures before and after pyplot is loaded; each cell shows one thing once."""
    shown = run(PATH, FIT, *TABLES, *FIGURES, monkeypatch=monkeypatch)
    assert all("<table>" in outputs["text/html"] for outputs in shown[:6])
    assert WIDGET in shown[1]
    assert not any("stderr" in outputs for outputs in shown)
    pictures = [outputs.get("image/png") for outputs in shown[6:]]
    assert pictures[2] is None
    for picture in (*pictures[:2], pictures[3]):
        assert base64.b64decode(picture).startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_kernel_without_ipywidgets_has_bars_of_text_and_no_warning(monkeypatch):
    without = "import sys; sys.modules['ipywidgets'] = None"
    _, _, fit = run(without, PATH, FIT, monkeypatch=monkeypatch)
    assert "2/2 [" in fit["stderr"]
    assert " updates/s" in fit["stderr"]
    assert "arning" not in fit["stderr"]
    assert "<table>" in fit["text/html"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_anywhere(name):
    """It says how to install, reads no file, and what it keeps is small."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0].source.startswith("# %pip install ")
    text = "\n".join(cell.source for cell in code)
    assert not re.search(r"open\(|loadtxt|recordings\.|[\"'](/|\.\.)", text)
    outputs = list(map(outputs_of, code))
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any({"stderr", WIDGET} & set(shown) for shown in outputs)
    pictures = [shown["image/png"] for shown in outputs if "image/png" in shown]
    assert len(pictures) >= 2
    assert max(len(base64.b64decode(picture)) for picture in pictures) < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    pictures = ["image/png" in outputs_of(cell) for cell in notebook.cells]
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS[name]))
    execute().executed(notebook)
    assert ["image/png" in outputs_of(cell) for cell in notebook.cells[:-1]] == pictures


def test_every_notebook_is_tested():
    assert tuple(file.stem for file in execute().NOTEBOOKS) == NAMES
