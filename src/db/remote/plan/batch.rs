//! Many writes over any families in one statement: all or nothing, and one round trip.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio_postgres::types::ToSql;

use super::sql::{clock, live};
use super::{Db, check_key, column, count, strange};
use crate::db::remote::catalogue::no_longer_exists;
use crate::db::remote::session::Again;
use crate::error::Result;
use crate::expiry::{self, Expiry};

/// A write of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchWrite<'a> {
    pub(crate) family: &'a str,
    pub(crate) key: &'a [u8],
    pub(crate) action: BatchAction<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BatchAction<'a> {
    /// With an end of life, and when it counts as written in a family that keeps that; `None`: now.
    Put(&'a [u8], Expiry, Option<i64>),
    Delete,
}

impl<'a> BatchWrite<'a> {
    /// The same as the rooms above say it.
    pub(crate) fn of(write: &crate::db::BatchWrite<'a>) -> BatchWrite<'a> {
        let action = match write.put {
            Some((value, options)) => BatchAction::Put(value, options.expiry, options.written_ms),
            None => BatchAction::Delete,
        };
        BatchWrite { family: write.family.family(), key: write.key, action }
    }
}

/// What a batch has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BatchCounts {
    pub(crate) puts: u64,
    /// Deletions that met a live key.
    pub(crate) deletes: u64,
    /// Bytes of the keys and values that were put.
    pub(crate) written: u64,
}

/// The families are `$1`, by whose numbers from 1 on the other lists name them. To be put: `$2` families, `$3` keys, `$4`
/// values, `$5` ends, `$6` times of writing; to be deleted: `$7` families, `$8` keys, `$9` whether that counts if the key is
/// alive; to be put, but counted as deleted if alive: `$10` families, `$11` keys. Without one of the families it does
/// nothing, and answers its number.
pub(super) const WRITE: &str = concat!(
    "WITH g AS MATERIALIZED (SELECT array_agg(f.id ORDER BY a.n) AS ids, array_agg(f.track_writes ORDER BY a.n) AS tracks, ",
    "min(a.n) FILTER (WHERE f.id IS NULL) AS missing ",
    "FROM unnest($1::bytea[]) WITH ORDINALITY AS a (name, n) LEFT JOIN kvstore_family f ON f.name = a.name), ",
    "w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    "SELECT g.ids[k.family], k.key, k.value, k.expire_ms, CASE WHEN g.tracks[k.family] THEN coalesce(k.written_ms, ",
    clock!(),
    ") END ",
    "FROM g CROSS JOIN unnest($2::integer[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[]) ",
    "AS k (family, key, value, expire_ms, written_ms) WHERE g.missing IS NULL ",
    "ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, expire_ms = EXCLUDED.expire_ms, ",
    "written_ms = EXCLUDED.written_ms), ",
    "d AS (DELETE FROM kvstore_row r USING g CROSS JOIN unnest($7::integer[], $8::bytea[], $9::boolean[]) AS k (family, key, counts) ",
    "WHERE g.missing IS NULL AND r.family = g.ids[k.family] AND r.key = k.key RETURNING ",
    live!(clock!()),
    " AND k.counts AS counts) ",
    "SELECT g.missing, (SELECT count(*) FROM d WHERE counts) + (SELECT count(*) FROM ",
    "unnest($10::integer[], $11::bytea[]) AS k (family, key) CROSS JOIN LATERAL (SELECT FROM kvstore_row r ",
    "WHERE r.family = g.ids[k.family] AND r.key = k.key AND ",
    live!(clock!()),
    " LIMIT 1) r) FROM g"
);

/// All writes to one key.
struct Folded<'a> {
    /// The last one, which is the one that counts.
    last: BatchAction<'a>,
    /// Whether the first one is a deletion, which counts if the key is alive.
    deletes_first: bool,
}

