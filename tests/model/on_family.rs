//! Runs the operations on one family, on the store and on the model.

use std::time::Duration;

use kvstore::{ErrorKind, Expiry, Family, row_key};

use crate::history::{End, FamilyOp as Op, Guess, Value, expiry};
use crate::table::{Answer, BatchWrite, apply, parts};
use crate::world::{World, answer};

/// Longest default TTL: 20 years.
const MAX_DEFAULT_TTL: Duration = Duration::from_secs(630_720_000);

/// Milliseconds, rounded up.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros().div_ceil(1000)).unwrap()
}

impl World {
    pub fn run_on_family(&mut self, side: usize, name: &'static str, family: &Family, op: &Op) {
        self.run_unsettled_on_family(side, name, family, op);
        self.settle();
    }

    fn run_unsettled_on_family(&mut self, side: usize, name: &'static str, family: &Family, op: &Op) {
        let now = self.now(side);
        match op {
            Op::Put(key, value) => {
                let done = answer(family.put(key, value.bytes()));
                let expected = self.writable_table(side, name).map(|table| {
                    let end = table.default_end(now);
                    table.write(key, value.bytes(), end, now);
                });
                assert_eq!(done, expected);
            }
            Op::PutUntil(key, value, moment) => {
                let end = expiry(*moment, &self.clock);
                let done = answer(family.put_with_expiry(key, value.bytes(), end));
                assert_eq!(done, self.put_with_expiry(side, name, key, *value, end));
            }
            Op::PutTtl(key, value, ttl) => {
                let done = answer(family.put_with_ttl(key, value.bytes(), *ttl));
                let end = Expiry::At((now + millis(*ttl)).max(1));
                assert_eq!(done, self.put_with_expiry(side, name, key, *value, end));
            }
            Op::PutIfAbsent(key, value, moment) => {
                let end = expiry(*moment, &self.clock);
                let done = answer(family.put_if_absent(key, value.bytes(), end));
                let expected = self.writable_table(side, name).map(|table| {
                    let absent = table.get(key, now).is_none();
                    if absent {
                        table.write(key, value.bytes(), end.millis(), now);
                    }
                    absent
                });
                assert_eq!(done, expected);
            }
            Op::PutWith(key, value, how) => {
                let done = answer(family.put_with_options(key, value.bytes(), &how.options(&self.clock)));
                let given = match how.end {
                    End::Default => None,
                    End::Given(moment) => expiry(moment, &self.clock).millis(),
                };
                let times = (given, how.written_ms(&self.clock));
                let table = self.writable_table(side, name);
                assert_eq!(
                    done,
                    table.map(|table| table.put_with_options(key, value.bytes(), *how, times, now))
                );
            }
            Op::CompareAndSwap(key, guess, value, moment) => {
                let (guess, end) = (self.guess(side, name, key, *guess), expiry(*moment, &self.clock));
                let done = answer(family.compare_and_swap(key, &guess, value.bytes(), end));
                let expected = self.writable_table(side, name).map(|table| {
                    let equal = table.holds(key, &guess, now);
                    if equal {
                        table.write(key, value.bytes(), end.millis(), now);
                    }
                    equal
                });
                assert_eq!(done, expected);
            }
            Op::CompareAndDelete(key, guess) => {
                let guess = self.guess(side, name, key, *guess);
                let done = answer(family.compare_and_delete(key, &guess));
                let table = self.writable_table(side, name);
                assert_eq!(done, table.map(|table| table.holds(key, &guess, now) && table.delete(key, now)));
            }
            Op::Increment(key, delta, moment) => {
                let end = expiry(*moment, &self.clock);
                let done = answer(family.increment(key, *delta, end));
                let table = self.writable_table(side, name);
                let expected = table.and_then(|table| table.increment(key, *delta, end, now));
                if expected.is_err() {
                    self.rolled_back();
                }
                assert_eq!(done, expected);
            }
            Op::Fill(many) => {
                for n in 0..*many {
                    let (key, value) = (vec![b'b', n], Value::Filled(n, usize::from(n % 40)));
                    let end = match n % 3 {
                        0 => Expiry::At(self.clock.now() + i64::from(n)),
                        _ => Expiry::Never,
                    };
                    let done = answer(family.put_with_expiry(&key, value.bytes(), end));
                    assert_eq!(done, self.put_with_expiry(side, name, &key, value, end));
                }
            }
            Op::Bulk(many) => self.bulk(side, name, family, *many),
            Op::Delete(key) => {
                let done = answer(family.delete(key));
                assert_eq!(done, self.writable_table(side, name).map(|table| table.delete(key, now)));
            }
            Op::DeleteRange(range) => {
                let done = answer(family.delete_range(&range.key_range()));
                let table = self.writable_table(side, name);
                assert_eq!(done, table.map(|table| table.remove(now, |key, _| range.contains(key)).1));
            }
            Op::Clear => {
                let done = answer(family.clear());
                assert_eq!(done, self.writable_table(side, name).map(|table| table.rows.clear()));
            }
            Op::SetDefaultTtl(ttl) => {
                let done = answer(family.set_default_ttl(*ttl));
                let expected = match ttl.unwrap_or_default() {
                    ttl if ttl > MAX_DEFAULT_TTL => Err(ErrorKind::Error),
                    ttl => self.writable_table(side, name).map(|table| table.default_ttl_ms = millis(ttl)),
                };
                assert_eq!(done, expected);
            }
            Op::SetTracking(on) => {
                let done = answer(family.set_write_tracking(*on));
                assert_eq!(done, self.writable_table(side, name).map(|table| table.set_tracking(*on, now)));
            }
            Op::Expire(key, moment, condition) => {
                let end = expiry(*moment, &self.clock);
                let done = answer(family.set_expiry(key, end, *condition));
                let table = self.writable_table(side, name);
                assert_eq!(done, table.map(|table| table.set_expiry(key, end.millis(), *condition, now)));
            }
            Op::Persist(key) => {
                let done = answer(family.persist(key));
                let expected = self.writable_table(side, name).map(|table| {
                    let had = table.get(key, now)?.expire_ms.is_some();
                    table.rows.get_mut(key)?.expire_ms = None;
                    Some(had)
                });
                assert_eq!(done, expected);
            }
            Op::GetAndExpire(key, moment) => {
                let end = expiry(*moment, &self.clock);
                let got = answer(family.get_and_set_expiry(key, end));
                let expected = self.writable_table(side, name).map(|table| {
                    let value = table.get(key, now)?.value.clone();
                    table.set_expiry(key, end.millis(), kvstore::ExpiryCondition::Always, now);
                    Some(value)
                });
                assert_eq!(got, expected);
            }
            Op::Purge => {
                let done = answer(family.purge_expired());
                assert_eq!(done, self.purge(side, name, |entry| !entry.is_live(now)));
            }
            Op::PurgeBefore(cutoff) => {
                let cutoff = cutoff.ms(&self.clock);
                let done = answer(family.purge_before(cutoff));
                let before = |at: Option<i64>| at.is_some_and(|at| at < cutoff && at <= now);
                let expected = match cutoff {
                    i64::MIN => Ok(0), // known without reading the family
                    _ => self.purge(side, name, |entry| before(entry.expire_ms)),
                };
                assert_eq!(done, expected);
            }
            Op::Sweep(age) => {
                let done = answer(family.sweep(*age));
                let too_old = |written: i64| {
                    now > written && Duration::from_millis((now - written).unsigned_abs()) > *age
                };
                let tracks = self.table(side, name).map(|table| table.tracks);
                let expected = match tracks {
                    Ok(true) => self
                        .remove(side, name, |entry| entry.written_ms.is_some_and(too_old))
                        .map(|gone| gone.1),
                    Ok(false) | Err(_) => Err(ErrorKind::Error),
                };
                assert_eq!(done, expected);
            }
            Op::BatchPut(key, value, moment) => {
                let end = expiry(*moment, &self.clock);
                let side = &mut self.sides[side];
                assert_eq!(side.batch.put(family, key, value.bytes(), end), Ok(()));
                side.pending.push(BatchWrite {
                    family: name,
                    key: key.clone(),
                    put: Some((value.bytes(), end)),
                });
            }
            Op::BatchDelete(key) => {
                let side = &mut self.sides[side];
                assert_eq!(side.batch.delete(family, key), Ok(()));
                side.pending.push(BatchWrite { family: name, key: key.clone(), put: None });
            }
            read => self.read_from_family(side, name, family, read),
        }
    }

