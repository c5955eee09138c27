"""Backends for Django: :mod:`kvstore.contrib.django.cache` and
:mod:`kvstore.contrib.django.sessions`.
"""
