//! Batches: many writes to any families, all or nothing, in one statement and one round trip. A
//! batch that must lock its keys first takes more round trips ([`MIXED`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::size::{BESIDE_KEY, check_size};
use super::sql::{Text, after, and_locked, came, clock, live};
use super::{Db, check_key, column, count, life};
use crate::backend::BatchWrite;
use crate::backend::postgres::error::{no_longer_exists, strange};
use crate::backend::postgres::session::Again;
use crate::error::Result;
use crate::options::PutOptions;

/// Common table expression `g`: the families with the names `$1`. Other lists refer to a family by
/// its position in `$1`, from 1 on. If a family does not exist, `g.missing` is the position of the
/// first missing one. The statement then writes nothing and returns this position.
macro_rules! with_families {
    () => {
        concat!(
            "WITH g AS MATERIALIZED (SELECT array_agg(f.id ORDER BY a.n) AS ids, array_agg(f.track_writes ORDER BY a.n) AS tracks, ",
            "array_agg(f.default_ttl_ms ORDER BY a.n) AS ttls, min(a.n) FILTER (WHERE f.id IS NULL) AS missing ",
            "FROM unnest($1::bytea[]) WITH ORDINALITY AS a (name, n) LEFT JOIN kvstore_family f ON f.name = a.name), "
        )
    };
}

/// Common table expression `w`: puts the keys of `$list`, in the order of the list, with the expiry
/// time `$expire_ms`. `$condition` is SQL that is added to the WHERE clause.
macro_rules! put_list {
    ($expire_ms:expr, $list:expr, $condition:expr) => {
        concat!(
            "w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) SELECT g.ids[k.family], k.key, k.value, ",
            $expire_ms,
            ", CASE WHEN g.tracks[k.family] THEN coalesce(k.written_ms, ",
            clock!(),
            ") END FROM g CROSS JOIN ",
            $list,
            " WHERE g.missing IS NULL",
            $condition,
            " ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, expire_ms = EXCLUDED.expire_ms, ",
            "written_ms = EXCLUDED.written_ms) "
        )
    };
}

/// Common table expression `d`: deletes the keys of `$list`, in the order of the list. `$condition`
/// is SQL that is added to the WHERE clause. The column `counts` of `d` is true if the list
/// requests that the deletion is counted, and the key was live.
macro_rules! delete_list {
    ($list:expr, $condition:literal) => {
        concat!(
            "d AS (DELETE FROM kvstore_row r USING g CROSS JOIN ",
            $list,
            " WHERE g.missing IS NULL",
            $condition,
            " AND r.family = g.ids[k.family] AND r.key = k.key RETURNING k.counts AND ",
            live!(clock!()),
            " AS counts) "
        )
    };
}

/// FROM item that locks the existing row of the key in list entry `k`, before the key is put. The
/// condition [`and_locked`] must follow. Without the lock, a transaction could put a key whose row
/// another client has deleted since the snapshot ([`row_locked`](super::sql)).
macro_rules! listed_locked {
    () => {
        concat!(
            " CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM kvstore_row r WHERE r.family = g.ids[k.family] ",
            "AND r.key = k.key FOR UPDATE) l) l"
        )
    };
}

/// Text of the statement [`PUTS`]. `$lock` is the fragment that locks the rows first, and `$locked`
/// the condition that must follow it. Both are empty outside the caller's transaction.
macro_rules! puts {
    ($lock:expr, $locked:expr) => {
        concat!(
            with_families!(),
            put_list!(
                "k.expire_ms",
                concat!(
                    "unnest($2::integer[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[]) ",
                    "AS k (family, key, value, expire_ms, written_ms)",
                    $lock
                ),
                $locked
            ),
            "SELECT g.missing, 0::bigint FROM g"
        )
    };
}

/// Puts the keys `$3` into the families `$2` (positions in `$1`), with the values `$4`, the expiry
/// times `$5` and the write times `$6`.
pub(super) const PUTS: Text = Text { alone: puts!("", ""), inside: puts!(listed_locked!(), and_locked!()) };

/// Deletes the keys `$3` of the families `$2` (positions in `$1`), and returns the number of
/// counted deletions. `$4`: whether the deletion of this key is counted if the key is live.
pub(super) const DELETIONS: &str = concat!(
    with_families!(),
    delete_list!("unnest($2::integer[], $3::bytea[], $4::boolean[]) AS k (family, key, counts)", ""),
    "SELECT g.missing, (SELECT count(*) FROM d WHERE counts) FROM g"
);