    fn read_from_family(&mut self, side: usize, name: &'static str, family: &Family, op: &Op) {
        let now = self.now(side);
        match op {
            Op::Get(key) => {
                let got = answer(family.get(key));
                assert_eq!(got, self.live_entry(side, name, key).map(|found| found.map(|entry| entry.value)));
            }
            Op::GetEach(many) => {
                for key in self.first_keys(side, name, *many) {
                    self.read_from_family(side, name, family, &Op::Get(key));
                }
            }
            Op::GetTtl(key) => {
                let got = answer(family.get_with_ttl(key));
                let expected = self.live_entry(side, name, key);
                assert_eq!(got, expected.map(|found| found.map(|e| (e.value.clone(), e.ttl(now)))));
            }
            Op::GetMany(keys) => {
                let got = answer(family.get_many(keys));
                let table = self.table(side, name);
                let expected = match keys.is_empty() {
                    true => Ok(Vec::new()), // known without reading the family
                    false => table.map(|table| {
                        keys.iter().map(|key| Some(table.get(key, now)?.value.clone())).collect()
                    }),
                };
                assert_eq!(got, expected);
            }
            Op::Exists(key) => {
                let exists = answer(family.exists(key));
                assert_eq!(exists, self.live_entry(side, name, key).map(|found| found.is_some()));
            }
            Op::Ttl(key) => {
                let ttl = answer(family.ttl(key));
                assert_eq!(ttl, self.look_up(side, name, key).map(|found| found.map(|e| e.ttl(now))));
            }
            Op::ExpireTime(key) => {
                let end = answer(family.expiry(key));
                assert_eq!(end, self.live_entry(side, name, key).map(|found| found.map(|e| e.expiry())));
            }
            Op::WriteTime(key) => {
                let written = answer(family.write_time(key));
                let expected = self.live_entry(side, name, key).and_then(|found| {
                    // A family that does not track write times has none.
                    found.map(|entry| entry.written_ms.ok_or(ErrorKind::Error)).transpose()
                });
                assert_eq!(written, expected);
            }
            Op::Count => {
                let expected = self.table(side, name).map(|table| table.rows.len() as u64);
                assert_eq!(answer(family.count()), expected);
            }
            Op::CountLive => {
                let expected = self.table(side, name).map(|table| table.count_live(now));
                assert_eq!(answer(family.count_live()), expected);
            }
            Op::NextExpiry => {
                let expected = self.table(side, name).map(|table| table.next_expiry());
                assert_eq!(answer(family.next_expiry()), expected);
            }
            Op::DefaultTtl => {
                let ms = self.table(side, name).map(|table| table.default_ttl_ms.unsigned_abs());
                let expected = ms.map(|ms| (ms > 0).then(|| Duration::from_millis(ms)));
                assert_eq!(answer(family.default_ttl()), expected);
            }
            Op::TracksWrites => {
                let expected = self.table(side, name).map(|table| table.tracks);
                assert_eq!(answer(family.tracks_writes()), expected);
            }
            Op::Scan(scan) => self.scan(side, name, family, scan),
            Op::ScanAndDo(scan, meanwhile) => self.scan_and_do(side, name, family, scan, meanwhile),
            Op::Iterate(range, reverse) => self.iterate(side, name, family, range, *reverse),
            write => unreachable!("{write:?} is no read"),
        }
    }

