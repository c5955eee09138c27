//! The table in `docs/reference/ttl.md` is correct: each of its lines is executed on a store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::{TestClock, memory_at};
use kvstore::{Expiry, ExpiryCondition, KeyRange, PutOptions, Result, Store};

const PAGE: &str = include_str!("../../docs/reference/ttl.md");
/// Page with the table that compares the writes with those of other systems.
const COMPARISON: &str = include_str!("../../docs/explanation/expiry.md");

// Times in these tests: a key is written, and later the effect of another write is examined.
const WRITTEN: i64 = 1_000;
const NOW: i64 = 3_000;
/// Expiry time of a key that has expired.
const DIED: i64 = 2_000;
/// Expiry time of a live key with a TTL.
const END: i64 = 100_000;
/// Times passed to calls, before and after [`END`].
const EARLIER: i64 = 50_000;
const LATER: i64 = 200_000;
const PAST: i64 = 2_999;
const DEFAULT_TTL: i64 = 7_000;

// ---- the table -----------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Before {
    Plain,
    Ttl,
    Expired,
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TtlAfter {
    None,
    Default,
    Given,
    Kept,
    NoKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteTime {
    Now,
    Kept,
    NoKey,
}

/// State of the key before a write, and what the table states about it.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    write: &'a str,
    before: Before,
    has_default: bool,
    answer: Answer,
    ttl: TtlAfter,
    write_time: WriteTime,
}

/// Lines of the table, with the abbreviations for several states expanded.
fn lines() -> Vec<Line<'static>> {
    let table = PAGE
        .split_once("<!-- table: read by tests/expiry/ttl_table.rs -->")
        .expect("the mark of the table")
        .1;
    let rows = table.trim_start().lines().take_while(|line| line.starts_with('|')).skip(2);
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [write, before, default, answer, ttl, write_time] = &cells[..] else {
            panic!("not six cells: {row}")
        };
        use Before::{Expired, Missing, Plain, Ttl};
        let befores = match *before {
            "plain" => vec![Plain],
            "ttl" => vec![Ttl],
            "expired" => vec![Expired],
            "missing" => vec![Missing],
            "live" => vec![Plain, Ttl],
            "gone" => vec![Expired, Missing],
            "any" => vec![Plain, Ttl, Expired, Missing],
            other => panic!("key before: {other}"),
        };
        let defaults = match *default {
            "none" => vec![false],
            "set" => vec![true],
            "any" => vec![false, true],
            other => panic!("default: {other}"),
        };
        let answer = match *answer {
            "yes" => Answer::Yes,
            "no" => Answer::No,
            "error" => Answer::Error,
            other => panic!("writes: {other}"),
        };
        let ttl = match *ttl {
            "none" => TtlAfter::None,
            "default" => TtlAfter::Default,
            "given" => TtlAfter::Given,
            "kept" => TtlAfter::Kept,
            "–" => TtlAfter::NoKey,
            other => panic!("TTL after: {other}"),
        };
        let write_time = match *write_time {
            "now" => WriteTime::Now,
            "kept" => WriteTime::Kept,
            "–" => WriteTime::NoKey,
            other => panic!("write time: {other}"),
        };
        assert_eq!(ttl == TtlAfter::NoKey, write_time == WriteTime::NoKey, "{row}");
        let write = write.strip_prefix('`').and_then(|write| write.strip_suffix('`')).expect(row);
        let states = befores
            .into_iter()
            .flat_map(move |before| defaults.clone().into_iter().map(move |default| (before, default)));
        states.map(move |(before, has_default)| Line { write, before, has_default, answer, ttl, write_time })
    })
    .collect()
}

// ---- the writes ----------------------------------------------------------------------------------

/// Old value that a write finds, and new value that it writes.
struct Case<'a> {
    store: &'a Store,
    old: &'a [u8],
    new: &'a [u8],
}

