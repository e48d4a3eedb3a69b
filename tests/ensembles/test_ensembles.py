"""Members are the same whatever computes them, statistics agree with exact sums.

What fails is named, what does not fit is refused.
"""

import math
from functools import partial

import chex
import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import ensembles
from jaxquat.ensembles import chunks

KEY = jax.random.key(7)
BODY = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0], jnp.float32))


def gather():
    """Not a statistic: the outputs themselves, in order."""
    return ensembles.Reducer(
        lambda rows, index: (rows, index),
        lambda a, b: jax.tree.map(lambda x, y: np.concatenate([x, y]), a, b),
        lambda summary: summary,
    )


def draw(key):
    """An attitude and a rate, float32."""
    turn, spin = jax.random.split(key)
    q = jq.quaternion.random(turn, dtype=jnp.float32)
    return jq.State(q, jax.random.normal(spin, (3,), jnp.float32))


def normal(key):
    return jax.random.normal(key, (), jnp.float64)


def tumble(engine, start):
    """The member, and where 20 steps of a damped motion take its rate."""
    torque = lambda t, state, params: -2.0 * state.q[1:] - state.omega
    grid, options = jq.grid(0.0, 0.05, 20), {"save_every": 20, "engine": engine}
    path = flat.rollout(jq.lie_euler, BODY, torque, start, grid, **options)
    return {"start": start, "end": path.state.omega[-1]}


def run(draw=normal, simulate=lambda x: x, n=50, key=KEY, **options):
    options = {"reduce": ensembles.mean(), "progress": False, "chunk": 16} | options
    return ensembles.run(key, draw, simulate, n, **options)


# Members


@pytest.mark.needs("llvmlite")
def test_members_are_the_same_whatever_the_chunk_and_the_engine():
    """1000 is no multiple of 288: the last chunk is ragged.

    Random numbers are the same; XLA may round the last bit of what is made of them otherwise. Rates
    are of order 1 after 20 steps in float32.
    """
    whole, index = run(draw, partial(tumble, "scan"), 1000, chunk=1000, reduce=gather()).result
    np.testing.assert_array_equal(index, np.arange(1000))
    rows, _ = run(draw, partial(tumble, "fused"), 1000, chunk=288, reduce=gather()).result
    chex.assert_trees_all_close(rows["start"], whole["start"], atol=3e-7)
    np.testing.assert_allclose(rows["end"], whole["end"], atol=2e-6)
    index = np.array([3, 999])

    @jax.jit
    def again(index):
        return ensembles.members(KEY, draw, 1000), jax.vmap(draw)(ensembles.keys(KEY, index))

    drawn, chosen = again(index)
    chex.assert_trees_all_close(drawn, whole["start"], atol=3e-7)
    wanted = jax.tree.map(lambda x: x[index], whole["start"])
    chex.assert_trees_all_close(chosen, wanted, atol=3e-7)


def test_the_ragged_chunk_is_the_same_program():
    """``draw`` is traced for the shapes and for the one program, however many chunks there are."""
    traced = []

    def counted(key):
        traced.append(key)
        return normal(key)

    assert run(counted, n=50, chunk=16).result.n == 50
    assert len(traced) == 2


def test_old_keys_and_a_chunk_larger_than_the_ensemble():
    wanted = run(n=5).result
    assert run(n=5, key=jax.random.PRNGKey(7), chunk=1000).result == wanted


def test_members_are_the_differentiable_way():
    """d/da mean (a x)^2 = 2 a mean x^2, exactly for these draws."""

    def loss(a):
        members = ensembles.members(KEY, normal, 50)
        return jnp.mean(jax.lax.map(lambda x: (a * x) ** 2, members, batch_size=16))

    wanted = 2 * 3.0 * jnp.mean(ensembles.members(KEY, normal, 50) ** 2)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(3.0), wanted, rtol=1e-14)


def test_ensemble_is_neither_traced_nor_differentiated():
    def squares(a):
        return run(simulate=lambda x: (a * x) ** 2).result.mean

    traced, pair = "concrete arrays, got traced ones", jnp.ones(2)
    for transform, a in ((jax.jit, 3.0), (jax.grad, 3.0), (jax.vmap, pair)):
        message = rf"simulate: wanted .* {traced}; .*jax\.lax\.map over jq"
        with pytest.raises(TypeError, match=message):
            transform(squares)(a)
    with pytest.raises(TypeError, match=f"key: wanted {traced}; .*jq.ensembles.members"):
        jax.jit(lambda key: run(key=key).result.mean)(KEY)


# Failures


