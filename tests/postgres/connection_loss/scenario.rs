//! The calls of the scenario, and the content of a store.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::Duration;

use kvstore::{
    Config, Cursor, Direction, Expiry, ExpiryCondition, Family, KeyRange, PutOptions, Result, Store,
};

use crate::common::TestClock;

/// Time at which the scenario begins.
pub const NOW: i64 = 1_000_000;

/// Environment of a call, in addition to its store.
pub struct Around {
    pub folder: PathBuf,
    pub clock: TestClock,
}

fn in_memory() -> Store {
    let store = Store::open_in_memory(&Config::new()).unwrap();
    store.set_clock(|| NOW);
    store
}

/// Permitted answer of a call whose connection breaks once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// It is repeated, and the fault is invisible to the caller.
    Repeat,
    /// Like `Repeat`, but the count may be lower: the first attempt has removed keys that it does
    /// not count.
    RepeatAndTellLess,
    /// It fails without any effect, or its outcome is unknown.
    Fail,
}

pub struct Step {
    pub name: &'static str,
    pub may: May,
    /// Makes the call and returns its result as text.
    pub call: fn(&Store, &Around) -> Result<String>,
}

fn text<T: std::fmt::Debug>(answer: T) -> String {
    format!("{answer:?}")
}

fn at(ms: i64) -> Expiry {
    Expiry::At(NOW + ms)
}

fn f(store: &Store) -> Result<Family> {
    store.family("f")
}

fn all(family: &Family) -> Cursor {
    family.cursor(KeyRange::all(), Direction::Forward)
}

/// Returns the entries from the current one on.
fn rest(mut cursor: Cursor, mut at_entry: bool) -> Result<String> {
    let mut shown = String::new();
    while at_entry {
        let (key, value) = (cursor.key().unwrap(), cursor.value().unwrap_or_default());
        write!(shown, "{} {} {:?}, ", String::from_utf8_lossy(key), value.len(), cursor.expiry()).unwrap();
        at_entry = cursor.next()?;
    }
    Ok(shown)
}

macro_rules! step {
    ($may:ident, $name:literal, |$store:pat_param, $around:pat_param| $call:expr) => {
        Step { name: $name, may: May::$may, call: |$store, $around| $call }
    };
}

