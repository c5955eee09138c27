//! Compares cursors and iterators with the model.

use kvstore::{Cursor, ErrorKind, Expiry, Family};

use crate::common::TestClock;
use crate::history::{FamilyOp, Meanwhile, Over, Range, Scan};
use crate::table::{Answer, Place, Span, Table};
use crate::world::{World, answer};

impl Scan {
    fn span(&self, clock: &TestClock) -> Span<'_> {
        match &self.over {
            Over::Keys(range) => Span::Keys(range),
            Over::Rows(partition, range) => Span::Rows(partition, range),
            Over::Expiring(from, to) => Span::Expiring(from.ms(clock), to.ms(clock)),
        }
    }

    fn cursor(&self, span: &Span, family: &Family) -> Cursor {
        let cursor = match span {
            Span::Keys(range) => family.cursor(range.key_range(), self.direction()),
            Span::Rows(partition, range) => {
                family.row_cursor(partition, &range.key_range(), self.direction()).unwrap()
            }
            Span::Expiring(from, to) => family.expiry_cursor(*from, *to),
        };
        assert_eq!(cursor.direction(), self.direction());
        if self.keys_only { cursor.keys_only() } else { cursor }
    }

    fn is_after(&self, place: Place, last: Place) -> bool {
        if self.is_reverse() { place < last } else { place > last }
    }
}

/// Key, value unless the cursor reads none, and expiry time.
type Seen = (Vec<u8>, Option<Vec<u8>>, Expiry);

fn current(cursor: &Cursor) -> Seen {
    let key = cursor.key().unwrap().to_vec();
    (key, cursor.value().map(<[u8]>::to_vec), cursor.expiry().unwrap())
}

impl World {
    pub fn scan(&self, side: usize, name: &str, family: &Family, scan: &Scan) {
        let table = self.table(side, name);
        self.compare_scan(table.as_deref().map_err(|e| *e), family, scan, self.now(side));
    }

    pub fn compare_scan(&self, table: Answer<&Table>, family: &Family, scan: &Scan, now: i64) {
        let span = scan.span(&self.clock);
        let mut cursor = scan.cursor(&span, family);
        assert!(!cursor.is_valid() && cursor.key().is_none());
        let started = answer(match &scan.seek {
            Some(key) => cursor.seek(key),
            None => cursor.first(),
        });
        if let (Span::Expiring(..), Some(_)) = (&span, &scan.seek) {
            assert_eq!(started, Err(ErrorKind::Error));
            return;
        }
        if scan.seek.as_ref().is_some_and(|key| !span.contains(key)) {
            assert_eq!(started, Ok(false)); // known without reading the family
            assert!(!cursor.is_valid());
            return;
        }
        let found = started.map(|mut at_entry| {
            let mut entries = Vec::new();
            while at_entry {
                entries.push(current(&cursor));
                at_entry = cursor.next().unwrap();
            }
            assert!(!cursor.is_valid() && cursor.key().is_none() && cursor.value().is_none());
            assert_eq!(cursor.next(), Ok(false));
            entries
        });
        let expected = table.map(|table| {
            let sought = |key: &[u8]| match scan.seek.as_deref() {
                Some(seek) if scan.reverse => key <= seek,
                Some(seek) => key >= seek,
                None => true,
            };
            let walk = table.walk(&span, scan.is_reverse(), now).into_iter();
            walk.filter(|shown| sought(shown.key))
                .map(|shown| {
                    let value = (!scan.keys_only).then(|| shown.entry.value.clone());
                    (shown.key.to_vec(), value, shown.entry.expiry())
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(found, expected);
    }

    pub fn scan_and_do(
        &mut self,
        side: usize,
        name: &'static str,
        family: &Family,
        scan: &Scan,
        meanwhile: &[Meanwhile],
    ) {
        let span = scan.span(&self.clock);
        let mut cursor = scan.cursor(&span, family);
        let mut moved = answer(cursor.first());
        let mut last: Option<(i64, Vec<u8>)> = None;
        for turn in 0..150 {
            let now = self.now(side);
            let after =
                |place: Place| last.as_ref().is_none_or(|(time, key)| scan.is_after(place, (*time, key)));
            let expected = self.table(side, name).map(|table| {
                let walk = table.walk(&span, scan.is_reverse(), now);
                let shown = walk.into_iter().find(|shown| after(shown.place))?;
                let value = (!scan.keys_only).then(|| shown.entry.value.clone());
                let seen = (shown.key.to_vec(), value, shown.entry.expiry());
                Some((seen, (shown.place.0, shown.place.1.to_vec())))
            });
            assert_eq!(moved, expected.as_ref().map(Option::is_some).map_err(|e| *e));
            let Ok(Some((seen, (time, key)))) = expected else { return };
            assert_eq!(current(&cursor), seen);
            match &meanwhile[turn % meanwhile.len()] {
                Meanwhile::Nothing => {}
                Meanwhile::DeleteCurrent => {
                    self.run_on_family(side, name, family, &FamilyOp::Delete(key.clone()));
                }
                Meanwhile::ExpireCurrent(moment) => {
                    let op = FamilyOp::Expire(key.clone(), *moment, kvstore::ExpiryCondition::Always);
                    self.run_on_family(side, name, family, &op);
                }
                Meanwhile::Do(op) => self.run_op(side, name, op),
            }
            last = Some((time, key));
            moved = answer(cursor.next());
        }
    }

    pub fn iterate(&self, side: usize, name: &str, family: &Family, range: &Range, reverse: bool) {
        let iter = match range.clone() {
            Range::All => family.iter(),
            Range::Prefix(prefix) => family.prefix(prefix),
            Range::Between(lower, upper) => family.range((lower, upper)),
        };
        let iter = if reverse { iter.rev() } else { iter };
        let found: Answer<Vec<_>> = iter.map(answer).collect();
        let expected = self.table(side, name).map(|table| {
            let walk = table.walk(&Span::Keys(range), reverse, self.now(side)).into_iter();
            walk.map(|shown| (shown.key.to_vec(), shown.entry.value.clone())).collect()
        });
        assert_eq!(found, expected);
    }
}
