"""Backends for frameworks, one module each. The frameworks are not installed with this package.

- :mod:`kvstore.contrib.django.cache`, :mod:`kvstore.contrib.django.sessions`
- :mod:`kvstore.contrib.cachelib` (also for Flask-Session)
- :mod:`kvstore.contrib.flask_caching`
- :mod:`kvstore.contrib.requests_cache`
- :mod:`kvstore.contrib.dogpile`
- :mod:`kvstore.contrib.py_key_value` (also for FastMCP)
- :mod:`kvstore.contrib.langgraph`
- :mod:`kvstore.contrib.cashews`
- :mod:`kvstore.contrib.aiocache`

Each module documents how to enable it. Each backend stores its data in a family of a file, which
other backends, programs and processes may share. In each process the file is opened once, on first
use, and again after a fork.
"""
