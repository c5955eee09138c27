//! Many writes over any families in one statement: all or nothing, and one round trip.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::size::{BESIDE_KEY, check_size};
use super::sql::{Text, after, and_locked, came, clock, live};
use super::{Db, check_key, column, count, life, strange};
use crate::db::BatchWrite;
use crate::db::remote::catalogue::no_longer_exists;
use crate::db::remote::session::Again;
use crate::error::Result;
use crate::options::PutOptions;

/// The families are `$1`, by whose numbers from 1 on the other lists name them. Without one of them the statement does nothing,
/// and answers its number.
macro_rules! with_families {
    () => {
        concat!(
            "WITH g AS MATERIALIZED (SELECT array_agg(f.id ORDER BY a.n) AS ids, array_agg(f.track_writes ORDER BY a.n) AS tracks, ",
            "array_agg(f.default_ttl_ms ORDER BY a.n) AS ttls, min(a.n) FILTER (WHERE f.id IS NULL) AS missing ",
            "FROM unnest($1::bytea[]) WITH ORDINALITY AS a (name, n) LEFT JOIN kvstore_family f ON f.name = a.name), "
        )
    };
}

/// Puts the keys of a list, in its order.
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

/// Deletes the keys of a list, in its order, as `d`; shows whether each counts, and was alive.
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

/// Locks the row that there is for row `k` of the list, before it is put; after it goes [`and_locked`]. Why, see
/// [`row_locked`](super::sql).
macro_rules! listed_locked {
    () => {
        concat!(
            " CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM kvstore_row r WHERE r.family = g.ids[k.family] ",
            "AND r.key = k.key FOR UPDATE) l) l"
        )
    };
}

/// [`PUTS`].
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

/// Puts `$3` in the families `$2`, with values `$4`, ends `$5`, times of writing `$6`.
pub(super) const PUTS: Text = Text { alone: puts!("", ""), inside: puts!(listed_locked!(), and_locked!()) };

/// Deletes `$3` in the families `$2`; `$4` says whether that counts if the key is alive.
pub(super) const DELETIONS: &str = concat!(
    with_families!(),
    delete_list!("unnest($2::integer[], $3::bytea[], $4::boolean[]) AS k (family, key, counts)", ""),
    "SELECT g.missing, (SELECT count(*) FROM d WHERE counts) FROM g"
);

/// [`MIXED`].
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

/// All of it: to the keys `$3` of the families `$2` the values `$4`, NULL for deletions, with the ends `$5` or, if they
/// have one, the lives `$6` in milliseconds or [`BY_DEFAULT`], and the times of writing `$7`; `$8` says whether a key, deleted
/// or put, counts as deleted if it is alive.
///
/// Where keys are deleted, too, or counted, all of them are locked before ([`late`](super::late)), so that batches come to all
/// keys in one order, none waits for one that waits for it, and none passes over a key that another one is just making.
pub(super) const MIXED: Text =
    Text { alone: mixed!("", ""), inside: mixed!(listed_locked!(), and_locked!()) };

/// All writes to one key.
struct Folded<'a> {
    /// The last one, which is the one that counts: what it puts, or `None` for a deletion.
    last: Option<(&'a [u8], &'a PutOptions)>,
    /// Whether the first one is a deletion, which counts if the key is alive.
    deletes_first: bool,
}

impl Db {
    /// Does all these writes, or none; those to one key count in their order. Returns how many of the keys that were
    /// deleted were alive.
    pub(crate) fn write_batch(&self, writes: &[BatchWrite<'_>]) -> Result<u64> {
        if writes.is_empty() {
            return Ok(0);
        }
        let mut deleted = 0;
        // In one order for all clients, so that no two of them wait for each other.
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

    /// Whether a write of a batch leaves a live key to the one after it.
    fn leaves_alive(&self, put: Option<(&[u8], &PutOptions)>) -> bool {
        let Some((_, options)) = put else { return false };
        match life(options) {
            Some(life_ms) => life_ms != 0,
            None => options.expiry.is_none_or(|expiry| expiry.is_live(self.clock.now_ms())),
        }
    }
}

/// The parameters of the statements: of each key the number of its family, and the rest.
#[derive(Default)]
struct Lists<'a> {
    families: Vec<&'a str>,
    names: Vec<&'a [u8]>,
    numbers: Vec<i32>,
    keys: Vec<&'a [u8]>,
    /// `None`: it is deleted.
    values: Vec<Option<&'a [u8]>>,
    ends: Vec<Option<i64>>,
    lives: Vec<Option<i64>>,
    written: Vec<Option<i64>>,
    counts: Vec<bool>,
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

    /// Whether some keys are put and others deleted, or counted when they are put.
    fn is_to_lock(&self) -> bool {
        let counts = |(value, counts): (&Option<_>, &bool)| value.is_none() || *counts;
        self.puts() && self.values.iter().zip(&self.counts).any(counts)
    }

    /// The shortest one that does it all, and its parameters.
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
