"""Random calls on a store, two families and both kinds of iterators, compared with a dict that is copied at each begin.
"""

from __future__ import annotations

import random
from typing import Any, Optional

import pytest

from kvstore.snkv import ColumnFamily, Iterator, KVStore

Rows = dict[bytes, bytes]


class Model:
    """The expected content of the store."""

    def __init__(self) -> None:
        self.families: dict[str, Rows] = {"default": {}, "other": {}}
        self.saved: Optional[dict[str, Rows]] = None

    def begin(self) -> None:
        self.saved = {name: dict(rows) for name, rows in self.families.items()}

    def end(self, commit: bool) -> None:
        assert self.saved is not None
        if not commit:
            self.families = self.saved
        self.saved = None


class ModelIterator:
    """A model iterator: knows only its current row, and searches for the next one when it is moved."""

    def __init__(self, model: Model, family: str, reverse: bool, prefix: Optional[bytes]) -> None:
        self.model, self.family, self.reverse, self.prefix = model, family, reverse, prefix
        self.row: Optional[tuple[bytes, bytes]] = None
        self.started: Optional[bool] = False
        if prefix is not None:
            self.move(None, False)
            self.started = None

    def move(self, key: Optional[bytes], inclusive: bool) -> None:
        """Move to the first row at or after ``key``, in the iterator's direction."""
        rows = self.model.families[self.family]
        self.row = None
        for found in sorted(rows, reverse=self.reverse):
            ahead = key is None or (found < key if self.reverse else found > key) or (inclusive and found == key)
            if ahead and found.startswith(self.prefix or b""):
                self.row = (found, rows[found])
                return

    def first(self) -> None:
        self.move(None, False)
        self.started = True

    def seek(self, key: bytes) -> None:
        self.move(key, True)
        if not key.startswith(self.prefix or b""):
            self.row = None
        self.started = True

    def advance(self) -> None:
        if self.row is not None:
            self.move(self.row[0], False)

    def __next__(self) -> tuple[bytes, bytes]:
        if self.started:
            self.advance()
        elif self.started is False:
            self.first()
        elif self.row is not None:  # the first row of a prefix: its current value, or the next row if it was deleted
            self.move(self.row[0], True)
        self.started = True
        if self.row is None:
            raise StopIteration
        return self.row


@pytest.mark.parametrize("seed", range(60))
def test_random_calls_agree_with_the_model(db: KVStore, seed: int) -> None:
    pick = random.Random(seed)
    model = Model()
    other, same = db.create_column_family("other"), db.default_column_family()
    handles: list[tuple[Any, str]] = [(db, "default"), (same, "default"), (other, "other")]
    iterators: list[tuple[Iterator, ModelIterator]] = []

    def step() -> None:
        handle, family = pick.choice(handles)
        rows = model.families[family]
        key, value = b"%c%d" % (97 + pick.randrange(4), pick.randrange(8)), b"v%d" % pick.randrange(1000)
        call = pick.randrange(20)
        if call < 4:
            handle.put(key, value, ttl=pick.choice([None, 1000]))
            rows[key] = value
        elif call == 4:
            handle.put(key, value, ttl=-5)
            rows.pop(key, None)
        elif call == 5:
            assert handle.put_if_absent(key, value) == (key not in rows)
            rows.setdefault(key, value)
        elif call == 6:
            assert handle.get(key) == rows.get(key)
        elif call == 7 and key in rows:
            handle.delete(key)
            del rows[key]
        elif call == 8:
            assert (key in handle) == (key in rows)
        elif call == 9 and pick.random() < 0.3:
            handle.clear()
            rows.clear()
        elif call == 10:
            if model.saved is None:
                db.begin(write=True)
                model.begin()
            else:
                commit = pick.random() < 0.5
                if commit:
                    db.commit()
                else:
                    db.rollback()
                model.end(commit)
        elif call in (11, 12):
            reverse, prefix = pick.random() < 0.5, key[:1] if pick.random() < 0.4 else None
            made = handle.iterator(reverse=reverse, prefix=prefix)
            iterators.append((made, ModelIterator(model, family, reverse, prefix)))
            if len(iterators) > 4:
                iterators.pop(0)[0].close()
        elif iterators:
            actual, expected = pick.choice(iterators)
            move = pick.randrange(6)
            if move < 3:
                assert next(actual, None) == next(expected, None)
            elif move == 3:
                actual.seek(key)
                expected.seek(key)
            elif move == 4:
                (actual.prev if expected.reverse else actual.next)()
                expected.advance()
            else:
                (actual.last if expected.reverse else actual.first)()
                expected.first()
            assert actual.eof == (expected.row is None)
            if expected.row is not None:
                assert actual.item() == (actual.key, actual.value) == expected.row

    for _ in range(150):
        step()
    assert isinstance(other, ColumnFamily)
    for handle, family in handles:
        assert list(handle) == sorted(model.families[family].items())
    if model.saved is not None:
        db.commit()
    db.integrity_check()
