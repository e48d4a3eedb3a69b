"""``checkpoint="reversible"`` gives the same gradient in constant memory.

The tests also check what it refuses.
"""

import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems
from examples.validation.orders import COMPOSED

PARAMS = {"weight": jnp.asarray(1.0), "arm": jnp.array([0.0, 0.1, 1.0]), "count": 3}


def loss(values, name, checkpoint, steps=10_000, save_every=10_000, closed_over=None):
    """Returns a loss of ``values``.

    They are parameters, start, inertia, dt and t0, and a number that the torque closes over.
    """
    params, q, omega, moments, dt, t0, closed_over = values

    def torque(t, state, p):
        top = jq.torques.heavy_top(p["weight"], p["arm"])(t, state, p)
        return top + closed_over * jnp.sin(t) * jnp.ones(3) / p["count"]

    body, start = jq.Body.from_principal(moments), jq.State(jq.quaternion.normalize(q), omega)
    path = jq.rollout(
        jq.schemes.SCHEMES[name],
        body,
        torque,
        start,
        jq.grid(t0, dt, steps, save_every=save_every),
        params,
        options=jq.RolloutOptions(checkpoint=checkpoint, engine="scan"),
    )
    return jnp.sum(path.state.q**3 * jnp.arange(4.0)[None]) + jnp.sum(path.state.omega)


def values():
    return (
        {**PARAMS, "count": jnp.asarray(3.0)},
        jnp.asarray(problems.TILTED),
        jnp.asarray(problems.OMEGA0),
        jnp.array([0.6, 0.6, 1.0]),
        jnp.asarray(1e-3),
        jnp.asarray(0.2),
        jnp.asarray(0.1),
    )


@pytest.mark.parametrize(
    "name",
    # What is composed of steps has a test below, of fewer of them.
    some(
        [n for n, s in jq.schemes.SCHEMES.items() if s.reversible and n not in COMPOSED],
        slow=["lgvi", "no_squish"],
    ),
)
def test_the_gradient_after_ten_thousand_steps(name):
    """The gradients differ by at most 1e-9 of each argument's largest component.

    The memory does not grow with the steps.
    """
    found, memory = {}, {}
    for checkpoint in ("none", "reversible"):
        run = (
            jax.jit(jax.value_and_grad(lambda v, c=checkpoint: loss(v, name, c)))
            .lower(values())
            .compile()
        )
        found[checkpoint], memory[checkpoint] = (
            run(values()),
            run.memory_analysis().temp_size_in_bytes,
        )
    np.testing.assert_allclose(found["none"][0], found["reversible"][0], rtol=1e-12)
    for wanted, got in zip(*(jax.tree.leaves(found[c][1]) for c in found), strict=True):
        assert np.abs(got - wanted).max() <= 1e-9 * np.abs(wanted).max()
        assert np.abs(wanted).max() > 1e-6
    assert memory["reversible"] < memory["none"] / 10


@pytest.mark.slow
def test_rows_are_saved_and_differentiated():
    small = {"steps": 60, "save_every": 12}
    wanted = jax.jit(jax.grad(lambda v: loss(v, "symmetric_top", "none", **small)))(values())
    got = jax.jit(jax.grad(lambda v: loss(v, "symmetric_top", "reversible", **small)))(values())
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.weekly
def test_vmap_and_integers_in_the_parameters():
    def of(omega, checkpoint):
        v = values()
        return loss(
            ({**v[0], "count": jnp.asarray(3)}, v[1], omega, *v[3:]),
            "no_squish",
            checkpoint,
            40,
            20,
        )

    with jax.numpy_dtype_promotion("standard"):
        omegas = jnp.asarray(problems.OMEGA0)[None] * jnp.array([[1.0], [0.5]])
        wanted, got = (
            jax.jit(jax.vmap(jax.grad(lambda w, c=c: of(w, c))))(omegas)
            for c in ("none", "reversible")
        )
    np.testing.assert_allclose(got, wanted, rtol=1e-11)