/// Runs a write. Returns whether it changed something, and the expiry time that was given.
type Write = fn(&Case<'_>) -> (Result<bool>, i64);

fn put_with(case: &Case<'_>, options: PutOptions) -> Result<bool> {
    case.store.put_with_options("k", case.new, &options)
}

fn given(expire_ms: i64) -> PutOptions {
    PutOptions::new().expiry(Expiry::At(expire_ms))
}

fn expire(case: &Case<'_>, expire_ms: i64, condition: ExpiryCondition) -> (Result<bool>, i64) {
    let expiry = if expire_ms == 0 { Expiry::Never } else { Expiry::At(expire_ms) };
    (case.store.set_expiry("k", expiry, condition).map(|changed| changed == Some(true)), expire_ms)
}

fn get_and_expire(case: &Case<'_>, expiry: Expiry) -> Result<bool> {
    let found = case.store.get_and_set_expiry("k", expiry)?;
    assert!(found.is_none() || found.as_deref() == Some(case.old));
    Ok(found.is_some())
}

fn batch(case: &Case<'_>, expiry: Option<Expiry>) -> (Result<bool>, i64) {
    let mut batch = case.store.batch();
    batch.put(case.store, "k", case.new, expiry).unwrap();
    (batch.commit().map(|()| true), expiry.and_then(Expiry::millis).unwrap_or_default())
}

const SECOND_OF_LIFE: Duration = Duration::from_millis(1_000);

/// All writes of the table.
fn writes() -> BTreeMap<&'static str, Write> {
    let mut writes: BTreeMap<&'static str, Write> = BTreeMap::new();
    let mut add = |name, write| assert!(writes.insert(name, write).is_none(), "{name} twice");
    add("put", |c| (c.store.put("k", c.new).map(|()| true), 0));
    add("put_with_ttl", |c| {
        let ttl = Duration::from_millis((LATER - NOW).unsigned_abs());
        (c.store.put_with_ttl("k", c.new, ttl).map(|()| true), LATER)
    });
    add("put_with_expiry", |c| {
        (c.store.put_with_expiry("k", c.new, Expiry::At(LATER)).map(|()| true), LATER)
    });
    add("put_with_expiry, never", |c| (c.store.put_with_expiry("k", c.new, Expiry::Never).map(|()| true), 0));
    add("put_with_expiry, past", |c| {
        (c.store.put_with_expiry("k", c.new, Expiry::At(PAST)).map(|()| true), PAST)
    });
    add("put_with_options", |c| (put_with(c, given(LATER)), LATER));
    add("put_with_options IF_ABSENT", |c| (put_with(c, given(LATER).if_absent()), LATER));
    add("put_with_options IF_PRESENT", |c| (put_with(c, given(LATER).if_present()), LATER));
    add("put_with_options KEEP_TTL", |c| (put_with(c, given(LATER).keep_ttl()), LATER));
    add("put_with_options IF_ABSENT, none", |c| (put_with(c, PutOptions::new().if_absent()), 0));
    add("put_with_options IF_PRESENT, none", |c| (put_with(c, PutOptions::new().if_present()), 0));
    add("put_with_options KEEP_TTL, none", |c| (put_with(c, PutOptions::new().keep_ttl()), 0));
    add("put_with_options IF_ABSENT KEEP_TTL", |c| (put_with(c, given(LATER).if_absent().keep_ttl()), LATER));
    add("put_with_options IF_PRESENT KEEP_TTL", |c| {
        (put_with(c, given(LATER).if_present().keep_ttl()), LATER)
    });
    add("put_if_absent", |c| (c.store.put_if_absent("k", c.new, Expiry::At(LATER)), LATER));
    add("put_if_absent, never", |c| (c.store.put_if_absent("k", c.new, Expiry::Never), 0));
    add("put_if_absent, none", |c| (c.store.put_if_absent("k", c.new, None), 0));
    add("put_with_options, none", |c| (put_with(c, PutOptions::new()), 0));
    add("put_with_options, never", |c| (put_with(c, PutOptions::new().expiry(Expiry::Never)), 0));
    add("compare_and_swap, equal", |c| {
        (c.store.compare_and_swap("k", c.old, c.new, Expiry::At(LATER)), LATER)
    });
    add("compare_and_swap, equal, never", |c| {
        (c.store.compare_and_swap("k", c.old, c.new, Expiry::Never), 0)
    });
    add("compare_and_swap, equal, none", |c| (c.store.compare_and_swap("k", c.old, c.new, None), 0));
    add("compare_and_swap, not equal", |c| {
        let other = [c.old, b"."].concat();
        (c.store.compare_and_swap("k", other, c.new, Expiry::At(LATER)), LATER)
    });
    add("compare_and_delete, equal", |c| (c.store.compare_and_delete("k", c.old), 0));
    add("compare_and_delete, not equal", |c| (c.store.compare_and_delete("k", &c.old[..c.old.len() - 1]), 0));
    add("increment", |c| (c.store.increment("k", 5, Expiry::At(LATER)).map(|_| true), LATER));
    add("increment, never", |c| (c.store.increment("k", 5, Expiry::Never).map(|_| true), 0));
    add("increment, none", |c| (c.store.increment("k", 5, None).map(|_| true), 0));
    add("increment, not a number", |c| (c.store.increment("k", 5, Expiry::At(LATER)).map(|_| true), LATER));
    add("set_expiry", |c| expire(c, EARLIER, ExpiryCondition::Always));
    add("set_expiry, never", |c| expire(c, 0, ExpiryCondition::Always));
    add("set_expiry, past", |c| expire(c, PAST, ExpiryCondition::Always));
    add("set_expiry NX", |c| expire(c, EARLIER, ExpiryCondition::NoTtl));
    add("set_expiry XX", |c| expire(c, EARLIER, ExpiryCondition::HasTtl));
    add("set_expiry GT, later", |c| expire(c, LATER, ExpiryCondition::Later));
    add("set_expiry GT, earlier", |c| expire(c, EARLIER, ExpiryCondition::Later));
    add("set_expiry GT, equal", |c| expire(c, END, ExpiryCondition::Later));
    add("set_expiry GT, never", |c| expire(c, 0, ExpiryCondition::Later));
    add("set_expiry LT, later", |c| expire(c, LATER, ExpiryCondition::Earlier));
    add("set_expiry LT, earlier", |c| expire(c, EARLIER, ExpiryCondition::Earlier));
    add("set_expiry LT, past", |c| expire(c, PAST, ExpiryCondition::Earlier));
    add("set_expiry LT, never", |c| expire(c, 0, ExpiryCondition::Earlier));
    add("persist", |c| (c.store.persist("k").map(|changed| changed == Some(true)), 0));
    add("get_and_set_expiry", |c| (get_and_expire(c, Expiry::At(EARLIER)), EARLIER));
    add("get_and_set_expiry, never", |c| (get_and_expire(c, Expiry::Never), 0));
    add("get_and_set_expiry, past", |c| (get_and_expire(c, Expiry::At(PAST)), PAST));
    add("batch put", |c| batch(c, Some(Expiry::At(LATER))));
    add("batch put, never", |c| batch(c, Some(Expiry::Never)));
    add("batch put, none", |c| batch(c, None));
    add("batch delete", |c| {
        // A batch returns no result for each key: it deletes a key that is live before.
        let was_there = c.store.expiry("k").unwrap().is_some();
        let mut batch = c.store.batch();
        batch.delete(c.store, "k").unwrap();
        (batch.commit().map(|()| was_there), 0)
    });
    add("delete", |c| (c.store.delete("k"), 0));
    add("delete_range", |c| (c.store.delete_range(&KeyRange::all()).map(|n| n == 1), 0));
    add("clear", |c| (c.store.clear().map(|()| true), 0));
    add("sweep", |c| (c.store.sweep(SECOND_OF_LIFE).map(|n| n == 1), 0));
    writes
}

