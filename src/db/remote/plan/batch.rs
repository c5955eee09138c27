//! Many writes over any families in one statement: all or nothing, and one round trip.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::sql::{BY_DEFAULT, after, came, clock, live};
use super::{Db, check_key, column, count, strange};
use crate::db::BatchWrite;
use crate::db::remote::catalogue::no_longer_exists;
use crate::db::remote::session::Again;
use crate::error::Result;
use crate::options::PutOptions;

/// The families are `$1`, by whose numbers from 1 on the other lists name them. To be put: `$2` families, `$3` keys, `$4`
/// values, `$5` ends, `$6` times of writing; to be deleted: `$7` families, `$8` keys, `$9` whether that counts if the key is
/// alive; to be put, but counted as deleted if alive: `$10` families, `$11` keys. Without one of the families it does
/// nothing, and answers its number.
macro_rules! write_and {
    ($more:expr) => {
        concat!(
            "WITH g AS MATERIALIZED (SELECT array_agg(f.id ORDER BY a.n) AS ids, array_agg(f.track_writes ORDER BY a.n) AS tracks, ",
            "array_agg(f.default_ttl_ms ORDER BY a.n) AS ttls, min(a.n) FILTER (WHERE f.id IS NULL) AS missing ",
            "FROM unnest($1::bytea[]) WITH ORDINALITY AS a (name, n) LEFT JOIN kvstore_family f ON f.name = a.name), ",
            "w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
            "SELECT g.ids[k.family], k.key, k.value, k.expire_ms, ",
            written!(),
            " FROM g CROSS JOIN unnest($2::integer[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[]) ",
            "AS k (family, key, value, expire_ms, written_ms) WHERE g.missing IS NULL ",
            "ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, expire_ms = EXCLUDED.expire_ms, ",
            "written_ms = EXCLUDED.written_ms), ",
            $more,
            "d AS (DELETE FROM kvstore_row r USING g CROSS JOIN unnest($7::integer[], $8::bytea[], $9::boolean[]) AS k (family, key, counts) ",
            "WHERE g.missing IS NULL AND r.family = g.ids[k.family] AND r.key = k.key RETURNING ",
            live!(clock!()),
            " AND k.counts AS counts) ",
            "SELECT g.missing, (SELECT count(*) FROM d WHERE counts) + (SELECT count(*) FROM ",
            "unnest($10::integer[], $11::bytea[]) AS k (family, key) CROSS JOIN LATERAL (SELECT FROM kvstore_row r ",
            "WHERE r.family = g.ids[k.family] AND r.key = k.key AND ",
            live!(clock!()),
            " LIMIT 1) r) FROM g"
        )
    };
}

/// When row `k` of a list counts as written.
macro_rules! written {
    () => {
        concat!("CASE WHEN g.tracks[k.family] THEN coalesce(k.written_ms, ", clock!(), ") END")
    };
}

pub(super) const WRITE: &str = write_and!("");

/// The same with keys whose end the server is to find: `$12` families, `$13` keys, `$14` values, `$15` lives in
/// milliseconds, or [`BY_DEFAULT`], `$16` times of writing.
pub(super) const WRITE_LIVES: &str = write_and!(concat!(
    "v AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    "SELECT g.ids[k.family], k.key, k.value, CASE WHEN k.life >= 0 THEN ",
    after!(came!(), "k.life"),
    " WHEN g.ttls[k.family] > 0 THEN ",
    came!(),
    " + g.ttls[k.family] END, ",
    written!(),
    " FROM g CROSS JOIN unnest($12::integer[], $13::bytea[], $14::bytea[], $15::bigint[], $16::bigint[]) ",
    "AS k (family, key, value, life, written_ms) WHERE g.missing IS NULL ",
    "ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, expire_ms = EXCLUDED.expire_ms, ",
    "written_ms = EXCLUDED.written_ms), "
));

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
        let (sql, params) = match lists.lives.is_empty() {
            true => (WRITE, lists.params()),
            false => (WRITE_LIVES, lists.params_with_lives()),
        };
        let write = || self.session.borrow_mut().query_at_once(Again::Yes, sql, &params);
        let lock = || {
            let (numbers, keys) = lists.put();
            self.lock(&lists.names, &numbers, &keys)
        };
        let missing = |rows: &[Row]| column::<Option<i64>>(rows.first().ok_or_else(strange)?, 0);
        let rows = self.write_on_time(write, lock, |rows| Ok(missing(rows)?.is_none()))?;
        if let Some(missing) = missing(&rows)? {
            let missing = usize::try_from(missing - 1).ok().and_then(|at| lists.families.get(at));
            return Err(no_longer_exists(missing.copied().unwrap_or_default()));
        }
        Ok(deleted + count(rows.first().ok_or_else(strange)?, 1)?)
    }

    /// Whether a write of a batch leaves a live key to the one after it.
    fn leaves_alive(&self, put: Option<(&[u8], &PutOptions)>) -> bool {
        let Some((_, options)) = put else { return false };
        match life(options) {
            Some(life_ms) => life_ms != 0,
            None => options.expiry.is_live(self.clock.now_ms()),
        }
    }
}

/// How long what is put lives, if the server is to find its end.
fn life(options: &PutOptions) -> Option<i64> {
    options.ttl_ms.or(options.default_ttl.then_some(BY_DEFAULT))
}

/// Keys to be put, with the number of their family.
#[derive(Default)]
struct Puts<'a> {
    families: Vec<i32>,
    keys: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    /// When they end, or how long they live.
    times: Vec<Option<i64>>,
    written: Vec<Option<i64>>,
}

impl Puts<'_> {
    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.families, &self.keys, &self.values, &self.times, &self.written]
    }
}

/// The parameters of [`WRITE`] and [`WRITE_LIVES`].
#[derive(Default)]
struct Lists<'a> {
    families: Vec<&'a str>,
    names: Vec<&'a [u8]>,
    /// What ends at a moment, or never.
    puts: Puts<'a>,
    lives: Puts<'a>,
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
            let Some((value, options)) = write.last else {
                lists.deleted_families.push(number);
                lists.deleted_keys.push(key);
                lists.deleted_counts.push(write.deletes_first);
                continue;
            };
            let life_ms = life(options);
            let puts = if life_ms.is_some() { &mut lists.lives } else { &mut lists.puts };
            puts.families.push(number);
            puts.keys.push(key);
            puts.values.push(value);
            puts.times.push(life_ms.or(options.expiry.millis()));
            puts.written.push(options.written_ms);
            if write.deletes_first {
                lists.counted_families.push(number);
                lists.counted_keys.push(key);
            }
        }
        lists
    }

    /// What is to be put, in order: the numbers of the families, and the keys.
    fn put(&self) -> (Vec<i32>, Vec<&'a [u8]>) {
        let of = |puts: &Puts<'a>| {
            let keys = puts.families.iter().copied().zip(puts.keys.iter().copied());
            keys.collect::<Vec<_>>()
        };
        let mut keys = [of(&self.puts), of(&self.lives)].concat();
        keys.sort_unstable();
        keys.into_iter().unzip()
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&self.names];
        params.extend(self.puts.params());
        let deleted: [&(dyn ToSql + Sync); 5] = [
            &self.deleted_families,
            &self.deleted_keys,
            &self.deleted_counts,
            &self.counted_families,
            &self.counted_keys,
        ];
        params.extend(deleted);
        params
    }

    fn params_with_lives(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params = self.params();
        params.extend(self.lives.params());
        params
    }
}
