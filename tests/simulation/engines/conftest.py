"""Kernels that the tests compile are kept in a folder of this run alone."""

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("JAXQUAT_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))