// ---- one line ------------------------------------------------------------------------------------

/// Values of the key before the write and, if it writes, after it: `(old, new)`. Increments need
/// numbers.
fn values(write: &str, large: bool) -> (Vec<u8>, Vec<u8>) {
    match write {
        "increment" | "increment, never" | "increment, none" => (b"37".to_vec(), b"42".to_vec()),
        _ if large => (vec![7; 5_000], vec![8; 6_000]),
        _ => (b"old".to_vec(), b"new".to_vec()),
    }
}

fn prepare(line: Line<'_>, old: &[u8]) -> (Store, TestClock) {
    let (store, clock) = memory_at(WRITTEN);
    store.set_write_tracking(true).unwrap();
    if line.has_default {
        store.set_default_ttl(Some(Duration::from_millis(DEFAULT_TTL.unsigned_abs()))).unwrap();
    }
    match line.before {
        Before::Plain => store.put_with_expiry("k", old, Expiry::Never).unwrap(),
        Before::Ttl => store.put_with_expiry("k", old, Expiry::At(END)).unwrap(),
        Before::Expired => store.put_with_expiry("k", old, Expiry::At(DIED)).unwrap(),
        Before::Missing => {}
    }
    clock.set(NOW);
    (store, clock)
}

/// Returns the state of the key as reads return it: value, expiry time, write time.
fn state(store: &Store) -> Option<(Vec<u8>, Expiry, i64)> {
    let expiry = store.expiry("k").unwrap()?;
    Some((store.get("k").unwrap().unwrap(), expiry, store.write_time("k").unwrap().unwrap()))
}

