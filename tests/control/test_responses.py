"""Delay and lag of recorded commands: closed forms, fine simulations, derivatives, float32."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import jaxquat as jq
from jaxquat import actuators

RNG = np.random.default_rng(3)
TIMES = 5.0 + np.cumsum(RNG.uniform(2e-3, 7e-3, 60))
COMMANDS = RNG.uniform(-1.0, 1.0, (60, 2))
AT = np.linspace(TIMES[0] - 0.01, TIMES[-1] + 0.05, 97)


def lag_of(commands, **options):
    """A program ``(time_constant, at, delay=0.0) -> states`` of these commands."""

    def states(constant, at, delay=0.0):
        return actuators.lag_record(TIMES, commands, constant, at, delay=delay, **options)

    return jax.jit(states)


def command(t, delay=0.0):
    """The command of the first column at a time, from its definition."""
    return COMMANDS[max(0, np.searchsorted(TIMES, t - delay, side="right") - 1), 0]


def integrated(begin, end, delay, rate, x):
    """The solution of x' = rate(u, x) by scipy, from one kink of u to the next."""
    kinks = TIMES + delay
    points = [begin, *kinks[(kinks > begin) & (kinks < end)], end]
    for a, b in itertools.pairwise(points):
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        ends = [command(middle + side * half * (1 - 1e-9), delay) for side in (-1, 1)]

        def slope(t, x, a=a, b=b, ends=ends):
            return rate(np.interp(t, [a, b], ends), x)

        x = scipy.integrate.solve_ivp(slope, (a, b), [x], rtol=1e-10, atol=1e-12).y[0, -1]
    return x


def test_a_step_is_followed_exponentially():
    """After it the state is 1 - exp(-t/T), at the stamps and between them, whatever they are."""
    run = lag_of(np.ones(60), start=0.0)
    got = run(0.05, AT, 0.0)
    since = np.maximum(AT - TIMES[0], 0.0)
    np.testing.assert_allclose(got, -np.expm1(-since / 0.05), rtol=0, atol=1e-14)
    later = run(0.05, AT + 0.0123, 0.0123)
    np.testing.assert_allclose(later, got, rtol=0, atol=1e-12)


def test_the_lag_solves_its_equation():
    """Beside scipy, to its tolerance; intervals from 0.02 to 30 time constants."""
    run = lag_of(COMMANDS)
    for constant, delay in ((0.1, 0.0113), (2e-4, -0.004)):
        end = TIMES[40] + 0.0017
        got = run(constant, end, delay)[0]
        begin = TIMES[0] + delay
        rate = lambda u, x, T=constant: (u - x) / T
        wanted = integrated(begin, end, delay, rate, COMMANDS[0, 0])
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-8)


def test_each_column_has_its_time_constant_and_start():
    constants, start = np.array([0.02, 0.1]), np.array([0.3, -0.7])
    at = AT[1:].reshape(4, 24)
    got = lag_of(COMMANDS, start=start)(constants, at)
    assert got.shape == (4, 24, 2)
    for k in range(2):
        alone = lag_of(COMMANDS[:, k], start=start[k])(constants[k], at)
        np.testing.assert_allclose(got[..., k], alone, rtol=0, atol=1e-15)