/// Text of the statement [`MIXED`]. `$lock` is the fragment that locks the rows first, and
/// `$locked` the condition that must follow it. Both are empty outside the caller's transaction.
macro_rules! mixed {
    ($lock:expr, $locked:expr) => {
        concat!(
    with_families!(),
    put_list!(
        concat!(
            "CASE WHEN k.life IS NULL THEN k.expire_ms WHEN k.life >= 0 THEN ",
            after!(came!(), "k.life"),
            " WHEN g.ttls[k.family] > 0 THEN ",
            came!(),
            " + g.ttls[k.family] END"
        ),
        concat!(
            "unnest($2::integer[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[]) ",
            "AS k (family, key, value, expire_ms, life, written_ms)",
            $lock
        ),
        concat!(" AND k.value IS NOT NULL", $locked)
    ),
    ", ",
    delete_list!(
        "unnest($2::integer[], $3::bytea[], $4::bytea[], $8::boolean[]) AS k (family, key, value, counts)",
        " AND k.value IS NULL"
    ),
    "SELECT g.missing, (SELECT count(*) FROM d WHERE counts) + (SELECT count(*) FROM ",
    "unnest($2::integer[], $3::bytea[], $4::bytea[], $8::boolean[]) AS k (family, key, value, counts) CROSS JOIN LATERAL ",
    "(SELECT FROM kvstore_row r WHERE k.counts AND k.value IS NOT NULL AND r.family = g.ids[k.family] AND r.key = k.key AND ",
    live!(clock!()),
    " LIMIT 1) r) FROM g"
)
    };
}

/// Puts and deletes the keys `$3` of the families `$2` (positions in `$1`), and returns the number
/// of keys that `$8` counts:
/// - `$4`: values; NULL deletes the key;
/// - `$5`: expiry times;
/// - `$6`: TTLs in milliseconds, or [`BY_DEFAULT`]; if it is not NULL, it replaces `$5`;
/// - `$7`: write times;
/// - `$8`: whether the key is counted as deleted if it is live before the batch, also if it is put.
///
/// If the batch has puts, and also deletes or counts keys, all its keys are locked first
/// ([`late`](super::late)). So all such batches lock keys in the same order and do not deadlock,
/// and none of them misses a key that another batch is inserting.
pub(super) const MIXED: Text =
    Text { alone: mixed!("", ""), inside: mixed!(listed_locked!(), and_locked!()) };

/// Effect of all writes of a batch to one key.
struct Folded<'a> {
    /// The last write, which decides: the value to put, or `None` for a deletion.
    last: Option<(&'a [u8], &'a PutOptions)>,
    /// Whether the first write to the key is a deletion. It adds to the number of deleted keys if
    /// the key is live before the batch.
    deletes_first: bool,
}