/// Expected state of the key after a write with the expiry time `given_ms`.
fn expected(line: Line<'_>, old: &[u8], new: &[u8], given_ms: i64) -> Option<(Vec<u8>, Expiry, i64)> {
    let before = match line.before {
        Before::Plain => Expiry::Never,
        Before::Ttl => Expiry::At(END),
        Before::Expired | Before::Missing => Expiry::Never, // nothing to keep: see below
    };
    let expiry = match line.ttl {
        TtlAfter::None => Expiry::Never,
        TtlAfter::Default => Expiry::At(NOW + DEFAULT_TTL),
        TtlAfter::Given => Expiry::At(given_ms),
        TtlAfter::Kept => before,
        TtlAfter::NoKey => return None,
    };
    match line.write_time {
        WriteTime::Now => Some((new.to_vec(), expiry, NOW)),
        WriteTime::Kept => Some((old.to_vec(), expiry, WRITTEN)),
        WriteTime::NoKey => None,
    }
}

/// Runs one row of the table. Returns what is wrong.
fn check_line(line: Line<'_>, write: Write, large: bool, in_transaction: bool) -> Result<(), String> {
    let (old, new) = values(line.write, large);
    let gone = matches!(line.before, Before::Expired | Before::Missing);
    // A missing or expired value counts as 0, whatever it was.
    let new = match line.write {
        "increment, not a number" => b"5".to_vec(),
        "increment" | "increment, never" | "increment, none" if gone => b"5".to_vec(),
        _ => new,
    };
    let (store, _clock) = prepare(line, &old);
    let case = Case { store: &store, old: &old, new: &new };
    if in_transaction {
        store.begin_write().unwrap();
    }
    let (done, given_ms) = write(&case);
    let answer = match done {
        Ok(true) => Answer::Yes,
        Ok(false) => Answer::No,
        Err(_) => Answer::Error,
    };
    if answer != line.answer {
        return Err(format!("it answered {answer:?}"));
    }
    let expected = expected(line, &old, &new, given_ms);
    if in_transaction {
        if state(&store) != expected {
            return Err(format!("inside the transaction it is {:?}", state(&store)));
        }
        store.commit().map_err(|e| format!("the commit failed: {e}"))?;
    }
    let found = state(&store);
    if found != expected {
        return Err(format!("found {found:?}"));
    }
    store.integrity_check().map_err(|e| format!("afterwards: {e}"))?;
    // The resulting key expires exactly when the table states.
    let rows = u64::from(found.is_some());
    if store.count_live().unwrap() != rows {
        return Err(format!("{} live keys", store.count_live().unwrap()));
    }
    match found {
        Some((_, Expiry::At(end), _)) if store.next_expiry().unwrap() != Some(end) => {
            Err(format!("the next expiry is {:?}", store.next_expiry().unwrap()))
        }
        _ => Ok(()),
    }
}

// ---- the tests -----------------------------------------------------------------------------------

