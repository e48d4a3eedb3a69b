"""Which cases of a parametrised test are quick, slow or weekly."""

import pytest


def some(cases, quick=(), slow=None):
    """All cases; those that are not among ``quick`` run in the slow suite.

    With ``slow``, those that are not there either run once a week.
    ``some(jq.schemes.SCHEMES, ("rkmk4", "lgvi"))``. A case of several arguments is a tuple.
    """

    def marks(case):
        if case in quick:
            return ()
        weekly = slow is not None and case not in slow
        return (pytest.mark.slow, pytest.mark.weekly) if weekly else pytest.mark.slow

    arguments = lambda case: case if isinstance(case, tuple) else (case,)
    return [pytest.param(*arguments(case), marks=marks(case)) for case in cases]