impl Db {
    /// Executes all writes, or none of them. Several writes to one key take effect in their order.
    /// Returns the number of deletions of live keys.
    pub(crate) fn write_batch(&self, writes: &[BatchWrite<'_>]) -> Result<u64> {
        if writes.is_empty() {
            return Ok(0);
        }
        let mut deleted = 0;
        // Sorted in the same order for all clients, so that no two clients wait for each other.
        let mut folded: BTreeMap<(&str, &[u8]), Folded<'_>> = BTreeMap::new();
        for write in writes {
            check_key(write.key)?;
            let deletes = write.put.is_none();
            match folded.entry((write.family.family(), write.key)) {
                Entry::Vacant(entry) => {
                    entry.insert(Folded { last: write.put, deletes_first: deletes });
                }
                Entry::Occupied(mut entry) => {
                    let before = std::mem::replace(&mut entry.get_mut().last, write.put);
                    deleted += u64::from(deletes && self.leaves_alive(before));
                }
            }
        }
        let lists = Lists::of(&folded);
        lists.check_size()?;
        let (sql, params) = lists.statement(self);
        let write = || self.session.borrow_mut().query_at_once(Again::Yes, sql, &params);
        let lock = || self.lock(&lists.names, &lists.numbers, &lists.keys);
        let missing = |rows: &[Row]| column::<Option<i64>>(rows.first().ok_or_else(strange)?, 0);
        let has_written = |rows: &Vec<Row>| Ok(missing(rows)?.is_none());
        let rows = match lists.is_to_lock() {
            true => self.write_locked(write, lock, has_written),
            false => self.write_on_time(write, lock, has_written),
        }?;
        if let Some(missing) = missing(&rows)? {
            let missing = missing.checked_sub(1).and_then(|at| lists.families.get(usize::try_from(at).ok()?));
            return Err(no_longer_exists(missing.copied().unwrap_or_default()));
        }
        Ok(deleted + count(rows.first().ok_or_else(strange)?, 1)?)
    }

    /// Returns `true` if a key is live after the write `put`, where `None` is a deletion. In this
    /// case, a following deletion in the same batch is counted.
    fn leaves_alive(&self, put: Option<(&[u8], &PutOptions)>) -> bool {
        let Some((_, options)) = put else { return false };
        match life(options) {
            Some(life_ms) => life_ms != 0,
            None => options.expiry.is_none_or(|expiry| expiry.is_live(self.clock.now_ms())),
        }
    }
}

/// Parameters of the statements [`PUTS`], [`DELETIONS`] and [`MIXED`], as lists: `families` and
/// `names` have one element for each family, and every other list has one for each key.
#[derive(Default)]
struct Lists<'a> {
    families: Vec<&'a str>,
    names: Vec<&'a [u8]>,
    /// Positions of the families of the keys in `names`, from 1 on.
    numbers: Vec<i32>,
    keys: Vec<&'a [u8]>,
    /// Values to put; `None` for a deletion.
    values: Vec<Option<&'a [u8]>>,
    /// Expiry time of each key, in milliseconds since the Unix epoch; `None` for a key that does not
    /// expire.
    ends: Vec<Option<i64>>,
    /// TTLs in milliseconds, or [`BY_DEFAULT`]; `None` if the expiry time is in `ends`.
    lives: Vec<Option<i64>>,
    /// Write times, in milliseconds since the Unix epoch; `None` for the server's time.
    written: Vec<Option<i64>>,
    /// Whether the key is counted as deleted if it is live before the batch.
    counts: Vec<bool>,
}

impl<'a> Lists<'a> {
    /// Creates the lists from writes that are sorted by family and key.
    fn of(writes: &BTreeMap<(&'a str, &'a [u8]), Folded<'a>>) -> Lists<'a> {
        let mut lists = Lists::default();
        for ((family, key), write) in writes {
            if lists.families.last() != Some(family) {
                lists.families.push(family);
                lists.names.push(family.as_bytes());
            }
            lists.numbers.push(lists.families.len() as i32);
            lists.keys.push(key);
            lists.counts.push(write.deletes_first);
            let options = write.last.map(|(_, options)| options);
            lists.values.push(write.last.map(|(value, _)| value));
            lists.ends.push(options.and_then(|options| options.expiry?.millis()));
            lists.lives.push(options.and_then(life));
            lists.written.push(options.and_then(|options| options.written_ms));
        }
        lists
    }

    fn check_size(&self) -> Result<()> {
        let values = self.values.iter().map(|value| value.map_or(0, <[u8]>::len));
        let of_key =
            |(key, value): (&&[u8], usize)| BESIDE_KEY.saturating_add(key.len()).saturating_add(value);
        check_size(self.keys.iter().zip(values).map(of_key))
    }

    fn puts(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }

    /// Returns `true` if all keys must be locked before the statement ([`MIXED`]): some keys are
    /// put, and some keys are deleted or counted.
    fn is_to_lock(&self) -> bool {
        let counts = |(value, counts): (&Option<_>, &bool)| value.is_none() || *counts;
        self.puts() && self.values.iter().zip(&self.counts).any(counts)
    }

    /// Returns the shortest statement that does all writes, and its parameters.
    fn statement(&self, db: &Db) -> (&'static str, Vec<&(dyn ToSql + Sync)>) {
        let Lists { names, numbers, keys, values, ends, lives, written, counts, .. } = self;
        if !self.puts() {
            return (DELETIONS, vec![names, numbers, keys, counts]);
        }
        match !self.is_to_lock() && lives.iter().all(Option::is_none) {
            true => (PUTS.on(db), vec![names, numbers, keys, values, ends, written]),
            false => (MIXED.on(db), vec![names, numbers, keys, values, ends, lives, written, counts]),
        }
    }
}