/// Calls of every kind. Each has a different effect, so that a missing or repeated call is
/// detected.
pub const STEPS: &[Step] = &[
    step!(Repeat, "get", |s, _| s.get("a").map(text)),
    step!(Fail, "create_family", |s, _| s.create_family("f").map(|f| text(f.name()))),
    step!(Repeat, "family", |s, _| s.family("f").map(|f| text(f.name()))),
    step!(Repeat, "families", |s, _| s.family_names().map(text)),
    step!(Repeat, "put", |s, _| s.put("a", "1").map(text)),
    step!(Repeat, "put_until", |s, _| s.put_with_expiry("b", "22", at(5_000)).map(text)),
    step!(Repeat, "put_ttl", |s, _| s.put_with_ttl("c", "333", Duration::from_secs(7)).map(text)),
    step!(Repeat, "put_with keep_ttl", |s, _| {
        s.put_with_options("b", "new", &PutOptions::new().keep_ttl()).map(text)
    }),
    step!(Fail, "put_with if_present", |s, _| {
        s.put_with_options("b", "newer", &PutOptions::new().if_present()).map(text)
    }),
    step!(Fail, "put_if_absent", |s, _| s.put_if_absent("d", "4", at(9_000)).map(text)),
    step!(Fail, "put_if_absent that finds it", |s, _| s.put_if_absent("d", "5", at(1)).map(text)),
    step!(Fail, "increment", |s, _| s.increment("n", 5, Expiry::Never).map(text)),
    step!(Fail, "increment again", |s, _| s.increment("n", -7, Expiry::Never).map(text)),
    step!(Fail, "compare_and_swap", |s, _| s.compare_and_swap("a", "1", "2", Expiry::Never).map(text)),
    step!(Fail, "compare_and_swap of another", |s, _| {
        s.compare_and_swap("a", "1", "3", Expiry::Never).map(text)
    }),
    step!(Fail, "expire", |s, _| s.set_expiry("a", at(60_000), ExpiryCondition::Always).map(text)),
    step!(Fail, "expire later", |s, _| s.set_expiry("a", at(70_000), ExpiryCondition::Later).map(text)),
    step!(Fail, "persist", |s, _| s.persist("a").map(text)),
    step!(Fail, "get_and_expire", |s, _| s.get_and_set_expiry("a", at(80_000)).map(text)),
    step!(Repeat, "get_ttl", |s, _| s.get_with_ttl("a").map(text)),
    step!(Repeat, "exists", |s, _| s.exists("a").map(text)),
    step!(Repeat, "ttl", |s, _| s.ttl("b").map(text)),
    step!(Repeat, "expire_time", |s, _| s.expiry("b").map(text)),
    step!(Repeat, "next_expiry", |s, _| s.next_expiry().map(text)),
    step!(Repeat, "next_expiry_of_all", |s, _| s.next_expiry_all_families().map(text)),
    step!(Repeat, "set_default_ttl", |s, _| f(s)?.set_default_ttl(Some(Duration::from_secs(50))).map(text)),
    step!(Repeat, "default_ttl", |s, _| f(s)?.default_ttl().map(text)),
    step!(Fail, "set_write_tracking", |s, _| f(s)?.set_write_tracking(true).map(text)),
    step!(Repeat, "tracks_writes", |s, _| f(s)?.tracks_writes().map(text)),
    step!(Repeat, "put of a default TTL", |s, _| f(s)?
        .put_with_options("t", "t", &PutOptions::new())
        .map(text)),
    step!(Repeat, "write_time", |s, _| f(s)?.write_time("t").map(text)),
    step!(Repeat, "batch", |s, _| {
        let (f, mut batch) = (f(s)?, s.batch());
        for n in 0..200 {
            let end = if n % 3 == 0 { at(20_000 + n) } else { Expiry::Never };
            batch.put(&f, format!("k{n:04}"), vec![b'v'; n as usize], end)?;
        }
        batch.put(s, "e", "5", Expiry::Never)?;
        batch.commit().map(text)
    }),
    // A transaction of its own, whose commit may be lost.
    step!(Fail, "batch that deletes, too", |s, _| {
        let mut batch = s.batch();
        batch.delete(s, "c")?;
        batch.put(s, "e", "55", Expiry::Never)?;
        batch.commit().map(text)
    }),
    step!(Repeat, "get_many", |s, _| {
        let found = f(s)?.get_many(["k0001", "missing", "k0199"])?;
        Ok(text(found.iter().map(|value| value.as_ref().map(Vec::len)).collect::<Vec<_>>()))
    }),
    step!(Repeat, "count", |s, _| f(s)?.count().map(text)),
    step!(Repeat, "count_live", |s, _| f(s)?.count_live().map(text)),
    step!(Repeat, "iterator", |s, _| {
        let mut cursor = all(&f(s)?);
        let at_entry = cursor.first()?;
        rest(cursor, at_entry)
    }),
    step!(Repeat, "reverse iterator of a range", |s, _| {
        let lower = Bound::Included(b"k0030".to_vec());
        let mut cursor = f(s)?.cursor(KeyRange::new(lower, Bound::Unbounded), Direction::Reverse).keys_only();
        let at_entry = cursor.seek("k0180")?;
        rest(cursor, at_entry)
    }),
    step!(Repeat, "fetch", |s, _| {
        let mut cursor = f(s)?.cursor(KeyRange::prefix(b"k01"), Direction::Forward);
        let mut shown = String::new();
        loop {
            let keys: Vec<_> = cursor.fetch(40)?.map(|entry| entry.key.to_vec()).collect();
            if keys.is_empty() {
                return Ok(shown);
            }
            keys.iter().for_each(|key| shown.push_str(&String::from_utf8_lossy(key)));
        }
    }),
    step!(Repeat, "expiring", |s, _| {
        let mut cursor = f(s)?.expiry_cursor(0, i64::MAX);
        let at_entry = cursor.first()?;
        rest(cursor, at_entry)
    }),
    step!(Fail, "read transaction", |s, _| {
        s.snapshot(|t| Ok(format!("{:?} {:?} {:?}", t.get("a")?, f(t)?.count()?, t.iter().count())))
    }),
    step!(Fail, "write transaction", |s, _| {
        s.transaction(|t| {
            t.put("in", "side")?;
            let sum = t.increment("n", 100, Expiry::Never)?;
            let refused = t.increment("a", i64::MAX, Expiry::Never).is_ok(); // and it goes on
            let was = t.delete("e")?;
            let absent = t.put_if_absent("in", "no", Expiry::Never)?;
            Ok(text((sum, refused, was, absent, t.get("in")?)))
        })
    }),
    step!(Fail, "write transaction of many kinds", |s, _| {
        s.transaction(|t| {
            let (new, f) = (t.create_family("made inside")?, f(t)?);
            new.put("x", "y")?;
            let mut batch = t.batch();
            batch.put(&new, "z", "zz", at(30_000))?;
            batch.delete(&f, "k0003")?;
            batch.commit()?;
            let deleted = f.delete_range(&KeyRange::prefix(b"k001"))?;
            let slid = t.get_and_set_expiry("d", at(40_000))?;
            let failure = t.put("", "an empty key").unwrap_err();
            let visited: Result<Option<()>> = t.get_and_set_expiry_with("d", at(41_000), |_| Err(failure));
            let swapped = t.compare_and_swap("in", "side", "out", Expiry::Never)?;
            let gone = t.compare_and_delete("in", "out")?;
            new.set_default_ttl(Some(Duration::from_secs(1)))?;
            Ok(text((deleted, slid, visited.is_ok(), swapped, gone, t.family_names()?, t.purge_expired()?)))
        })
    }),
    step!(Fail, "write transaction that rolls back", |s, _| {
        s.begin_write()?;
        let done = s.put("undone", "1").and_then(|()| s.drop_family("made inside"));
        s.rollback()?;
        done.map(text)
    }),
    step!(RepeatAndTellLess, "delete", |s, _| s.delete("b").map(text)),
    step!(RepeatAndTellLess, "delete_range", |s, _| {
        f(s)?.delete_range(&KeyRange::prefix(b"k002")).map(text)
    }),
    step!(Fail, "compare_and_delete", |s, _| s.compare_and_delete("d", "4").map(text)),
    step!(Fail, "get_and_expire to the past", |s, _| f(s)?.get_and_set_expiry("t", at(-1)).map(text)),
    step!(Fail, "expire to the past", |s, _| {
        f(s)?.set_expiry("k0004", at(-1), ExpiryCondition::Always).map(text)
    }),
    step!(Fail, "backup", |s, around| {
        let file = around.folder.join("backup.db");
        let _ = std::fs::remove_file(&file);
        s.backup(&file, |_, _| true)?;
        let copy = Store::open(&file)?;
        copy.set_clock(|| NOW);
        Ok(text(state_of(&copy)))
    }),
    step!(Fail, "copy to a file", |s, _| {
        let to = in_memory();
        let copied = s.copy_to(&to, |_, _| true)?;
        Ok(text((copied, state_of(&to))))
    }),
    step!(RepeatAndTellLess, "clear", |s, _| s.family("made inside")?.clear().map(text)),
    step!(Fail, "drop_family", |s, _| s.drop_family("made inside").map(text)),
    step!(Repeat, "info", |s, _| s.info().map(|info| text(info.families.len()))),
    step!(Fail, "integrity_check", |s, _| s.integrity_check().map(text)),
    step!(Repeat, "sync", |s, _| s.sync().map(text)),
    step!(Repeat, "time goes by", |_, around| {
        around.clock.set(NOW + 20_120);
        Ok(String::new())
    }),
    step!(RepeatAndTellLess, "purge_before", |s, _| f(s)?.purge_before(NOW + 20_060).map(text)),
    step!(RepeatAndTellLess, "purge_expired", |s, _| f(s)?.purge_expired().map(text)),
    step!(Repeat, "time goes on", |_, around| {
        around.clock.set(NOW + 20_180);
        Ok(String::new())
    }),
    // A repeated step may remove more rows than its limit: expired rows, which no read returns.
    step!(RepeatAndTellLess, "purge_step", |s, _| {
        s.purge_step(Some(100), None).map(|step| text(step.deleted))
    }),
    step!(RepeatAndTellLess, "sweep", |s, _| f(s)?.sweep(Duration::ZERO).map(text)),
    step!(RepeatAndTellLess, "clear of the default family", |s, _| s.clear().map(text)),
    step!(Fail, "copy from a file", |s, _| {
        let from = in_memory();
        let old = from.create_family("old")?;
        (0..20).try_for_each(|n| old.put_with_expiry(format!("{n}"), "copied", at(90_000 + n)))?;
        from.copy_to(s, |_, _| true).map(text)
    }),
    step!(Fail, "another handle", |s, _| {
        let path = s.info()?.path;
        let Some(url) = path.filter(|path| path.starts_with("postgresql:")) else { return Ok(text(0)) };
        Store::open_with(url, &Config::new().read_only(true)).map(|_| text(0))
    }),
];

/// Content of a store.
pub type State = BTreeMap<String, FamilyState>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FamilyState {
    default_ttl: Option<Duration>,
    tracks: bool,
    rows: u64,
    entries: BTreeMap<Vec<u8>, Entry>,
}

/// Value, expiry time, write time.
type Entry = (Vec<u8>, Option<Expiry>, Option<i64>);

pub fn state_of(store: &Store) -> State {
    let mut state = State::new();
    for name in store.family_names().unwrap().into_iter().chain(["default".to_owned()]) {
        let family = store.family(&name).unwrap();
        let mut found = FamilyState {
            default_ttl: family.default_ttl().unwrap(),
            tracks: family.tracks_writes().unwrap(),
            rows: family.count().unwrap(),
            entries: BTreeMap::new(),
        };
        let mut cursor = all(&family);
        let mut at_entry = cursor.first().unwrap();
        while at_entry {
            let key = cursor.key().unwrap().to_vec();
            let written = if found.tracks && key.len() < 2 { family.write_time(&key).unwrap() } else { None };
            found.entries.insert(key, (cursor.value().unwrap().to_vec(), cursor.expiry(), written));
            at_entry = cursor.next().unwrap();
        }
        state.insert(name, found);
    }
    state
}
