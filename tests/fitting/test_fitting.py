"""Gradient descent: known minima, modes against each other, what is skipped, what is refused."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from marks import some

import jaxquat as jq
from jaxquat.fitting.descent import Descent

KEY = jax.random.key(0)


def quiet_fit(loss, params, optimizer, data=None, *, key=KEY, **options):
    fields = {name: options.pop(name) for name in jq.FitOptions._fields if name in options}
    record = jq.FitOptions(**{"progress": False, **fields})
    return jq.fit(loss, params, optimizer, data, key=key, options=record, **options)


def bowl(params, batch, key):
    """Minimum 0 at a = 3, b = (1, -1)."""
    return (params["a"] - 3.0) ** 2 + jnp.sum((params["b"] - jnp.array([1.0, -1.0])) ** 2)


def parabola(params, batch, key):
    """Minimum 0 at 3."""
    return (params - 3.0) ** 2


START, ZERO = {"a": jnp.array(0.0), "b": jnp.zeros(2)}, jnp.array(0.0)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_finds_a_known_minimum(mode, capsys):
    """Each update halves the error."""
    fit = quiet_fit(bowl, START, optax.sgd(0.25), steps=60, mode=mode)
    np.testing.assert_allclose(fit.params["a"], 3.0, rtol=1e-12)
    np.testing.assert_allclose(fit.params["b"], [1.0, -1.0], rtol=1e-12)
    assert fit.history.shape == (60,)
    np.testing.assert_allclose(fit.history[:3], [11.0, 11.0 / 4, 11.0 / 16], rtol=1e-14)
    assert fit.skipped == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("chunk", some([1, 7, 100], [7]))
def test_the_chunk_changes_nothing(chunk):
    data = jax.random.normal(jax.random.key(1), (50,))

    def loss(params, batch, key):
        return jnp.mean((params - batch) ** 2) + 0.1 * params * jax.random.normal(key)

    run = functools.partial(quiet_fit, loss, ZERO, optax.adam(0.1), data, steps=20, batch_size=10)
    np.testing.assert_array_equal(run(chunk=chunk).history, run(chunk=20).history)


def test_more_steps_continue_the_same_sequence():
    def loss(params, batch, key):
        return (params - jax.random.uniform(key)) ** 2

    run = functools.partial(quiet_fit, loss, ZERO, optax.sgd(0.1))
    np.testing.assert_array_equal(run(steps=7).history, run(steps=12).history[:7])


def test_batches_are_drawn_without_replacement_and_cover_the_data():
    """A batch as large as the data is a permutation of it; small ones differ between updates."""
    data = {"x": jnp.arange(8.0), "y": 10 * jnp.arange(8.0)}

    def loss(params, batch, key):
        assert batch["x"].shape == (8,)
        return jnp.sum(batch["x"]) + jnp.sum((batch["y"] - 10 * batch["x"]) ** 2) + 0.0 * params

    whole = quiet_fit(loss, ZERO, optax.sgd(0.1), data, steps=5, batch_size=8)
    np.testing.assert_array_equal(whole.history, 28.0)

    def first(params, batch, key):
        return batch[0] + 0.0 * params

    several = quiet_fit(first, ZERO, optax.sgd(0.1), jnp.arange(8.0), steps=200, batch_size=2)
    assert set(several.history) == set(range(8))


def test_an_update_that_is_not_finite_is_skipped_and_counted():
    data = jnp.array([1.0, jnp.nan, 2.0, jnp.inf, 3.0])

    def loss(params, batch, key):
        return (params - batch[0]) ** 2

    fit = quiet_fit(loss, ZERO, optax.adam(0.1), data, steps=50, batch_size=1)
    assert np.isfinite(fit.params)
    assert fit.skipped == np.sum(~np.isfinite(fit.history)) > 0


def test_a_gradient_that_is_not_finite_is_skipped_though_the_loss_is_finite():
    """The derivative of the root is infinite at zero."""

    def loss(params, batch, key):
        return jnp.sqrt(params["x"]) + params["y"] ** 2

    start = {"x": jnp.array(0.0), "y": jnp.array(1.0)}
    message = "derivative or the optimizer's update was not finite at all 4 updates; first loss 1"
    with pytest.raises(FloatingPointError, match=message):
        quiet_fit(loss, start, optax.sgd(0.1), steps=4)


@pytest.mark.parametrize("starts", [None, 2])
def test_an_update_that_is_not_finite_is_blamed_on_the_optimizer(starts):
    loss = lambda params, batch, key: (params - 1.0) ** 2
    message = "derivative or the optimizer's update was not finite at all 3 updates; first loss .*1"
    begin = jnp.zeros(() if starts is None else starts)
    with pytest.raises(FloatingPointError, match=message):
        quiet_fit(loss, begin, optax.sgd(jnp.inf), steps=3, starts=starts)


NAMES = ("loss", "validation", "optimizer")


@pytest.mark.parametrize(
    ("name", "transform"),
    some(
        itertools.product(NAMES, (jax.grad, jax.vmap)),
        [("loss", jax.grad), ("validation", jax.vmap), ("optimizer", jax.vmap)],
    ),
)
def test_what_is_traced_around_a_fit_is_named(name, transform):
    def fitted(x):
        y = {"loss": 1.0, "validation": 1.0, "optimizer": 0.1} | {name: x}
        loss = lambda params, batch, key: (params - y["loss"]) ** 2
        validation = lambda params: (params - y["validation"]) ** 2
        optimizer = optax.sgd(y["optimizer"])
        return quiet_fit(loss, ZERO, optimizer, steps=2, validation=validation).params

    who = "validation" if name == "validation" else "loss"
    what = "it" if name == "validation" else "it or the optimizer"
    message = f"{who}: wanted concrete arrays, got traced ones; {what} closes over traced"
    with pytest.raises(TypeError, match=message):
        transform(fitted)(jnp.ones(2) if transform is jax.vmap else 1.0)


@pytest.mark.parametrize("starts", [None, 2])
def test_an_interrupt_carries_the_parameters_of_the_last_chunk(starts, monkeypatch):
    """Of gradient descent with steps of 1/4 on a parabola: 1 - 1/2^updates."""
    advance = Descent.advance

    def interrupting(self, position, first, stop):
        if first == 6:
            raise KeyboardInterrupt
        return advance(self, position, first, stop)

    monkeypatch.setattr(Descent, "advance", interrupting)
    loss = lambda params, batch, key: (params - 1.0) ** 2
    begin = jnp.zeros(() if starts is None else starts)
    with pytest.raises(KeyboardInterrupt) as caught:
        quiet_fit(loss, begin, optax.sgd(0.25), steps=20, chunk=3, starts=starts)
    np.testing.assert_allclose(caught.value.params, 1.0 - 0.5**6, rtol=1e-6)
    assert np.shape(caught.value.params) == np.shape(begin)
    assert "after 6 updates are the attribute params" in caught.value.__notes__[0]


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_parameters_in_half_precision_keep_their_dtype_beside_a_loss_in_float32(mode):
    loss = lambda params, batch, key: (params.astype(jnp.float32) - 2.0) ** 2
    begin = jnp.ones((), jnp.bfloat16)
    found = quiet_fit(loss, begin, optax.sgd(0.25), steps=20, mode=mode)
    assert found.params.dtype == jnp.bfloat16
    assert found.params == 2.0


def test_an_interrupt_while_the_validation_is_traced_carries_the_start():
    def traced(params):
        raise KeyboardInterrupt

    loss = lambda params, batch, key: params**2
    with pytest.raises(KeyboardInterrupt) as caught:
        quiet_fit(loss, jnp.ones(()), optax.sgd(0.1), steps=2, validation=traced)
    assert caught.value.params == 1.0


def test_auto_is_forward_for_few_parameters_and_reverse_for_many():
    """A while loop has no reverse mode, so which mode ran can be told."""

    def loss(params, batch, key):
        start = 0, jnp.sum(params**2)
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.9), start)[1]

    quiet_fit(loss, jnp.ones(6), optax.sgd(0.1), steps=1)
    with pytest.raises(ValueError, match="Reverse-mode"):
        quiet_fit(loss, jnp.ones(7), optax.sgd(0.1), steps=1)


def test_loss_is_traced_once():
    traced = []

    def loss(params, batch, key):
        traced.append(params)
        return jnp.sum(params**2)

    quiet_fit(loss, jnp.ones(2), optax.sgd(0.1), steps=40, chunk=10, mode="reverse")
    assert len(traced) == 1


def test_progress_shows_the_loss(capsys):
    quiet_fit(bowl, START, optax.sgd(0.25), steps=20, progress=True)
    assert "loss=" in capsys.readouterr().err


def test_float32_parameters_stay_float32():
    start = jnp.zeros(2, jnp.float32)
    fit = quiet_fit(lambda p, b, k: jnp.sum((p - 1) ** 2), start, optax.adam(0.1), steps=3)
    assert fit.params.dtype == jnp.float32
    assert fit.history.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rkmk4", "zhao"])
def test_recovers_gains_and_inertia_from_a_trajectory(name):
    """The loss is zero at the gains and moments that made the data.

    Descent from 30 % away returns to them.
    """
    true = {
        "damping": jnp.array(0.8),
        "stiffness": jnp.array(2.0),
        "moments": jnp.log(jnp.array([0.6, 0.8, 1.0])),
    }
    start = jq.State(jq.quaternion.exp(jnp.array([0.5, -1.0, 0.3])), jnp.array([0.4, 0.9, -1.0]))

    def torque(t, state, p):
        kick = jnp.array([0.3, -0.2, 0.1]) * jnp.sin(2 * t)
        return kick - p["stiffness"] * state.q[1:] - p["damping"] * state.omega

    def simulate(params):
        body = jq.Body.from_principal(jnp.exp(params["moments"]))
        grid = jq.grid(0.0, 0.1, 30)
        return jq.rollout(jq.schemes.SCHEMES[name], body, torque, start, grid, params).state

    data = jax.jit(simulate)(true)

    def loss(params, batch, key):
        state = simulate(params)
        turned = jnp.mean(jq.quaternion.squared_distance(state.q, data.q))
        return turned + jnp.mean((state.omega - data.omega) ** 2)

    guess = jax.tree.map(lambda x: x + 0.3, true)
    adam = optax.adam(optax.cosine_decay_schedule(0.05, 300))
    fit = quiet_fit(loss, guess, adam, steps=300)
    assert fit.history[-1] < 1e-6 * fit.history[0]
    for got, wanted in zip(jax.tree.leaves(fit.params), jax.tree.leaves(true), strict=True):
        np.testing.assert_allclose(got, wanted, atol=5e-3)


def test_auto_is_reverse_where_only_that_is_defined():
    """A ``custom_vjp`` deep inside."""

    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, bar: (2.0 * x * bar,))

    def loss(params, batch, key):
        near, far = lambda x: square(x - 3.0), lambda x: square(x - 2.0)
        return jax.lax.cond(params > 0, near, far, params)

    fit = quiet_fit(loss, jnp.array(1.0), optax.sgd(0.25), steps=60)
    np.testing.assert_allclose(fit.params, 3.0, rtol=1e-12)


def test_patience_ends_a_fit():
    options = {"steps": 99, "chunk": 1, "validation": lambda p: p, "patience": 2}
    fit = quiet_fit(parabola, ZERO, optax.sgd(0.05), **options)
    assert fit.history.shape == (2,)


# Line searches


ROWS = jax.random.normal(jax.random.key(2), (30, 4))


def squares(params, batch, key):
    """Linear regression of the last column on the others."""
    return jnp.mean((batch[:, :3] @ params["x"] - batch[:, 3]) ** 2)


def error(params):
    """The distance to the solution of the normal equations."""
    return np.max(np.abs(params["x"] - np.linalg.lstsq(ROWS[:, :3], ROWS[:, 3])[0]))


@pytest.mark.parametrize("mode", some(["forward", "reverse"], ["reverse"]))
def test_lbfgs_minimises_a_quadratic_in_few_updates(mode):
    """With its curvature learnt in three dimensions it converges superlinearly.

    Gradient descent converges by 1 - 1 / condition an update.
    """
    start = {"x": jnp.ones(3)}
    run = functools.partial(quiet_fit, squares, start, data=ROWS, steps=12, mode=mode)
    fit = run(optimizer=optax.lbfgs())
    assert error(fit.params) < 1e-12
    assert error(run(optimizer=optax.sgd(0.5)).params) > 1e-6
    assert fit.skipped == 0


def test_a_line_search_differentiates_in_the_mode_of_the_fit():
    """A while loop has no reverse mode; along the line as at its start forward mode is used."""

    def loss(params, batch, key):
        start = 0, parabola(params, batch, key)
        return jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, 0.5 * c[1]), start)[1]

    fit = quiet_fit(loss, ZERO, optax.lbfgs(), steps=6)
    np.testing.assert_allclose(fit.params, 3.0, rtol=1e-12)


@pytest.mark.slow
def test_lbfgs_skips_what_is_not_finite():
    """A third of the updates sees NaN; the others bring it to the minimum all the same."""

    def loss(params, batch, key):
        return squares(params, batch, key) + jnp.where(jax.random.uniform(key) < 0.3, jnp.nan, 0.0)

    fit = quiet_fit(loss, {"x": jnp.ones(3)}, optax.lbfgs(), ROWS, steps=25)
    assert error(fit.params) < 1e-12
    assert fit.skipped == np.sum(np.isnan(fit.history)) > 3


def test_an_update_that_is_itself_not_finite_is_skipped():
    """The optimiser divides by its count less 2.

    At the third update it says infinity and stays there, state and all.
    """
    optimizer = optax.GradientTransformation(
        lambda params: jnp.array(0.0),
        lambda updates, count, params=None: (-0.25 * updates / jnp.abs(count - 2.0), count + 1.0),
    )
    fit = quiet_fit(parabola, ZERO, optimizer, steps=9)
    losses = [9.0, 9.0 * 0.75**2] + [9.0 * (0.75 * 0.5) ** 2] * 7
    np.testing.assert_allclose(fit.history, losses, rtol=1e-14)
    assert fit.skipped == 7


# Starts and validation


def two_wells(params, batch, key):
    """Minima near -1 and 1, the left one lower; noise in the gradient."""
    return (params["x"] ** 2 - 1.0) ** 2 + 0.3 * params["x"] + 0.01 * params["x"] * jnp.mean(batch)


WELL = float(np.min(np.roots([4.0, 0.0, -4.0, 0.3]).real))


def test_starts_find_the_lower_of_two_wells():
    """Each start goes the way it goes alone; one that is not finite is skipped and never best."""
    starts = jnp.array([1.5, 0.6, jnp.nan, -0.4])
    options = {"optimizer": optax.adam(0.1), "data": ROWS[:, 0], "batch_size": 5, "steps": 150}
    fit = quiet_fit(two_wells, {"x": starts}, **options, starts=4)
    assert fit.best_start == 3
    np.testing.assert_allclose(fit.params["x"], WELL, atol=0.02)  # noise of the batches
    assert fit.history.shape == (4, 150)
    assert fit.skipped.tolist() == [0, 0, 150, 0]
    alone = quiet_fit(two_wells, {"x": starts[1]}, **options)
    np.testing.assert_allclose(fit.history[1], alone.history, rtol=1e-9)
    assert alone.params["x"] > 0.9
    assert (alone.best_start, alone.best_update, alone.validation) == (None, 150, None)


def test_the_best_start_is_that_of_the_lowest_validation():
    starts, validation = {"x": jnp.array([-0.5, 0.5])}, lambda p: (p["x"] - 0.8) ** 2
    options = {"steps": 30, "starts": 2, "validation": validation}
    fit = quiet_fit(two_wells, starts, optax.sgd(0.1), ROWS[:, 0], **options)
    assert fit.best_start == 1
    assert fit.validation.shape == (2, 4)
    np.testing.assert_allclose(validation(fit.params), fit.validation.min(), rtol=1e-14)


def test_no_start_has_a_finite_loss_at_the_end():
    """The last draws are NaN for all; the ranking is that of the last draws that were not."""

    def loss(params, batch, key):
        return (params - 1.0) ** 2 / batch[0]

    data, starts = jnp.ones(8).at[3].set(jnp.nan), jnp.array([9.0, 2.0])
    options = {"batch_size": 1, "starts": 2}
    run = functools.partial(quiet_fit, loss, starts, optax.sgd(0.0), data, **options)
    losses = run(steps=40).history[0]
    last = int(np.flatnonzero(np.isnan(losses))[-1])
    assert run(steps=last).best_start == 1


@pytest.mark.parametrize(
    ("steps", "chunk", "updates"), [(6, 1, [0, 1, 2, 3, 4, 5, 6]), (5, 2, [0, 2, 4, 5])]
)
def test_the_best_by_validation_is_kept(steps, chunk, updates):
    """Each update halves the distance to 3, from 0: 0, 1.5, 2.25, ...; validation wants 1.4."""
    options = {"steps": steps, "chunk": chunk, "validation": lambda p: (p - 1.4) ** 2}
    fit = quiet_fit(parabola, ZERO, optax.sgd(0.25), **options)
    passed = 3.0 * (1.0 - 0.5 ** np.array(updates))
    np.testing.assert_allclose(fit.validation, (passed - 1.4) ** 2, rtol=1e-13)
    assert fit.best_update == (1 if chunk == 1 else 2)
    np.testing.assert_allclose(fit.params, 3.0 * (1.0 - 0.5**fit.best_update), rtol=1e-14)
    assert fit.history.shape == (steps,)
    assert fit.chunk == chunk


def test_patience_ends_the_fit():
    """Lowest after 1 update, so 3 evaluations without a lower one are over after 4.

    NaN is no lower one. Of two starts the second goes away from 1.4 at once, and the first is
    lowest after 6 updates: 3 (1 - 0.9^6) = 1.4.
    """
    run = functools.partial(quiet_fit, parabola, steps=60, chunk=1)
    one = {"params": ZERO, "optimizer": optax.sgd(0.25)}
    fit = run(**one, validation=lambda p: jnp.where(p > 2.0, jnp.nan, (p - 1.4) ** 2), patience=3)
    assert fit.history.shape == (4,)
    assert fit.best_update == 1
    np.testing.assert_allclose(fit.params, 1.5, rtol=1e-14)
    two = {"params": jnp.array([0.0, 1.39]), "starts": 2, "optimizer": optax.sgd(0.05)}
    fit = run(**two, validation=lambda p: (p - 1.4) ** 2, patience=3)
    assert fit.history.shape == (2, 9)
    message = "validation: it was not finite at any of the 3 evaluations"
    with pytest.raises(FloatingPointError, match=message):
        run(**one, validation=lambda p: p * jnp.nan, patience=2)


# How a fit shows itself


def test_a_fit_shows_itself_in_few_lines():
    history = np.array([[9.0, 8.0], [4.0, 0.0123456]])
    params = {"gains": jnp.array([1.0, 2.5]), "layer": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)}
    validation = np.array([[7.0, 6.0], [5.0, 0.25]])
    fit = jq.Fit(params, history, np.array([0, 1]), validation, 2, 1, 10)
    assert repr(fit).splitlines() == [
        "Fit: 2 updates, loss 4 -> 0.01235, 1 skipped",
        "  best_start   1 of 2",
        "  best_update  2, validation 0.25",
        "  gains        [1, 2.5]",
        "  layer        float64[3, 4] from -1 to 1",
    ]
    many = jq.Fit({f"p{k:02}": jnp.array(k) for k in range(30)}, history[1], 0, None, 2, None, 10)
    assert len(repr(many).splitlines()) == 9
    assert repr(many).endswith("\n  ... 23 more")