def test_a_delay_gives_the_mean_of_the_shifted_commands():
    """Beside scipy, over intervals shorter and longer than those of the record."""
    edges = np.array([TIMES[3], TIMES[3] + 1e-3, TIMES[9], TIMES[9], TIMES[30] + 1e-4])
    got = jax.jit(lambda d: actuators.delay_record(TIMES, COMMANDS, d, edges))(0.0057)
    assert got.shape == (4, 2)
    for k in (0, 1, 3):
        a, b = edges[k : k + 2]
        wanted = integrated(a, b, 0.0057, lambda u, x: u, 0.0) / (b - a)
        np.testing.assert_allclose(got[k, 0], wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(got[2, 0], command(TIMES[9], 0.0057), rtol=1e-12)


def test_no_delay_gives_the_commands_back():
    """They hold until the next one: each is the mean of the interval that it begins."""
    outside = np.array([TIMES[0] - 2.0, TIMES[0] - 1.0, TIMES[-1] + 1.0, TIMES[-1] + 2.0])

    @jax.jit
    def means(delay):
        of = lambda *between: actuators.delay_record(TIMES, COMMANDS, delay, *between)
        return of(), of(outside)

    held, got = means(0.0)
    np.testing.assert_allclose(held, COMMANDS[:-1], atol=1e-13)
    np.testing.assert_allclose(got[0], COMMANDS[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(got[2], COMMANDS[-1], rtol=0, atol=1e-13)


def test_until_the_first_command_arrives_the_start_applies():
    """A jump to (2, 6) at t = 0, 0.25 s late, from rest: by hand over 0 to 1 s, and before.

    With a lag of 0.5 s it reaches 1 - exp(-0.75/0.5) of the command at 1 s, and the mean of the
    delayed commands has the derivative -(2, 6) by the delay.
    """
    times, u = np.array([0.0, 1.0, 2.0]), np.array([[2.0, 6.0], [2.0, 6.0], [2.0, 6.0]])
    between = np.array([[-1.0, 0.0, 1.0], [0.0, 0.0, 2.0]])

    @jax.jit
    def means(delay):
        of = lambda **kw: actuators.delay_record(times, u, delay, **kw)
        lag = actuators.lag_record(times, u, 0.5, delay=delay, start=0.0)
        both = of(between=between, start=np.array([0.0, 4.0]))
        return of(start=0.0), both, of(), lag

    rest, both, default, lag = means(0.25)
    np.testing.assert_allclose(rest, [[1.5, 4.5], [2.0, 6.0]], rtol=1e-14)
    np.testing.assert_allclose(both[0], [[0.0, 4.0], [1.5, 5.5]], atol=1e-14)
    np.testing.assert_allclose(both[1], [[0.0, 4.0], [1.75, 5.75]], atol=1e-14)
    np.testing.assert_allclose(default, u[:2], rtol=1e-14)
    np.testing.assert_allclose(lag[1], -np.expm1(-0.75 / 0.5) * u[0], rtol=1e-14)
    slope = jax.jit(jax.jacrev(lambda d: means(d)[0]))(0.25)
    np.testing.assert_allclose(slope, [[-2.0, -6.0], [0.0, 0.0]], atol=1e-14)


@pytest.mark.slow
def test_a_delayed_input_is_that_of_a_simulation():
    """A rollout of the lag on the delayed means ends where the closed form does.

    With a delay of whole steps only the scheme's error is left, 0.1^5/120 a step. Otherwise means
    lose what is shorter than a step: the square of a tenth of the lag, at most.
    """
    times = 1e-2 * np.arange(101)
    u = RNG.uniform(-1.0, 1.0, (101, 3))

    def torque(t, state, params, command):
        return jnp.zeros(3), actuators.lag(state.aux, command, 0.1)

    for delay, tolerance in ((0.03, 1e-6), (0.0137, 1e-2)):
        inputs = actuators.delay_record(times, u, delay)
        start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3), jnp.asarray(u[0]))
        path = jq.rollout(
            jq.rkmk4, jq.Body(jnp.eye(3)), torque, start, jq.grid_at(times), inputs=inputs
        )
        wanted = actuators.lag_record(times, u, 0.1, delay=delay)
        np.testing.assert_allclose(path.state.aux, wanted, rtol=0, atol=tolerance)


def test_both_differentiate_by_time_constant_and_delay():
    """In both modes, beside central differences; at the time of a command towards longer delays."""

    def values(x):
        lag = actuators.lag_record(TIMES, COMMANDS, x[0], AT, delay=x[1])
        mean = actuators.delay_record(TIMES, COMMANDS, x[1], AT)
        return jnp.concatenate([lag.ravel(), mean.ravel()])

    x, h = jnp.array([0.02, 0.0114]), 1e-7
    both = jax.jit(lambda x: (values(x), jax.jacfwd(values)(x), jax.jacrev(values)(x)))
    _, forward, backward = both(x)
    np.testing.assert_allclose(forward, backward, rtol=0, atol=1e-9)
    many = [both(x + h * np.array(way))[0] for way in ([1, 0], [-1, 0], [0, 1], [0, -1])]
    np.testing.assert_allclose(forward[:, 0], (many[0] - many[1]) / (2 * h), atol=1e-5)
    np.testing.assert_allclose(forward[:, 1], (many[2] - many[3]) / (2 * h), atol=1e-4)

    def at_stamps(delay):
        return actuators.lag_record(TIMES, COMMANDS, 0.02, delay=delay)

    zero, h = jnp.array(0.0), 1e-8
    run = jax.jit(lambda x: jax.jvp(at_stamps, (x,), (jnp.ones_like(x),)))
    there, slope = run(zero)
    np.testing.assert_allclose(slope, (run(h)[0] - there) / h, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_the_lag_differentiates_by_times_and_commands():
    """A clock that runs fast by 1e-3, and commands 1 % larger."""

    def values(x):
        times = TIMES[0] + (TIMES - TIMES[0]) * (1.0 + x[0])
        return actuators.lag_record(times, COMMANDS * (1.0 + x[1]), 0.02, TIMES[10:50] + 1e-4)

    x, h = np.array([1e-3, 1e-2]), 1e-6
    slope = jax.jit(jax.jacrev(values))(x)
    several = jax.jit(jax.vmap(values))
    above, below = (several(x + step) for step in (h * np.eye(2), -h * np.eye(2)))
    wanted = np.moveaxis((above - below) / (2 * h), 0, -1)
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-5)


def test_float32_keeps_the_digits_of_float64_in_a_long_log():
    """An hour at 100 Hz since 1970: values agree with float64 to a few units of float32.

    A float32 of 3600 s would be off by a tenth of a millisecond, and so by 1e-2 of the interval.
    """
    times = 1.7e9 + np.cumsum(RNG.uniform(8e-3, 12e-3, 360_000))
    u = RNG.uniform(0.0, 1.0, 360_000).astype(np.float32)
    edges = times[-40:] - 1e-3

    @jax.jit
    def both(constant, delay):
        commands = u.astype(constant.dtype)
        lag = actuators.lag_record(times, commands, constant, edges, delay=delay)
        return lag, actuators.delay_record(times, commands, delay, edges)

    double, single = (both(d(0.05), d(0.01)) for d in (np.float64, np.float32))
    for wide, narrow in zip(double, single, strict=True):
        assert (wide.dtype, narrow.dtype) == (jnp.float64, jnp.float32)
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-6)


