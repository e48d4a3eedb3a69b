"""``python -m jaxquat.migrate`` rewrites what the tables of the last release have."""

import ast
import inspect

import pytest

import jaxquat as jq
from jaxquat import migrate
from jaxquat._internal.renamed import tables

_, RENAMED, _, DELETED, OLD_KEYWORDS, RENAMED_ARGUMENTS, OLD_ORDERS = tables()


def only_call(source):
    return ast.parse(source).body[-1].value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "jq.rollout(s, b, f, x, jq.grid(0.0, 0.1, 50),\n    engine='scan', check=True)",
            "jq.rollout(s, b, f, x, jq.grid(0.0, 0.1, 50),\n"
            "    options=jq.RolloutOptions(engine='scan', check=True))",
        ),
        (
            "jq.planning.ilqr(s, b, f, x, g, commands=u, residuals=r, limits=3, iterations=9)",
            "jq.planning.ilqr(s, b, f, x, g, commands=u, residuals=r, "
            "constraints=jq.planning.Constraints(limits=3), "
            "solver=jq.planning.Solver(iterations=9))",
        ),
        ("jq.control.Course(1)", "jq.control.ReferenceTrajectory(1)"),
        (
            "from jaxquat import rotors as r\nr.commanding_speeds(c, r.lagging, lowest=0.1)",
            "from jaxquat import rotors as r\nr.command_speeds(c, r.lag, min=0.1)",
        ),
        (
            "jq.forces.gravity_gradient(b, mu=mu)",
            "jq.torques.gravity_gradient(b, mu=mu)",
        ),
        (
            "from jaxquat import rollout as fly\nimport jaxquat\nfly(s, b, f, x, g, engine='scan')",
            "from jaxquat import rollout as fly\nimport jaxquat\n"
            "fly(s, b, f, x, g, options=jaxquat.RolloutOptions(engine='scan'))",
        ),
        ("from jaxquat.learning.fit import fit", "from jaxquat.fitting.fit import fit"),
        ("é = jq.rollout(x, ö='ü', engine=e) # ß", None),
    ],
)
def test_what_is_rewritten(before, after):
    if after is None:  # offsets are counted in bytes by ast, in characters by str
        after = "é = jq.rollout(x, ö='ü', options=jq.RolloutOptions(engine=e)) # ß"
    assert migrate.rewritten(before) == (after, [])


def test_every_old_keyword_is_rewritten_or_noted():
    for owner, keywords in OLD_KEYWORDS.items():
        for old, new in keywords.items():
            text, notes = migrate.rewritten(f"jq.{owner}(a, b, c, d, e, {old}=1)")
            moved = all(keyword.arg != old for keyword in only_call(text).keywords)
            assert moved or f"line 1: {owner}: {old} is now {new}" in notes


def test_every_old_name_has_a_new_one_that_exists():
    for old, new in RENAMED.items():
        text, notes = migrate.rewritten(f"jq.{old}")
        assert (text, notes) == (f"jq.{new}", [])
    for owner, names in RENAMED_ARGUMENTS.items():
        value = jq
        for name in owner.split("."):
            value = getattr(value, name)
        for old, new in names.items():
            assert new in inspect.signature(value).parameters
            assert old not in inspect.signature(value).parameters
            text, _ = migrate.rewritten(f"jq.{owner}(x, {old}=1)")
            assert f"{new}=1" in text


def test_the_new_orders_are_those_of_the_signatures():
    for owner, order in OLD_ORDERS.items():
        value = jq
        for name in owner.split("."):
            value = getattr(value, name)
        names = [name.partition("=")[0] for name in order["new"].split()]
        assert list(inspect.signature(value).parameters)[: len(names)] == names


def test_what_cannot_be_rewritten_is_noted():
    _, notes = migrate.rewritten("jq.planning.ilqr(*args)")
    assert notes[0].startswith("line 1: the order is planning.ilqr(scheme, body, ")
    for old, new in (
        ("state, x, v, gains, reference, body, m", "state, gains, reference, body, gravity"),
        ("state, x", "state, gains, reference, body, gravity"),
        ("state", None),
    ):
        call = f"jq.control.flight_law({old})"
        notes = [f"line 1: the order is control.flight_law({new})"] if new else []
        assert migrate.rewritten(call) == (call, notes)
    for name, instead in DELETED.items():
        assert migrate.rewritten(f"jq.{name}")[1] == [f"line 1: {name} is gone; use {instead}"]
    for arguments in ("*args", "s, b, f, x, g"):
        _, notes = migrate.rewritten(f"jq.rollout({arguments}, save_every=3)")
        assert notes == ["line 1: rollout: save_every is now grid=jq.grid(..., save_every=...)"]
    _, notes = migrate.rewritten("jq.rollout(a, engine='scan', options=o)")
    assert notes == ["line 1: rollout: two values for options"]


@pytest.mark.parametrize("before", ['x = """\f"""\n', 'x = "\u2028"\n', "\f\n", "x = 1\r\n"])
def test_ends_of_lines_that_python_does_not_count_move_nothing(before, tmp_path):
    (tmp_path / "a.py").write_bytes(f"{before}jq.rollout(é, check=True)\n".encode())
    (tmp_path / "b.py").write_bytes(b"\xff\xfe")
    migrate.main([str(tmp_path)])
    new = f"{before}jq.rollout(é, options=jq.RolloutOptions(check=True))\n"
    assert (tmp_path / "a.py").read_bytes().decode() == new
    assert (tmp_path / "b.py").read_bytes() == b"\xff\xfe"


def test_files_and_blocks_of_markdown_are_rewritten_in_place(tmp_path, capsys):
    (tmp_path / "a.py").write_text("jq.rollout(s, check=True)\n")
    page = "```python\n...no python\n```\nText\n```python\n{}```\n`check=True`\n"
    (tmp_path / "b.md").write_text(page.format("jq.rollout(s, check=True)\n"))
    (tmp_path / "c.py").write_text("no python\n")
    (tmp_path / "d.py").write_text("x = 1\n")
    migrate.main([str(tmp_path)])
    new = "jq.rollout(s, options=jq.RolloutOptions(check=True))\n"
    assert (tmp_path / "a.py").read_text() == new
    assert (tmp_path / "b.md").read_text() == page.format(new)
    printed = capsys.readouterr().out.replace(str(tmp_path), "").splitlines()
    assert printed[:2] == ["/a.py: rewritten", "/b.md: rewritten"]
    assert printed[2].startswith("/b.md: a block is not read: invalid syntax")
    assert printed[3].startswith("/c.py: not read: invalid syntax")
    assert len(printed) == 4
