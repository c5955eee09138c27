"""The names that programs import from ``diskcache.fanout``."""

from kvstore.contrib.diskcache._fanout import FanoutCache

__all__ = ["FanoutCache"]