@pytest.mark.slow
def test_padding_and_repeated_times_are_no_intervals():
    """A window ends in repeats of its last time; derivatives stay finite."""
    times = np.array([0.0, 0.1, 0.1, 0.2, 0.2])
    u = np.array([1.0, 5.0, 2.0, 3.0, 3.0])

    def both(x):
        lag = actuators.lag_record(times, u, x[0], delay=x[1])
        return jnp.concatenate([lag, actuators.delay_record(times, u, x[1])])

    x = jnp.array([0.05, 0.0])
    values, slopes = jax.jit(lambda x: (both(x), jax.jacrev(both)(x)))(x)
    np.testing.assert_allclose(values[5:], [1.0, 1.0, 2.0, 2.0], rtol=0, atol=1e-12)
    assert values[1] == values[2]
    assert np.all(np.isfinite(slopes))


REFUSED = {
    "commands: wanted shape (N,) or (N, k), got (2, 2, 2)": lambda: actuators.delay_record(
        TIMES, np.ones((2, 2, 2)), 0.0
    ),
    "times: wanted shape (60,), a time for each command, got (59,)": lambda: actuators.lag_record(
        TIMES[1:], COMMANDS, 0.1
    ),
    "time_constant: wanted positive values, got 0.0": lambda: actuators.lag_record(
        TIMES, COMMANDS, 0.0
    ),
    "times: wanted times that do not decrease": lambda: actuators.delay_record(
        TIMES[::-1], COMMANDS, 0.1
    ),
    "time_constant: wanted shape () or (2,), got (3,)": lambda: actuators.lag_record(
        TIMES, COMMANDS, np.ones(3)
    ),
    "start: wanted shape () or (2,), got (3,)": lambda: actuators.lag_record(
        TIMES, COMMANDS, 0.1, start=np.ones(3)
    ),
    "start: wanted shape (), got (2,)": lambda: actuators.lag_record(
        TIMES, COMMANDS[:, 0], 0.1, start=np.ones(2)
    ),
    "between: wanted shape (..., M) with M >= 2, got (1,)": lambda: actuators.delay_record(
        TIMES, COMMANDS, 0.0, TIMES[:1]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)):
        REFUSED[message]()
