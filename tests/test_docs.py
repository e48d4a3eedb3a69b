"""Every Python block of the README and of docs/ runs, in order, in one namespace per page; tables agree with the code."""

import re
from pathlib import Path

import jax
import pytest

import jaxquat as jq

ROOT = Path(__file__).parents[1]
NEEDS = {
    "diffrax.md": ["diffrax"],
    "fitting.md": ["orbax"],
    "fused.md": ["llvmlite"],
    "migration.md": ["jaxlie"],
    "plotting.md": ["matplotlib"],
}
PAGES = [
    pytest.param(page, id=page.name, marks=pytest.mark.needs(*NEEDS.get(page.name, [])))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page):
    namespace = {}
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):  # as a user has it
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
            exec(compile(block, page.name, "exec"), namespace)


def test_the_readme_table_is_the_table_of_schemes():
    rows = re.findall(r"^\| `(\w+)` \| (\d) \| (\d+) \|", (ROOT / "README.md").read_text(), re.M)
    assert {name: (int(order), int(count)) for name, order, count in rows} == {
        name: (scheme.order, scheme.evaluations) for name, scheme in jq.SCHEMES.items()
    }


def test_the_gallery_shows_what_the_examples_draw():
    """Each picture that docs/gallery.py keeps is on the page, with the name of its example, and small."""
    page, script = (
        (ROOT / "docs" / "gallery.md").read_text(),
        (ROOT / "docs" / "gallery.py").read_text(),
    )
    pictures = {
        name: re.findall(r'"(\S+)"', files)
        for name, files in re.findall(r'^    "(\w+)": \[(.+)\],$', script, re.M)
    }
    assert set(pictures) == {path.stem for path in (ROOT / "examples").glob("*.py")}
    shown = re.findall(r"!\[.+\]\((\S+)\)", page)
    assert sorted(file for files in pictures.values() for file in files) == sorted(shown)
    for name, files in pictures.items():
        assert f"`{name}.py" in page
        for file in files:
            assert (ROOT / "docs" / file).stat().st_size < (
                400_000 if file.endswith(".gif") else 100_000
            )


def test_the_architecture_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text()
    for file in (ROOT / "jaxquat").rglob("*.py"):
        assert file.name in page, f"{file.name} is not in docs/architecture.md"


def test_imports_point_down():
    """The order of docs/architecture.md, from the ground up."""
    order = """
        arguments | series linear recordings differentiation dependence
        | snapshots quaternion gyro elliptic | so3 | euler | body | dynamics
        | torques actuators schemes | checkpointing reversing | scanning | posing | fused | control trajectory descent
        | kinematics fitting uncertainty ensembles exact | interop plot
    """
    floors = [floor.split() for floor in order.split("|")]
    height = {room: k for k, floor in enumerate(floors) for room in floor}
    for file in (ROOT / "jaxquat").rglob("*.py"):
        own = file.relative_to(ROOT / "jaxquat").with_suffix("").parts
        if own == ("__init__",):
            continue
        text = file.read_text()
        rooms = re.findall(r"^from jaxquat\.(\w+)", text, re.M)
        rooms += [
            name
            for names in re.findall(r"^from jaxquat import (.+)$", text, re.M)
            for name in names.split(", ")
        ]
        for room in rooms:
            assert room == own[0] or height[room] < height[own[0]], f"{file.name} imports {room}"