def test_members_that_fail_are_left_out_and_named():
    """A single NaN below -1, an infinity above 1; the reducers see the others only."""
    draws = np.asarray(ensembles.members(KEY, normal, 50))

    def failing(x):
        infinite, nan = jnp.where(x > 1, 0.0, 1.0), jnp.where(x < -1, jnp.nan, 0.0)
        return {"a": x / infinite, "b": jnp.stack([0.0 * x, nan]), "count": jnp.int32(2)}

    found = run(simulate=failing, reduce=(ensembles.mean(), gather()))
    mean, (rows, index) = found.result
    bad = np.abs(draws) > 1
    assert 5 < bad.sum() < 30
    np.testing.assert_array_equal(found.failed_index, np.flatnonzero(bad))
    np.testing.assert_array_equal(index, np.flatnonzero(~bad))
    np.testing.assert_array_equal(rows["a"], draws[~bad])
    assert mean.n == 50 - bad.sum()
    np.testing.assert_allclose(mean.mean["a"], draws[~bad].mean(), rtol=1e-12)
    assert mean.mean["count"] == 2
    np.testing.assert_array_equal(jax.vmap(normal)(found.failed_key), draws[bad])


def test_when_all_fail_there_is_no_statistic():
    reducers = ensembles.mean(), ensembles.quantiles([0.5]), ensembles.largest(3)
    message = "^simulate: all 50 members failed, .* the first is number 0: there are no statistics$"
    with pytest.warns(RuntimeWarning, match=message):
        found = run(simulate=lambda x: x * jnp.nan, reduce=reducers)
    assert len(found.failed_index) == 50
    mean, quantiles, largest = found.result
    assert mean.n == largest.value.size == 0
    assert np.isnan([mean.mean, mean.std, mean.standard_error, *quantiles]).all()


# Statistics


def reduced(reducer, rows, cuts):
    """Rows summarised in the parts between the cuts, merged in order."""
    index = np.arange(len(rows))
    summary = reducer.summarise(rows[:0], index[:0])
    for part in np.split(index, cuts):
        summary = reducer.merge(summary, reducer.summarise(rows[part], part))
    return reducer.finish(summary)


def test_two_million_float32_members_do_not_drift():
    """Near 1000 with spread 1.

    A running sum in float32 keeps 7 digits of 2e9, and none of the variance.
    """
    n = 2**21
    rows = (1000.0 + np.random.default_rng(0).standard_normal(n)).astype(np.float32)
    exact = math.fsum(rows.tolist()) / n
    square = math.fsum(((rows.astype(np.float64) - exact) ** 2).tolist())
    assert abs(np.cumsum(rows, dtype=np.float32)[-1] / n - exact) > 1e-3  # what is avoided
    coarse, fine = (reduced(ensembles.mean(), rows, range(size, n, size)) for size in (2**18, 3000))
    for found in (coarse, fine):
        assert found.n == n
        np.testing.assert_allclose(found.mean, exact, rtol=1e-13)
        np.testing.assert_allclose(found.std, math.sqrt(square / (n - 1)), rtol=1e-10)
        np.testing.assert_allclose(found.standard_error, found.std / math.sqrt(n), rtol=1e-15)
    np.testing.assert_allclose(coarse.mean, fine.mean, rtol=1e-14)
    assert reduced(ensembles.mean(), rows, range(3000, n, 3000)) == fine


@pytest.mark.parametrize("accuracy", [1e-2, 1e-3])
def test_quantiles_within_the_stated_error(accuracy):
    """Both signs, zeros, eighty decades; and a second column. The error is as large as allowed."""
    rng = np.random.default_rng(2)
    wide = rng.standard_normal(5001) * 10.0 ** rng.uniform(-40, 40, 5001) * (rng.random(5001) > 0.2)
    rows = np.stack([wide, rng.standard_normal(5001)], axis=1)
    levels = np.linspace(0, 1, 101)
    reducer = ensembles.quantiles(levels, accuracy=accuracy)
    found = reduced(reducer, rows, [1, 7, 4000])
    exact = np.sort(rows, axis=0)[np.floor(levels * 5000).astype(int)]
    assert np.all(np.abs(found - exact) <= accuracy * np.abs(exact) * (1 + 1e-9))
    some = exact != 0
    assert np.max(np.abs(found[some] / exact[some] - 1)) > accuracy / 3
    np.testing.assert_array_equal(found[[0, -1]], exact[[0, -1]])
    np.testing.assert_array_equal(found, reduced(reducer, rows[::-1], range(50, 5001, 50)))