#[test]
fn every_row_of_ttl_table_matches_store() {
    let writes = writes();
    let mut wrong = Vec::new();
    let mut walked = 0;
    for line in lines() {
        let write = writes.get(line.write).unwrap_or_else(|| panic!("an unknown write: {}", line.write));
        for (large, in_transaction) in [(false, false), (false, true), (true, false), (true, true)] {
            walked += 1;
            if let Err(what) = check_line(line, *write, large, in_transaction) {
                wrong.push(format!("{line:?} large={large} in_transaction={in_transaction}: {what}"));
            }
        }
    }
    assert_eq!(walked, writes.len() * 8 * 4);
    assert!(wrong.is_empty(), "{} of {walked} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn ttl_table_has_each_write_once_per_key_state() {
    let mut met: BTreeMap<&str, Vec<(Before, bool)>> = BTreeMap::new();
    for line in lines() {
        met.entry(line.write).or_default().push((line.before, line.has_default));
    }
    let known: BTreeSet<&str> = writes().into_keys().collect();
    assert_eq!(met.keys().copied().collect::<BTreeSet<_>>(), known);
    use Before::{Expired, Missing, Plain, Ttl};
    let all: Vec<(Before, bool)> = [Plain, Ttl, Expired, Missing]
        .into_iter()
        .flat_map(|before| [(before, false), (before, true)])
        .collect();
    for (write, mut states) in met {
        states.sort();
        assert_eq!(states, all, "{write}");
    }
}

#[test]
fn comparison_with_other_systems_has_every_write_once() {
    let mark = "<!-- comparison: read by tests/expiry/ttl_table.rs -->";
    let table = COMPARISON.split_once(mark).expect("the mark of the comparison").1;
    let mut compared = Vec::new();
    for row in table.trim_start().lines().take_while(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "kvstore, Redis, Cassandra, IAppStorage / bbolt, SNKV: {row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "an empty cell: {row}");
        compared.extend(cells[0].split('`').skip(1).step_by(2));
    }
    compared.sort_unstable();
    assert_eq!(compared, writes().into_keys().collect::<Vec<_>>());
}

#[test]
fn ttl_table_has_every_writing_method() {
    // Methods that do not write to a key's row, or that only remove expired keys.
    let others: BTreeSet<&str> = [
        // reads
        "name",
        "expiry_after",
        "get",
        "get_with",
        "get_with_ttl",
        "exists",
        "ttl",
        "count",
        "iter",
        "prefix",
        "range",
        "cursor",
        "row_cursor",
        "expiry_cursor",
        "remaining_ttl",
        "expiry",
        "default_ttl",
        "next_expiry",
        "count_live",
        "count_with_ttl",
        "created_ms",
        "tracks_writes",
        "write_time",
        "get_many",
        "get_many_with",
        "check_open",
        "is_empty",
        "len",
        "next_expiry_all_families",
        "batch",
        // options of put_with_options; the handle; settings of the family
        "new",
        "expiry",
        "set_default_ttl",
        "set_write_tracking",
        // Purges, which have no variants.
        "purge_expired",
        "purge_before",
        "purge_step",
        "purge_at_most",
    ]
    .into();
    // Other forms of writes in the table.
    let forms: BTreeMap<&str, &str> = [
        ("get_and_set_expiry_with", "get_and_set_expiry"),
        ("commit", "batch put"),
        ("if_absent", "put_with_options IF_ABSENT"),
        ("if_present", "put_with_options IF_PRESENT"),
        ("keep_ttl", "put_with_options KEEP_TTL"),
        ("sweep_at_most", "sweep"),
        ("delete_many", "delete"),
    ]
    .into();
    let table: BTreeSet<&str> = writes().into_keys().collect();
    // "put_with_expiry, never" and "put_with_options KEEP_TTL" are lines of the methods before the comma or space.
    let methods_in_table: BTreeSet<&str> =
        table.iter().filter_map(|write| write.split([',', ' ']).next()).collect();
    let sources = [
        include_str!("../../src/family/mod.rs"),
        include_str!("../../src/family/conditional.rs"),
        include_str!("../../src/family/ttl.rs"),
        include_str!("../../src/family/write_times.rs"),
        include_str!("../../src/family/purge.rs"),
        include_str!("../../src/family/many.rs"),
        include_str!("../../src/store/purge.rs"),
        include_str!("../../src/store/batch.rs"),
    ];
    let mut methods = 0;
    for line in sources.iter().flat_map(|source| source.lines()) {
        let Some(method) = line.trim_start().strip_prefix("pub fn ") else { continue };
        let method = method.split(['(', '<']).next().unwrap();
        methods += 1;
        let known = others.contains(method)
            || methods_in_table.contains(method)
            || forms.get(method).is_some_and(|form| table.contains(form));
        assert!(known, "{method} is neither in the table nor among the methods that do not write");
    }
    assert!(methods > 40, "only {methods} methods found");
}
