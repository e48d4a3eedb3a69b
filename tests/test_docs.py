"""Every Python block of the README and of docs/ runs; tables and the drawing agree with the code.

The blocks of a page run in order, in one namespace.
"""

import ast
import contextlib
import itertools
import re
import runpy
import types

import jax
import pytest
from commands import ROOT

import jaxquat as jq

NEEDS = {
    "control.md": ["matplotlib"],
    "migration.md": ["diffrax", "jaxlie"],
    "performance.md": ["llvmlite"],
    "plot.md": ["matplotlib"],
    "start.md": ["matplotlib"],
}
WEEKLY = {"control.md", "estimation.md", "fitting.md", "logs.md", "migration.md", "plan.md"}
WEEKLY |= {"plot.md", "policies.md"}
PLOTS = ROOT / "docs" / "api" / "plot.md"


def marks_of(page):
    weekly = [pytest.mark.weekly] if page.name in WEEKLY else []
    return [pytest.mark.needs(*NEEDS.get(page.name, [])), pytest.mark.slow, *weekly]


PAGES = [
    pytest.param(page, id=page.name, marks=marks_of(page))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), PLOTS]
]


def test_every_file_of_tests_that_the_pages_name_is_there():
    files = {file.name for file in (ROOT / "tests").rglob("*.py")}
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), ROOT / "noxfile.py"]
    for page in pages:
        text = page.read_text()
        assert {*re.findall(r"\btest_\w+\.py", text)} <= files, page.name
        for path in re.findall(r"\btests/[\w/]+\.py", text):
            assert (ROOT / path).exists(), (page.name, path)


def missing_part(name):
    """The first part of a name such as ``jq.Path.at`` that is not public, or None."""
    value = jq
    for part in name.split(".")[1:]:
        listed = dir(value) if value is jq else getattr(value, "__all__", dir(value))
        if part not in listed and part not in getattr(value, "__annotations__", ()):
            return part
        value = getattr(value, part, None)
    return None


@pytest.mark.needs("matplotlib", "diffrax")
def test_every_name_of_jaxquat_that_pages_and_examples_use_is_public():
    """Each ``jq.name`` in text or code, and in the text of pages ``module.name`` in backquotes."""
    modules = [name for name in dir(jq) if isinstance(getattr(jq, name, None), types.ModuleType)]
    inline = re.compile(rf"`(?=(?:{'|'.join(modules)})\.(?!py\b|md\b))(\w+(?:\.[A-Za-z_]\w*)+)")
    wrong = []
    examples = [x for x in (ROOT / "examples").rglob("*") if x.suffix in (".py", ".ipynb")]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for file in sorted([*pages, *examples]):
        text = file.read_text()
        names = set(re.findall(r"(?<![\w./])jq(?:\.[A-Za-z_]\w*)+", text))
        if file.suffix == ".md":
            names |= {f"jq.{name}" for name in inline.findall(text)}
        wrong += [(file.name, name, part) for name in names if (part := missing_part(name))]
    assert not wrong, "\n".join(" ".join(each) for each in sorted(wrong))


def as_a_user_has_it():
    """Single precision, and JAX's own rules of promotion."""
    stack = contextlib.ExitStack()
    stack.enter_context(jax.enable_x64(False))
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    return stack


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page):
    namespace = {}
    with as_a_user_has_it():
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
            exec(compile(block, page.name, "exec"), namespace)


def test_the_table_of_schemes_has_their_orders_and_evaluations():
    page = (ROOT / "docs" / "schemes.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d) \| (\d+) \|", page, re.M)
    assert {name: (int(order), int(count)) for name, order, count in rows} == {
        name: (scheme.order, scheme.evaluations) for name, scheme in jq.schemes.SCHEMES.items()
    }