impl Db {
    /// Does all these writes, or none; those to one key count in their order.
    pub(crate) fn write_batch(&self, writes: &[BatchWrite<'_>]) -> Result<BatchCounts> {
        let mut counts = BatchCounts::default();
        if writes.is_empty() {
            return Ok(counts);
        }
        // In one order for all clients, so that no two of them wait for each other.
        let mut folded: BTreeMap<(&str, &[u8]), Folded<'_>> = BTreeMap::new();
        for write in writes {
            check_key(write.key)?;
            if let BatchAction::Put(value, ..) = write.action {
                counts.puts += 1;
                counts.written += (write.key.len() + value.len()) as u64;
            }
            let deletes = matches!(write.action, BatchAction::Delete);
            match folded.entry((write.family, write.key)) {
                Entry::Vacant(entry) => {
                    entry.insert(Folded { last: write.action, deletes_first: deletes });
                }
                Entry::Occupied(mut entry) => {
                    let before = std::mem::replace(&mut entry.get_mut().last, write.action);
                    counts.deletes += u64::from(deletes && self.is_put_alive(before));
                }
            }
        }
        let lists = Lists::of(&folded);
        let rows = self.query(Again::Yes, WRITE, &lists.params())?;
        let row = rows.first().ok_or_else(strange)?;
        if let Some(missing) = column::<Option<i64>>(row, 0)? {
            let missing = usize::try_from(missing - 1).ok().and_then(|at| lists.families.get(at));
            return Err(no_longer_exists(missing.copied().unwrap_or_default()));
        }
        counts.deletes += count(row, 1)?;
        Ok(counts)
    }

    /// Whether a write of a batch leaves a live key to the one after it.
    fn is_put_alive(&self, action: BatchAction<'_>) -> bool {
        match action {
            BatchAction::Put(_, Expiry::Never, _) => true,
            BatchAction::Put(_, Expiry::At(expire_ms), _) => {
                !expiry::is_expired(expire_ms, self.clock.now_ms())
            }
            BatchAction::Delete => false,
        }
    }
}

/// The parameters of [`WRITE`].
#[derive(Default)]
struct Lists<'a> {
    families: Vec<&'a str>,
    names: Vec<&'a [u8]>,
    put_families: Vec<i32>,
    put_keys: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    ends: Vec<Option<i64>>,
    written: Vec<Option<i64>>,
    deleted_families: Vec<i32>,
    deleted_keys: Vec<&'a [u8]>,
    deleted_counts: Vec<bool>,
    counted_families: Vec<i32>,
    counted_keys: Vec<&'a [u8]>,
}

impl<'a> Lists<'a> {
    /// Of writes in the order of their families and keys.
    fn of(writes: &BTreeMap<(&'a str, &'a [u8]), Folded<'a>>) -> Lists<'a> {
        let mut lists = Lists::default();
        for ((family, key), write) in writes {
            if lists.families.last() != Some(family) {
                lists.families.push(family);
                lists.names.push(family.as_bytes());
            }
            let number = lists.families.len() as i32;
            match write.last {
                BatchAction::Put(value, expiry, written_ms) => {
                    lists.put_families.push(number);
                    lists.put_keys.push(key);
                    lists.values.push(value);
                    lists.ends.push(expiry.millis());
                    lists.written.push(written_ms);
                    if write.deletes_first {
                        lists.counted_families.push(number);
                        lists.counted_keys.push(key);
                    }
                }
                BatchAction::Delete => {
                    lists.deleted_families.push(number);
                    lists.deleted_keys.push(key);
                    lists.deleted_counts.push(write.deletes_first);
                }
            }
        }
        lists
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 11] {
        [
            &self.names,
            &self.put_families,
            &self.put_keys,
            &self.values,
            &self.ends,
            &self.written,
            &self.deleted_families,
            &self.deleted_keys,
            &self.deleted_counts,
            &self.counted_families,
            &self.counted_keys,
        ]
    }
}
