"""Environments of gymnax over jaxquat (extra ``gymnax``): a body, a torque, a reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import missing_package

try:
    from gymnax.environments import environment, spaces  # isort: skip
    from flax import struct  # after gymnax, which brings it
except ModuleNotFoundError as error:
    package = str(error.name).partition(".")[0]  # or one that gymnax imports: flax, six
    raise ImportError(missing_package("interop.gymnax", package, "gymnax")) from error

from jaxquat._internal.checks import (
    exactly,
    instance,
    one_of,
    positive,
    positive_integer,
    random_key,
    scalar,
    takes,
)
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.state import State, check_state, one_bool
from jaxquat.schemes.scheme import Scheme, as_scheme
from jaxquat.simulation.grid import grid
from jaxquat.simulation.rollout import rollout

__all__ = ["world"]


def world(
    scheme: Scheme | Callable[..., State],
    body: Body,
    torque: Torque,
    start: Callable[[Array, Any], State],
    observe: Callable[[Array, State, Any], Array],
    reward: Callable[[Array, State, Any, Array], Array],
    actions: spaces.Space,
    dt: ArrayLike,
    *,
    steps: int = 1,
    ended: Callable[[Array, State, Any], Array] = lambda t, state, params: jnp.array(False),
    params: Any = None,
    max_steps: int = 1000,
    engine: str = "auto",
) -> environment.Environment:
    """Return an environment of gymnax; an action is a command, and holds for some steps.

    ``reset``, ``step``, the end of an episode after ``max_steps_in_episode`` actions, and the start
    of the next one are those of ``gymnax.environments.environment.Environment``. A state has
    ``time``, the number of actions taken, and ``motion``, a ``jq.State``. The params have ``body``,
    ``params`` and ``max_steps_in_episode``. To give worlds different ones, map a function of what
    differs by ``vmap``, for instance over bodies of ``jq.ensembles.bodies``:
    ``lambda body, key: env.reset(key, env.default_params.replace(body=body))``.

    Args:
        scheme: any scheme; a stochastic one draws its noise from the key of the step.
        body: the Body, kept in ``default_params``.
        torque: ``torque(t, state, params, action)``, as of a rollout. It limits what the action
            does: actions outside of their space are possible.
        start: ``start(key, params) -> State``, drawn for each episode.
        observe: ``observe(key, state, params) -> array``; the key is for the noise of sensors.
        reward: ``reward(t, state, params, action) -> ()``, a float, of the state after the action.
        actions: their space, for instance a ``gymnax.environments.spaces.Box``.
        dt: the step [s].
        steps: steps per action.
        ended: ``ended(t, state, params) -> ()``, a bool: the episode has failed, or succeeded.
        params: passed to these functions, kept in ``default_params``.
        max_steps: actions per episode, kept in ``default_params``.
        engine: as of ``jq.rollout``, for the steps of one action.

    Raises:
        TypeError, ValueError: an argument of wrong type, shape or value, or, in a reset or step, a
            function that returns one; the error names it.

    Examples:
        >>> import gymnax
        >>> from jaxquat.interop import gymnax as bridge
        >>> body = jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0]))  # kg m^2
        >>> motors = lambda t, state, params, action: jnp.clip(action, -0.5, 0.5)  # N m
        >>> start = lambda key, params: jq.State(
        ...     jnp.array([1.0, 0.0, 0.0, 0.0]), jax.random.normal(key, (3,))
        ... )
        >>> observe = lambda key, state, params: state.omega
        >>> reward = lambda t, state, params, action: -state.omega @ state.omega
        >>> box = gymnax.environments.spaces.Box(-0.5, 0.5, (3,))
        >>> env = bridge.world(jq.rkmk2, body, motors, start, observe, reward, box, 0.02, steps=5)
        >>> obs, state = env.reset(jax.random.key(0))
        >>> obs, state, gained, *ends, info = env.step(jax.random.key(1), state, -obs)
        >>> obs.shape, state.time.item()
        ((3,), 1)
    """
    instance("body", body, Body, "a jq.Body")
    dt = scalar("dt", dt)
    positive("dt", dt)
    return _World(
        as_scheme("scheme", scheme),
        takes("torque", torque, "t, state, params, action"),
        takes("start", start, "key, params"),
        takes("observe", observe, "key, state, params"),
        takes("reward", reward, "t, state, params, action"),
        instance("actions", actions, spaces.Space, "a space of gymnax"),
        dt,
        positive_integer("steps", steps),
        takes("ended", ended, "t, state, params"),
        one_of("engine", engine, ("scan", "fused", "auto")),
        _Params(positive_integer("max_steps", max_steps), body, params),
    )


@struct.dataclass
class _State(environment.EnvState):
    motion: State


@struct.dataclass
class _Params(environment.EnvParams):
    body: Any = None
    params: Any = None


@dataclass(eq=False)
class _World(environment.Environment):
    """The environment of ``world``; gymnax jits its methods, and it is their static argument."""

    _supports_transition_gradients = True

    scheme: Scheme
    torque: Torque
    start: Callable[[Array, Any], State]
    observation: Callable[[Array, State, Any], Array]
    reward: Callable[[Array, State, Any, Array], Array]
    actions: spaces.Space
    dt: Array
    steps: int
    ended: Callable[[Array, State, Any], Array]
    engine: str
    params: _Params

    @property
    def default_params(self) -> _Params:
        return self.params

    def time(self, state: _State) -> Array:
        """The time of a state [s]."""
        dtype = state.motion.q.dtype
        return jnp.asarray(state.time).astype(dtype) * (self.steps * self.dt).astype(dtype)

    def step_env(self, key: Array, state: _State, action: Any, params: _Params) -> Any:
        """The observation, the state, the reward, whether it has ended, and the discount."""
        for_noise, for_sensors = jax.random.split(key)
        stochastic = self.scheme.noise(state.motion) > 0
        path = rollout(
            self.scheme, params.body, self.torque, state.motion,
            grid(self.time(state), self.dt, self.steps), params.params,
            inputs=jnp.asarray(action)[None], sample_every=self.steps, save_every=self.steps,
            engine=self.engine, noise=random_key("key", for_noise) if stochastic else None,
        )  # fmt: skip
        state = _State(state.time + 1, path.final)
        gained = self.reward(self.time(state), path.final, params.params, action)
        reward = exactly("reward", gained, ())
        observation = self._observed(for_sensors, path.final, params)
        observation, state = self._apply_transition_gradient_policy(observation, state)
        info = {"discount": self.discount(state, params)}
        return observation, state, reward, self.is_terminated(state, params), info

    def reset_env(self, key: Array, params: _Params) -> tuple[Array, _State]:
        """The first observation of an episode, and its state."""
        for_start, for_sensors = jax.random.split(key)
        motion = check_state("start", self.start(for_start, params.params))
        return self._observed(for_sensors, motion, params), _State(0, motion)

    def is_terminated(self, state: _State, params: _Params) -> Array:
        """Whether ``ended`` says that the episode is over; a time limit does not count."""
        return one_bool("ended", self.ended(self.time(state), state.motion, params.params))

    def action_space(self, params: _Params | None = None) -> spaces.Space:
        return self.actions

    def observation_space(self, params: _Params | None = None) -> spaces.Box:
        """All arrays of the shape and dtype of an observation."""
        params = self.default_params if params is None else params
        spec = jax.eval_shape(self.reset_env, jax.random.key(0), params)[0]
        return spaces.Box(-jnp.inf, jnp.inf, spec.shape, spec.dtype)

    def _observed(self, key: Array, motion: State, params: _Params) -> Array:
        seen = self.observation(key, motion, params.params)
        return jnp.asarray(instance("observe", seen, (Array, np.ndarray), "an array back"))
