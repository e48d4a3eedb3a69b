"""A scheme: a step and the facts about it, in one object.

The decorator ``scheme(**facts)`` makes a Scheme of a step. Factories such as ``rkmk(tableau)``
derive the facts from their arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import checkify
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, instance, is_concrete, takes
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque, check_step
from jaxquat.dynamics.state import State, describe
from jaxquat.dynamics.units import own_units, torque_in

Torques = Literal["any", "attitude"]
Conserved = Literal["norm", "momentum", "energy"]


class Demand(NamedTuple):
    """A condition of a scheme on the body."""

    met: Callable[[Array], Array]  # met(moments) -> (), whether principal moments (3,) meet it
    text: str  # the condition, and what to do if it is not met, for error messages


class StepArguments(NamedTuple):
    """The checked arguments of a step, in the dtype of the state; ``noise`` may be None."""

    body: Body
    torque: Torque
    t: Array
    state: State
    dt: Array
    params: Any
    noise: Any = None

    @classmethod
    def checked(cls, *arguments: Any) -> StepArguments:
        """Return the arguments, with times and state in one dtype; errors name the argument."""
        at = cls(*arguments)
        t, state, dt = check_step(at.body, at.t, at.state, at.dt)
        return at._replace(t=t, state=state, dt=dt)

    def in_own_units(self) -> StepArguments:
        """Return the arguments with body and torque in the units of the body (units.py)."""
        body, scales = own_units(self.body)
        return self._replace(body=body, torque=torque_in(scales, self.torque))


class StepObject:
    """A step that is an object with values of its own; stochastic ones have ``noise(state)``."""

    def __call__(self, *arguments: Any) -> State:
        """Take one step, ``step(body, torque, t, state, dt, params)``, or with noise."""
        return self.take(StepArguments.checked(*arguments))

    def take(self, at: StepArguments) -> State:
        """Return the state after the step."""
        raise NotImplementedError


class StepAround(StepObject):
    """A step made of the steps of another scheme, whose drag it has."""

    scheme: Scheme

    def decay(self, body: Body) -> Array | None:
        """Return the decay of the scheme."""
        return self.scheme.decay(body)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, repr=False, eq=False)
class Scheme:
    """A step and the facts about it.

    ``scheme(body, torque, t, state, dt, params) -> state`` takes the step of one body, in the dtype
    of the state. A Scheme is a pytree: arrays of the step, such as a damping, are its leaves;
    everything else is static and compared by value, so that ``rkmk(tableau) == rkmk(tableau)``.

    A scheme is stochastic if its step is an object with ``noise(state) -> int``, the number n of
    standard normals that a step from this state takes as its seventh argument, (n,).

    Attributes:
        step: the function or callable object.
        name: for messages and tables.
        order: of the global error in dt; 0 if the scheme does not converge, None if unknown.
        evaluations: torque evaluations per step; None if unknown.
        torques: whether it takes "any" torque of time, attitude and rate, or of time and
            "attitude".
        conserves: what is constant to rounding: the "norm" of q, and of a free body the "momentum"
            in world axes and the "energy".
        reversible: whether ``undo`` undoes a step (a deterministic one by a step of -dt).
        aux: whether states may have aux.
        translation: whether states may have position and velocity.
        source: the literature.
        demand: a condition on the body, or None.
        doc: the docstring of the Scheme; by default that of the step.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0]))  # kg m^2
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.ones(3))
        >>> after = jq.no_squish(body, jq.torques.zero, 0.0, start, 0.1, None)
        >>> jq.no_squish.order, jq.no_squish.torques, jq.no_squish.reversible
        (2, 'attitude', True)
    """

    step: Callable[..., State]
    name: str
    _: KW_ONLY
    order: int | None = None
    evaluations: int | None = None
    torques: Torques = "any"
    conserves: tuple[Conserved, ...] = ()
    reversible: bool = False
    aux: bool = True
    translation: bool = True
    source: str = ""
    demand: Demand | None = None
    doc: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.doc or self.step.__doc__)
        object.__setattr__(self, "__module__", getattr(self.step, "__module__", __name__))

    def __call__(
        self,
        body: Body,
        torque: Torque,
        t: ArrayLike,
        state: State,
        dt: ArrayLike,
        params: Any,
        noise: ArrayLike | None = None,
    ) -> State:
        """Take one step of one body from time t, with ``noise`` (self.noise(state),) if any."""
        self.check(body)
        return self.step(body, torque, t, state, dt, params, *self._normals(state, noise))

    def undo(
        self,
        body: Body,
        torque: Torque,
        t: ArrayLike,
        state: State,
        dt: ArrayLike,
        params: Any,
        noise: ArrayLike | None = None,
    ) -> State:
        """Return the state before a step of dt that led to ``state`` at time t, with this noise.

        ValueError if not ``reversible``, or if the step has noise and no method ``undo``.

        Examples:
            >>> before = jq.no_squish.undo(body, jq.torques.zero, 0.1, after, 0.1, None)
            >>> bool(jnp.allclose(before.q, start.q, atol=1e-6))
            True
        """
        if not self.reversible:
            raise ValueError(f"undo: wanted a reversible scheme, got {self.name}")
        if not is_stochastic(self):
            return self(body, torque, t, state, -jnp.asarray(dt), params, noise)
        undo = getattr(self.step, "undo", None)
        if undo is None:
            raise ValueError(f"undo: wanted a step with a method undo, got {self.name} with noise")
        self.check(body)
        return undo(body, torque, t, state, dt, params, *self._normals(state, noise))

    def _normals(self, state: State, noise: ArrayLike | None) -> list[Array]:
        """Return the checked seventh argument of a stochastic step; none of a deterministic one."""
        count = noise_count(noise, self, state, "an array of shape ({n},)")
        if not is_stochastic(self):
            return []
        normals = exactly("noise", jnp.zeros(0) if noise is None else noise, (count,))
        return [normals.astype(state.q.dtype)]

    def check(self, body: Body, *, report: bool = False) -> None:
        """Raise ValueError if a concrete body violates the scheme's condition.

        ``report`` makes ``checkify.check`` report traced bodies, and traced numbers of the scheme
        that are refused if concrete, such as a negative damping.

        Examples:
            >>> jq.rkmk4.check(body)  # has no condition
        """
        if report:
            for scheme in _nested(self):
                getattr(scheme.step, "report", lambda: None)()
        if self.demand is None:
            return
        instance("body", body, Body, "a jq.Body")
        text = f"body: {self.name} wanted {self.demand.text}, got principal moments"
        if is_concrete(body):
            with jax.ensure_compile_time_eval():
                moments, _ = body.principal()
                if not bool(self.demand.met(moments)):
                    raise ValueError(f"{text} {moments}")
        elif report:
            moments, _ = body.principal()
            checkify.check(self.demand.met(moments), f"{text} {{moments}}", moments=moments)

    def decay(self, body: Body) -> Array | None:
        """Return a bound on the relative decay of rates [1/s], (); None without drag.

        A step of -dt amplifies rounding by up to ``exp(dt decay)``.

        Examples:
            >>> f"{jq.schemes.damp(jq.no_squish, 0.4).decay(body):.2f} per second"
            '0.20 per second'
        """
        instance("body", body, Body, "a jq.Body")
        return getattr(self.step, "decay", lambda body: None)(body)

    def noise(self, state: State) -> int:
        """Return the number of standard normals for a step from this state; 0 if deterministic.

        Examples:
            >>> jq.rkmk4.noise(start)
            0
        """
        instance("state", state, State, "a jq.State")
        return getattr(self.step, "noise", lambda state: 0)(state)

    def __repr__(self) -> str:
        order = "of unknown order" if self.order is None else f"order {self.order}"
        torques = "any torque" if self.torques == "any" else "torques of time and attitude"
        count = {None: "", 1: ", once a step"}.get(
            self.evaluations, f", {self.evaluations} times a step"
        )
        conserved = f"conserves {', '.join(self.conserves)}" if self.conserves else ""
        facts = [order, torques + count, conserved, "reversible" * self.reversible, self.source]
        return f"<Scheme {self.name}: {'; '.join(filter(None, facts))}>"

    def __reduce__(self) -> Any:
        """Pickle the Scheme of a decorated step by name, as functions are pickled."""
        named = getattr(sys.modules.get(self.__module__), self.name, None)
        if named is self:
            return self.name
        if isinstance(named, Scheme) and named.step is self.step:  # a copy, or with other facts
            return functools.partial(dataclasses.replace, named, **dict(self._facts())), ()
        return super().__reduce__()

    def tree_flatten(self) -> tuple[list[Any], Any]:
        """Return the arrays that the step holds, and everything else as static data."""
        leaves, structure = jax.tree.flatten(self.step)
        static = tuple(leaf if callable(leaf) else None for leaf in leaves)
        arrays = [leaf for leaf in leaves if not callable(leaf)]
        return arrays, (structure, static, self._facts())

    def _facts(self) -> tuple[tuple[str, Any], ...]:
        names = [field.name for field in dataclasses.fields(self)][1:]
        return tuple((name, getattr(self, name)) for name in names)

    @classmethod
    def tree_unflatten(cls, static: Any, arrays: Any) -> Scheme:
        """Rebuild the scheme from the results of ``tree_flatten``."""
        structure, functions, facts = static
        arrays = iter(arrays)
        leaves = [next(arrays) if function is None else function for function in functions]
        return cls(jax.tree.unflatten(structure, leaves), **dict(facts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scheme):
            return NotImplemented
        (ours, one), (theirs, two) = jax.tree.flatten(self), jax.tree.flatten(other)
        return one == two and all(a is b for a, b in zip(ours, theirs, strict=True))

    def __hash__(self) -> int:
        return hash((self.name, self.order, self.evaluations, self.source))


def scheme(**facts: Any) -> Callable[[Callable[[StepArguments], State]], Scheme]:
    """Decorate a step with its facts; by default it conserves the norm and refuses aux states."""

    def decorated(take: Callable[[StepArguments], State]) -> Scheme:
        @functools.wraps(take)
        def step(*arguments: Any) -> State:
            return take(StepArguments.checked(*arguments))

        return Scheme(step, take.__name__, **{"conserves": ("norm",), "aux": False} | facts)

    return decorated


def as_scheme(name: str, value: Any, hint: str = "") -> Scheme:
    """Return the Scheme of a step; TypeError, with the argument's name, if it is no step."""
    if isinstance(value, Scheme):
        return value
    noise = ", noise" if hasattr(value, "noise") else ""
    takes(name, value, f"body, torque, t, state, dt, params{noise}", hint=hint)
    return Scheme(value, getattr(value, "__name__", repr(value)))


