"""A Path has rows, a last state and a short text."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

BODY = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
START = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.array([0.3, -0.2, 0.5]))
GRID = jq.grid(0.5, 0.1, 12)
CONTROLLER = jq.Controller(
    lambda start, params: jnp.zeros(()),
    lambda t, state, memory, params, value: (-state.omega, memory + 1.0),
)


@jax.jit
def whole():
    return jq.rollout(
        jq.rkmk4,
        BODY,
        jq.torques.commanded,
        START,
        dataclasses.replace(GRID, sample_every=3),
        controller=CONTROLLER,
    )


@jax.jit
def saved():
    return jq.rollout(
        jq.rkmk4,
        BODY,
        jq.torques.zero,
        START,
        GRID,
        options=jq.RolloutOptions(save=lambda t, state, params: state.omega),
    )


@pytest.mark.slow
def test_a_slice_has_its_rows_and_ends_with_the_last_of_them():
    path = whole()
    part = path[2:9:3]
    np.testing.assert_array_equal(part.t, path.t[jnp.array([2, 5, 8])])
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(x, y[2:9:3]),
        (part.state, part.command),
        (path.state, path.command),
    )
    np.testing.assert_array_equal(part.final.q, path.state.q[8])
    assert part.memory == ()
    np.testing.assert_array_equal(path[:].final.omega, path.final.omega)
    # The part interpolates between fewer rows.
    np.testing.assert_allclose(part.at(1.0).q, path.at(1.0).q, atol=1e-4)


def test_the_last_state_is_there_with_save_and_without():
    path, other = whole(), saved()
    np.testing.assert_array_equal(path.final.q, path.state.q[-1])
    assert other.state == other.command == ()
    alone = jax.jit(lambda: jq.rollout(jq.rkmk4, BODY, jq.torques.zero, START, GRID))()
    np.testing.assert_array_equal(other.final.omega, alone.final.omega)
    np.testing.assert_array_equal(other.final.omega, other.saved[-1])


def test_rows_of_a_path_without_states_know_the_last_state_at_the_end_alone():
    path = saved()
    np.testing.assert_array_equal(path[4:].final.q, path.final.q)
    assert path[4:6].final == ()
    np.testing.assert_array_equal(path[4:6].saved, path.saved[4:6])


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (3, TypeError, r"rows: wanted a slice such as path\[10:20\] \(.*last state\), got 3"),
        (-2, TypeError, r"\(jax.tree.map\(lambda x: x\[-2\], path.state\) is the state of a row"),
        (jnp.arange(3), TypeError, "rows: wanted a slice"),
        (slice(5, 5), ValueError, "rows: wanted at least one of 13 rows"),
        (slice(20, 30), ValueError, "rows: wanted at least one of 13 rows"),
    ],
)
def test_what_is_no_slice_or_empty_is_refused(rows, error, message):
    with pytest.raises(error, match=message):
        whole()[rows]


def many_paths():
    return jax.vmap(
        lambda omega: jq.rollout(jq.rkmk4, BODY, jq.torques.zero, START._replace(omega=omega), GRID)
    )(jnp.eye(3))


def test_the_state_of_a_row_is_what_the_error_says():
    path = whole()
    with pytest.raises(TypeError) as error:
        path[-2]
    said = re.search(r"\((.*) is the state of a row", str(error.value))
    state = eval(said[1], {"jax": jax, "path": path})
    np.testing.assert_array_equal(state.q, path.state.q[-2])


def test_a_path_is_as_long_as_it_has_rows():
    assert len(whole()) == 13
    assert len(whole()[2:9:3]) == 3
    assert jax.jit(len)(whole()) == 13
    many = many_paths()
    with pytest.raises(TypeError, match=r"path.t.shape\[-1\] is the number of rows of each$"):
        len(many)
    assert many.t.shape[-1] == 13
    assert many  # as any object


def test_rows_of_many_paths_are_refused():
    many = many_paths()
    with pytest.raises(ValueError, match=r"path: wanted one path, got times of shape \(3, 13\)"):
        many[1:3]
    assert "3 paths of 13 rows" in repr(many)


def test_at_says_that_save_replaced_the_states():
    with pytest.raises(ValueError, match="because save= of rollout replaced them"):
        saved().at(0.7)


def test_a_path_prints_in_a_line_and_as_a_small_table():
    path = whole()
    text = repr(path)
    assert text.startswith("<Path: 13 rows, t = 0.5 to 1.7 s, state .q float64[13, 4]")
    assert "memory" in text
    assert len(text) < 300
    assert repr(jax.eval_shape(whole)).startswith("<Path: 13 rows, state .q float64[13, 4]")
    assert repr(jax.tree.map(lambda x: None, path)) == "<Path: 0 rows>"
    # A traced path prints, too.
    jax.jit(lambda path: print(path) or path)(path)  # noqa: T201


def test_a_path_is_a_pytree_and_is_not_changed():
    path = whole()
    doubled = jax.tree.map(lambda x: 2 * x, path)
    assert isinstance(doubled, jq.Path)
    np.testing.assert_array_equal(doubled.t, 2 * path.t)
    with pytest.raises(AttributeError):
        path.t = 0.0


def test_a_path_is_not_unpacked():
    with pytest.raises(TypeError, match="'Path' object is not iterable"):
        list(jq.Path(jnp.zeros(1), jax.tree.map(lambda x: x[None], START)))
