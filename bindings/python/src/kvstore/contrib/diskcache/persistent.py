"""The names that programs import from ``diskcache.persistent``."""

from kvstore.contrib.diskcache._persistent import Deque, Index

__all__ = ["Deque", "Index"]