def noise_count(noise: Any, scheme: Scheme, state: State, wanted: str) -> int:
    """Return how many normals a step takes; TypeError if they are missing or superfluous."""
    count = scheme.noise(state)
    if (noise is None) == (count > 0):
        kind = "stochastic" if count else "deterministic"
        text = f"{wanted.format(n=count) if count else 'none'} because {scheme.name} is {kind}"
        raise TypeError(f"noise: wanted {text}, got {describe(noise)}")
    return count


def is_stochastic(scheme: Scheme) -> bool:
    """Return whether the scheme's step takes noise, from some states at least."""
    return hasattr(scheme.step, "noise")


def has_drag(scheme: Scheme) -> bool:
    """Return whether a kick of the rate is lost: the step relaxes rates or has none."""
    return any(getattr(inner.step, "has_drag", False) for inner in _nested(scheme))


def around(
    scheme: Scheme, step: Callable[..., State], name: str, order: int | None, **facts: Any
) -> Scheme:
    """Return a scheme of this order or less, with the facts of another one that its step calls."""
    return dataclasses.replace(
        scheme,
        step=step,
        name=f"{name}({scheme.name})",
        order=None if scheme.order is None or order is None else min(scheme.order, order),
        doc="",
        **{"conserves": tuple(x for x in scheme.conserves if x == "norm")} | facts,
    )


def _nested(scheme: Scheme) -> Iterator[Scheme]:
    yield scheme
    inner = getattr(scheme.step, "scheme", None)
    if isinstance(inner, Scheme):
        yield from _nested(inner)


def as_deterministic(name: str, value: Any) -> Scheme:
    """Return ``as_scheme(name, value)``; TypeError if it is stochastic."""
    scheme = as_scheme(name, value)
    if is_stochastic(scheme):
        raise TypeError(f"{name}: wanted a deterministic one, got {scheme.name}, which takes noise")
    return scheme


def as_part(name: str, value: Any) -> Scheme:
    """Return ``as_deterministic(name, value)``; TypeError if it is restarted or switched."""
    scheme = as_deterministic(name, value)
    for inner in _nested(scheme):
        outermost = getattr(inner.step, "outermost", None)
        if outermost:
            text = f"wanted one that is not {outermost}, got {scheme.name}"
            raise TypeError(f"{name}: {text}; put {outermost} outermost")
    return scheme
