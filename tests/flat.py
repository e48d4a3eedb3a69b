"""``jq.rollout`` and ``jq.explain`` whose options are plain keywords, as one dictionary."""

import dataclasses

import jaxquat as jq

_GRID = ("sample_every", "save_every")


def _grouped(grid, keywords):
    """The grid and the other keywords, with these in the grid and in the options."""
    given = keywords.pop("options", jq.RolloutOptions())
    fields = {name: keywords.pop(name) for name in given._fields if name in keywords}
    times = {name: keywords.pop(name) for name in _GRID if name in keywords}
    if "memory" in keywords:
        keywords["controller"] = keywords["controller"].resume(keywords.pop("memory"))
    grid = dataclasses.replace(grid, **times) if times else grid
    return grid, {**keywords, "options": given._replace(**fields)}


def rollout(scheme, body, torque, start, grid, params=None, **keywords):
    grid, keywords = _grouped(grid, keywords)
    return jq.rollout(scheme, body, torque, start, grid, params, **keywords)


def explain(scheme, body, torque, start, grid, params=None, **keywords):
    grid, keywords = _grouped(grid, keywords)
    return jq.explain(scheme, body, torque, start, grid, params, **keywords)
