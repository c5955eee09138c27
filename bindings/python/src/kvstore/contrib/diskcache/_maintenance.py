"""The methods of Cache that remove many entries, and those that check and measure it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import kvstore
from kvstore.contrib.diskcache._base import CacheBase, encode_tag
from kvstore.contrib.diskcache._disk import ENOVAL
from kvstore.contrib.diskcache._tables import Tables

#: Entries that one transaction removes at most.
_STEP = 100
#: The largest number of times that a repair checks all rows.
_CHECKS = 10


class MaintenanceMethods(CacheBase):
    """Base class of :class:`Cache` with its methods on all entries."""

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Remove all entries with a tag, and return how many there were."""
        encoded = encode_tag(tag)
        return self._remove_in_steps(lambda tables: self._remove(tables, tables.tagged(encoded, _STEP)), retry)

    def expire(self, now: Optional[float] = None, retry: bool = False) -> int:
        """Remove the entries that have expired at ``now`` from the file, and return how many.

        ``now`` is in seconds since the Unix epoch; None: the current time.
        """

        def purge(tables: Tables) -> int:
            clock = self._now(tables)
            cutoff = clock if now is None else min(now, clock)
            return [family.purge_before(cutoff) for family in tables.parts()][1]

        count = self._read(purge, retry)
        if now is None:
            return count

        def step(tables: Tables) -> int:
            due = tables.entries.expiring(stop=now)
            return self._remove(tables, [name for name, _ in zip((name for name, _ in due), range(_STEP))])

        return self._remove_in_steps(step, retry, count)

    def cull(self, retry: bool = False) -> int:
        """Remove expired entries, then more by the eviction policy until the cache is smaller than
        ``size_limit``. Return how many were removed.
        """
        count = self.expire(retry=retry)
        if self.eviction_policy == "none":
            return count
        self._room = 0

        def step(tables: Tables) -> int:
            return self._remove(tables, tables.lowest(10)) if self.volume() > self.size_limit else 0

        return self._remove_in_steps(step, retry, count)

    def clear(self, retry: bool = False) -> int:
        """Remove all entries, and return how many there were."""

        def clear(tables: Tables) -> int:
            count = len(tables.values)
            for family in tables.parts():
                family.clear()
            return count

        return self._write(clear, retry)

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return the numbers of hits and misses, and turn counting on or off.

        The numbers are those of all processes that have called this method or closed the cache.

        Args:
            enable: Whether reads are counted from now on.
            reset: Whether the numbers begin at 0 again.
        """
        counts = self._store_counts()
        if reset:
            self._write(lambda tables: tables.settings.delete_many(["hits", "misses"]), retry=True)
        if bool(enable) != bool(self.statistics):
            self.reset("statistics", int(enable))
        return counts

    def check(self, fix: bool = False, retry: bool = False) -> list[Warning]:
        """Check the store and the rows of the entries. Return a list of what is wrong.

        With ``fix``, the store is repaired, and what cannot be used is removed.
        """
        found: list[Warning] = []

        def check(tables: Tables) -> None:
            store = self._storage.store()
            try:
                store.integrity_check()
            except kvstore.CorruptError as error:
                found.append(UserWarning(str(error)))
                if fix:
                    store.repair()

        self._read(check, retry)
        self._write(lambda tables: self._check_all_rows(tables, found, fix), retry)
        return found

    def _check_all_rows(self, tables: Tables, found: list[Warning], fix: bool) -> None:
        for _ in range(_CHECKS):  # the repair of one entry can remove rows of another that was intact
            before = len(found)
            self._check_rows(tables, found, fix)
            if not fix or len(found) == before:
                return

    def _check_rows(self, tables: Tables, found: list[Warning], fix: bool) -> None:
        def report(what: str, remedy: Callable[[], object]) -> None:
            found.append(UserWarning(what))
            if fix:
                remedy()

        for name in list(tables.entries.keys()):
            self._check_entry(tables, name, report)
        for name in list(tables.values.keys()):
            if tables.described(name) is None:
                report("a value has no entry", partial(tables.values.delete, name))
        for family, what in ((tables.order, "position"), (tables.scores, "score"), (tables.tags, "tag")):
            for key, name in list(family.items()):
                if not tables.refers(family, key, name):
                    report(f"a {what} has no entry", partial(family.delete, key))
        usable = {*self._stored_settings(tables), "disk_serializer"}
        for key, data in list(tables.settings.items()):
            is_count = key in (b"hits", b"misses") and data.isdigit()
            if not is_count and key.decode(errors="replace") not in usable:
                report("a setting cannot be used", partial(tables.settings.delete, key))

    def _check_entry(self, tables: Tables, name: bytes, report: Callable[[str, Callable[[], object]], None]) -> None:
        described = tables.described(name)
        if described is None:
            if name in tables.entries:  # otherwise it has just expired
                report("an entry cannot be read", partial(tables.entries.delete, name))
            return
        entry, expires_at = described
        if name not in tables.values:
            report("an entry has no value", partial(tables.remove, name, entry))
        elif self._key(tables, name) is ENOVAL:
            report("a key cannot be read", partial(tables.remove, name, entry))
        elif tables.order.get(tables.references(entry)[0][1]) != name:

            def give_position() -> None:
                tables.forget(entry)
                tables.describe(name, entry._replace(position=tables.next_position()), expires_at)

            report("an entry has no position", give_position)
        elif any(family.get(key) != name for family, key in tables.references(entry)):
            report("an entry has no score or tag", partial(tables.describe, name, entry, expires_at))

    def create_tag_index(self) -> None:
        """Set ``tag_index``. Tags always have an index, so this changes nothing else."""
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Clear ``tag_index``. Tags keep their index."""
        self.reset("tag_index", 0)