PALINDROME, LOPSIDED = (0.4, 0.2, 0.4), (0.5, 0.3, 0.2)
REVERSIBLE = {
    "compose": jq.schemes.compose(jq.symmetric_top, (0.5, 0.5)),
    "palindrome": jq.schemes.compose(jq.lgvi, PALINDROME),
    "nested": jq.schemes.compose(jq.schemes.compose(jq.lgvi, (0.5, 0.5)), (0.5, 0.5)),
    "any torque": jq.schemes.compose(jq.schemes.lie_midpoint, (0.5, 0.5)),
    "damped": jq.schemes.damp(jq.no_squish, jnp.array([0.3, 0.1, 0.2])),
    "composed of damped": jq.schemes.compose(
        jq.schemes.damp(jq.lgvi, 0.2 * jnp.eye(3)), PALINDROME
    ),
}
IRREVERSIBLE = {
    "lopsided": jq.schemes.compose(jq.no_squish, LOPSIDED),
    "of another": jq.schemes.compose(jq.rkmk4, PALINDROME),
    "damped pcdm1": jq.schemes.damp(jq.schemes.pcdm1, jnp.array([0.3, 0.1, 0.2])),
    "wrapped": functools.wraps(jq.no_squish)(lambda *given: jq.no_squish(*given)),
    "composed of lopsided": jq.schemes.compose(
        jq.schemes.compose(jq.no_squish, LOPSIDED), (0.5, 0.5)
    ),
}


def test_what_is_made_of_schemes_knows_whether_it_is_reversible():
    for name, scheme in (REVERSIBLE | IRREVERSIBLE).items():
        is_scheme = isinstance(scheme, jq.schemes.Scheme)  # what is wrapped is none
        assert (is_scheme and scheme.reversible) == (name in REVERSIBLE), name


@pytest.mark.parametrize(
    "name",
    some(
        [*REVERSIBLE, "lopsided", "of another", "damped pcdm1"],
        quick=["compose"],
        slow=["damped", "lopsided", "palindrome", "composed of damped", "damped pcdm1"],
    ),
)
def test_what_is_known_to_be_reversible_goes_forth_and_back(name):
    """Ten steps of 0.1 and then ten of -0.1 lead back to the start.

    The torque depends on time and attitude. Schemes that are not reversible are off by more than
    1e-9.
    """
    step = {**IRREVERSIBLE, **REVERSIBLE}[name]
    body, start = problems.reference_body(), jq.State(jnp.asarray(problems.TILTED), jnp.ones(3))
    torque = lambda t, state, params: jnp.cos(3 * t) * problems.heavy(t, state, params)

    @jax.jit
    def ten_steps(state, t, dt):
        return jax.lax.fori_loop(
            0, 10, lambda k, x: step(body, torque, t + dt * k, x, dt, None), state
        )

    back = ten_steps(ten_steps(start, 0.0, 0.1), 1.0, -0.1)
    error = max(np.abs(a - b).max() for a, b in zip(back[:2], start[:2], strict=True))
    assert error < 1e-12 if name in REVERSIBLE else error > 1e-9, error


@pytest.mark.parametrize(
    "name", some([name for name in REVERSIBLE if name != "compose"], slow=["damped"])
)
def test_the_gradient_of_what_is_made_of_reversible_steps(name):
    body, start = problems.reference_body(), jq.State(jnp.asarray(problems.TILTED), jnp.ones(3))

    def end(omega, weight, checkpoint):
        torque = lambda t, s, p: p * problems.heavy(t, s, None)
        begin, grid = start._replace(omega=omega), jq.grid(0.0, 0.05, 40, save_every=40)
        path = jq.rollout(
            REVERSIBLE[name],
            body,
            torque,
            begin,
            grid,
            weight,
            options=jq.RolloutOptions(checkpoint=checkpoint),
        )
        return jnp.sum(path.state.q[-1] ** 3) + jnp.sum(path.state.omega[-1])

    wanted, got = (
        jax.jit(jax.grad(functools.partial(end, checkpoint=c), (0, 1)))(start.omega, 1.0)
        for c in ("none", "reversible")
    )
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def noisy(kind, strength):
    white, drag = jq.stochastic.add_torque_noise, jnp.array([0.3, 0.1, 0.2])
    return {
        "no_squish": lambda: white(jq.no_squish, strength * jnp.eye(3)),
        "twice": lambda: white(white(jq.lgvi, 0.2), strength),
        "damped": lambda: white(jq.schemes.damp(jq.no_squish, drag), strength),
    }[kind]()


