"""Which cases of a parametrised test are quick, slow or weekly."""

import pytest


def tiers(cases, quick=(), slow=()):
    """All cases; those that are neither ``quick`` nor ``slow`` run once a week.

    A case of several arguments is a tuple.
    """

    def marks(case):
        if case in quick:
            return ()
        return pytest.mark.slow if case in slow else (pytest.mark.slow, pytest.mark.weekly)

    arguments = lambda case: case if isinstance(case, tuple) else (case,)
    return [pytest.param(*arguments(case), marks=marks(case)) for case in cases]