def cells(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def tables(text):
    """The tables of a page, each as one dict per row; an empty first cell is that of above."""
    for table in re.findall(r"^\|.*\n\|[-:| ]+\n(?:\|.*\n)+", text, re.M):
        header, _, *rows = map(cells, table.splitlines())
        for above, row in itertools.pairwise(rows):
            row[0] = row[0] or above[0]
        yield header, rows


def test_the_readme_shows_times_of_the_page_of_performance():
    first = (ROOT / "README.md").read_text().split("<!-- rows of performance.md -->")[1]
    times, quadrotor = tables(first.split("<!-- end -->")[0])
    measured = list(tables((ROOT / "docs" / "performance.md").read_text()))

    (rows,) = (rows for header, rows in measured if header[:2] == ["bodies", "engine"])
    engines = {(row[0], row[1]): [row[2], row[5]] for row in rows}
    for name, *numbers in times[1]:
        engine = name.removeprefix("jaxquat, ")
        assert numbers == engines["64, float32", engine] + engines["1024, float32", engine]

    (rows,) = (rows for header, rows in measured if header[:5] == quadrotor[0])
    for row in quadrotor[1]:
        assert row in [longer[:5] for longer in rows]


def test_the_gallery_shows_what_the_examples_draw():
    """Each picture that docs/gallery.py keeps is on the page, under its example, and small."""
    docs = ROOT / "docs"
    page, script = (docs / "gallery.md").read_text(), (docs / "gallery.py").read_text()
    lists = re.findall(r'^    "(\w+)": \[([^]]+)\],$', script, re.M)
    pictures = {name: re.findall(r'"(\S+)"', files) for name, files in lists}
    assert set(pictures) == {path.stem for path in (ROOT / "examples").glob("[!_]*.py")}
    shown = re.findall(r"!\[.+\]\((\S+)\)", page)
    assert sorted(file for files in pictures.values() for file in files) == sorted(shown)
    for name, files in pictures.items():
        assert f"`{name}.py" in page
        for file in files:
            limit = 400_000 if file.endswith(".gif") else 100_000
            assert (docs / file).stat().st_size < limit


def test_the_numbers_of_the_gallery_are_those_that_the_examples_printed():
    """What docs/gallery.py kept of their output has them, or else the text of the example.

    Two examples run on data that others have, and are not kept.
    """
    docs, number = ROOT / "docs", re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
    page = (docs / "gallery.md").read_text().replace(",000", "000")
    for part in re.split(r"^(?=!\[)|^#", page, flags=re.M):
        picture, _, caption = part.partition("\n")
        names = re.findall(r"`(\w+)\.py", caption)
        if not picture.startswith("![") or not names:
            continue
        printed = docs / "gallery" / f"{names[0]}.txt"
        assert printed.exists() or names[0] in {"attitude_filter", "identify_quadrotor"}
        if printed.exists():
            text = printed.read_text() + (ROOT / "examples" / f"{names[0]}.py").read_text()
            assert set(number.findall(caption)) <= set(number.findall(text)), names[0]


# The drawing of docs/architecture.md, from the bottom up.

FLOORS = """
    _internal | _internal.jaxprs | _internal.branches _internal.recognition | _internal.series
    | fused | quaternion | so3 euler frames | dynamics
    | dynamics.forces | dynamics.torques dynamics.environment
    | simulation.controller simulation.grid simulation.options | simulation.intervals | schemes
    | stochastic actuators
    | control simulation.noise simulation.path | actuators.rotors simulation.simulation
    | simulation.engines | simulation.rollout
    | exact ensembles fitting planning | sensors | kinematics
    | recordings | estimation | interop plot migrate export
"""
HEIGHT = {part: k for k, floor in enumerate(FLOORS.split("|")) for part in floor.split()}
PACKAGE = ROOT / "jaxquat"
MODULES = {
    ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
    if file != PACKAGE / "__init__.py"
}


def part_of(module):
    """The part of FLOORS that a module belongs to: itself, or a package that it is in."""
    while module not in HEIGHT and "." in module:
        module = module.rpartition(".")[0]
    return module


def imports_of(module):
    """(module, name) for each name that a module imports from another one of jaxquat."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxquat"):
            source = node.module.removeprefix("jaxquat").strip(".")
            for name in (alias.name for alias in node.names):
                inner = f"{source}.{name}".strip(".")
                yield (inner, "") if inner in MODULES else (source, name)


def test_the_architecture_names_every_module():
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawing = page.split("```")[1]
    for module in MODULES:
        name = module.rpartition(".")[2]
        assert re.search(rf"\b{name}\b", drawing), f"{module} is not in docs/architecture.md"


def test_imports_point_down():
    for module in MODULES:
        own = part_of(module)
        for source, name in imports_of(module):
            other = part_of(source)
            assert other == own or HEIGHT[other] < HEIGHT[own], f"{module} imports {source}"
            assert other == own or not name.startswith("_"), f"{module} imports {source}.{name}"


def test_the_compiler_of_loops_knows_nothing_of_rotation():
    """It imports nothing of the package but what all share."""
    for module in MODULES:
        if part_of(module) == "fused":
            others = {source for source, _ in imports_of(module)}
            assert {source.partition(".")[0] for source in others} <= {"fused", "_internal"}, module


def test_few_entries_stand_at_the_top():
    entries = {module.partition(".")[0] for module in MODULES}
    assert len(entries) <= 24


def test_no_function_is_longer_than_a_page():
    """At most 45 lines of body, without the docstring."""
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                first = node.body[bool(ast.get_docstring(node)) :] or node.body
                lines = node.end_lineno - first[0].lineno + 1
                assert lines <= 45, f"{module}.{node.name}: {lines} lines"


def test_families_of_schemes_do_not_import_each_other():
    shared = {"scheme", "tableaus", "weights", "composition", "damping", "relaxation"}
    names = {module.partition(".")[2] for module in MODULES if module.startswith("schemes.")}
    for family in names - shared:
        imported = {source.partition(".")[2] for source, _ in imports_of(f"schemes.{family}")}
        assert not imported & (names - shared)


@pytest.mark.needs("llvmlite")
def test_the_tour_of_the_fused_engine_is_what_the_code_prints():
    """The stages that depend neither on the processor nor on the version of jax."""
    tour = runpy.run_path(str(ROOT / "docs" / "tour.py"))
    page = tour["written"]((ROOT / "docs" / "architecture.md").read_text())
    for section in tour["sections"]()[2:4]:
        assert section in page, section