@pytest.mark.parametrize("accuracy", [1e-3, 0.9])
def test_infinities_have_their_ranks_among_the_quantiles(accuracy):
    """Of the members 0 to 999 the last 200 are infinite; or these and, negative, the first 200."""
    numbers, reducer = np.arange(1000.0), ensembles.quantiles([0.1, 0.5, 0.9], accuracy=accuracy)
    above = np.where(numbers >= 800, np.inf, numbers)
    both = np.where(numbers < 200, -np.inf, above)
    rows = np.stack([above, both, -both], axis=1)
    exact = np.array([[99, -np.inf, -np.inf], [499, 499, -500], [np.inf] * 3])
    for cuts in ([], [1, 500], [999]):
        np.testing.assert_allclose(reduced(reducer, rows, cuts), exact, rtol=accuracy)


def test_quantiles_reach_to_both_ends_of_float64():
    """The greatest numbers keep their accuracy beside an infinity, which does not clip them."""
    rows = np.array([5e-324, 1e-320, 1.7e308, 1.79e308, np.finfo(float).max, np.inf])
    got = reduced(ensembles.quantiles(np.arange(6) / 5), rows, [2])
    np.testing.assert_allclose(got[2:], rows[2:], rtol=1e-3)
    assert got[0] == 5e-324


def test_a_nan_makes_the_quantiles_of_its_number_nan():
    rows = np.stack([np.arange(100.0), np.where(np.arange(100) == 7, np.nan, 1.0)], axis=1)
    got = reduced(ensembles.quantiles([0.0, 0.5, 1.0]), rows, [5, 50])
    np.testing.assert_allclose(got[:, 0], [0, 49, 99], rtol=1e-3)
    assert np.isnan(got[:, 1]).all()


@pytest.mark.parametrize("place", [0, 40, 99])
def test_a_mean_with_an_infinity_is_infinite_whatever_the_chunks(place):
    rows = np.where(np.arange(100) == place, -np.inf, 1.0)
    for cuts in ([], [1, 40, 41], [0, 99], [40, 40, 80]):
        found = reduced(ensembles.mean(), rows, cuts)
        assert found.mean == -np.inf
        assert np.isnan(found.std)


def test_extremes_and_their_numbers():
    rows = np.array([3.0, 1.0, 3.0, 2.0, 5.0, 1.0])
    most, least = (reduced(ensembles.largest(3), x, [2, 3]) for x in (rows, -rows))
    assert (most.value.tolist(), most.members.tolist()) == ([5.0, 3.0, 3.0], [4, 0, 2])
    assert (least.value.tolist(), least.members.tolist()) == ([-1.0, -1.0, -2.0], [1, 5, 3])
    assert reduced(ensembles.largest(9), rows, []).members.tolist() == [4, 0, 2, 3, 1, 5]


def test_the_statistics_of_a_normal_distribution():
    """Mean 0, variance 1, median 0 and P(x < 1) = 0.8413, within five standard errors."""
    n = 20_000
    reducers = {
        "x": ensembles.mean(lambda out: out["x"]),
        "share": ensembles.mean(lambda out: out["low"]),
        "square": ensembles.mean(lambda out: out["x"] ** 2),
        "quantiles": ensembles.quantiles([0.5, 0.8413447], of=lambda out: out["x"]),
        "worst": ensembles.largest(1, lambda out: out["x"]),
    }
    simulate = lambda x: {"x": x, "low": x < 1}
    found = run(simulate=simulate, n=n, chunk=None, reduce=reducers).result
    expected = {"x": (0.0, 1.0), "share": (0.8413, 0.3654), "square": (1.0, math.sqrt(2))}
    for name, (mean, spread) in expected.items():
        assert abs(found[name].mean - mean) < 5 * spread / math.sqrt(n)
        np.testing.assert_allclose(found[name].standard_error, spread / math.sqrt(n), rtol=0.1)
    np.testing.assert_allclose(found["quantiles"], [0.0, 1.0], atol=5 * 1.54 / math.sqrt(n))
    assert normal(ensembles.keys(KEY, found["worst"].members)[0]) == found["worst"].value[0]


# Memory


def wasteful(x):
    """Half a megabyte of temporaries a member: sorting cannot be fused."""
    return jnp.sum(jnp.sort(jnp.sin(x * jnp.arange(32768.0))) * jnp.arange(32768.0))


@pytest.mark.slow
def test_a_chunk_that_does_not_fit_names_one_that_does(monkeypatch):
    monkeypatch.setattr(chunks, "free_bytes", lambda experiment: 10e6)
    message = r"chunk: wanted one that fits into the 10 MB free .*, got 64, .*; \d+ would fit"
    with pytest.raises(MemoryError, match=message) as caught:
        run(simulate=wasteful, n=64, chunk=64)
    advised = int(str(caught.value).split()[-3])
    assert 8 <= advised <= 34  # 0.9 of 10 MB; one or more arrays of 0.26 MB each
    assert run(simulate=wasteful, n=64, chunk=advised).result.n == 64
    monkeypatch.setattr(chunks, "free_bytes", lambda experiment: 1e5)
    with pytest.raises(MemoryError, match="not even one member per device would fit"):
        run(simulate=wasteful, n=64, chunk=2)


