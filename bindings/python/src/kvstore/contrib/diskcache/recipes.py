"""The names that programs import from ``diskcache.recipes``."""

from kvstore.contrib.diskcache._memoize import memoize_stampede
from kvstore.contrib.diskcache._recipes import Averager, BoundedSemaphore, Lock, RLock, barrier, throttle

__all__ = ["Averager", "BoundedSemaphore", "Lock", "RLock", "barrier", "memoize_stampede", "throttle"]
