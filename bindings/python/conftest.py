"""Lets doctests say kvstore without importing it each time. For tests, nothing else."""

import kvstore
import pytest


@pytest.fixture(autouse=True)
def _kvstore_in_doctests(doctest_namespace):  # type: ignore[no-untyped-def]
    doctest_namespace["kvstore"] = kvstore
