"""Params with functions, strings and keys in them: the floats are fitted, the rest is held.

Signed integers are held with a warning, which is an error in tests unless it is expected.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxquat as jq

KEY = jax.random.key(0)
ORDER = np.array([1, 0], np.uint32)  # as raw keys are
HELD_INTEGERS = pytest.mark.filterwarnings("ignore:params. wanted floats:UserWarning")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["weight", "activation", "name", "scaled", "bias", "order", "key"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Layer:
    """A layer as equinox makes them: functions and settings are leaves beside its arrays."""

    weight: Any
    activation: Any = jnp.tanh
    name: str = "first"
    scaled: bool = True
    bias: Any = None
    order: Any = None
    key: Any = None

    def __call__(self, x):
        assert (self.name, self.scaled, self.bias) == ("first", True, None)
        return self.activation(self.weight * x)[self.order]


def layer(weight):
    return Layer(weight, order=ORDER, key=KEY)


X, Y = jnp.array([0.3, -0.7]), jnp.tanh(jnp.array([0.2, 0.4]) * jnp.array([0.3, -0.7]))[ORDER]


def loss(model, batch, key):
    return 50.0 * jnp.sum((model(X) - Y) ** 2)


def fit(params, loss=loss, **options):
    fields = {name: options.pop(name) for name in jq.FitOptions._fields if name in options}
    record = jq.FitOptions(**{"progress": False, **fields})
    options = {"steps": 20, "key": KEY, "options": record, **options}
    return jq.fit(loss, params, optax.adam(0.1), **options)


def assert_held(model):
    assert model.activation is jnp.tanh
    assert model.order is ORDER
    assert model.key is KEY
    assert (model.name, model.scaled, model.bias) == ("first", True, None)


@pytest.mark.parametrize("starts", [None, 2])
def test_the_floats_are_fitted_as_if_they_were_alone(starts):
    weight = jnp.zeros(2) if starts is None else jnp.array([[0.0, 0.0], [3.0, 3.0]])
    alone = lambda weight, batch, key: loss(layer(weight), batch, key)
    whole, bare = (
        fit(params, f, starts=starts, validation=lambda p, f=f: f(p, None, None))
        for params, f in ((layer(weight), loss), (weight, alone))
    )
    np.testing.assert_array_equal(whole.history, bare.history)
    np.testing.assert_array_equal(whole.params.weight, bare.params)
    assert_held(whole.params)
    assert "weight" in repr(whole)
    assert "activation" not in repr(whole)


def test_a_fit_with_held_leaves_continues_from_its_snapshots(tmp_path):
    params = layer(jnp.zeros(2))
    fit(params, steps=10, snapshot_dir=tmp_path)
    resumed = fit(params, steps=20, snapshot_dir=tmp_path)
    np.testing.assert_array_equal(resumed.params.weight, fit(params, steps=20).params.weight)
    assert_held(resumed.params)


def test_held_leaves_are_not_compared(tmp_path):
    half = lambda params, batch, key: (params["x"] - 1.0) ** 2
    run = lambda held: fit({"x": 0.0, "held": held}, half, steps=1, snapshot_dir=tmp_path)
    for held in (jnp.tanh, lambda x: x, object(), np.array([object()])):
        run(held)


def test_an_interrupt_carries_the_whole_tree():
    def stopped(model, batch, key):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        fit(layer(jnp.zeros(2)), stopped)
    assert_held(caught.value.params)


def test_least_squares_its_covariance_and_its_predictions_take_the_whole_tree():
    residuals = lambda model, y: model(X) - y
    model = layer(jnp.zeros(2))
    least = jq.least_squares(residuals, model, Y, sigma=0.01, bounds=(-1.0, 1.0))
    np.testing.assert_allclose(least.params.weight, [0.2, 0.4], rtol=1e-8)
    # y = tanh(w x), so the standard error of w is that of y over x (1 - y^2)
    wanted = np.abs(0.01 / X / (1.0 - Y[ORDER] ** 2))
    np.testing.assert_allclose(least.standard_errors.weight, wanted, rtol=1e-8)
    sure = jq.fit_covariance(lambda model: residuals(model, Y), least.params, sigma=0.01)
    for result in (least, sure):
        predicted = result.predict(lambda model: model(X)[0])
        np.testing.assert_allclose(predicted.standard_errors, 0.01, rtol=1e-8)
        assert "weight[1]" in str(result)
        assert_held(result.params)
    assert least.covariance.names == ("weight[0]", "weight[1]")


@HELD_INTEGERS
@pytest.mark.parametrize("held", [3, "relu", jnp.tanh, None])
def test_a_bound_on_a_held_leaf_is_named(held):
    params = {"layer": {"weight": jnp.zeros(()), "held": held}}
    solve = lambda **bounds: jq.least_squares(
        lambda p: p["layer"]["weight"] - jnp.array([2.0, 4.0]), params,
        bounds=(None, {"layer": bounds}),
    )  # fmt: skip
    np.testing.assert_allclose(solve(weight=1.0, held=None).params["layer"]["weight"], 1.0)
    text = r"^bounds\[1\]\['layer'\]\['held'\]: wanted None because nothing is fitted there, got 5"
    with pytest.raises(ValueError, match=text):
        solve(weight=1.0, held=5.0)


def test_a_second_call_with_the_same_held_objects_does_not_compile_again():
    traced = []

    def residuals(model, y):
        traced.append(0)
        return model(X) - y

    solve = lambda weight: jq.least_squares(residuals, layer(weight), Y, sigma=1.0)
    solve(jnp.zeros(2))
    before = len(traced)
    solve(jnp.ones(2))
    assert len(traced) == before


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (
            {"a": 3, "b": jnp.tanh},
            r"params: wanted at least one array of floats, got 3 \(write 1\.0, not 1\)$",
        ),
        ({"a": 1j, "b": 1.0}, r"params\['a'\]: wanted a floating dtype, got complex"),
    ],
)
def test_params_without_floats_or_with_complex_numbers_are_refused(params, text):
    with pytest.raises(TypeError, match=text):
        fit(params)


def test_signed_integers_are_held_with_a_warning_that_names_them_and_the_line_of_the_call():
    """With a held at 1, the best d of ``a exp(-d t)`` is not 0.7, though the fit converges."""
    t = jnp.linspace(0.0, 2.0, 20)
    residuals = lambda p: p["a"] * jnp.exp(-p["d"] * t) - 3.0 * jnp.exp(-0.7 * t)
    params = {"a": 1, "d": 1.0, "n": [jnp.zeros(3, jnp.int32), np.int64(2), True, np.uint8(3)]}
    calls = (
        lambda: jq.least_squares(residuals, params),
        lambda: jq.fit_covariance(residuals, params, sigma=10.0),
        lambda: fit(params, lambda p, batch, key: jnp.sum(residuals(p) ** 2), steps=1),
    )
    text = r"integers at params\['a'\], params\['n'\]\[0\], params\['n'\]\[1\], which.*1\.0, not 1"
    for call in calls:
        with pytest.warns(UserWarning, match=text) as caught:
            result = call()
        assert [one.filename for one in caught] == [__file__]
        assert result.params["a"] == 1
    right = jq.least_squares(residuals, {**params, "a": 1.0, "n": None})
    np.testing.assert_allclose([right.params["a"], right.params["d"]], [3.0, 0.7], rtol=1e-9)


@pytest.mark.needs("equinox")
def test_a_network_of_equinox_is_fitted_with_its_activation_in_it():
    import equinox as eqx

    network = eqx.nn.MLP(2, 1, 4, 1, activation=jnp.tanh, key=KEY)
    assert any(callable(leaf) for leaf in jax.tree.leaves(network))
    x = jax.random.normal(KEY, (16, 2))
    with jax.numpy_dtype_promotion("standard"):
        descent = fit(network, lambda n, batch, key: jnp.mean((jax.vmap(n)(x)[:, 0] - 1.0) ** 2))
    assert isinstance(descent.params, eqx.nn.MLP)
    assert descent.params.activation is network.activation
    assert descent.history[-1] < 0.05 * descent.history[0]
