"""Which cases of a parametrised test are quick."""

import pytest


def some(cases, quick):
    """All cases; those that are not among ``quick`` run in the slow suite.

    ``some(jq.SCHEMES, ("rkmk4", "lgvi"))``. A case of several arguments is a tuple.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if case in quick else pytest.mark.slow,
        )
        for case in cases
    ]
