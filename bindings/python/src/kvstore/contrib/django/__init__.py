"""Backends for Django that store caches and sessions in files.

The modules are :mod:`kvstore.contrib.django.cache` and :mod:`kvstore.contrib.django.sessions`.
"""