def test_the_default_chunk_takes_half_of_what_is_free(monkeypatch):
    experiment = chunks.Experiment(normal, wasteful, 64, KEY, None)
    assert chunks.default(experiment)[0] == 64
    assert chunks.free_bytes(experiment) > 1e8
    monkeypatch.setattr(chunks, "free_bytes", lambda experiment: 10e6)
    chunk, program = chunks.default(experiment)
    assert 2e6 < chunks.needed_bytes(program) <= 5e6
    assert 4 <= chunk <= 17


def test_what_xla_cannot_allocate_is_said_in_words(monkeypatch):
    """A petabyte a member, beyond any address space; the analysis is silenced."""
    monkeypatch.setattr(chunks, "free_bytes", lambda experiment: math.inf)

    def monstrous(x):
        grid = jax.random.uniform(jax.random.key(1), (2**24, 2**24), jnp.float32)
        return jnp.sum(jnp.sort(grid, axis=0) * x.astype(jnp.float32))

    message = "chunk: wanted one that fits into memory, got 4; try 2 .*ut of memory"
    with pytest.raises(MemoryError, match=message):
        run(simulate=monstrous, n=4, chunk=4)


def test_progress(capsys):
    run(n=50, progress=True)
    shown = capsys.readouterr().err
    assert "50.0/50.0" in shown
    assert " members/s" in shown
    run(n=50)
    assert capsys.readouterr().err == ""


# How results show themselves


def test_results_show_themselves_in_few_lines():
    pair = np.array([1.0, 2.0])
    mean = ensembles.Mean(3, {"x": 2.5, "y": pair}, {"x": 0.5, "y": pair}, {"x": 0.25, "y": pair})
    worst = ensembles.Extremes(np.array([9.0, 8.0]), np.array([4, 1]))
    index = np.array([0, 3])
    result = {"mean": mean, "quantiles": np.linspace(0.0, 1.0, 9), "worst": worst}
    found = jq.ensembles.Ensemble(5, result, index, ensembles.keys(KEY, index))
    assert repr(found).splitlines() == [
        "Ensemble: 5 members, 2 failed (0, 3)",
        "  mean.x     2.5 +- 0.25",
        "  mean.y     [1, 2] +- [1, 2]",
        "  quantiles  float64[9] from 0 to 1",
        "  worst      [9, 8] of members [4, 1]",
    ]
    assert repr(mean).splitlines() == [
        "Mean of 3 members",
        "     mean    std     standard error",
        "  x  2.5     0.5     0.25",
        "  y  [1, 2]  [1, 2]  [1, 2]",
    ]
    assert repr(worst).splitlines() == [
        "Extremes of 2 members",
        "  member  value",
        "  4       9",
        "  1       8",
    ]


def test_statistics_are_pytrees():
    mean = ensembles.Mean(3, {"x": 2.0}, {"x": 1.0}, {"x": 0.5})
    assert jax.tree.map(lambda x: 2 * x, mean) == ensembles.Mean(
        6, {"x": 4.0}, {"x": 2.0}, {"x": 1.0}
    )


# Bad input


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"n": 2**31 + 1}, ValueError, "n: wanted at most 2^31 members, got 2147483649"),
        (
            {"key": jax.random.key(0, impl="rbg")},
            ValueError,
            "key: wanted a generator whose numbers do not depend on vmap",
        ),
        (
            {"reduce": None},
            ValueError,
            "reduce: wanted reducers, a store, or both, got neither; for all outputs in memory",
        ),
        (
            {"reduce": ensembles.mean},
            TypeError,
            "reduce: wanted reducers such as jq.ensembles.mean(), got function",
        ),
        (
            {"simulate": lambda x: ()},
            ValueError,
            "simulate: wanted at least one array of outputs, got ()",
        ),
        (
            {"simulate": lambda x: KEY},
            TypeError,
            "simulate: wanted outputs of floats, integers or booleans, got key<fry>",
        ),
        (
            {"reduce": ensembles.largest(3, lambda out: out[:, None])},
            ValueError,
            "of: wanted one number per member, got shapes",
        ),
        (
            {"reduce": ensembles.mean(lambda out: out.sum())},
            ValueError,
            "of: wanted an unchanged leading axis",
        ),
    ],
)
def test_refused_by_name(changes, kind, message):
    with pytest.raises(kind) as caught:
        run(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("probabilities", [[], [50]])
def test_probabilities_lie_between_0_and_1(probabilities):
    message = "probabilities: wanted a sequence of numbers from 0 to 1, got "
    with pytest.raises(ValueError, match=message):
        ensembles.quantiles(probabilities)
