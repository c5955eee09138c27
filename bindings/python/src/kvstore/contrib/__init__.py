"""Backends for frameworks, one module each. The frameworks are not installed with this package.

- :mod:`kvstore.contrib.django.cache`, :mod:`kvstore.contrib.django.sessions`
- :mod:`kvstore.contrib.cachelib` (also for Flask-Session)
- :mod:`kvstore.contrib.flask_caching`
- :mod:`kvstore.contrib.requests_cache`
- :mod:`kvstore.contrib.dogpile`

Each module says in its docstring how it is switched on. All keep their data in a family of a file, which they
share with other backends and programs, other processes among them; in each process a file is opened once,
when it is first used, and again after a fork.
"""