NOISY = some(["no_squish", "twice", "damped"], quick=["no_squish"])


@pytest.mark.parametrize("kind", NOISY)
def test_ten_steps_with_noise_are_undone(kind):
    scheme, body = noisy(kind, 0.3), problems.reference_body()
    start = jq.State(jnp.asarray(problems.TILTED), jnp.ones(3))
    torque = lambda t, state, params: jnp.cos(3 * t) * problems.heavy(t, state, params)
    times = jnp.linspace(0.0, 1.0, 11)
    rows = jax.random.normal(jax.random.key(1), (10, scheme.noise(start)))

    def step(state, of_step):
        return scheme(body, torque, of_step[0], state, 0.1, None, of_step[1]), None

    def undo(state, of_step):
        return scheme.undo(body, torque, of_step[0], state, 0.1, None, of_step[1]), None

    @jax.jit
    def there_and_back(state):
        middle = jax.lax.scan(step, state, (times[:-1], rows))[0]
        return middle, jax.lax.scan(undo, middle, (times[1:], rows), reverse=True)[0]

    middle, back = there_and_back(start)
    assert np.abs(middle.omega - start.omega).max() > 0.3
    for a, b in zip(back[:2], start[:2], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("stamps", some([False, True], quick=[True]))
def test_the_gradient_with_noise_by_undoing_steps(kind, stamps):
    """Each step, also one of an empty interval, gets the noise of its own number back."""
    key = jax.random.key(3)
    torque = lambda t, s, p: p * jnp.sin(t) * problems.heavy(t, s, None)
    grid = jq.grid(0.2, 0.05, 8)
    if stamps:
        grid = jq.grid_at(np.array([0.2, 0.3, 0.3, 0.5, 0.6]), substeps=2)

    def end(x, checkpoint):
        strength, omega, weight, moments = x
        body = jq.Body.from_principal(moments)
        scheme, start = noisy(kind, strength), jq.State(jnp.asarray(problems.TILTED), omega)
        options = {"save_every": 4, "checkpoint": checkpoint, "engine": "scan"}
        path = flat.rollout(scheme, body, torque, start, grid, weight, noise=key, **options)
        return jnp.sum(jnp.sin(path.state.q)) + jnp.sum(jnp.sin(path.state.omega))

    lists = 0.3, [1.2, -0.7, 0.9], 0.7, [0.6, 1.0, 1.5]
    x = tuple(jnp.asarray(values) for values in lists)
    wanted, got = (
        jax.jit(jax.value_and_grad(functools.partial(end, checkpoint=c)))(x)
        for c in ("none", "reversible")
    )
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
def test_the_gradient_by_undoing_steps_is_that_of_the_kernel():
    """By the start, the inertia, a parameter, an array that is closed over, t0 and dt."""

    def end(x, options):
        omega, moments, weight, pull, t0, dt = x
        torque = lambda t, s, p: p * jnp.sin(t) * jq.quaternion.rotate_inverse(s.q, pull)
        start, body = jq.State(jnp.asarray(problems.TILTED), omega), jq.Body.from_principal(moments)
        grid = jq.grid(t0, dt, 4, save_every=2)
        path = flat.rollout(
            jq.symmetric_top,
            body,
            torque,
            start,
            grid,
            weight,
            **options,
        )
        return jnp.sum(path.state.q**3) + jnp.sum(path.state.omega)

    lists = [1.2, -0.7, 0.9], [0.6, 0.6, 1.0], 0.7, [0.5, -0.3, 0.8], 0.2, 0.1
    x = tuple(jnp.asarray(values) for values in lists)
    got, wanted = (
        jax.jit(jax.grad(functools.partial(end, options=options)))(x)
        for options in ({"checkpoint": "reversible"}, {"engine": "fused"})
    )
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", IRREVERSIBLE)
def test_steps_that_are_not_known_to_be_reversible_are_refused(name):
    body, start, grid = (
        problems.reference_body(),
        jq.State(jnp.asarray(problems.TILTED), jnp.ones(3)),
        jq.grid(0.0, 0.1, 4),
    )
    with pytest.raises(ValueError, match="wanted a time-reversible scheme"):
        jq.rollout(
            IRREVERSIBLE[name],
            body,
            problems.heavy,
            start,
            grid,
            options=jq.RolloutOptions(checkpoint="reversible"),
        )


def test_what_it_refuses():
    body, start, grid = (
        problems.reference_body(),
        jq.State(jnp.asarray(problems.TILTED), jnp.ones(3)),
        jq.grid(0.0, 0.1, 4),
    )

    def run(step, torque, **more):
        return flat.rollout(
            step,
            body,
            torque,
            start,
            grid,
            options=jq.RolloutOptions(checkpoint="reversible"),
            **more,
        )

    with pytest.raises(ValueError, match="neither controller nor inputs"):
        run(jq.no_squish, lambda t, s, p, command: command, inputs=jnp.zeros((4, 3)))
    with pytest.raises(ValueError, match="neither controller nor inputs"):
        run(jq.no_squish, lambda t, s, p, command: problems.heavy(t, s, p), inputs={})
    with pytest.raises(ValueError, match="wanted a random key for noise, got an array"):
        run(noisy("no_squish", 0.1), problems.heavy, noise=jnp.zeros((4, 6)))
    with pytest.raises(
        TypeError,
        match='checkpoint "reversible": wanted a torque of time and attitude, got torque driven',
    ):
        run(jq.schemes.lie_midpoint, problems.driven)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(
            lambda w: run(jq.no_squish, lambda t, s, p: w * problems.heavy(t, s, p)).state.q,
            (1.0,),
            (1.0,),
        )


@pytest.mark.slow
@pytest.mark.weekly
def test_bodies_that_act_on_each_other_have_one_gradient_by_every_way_of_keeping_states():
    """Five magnets under ``vmap(axis_name=...)``, each turned by the sum of the others."""

    def torque(t, state, strength):
        axis = jq.quaternion.rotate(state.q, jnp.array([0.0, 0.0, 1.0]))
        field = strength * jnp.sum(jax.lax.all_gather(axis, "magnets"), axis=0)
        return jq.quaternion.rotate_inverse(state.q, jnp.cross(axis, field))

    q, omega = np.random.default_rng(3).normal(size=(2, 5, 4))
    q, omega = jnp.asarray(q / np.linalg.norm(q, axis=1, keepdims=True)), jnp.asarray(omega[:, :3])
    body, grid = (
        jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5])),
        jq.grid(0.0, 0.05, 20, save_every=5),
    )

    def loss_of(strength, checkpoint):
        fly = lambda q, omega: (
            jq.rollout(
                jq.no_squish,
                body,
                torque,
                jq.State(q, omega),
                grid,
                strength,
                options=jq.RolloutOptions(checkpoint=checkpoint),
            ).state
        )
        states = jax.vmap(fly, axis_name="magnets")(q, omega)
        return jnp.sum(jnp.cos(jnp.arange(75.0)).reshape(5, 5, 3) * states.omega)

    h, values = 1e-5, {}
    for checkpoint in ("none", "sqrt", "reversible"):
        slope = jax.jit(jax.value_and_grad(functools.partial(loss_of, checkpoint=checkpoint)))
        values[checkpoint] = slope(0.7)
    value = jax.jit(functools.partial(loss_of, checkpoint="none"))
    difference = (value(0.7 + h) - value(0.7 - h)) / (2 * h)
    for end, slope in values.values():
        np.testing.assert_allclose(end, values["none"][0], rtol=1e-14)
        np.testing.assert_allclose(slope, difference, rtol=1e-8)