    fn put_with_expiry(
        &mut self,
        side: usize,
        name: &str,
        key: &[u8],
        value: Value,
        end: Expiry,
    ) -> Answer<()> {
        let now = self.now(side);
        let table = self.writable_table(side, name)?;
        table.write(key, value.bytes(), end.millis(), now);
        Ok(())
    }

    /// Value of the existing row, live or expired; or the other one.
    fn guess(&self, side: usize, name: &str, key: &[u8], guess: Guess) -> Vec<u8> {
        match guess {
            Guess::Right => {
                let row = self.table(side, name).ok().and_then(|table| table.rows.get(key).cloned());
                row.map_or_else(Vec::new, |entry| entry.value)
            }
            Guess::Other(value) => value.bytes(),
        }
    }

    fn bulk(&mut self, side: usize, name: &'static str, family: &Family, many: u16) {
        let mut batch = self.sides[side].store.batch();
        let writes: Vec<_> = (0..many)
            .map(|n| {
                let key = row_key(b"a", &n.to_be_bytes()).unwrap();
                assert_eq!(parts(&key), Some((vec![b'a'], &n.to_be_bytes()[..])));
                let end = match n % 4 {
                    0 => Expiry::Never,
                    _ => Expiry::At(self.clock.now() - 100 + i64::from(n % 40) * 10),
                };
                let value = Value::Filled(0, usize::from(n % 70));
                BatchWrite { family: name, key, put: Some((value.bytes(), end)) }
            })
            .collect();
        for write in &writes {
            let (value, end) = write.put.as_ref().unwrap();
            assert_eq!(batch.put(family, &write.key, value, *end), Ok(()));
        }
        let now = self.now(side);
        let done = answer(batch.commit());
        if writes.is_empty() {
            assert_eq!(done, Ok(())); // writes nothing, so it always succeeds
            return;
        }
        let expected = self.writable(side).and_then(|state| apply(state, &writes, now));
        if expected.is_err() {
            self.rolled_back();
        }
        assert_eq!(done, expected);
    }
}
