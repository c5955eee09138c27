"""Flask-Caching's tests of caches in applications, run with our cache. Replaces the conftest.py of its tests.

Its tests of its own caches, of choosing a cache, and of a Redis server are not run.
"""

import os

import flask
import flask_caching
import pytest

BACKEND = "kvstore.contrib.flask_caching.KVStoreCache"


@pytest.fixture
def app(request, tmp_path):
    made = flask.Flask(request.module.__name__, template_folder=os.path.dirname(__file__))
    made.testing = True
    made.config.update(SECRET_KEY="of a test", CACHE_TYPE=BACKEND, CACHE_KVSTORE_PATH=str(tmp_path / "cache.db"))
    return made


@pytest.fixture
def cache(app):
    made = flask_caching.Cache(app)
    yield made
    assert type(app.extensions["cache"][made]).__module__ == "kvstore.contrib.flask_caching"
    app.extensions["cache"][made].close()


class Clock:
    """The time of the store, which the tests advance."""

    def __init__(self):
        self.now = 1_700_000_000.0
        self.stores = set()

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    from kvstore.contrib import _storage

    made, open_store = Clock(), _storage.Storage._open_store

    def open_with_clock(place):
        store = open_store(place)
        store.set_clock(made)
        return store

    monkeypatch.setattr(_storage.Storage, "_open_store", open_with_clock)
    return made


@pytest.fixture(params=flask_caching.SUPPORTED_HASH_FUNCTIONS, ids=lambda method: method.__name__)
def hash_method(request):
    return request.param
