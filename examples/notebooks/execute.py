"""Run the notebooks, each in a fresh kernel, and keep what they print and draw.

    python examples/notebooks/execute.py [NAME.ipynb ...]

Progress bars are not kept: GitHub does not show their widgets. Needs nbclient and ipykernel.
"""

import argparse
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))


def executed(notebook):
    """Return the notebook with its outputs; an exception in a cell is an exception here."""
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return notebook


def is_kept(output):
    """Whether an output is neither a progress bar nor a warning."""
    if output.output_type == "stream":
        return output.name == "stdout"
    return "application/vnd.jupyter.widget-view+json" not in output.data


def main():
    """Execute and write the notebooks in place."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="by default all beside this program")
    for file in parser.parse_args().files or NOTEBOOKS:
        began, notebook = time.perf_counter(), nbformat.read(file, 4)
        names = ("kernelspec", "language_info")
        metadata = {name: notebook.metadata[name] for name in names}
        for cell in executed(notebook).cells:
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.outputs = list(filter(is_kept, cell.outputs))
        notebook.metadata = {**metadata, "language_info": {"name": "python"}}
        nbformat.write(notebook, file)
        print(f"{file.name}: {time.perf_counter() - began:.1f} s, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
