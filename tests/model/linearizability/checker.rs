//! Record of each call of the workers, and the check that all of it is linearizable.
//!
//! A key is a register with an expiry time. Each call takes effect at one moment between its begin
//! and its end, and there must be an order of these moments in which every result is right. The
//! search is that of Wing and Gong in the form of Lowe's "just in time": it carries all possible
//! states of the key from one return to the next. Values are unique, so these are few.
//!
//! The library reads the clock within the call, so the time it used is between the two readings
//! around the call. A key whose expiry time is in between may be found live or expired. A write that
//! found it expired ends it for all later calls. A read does not: it reads the row first and the
//! clock then, and does not block a write that read both before and commits after. On a server, a
//! write that does nothing to an expired key does not end it either (docs/explanation/postgresql.md,
//! "Expiry and clocks").

use std::collections::{BTreeMap, HashSet};

/// No value: the key is missing.
pub const NONE: i64 = i64::MIN;
/// No expiry time.
pub const NEVER: (i64, i64) = (0, 0);
/// Numbers in an operation that is written to a file.
const FIELDS: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `read`: the value.
    Get,
    /// `read`: the value when the snapshot was taken. The clock is that of the later read.
    Snapshot,
    /// `read`: the value; `result`: the milliseconds that are left, -1 without a TTL.
    GetTtl,
    /// `result`: 1 or 0.
    Exists,
    /// `result`: `NONE` for a missing key, 0 without a TTL, or the expiry time.
    ExpireTime,
    /// `write`, `ends`.
    Put,
    /// `write`, `ends`; `result`: 1 or 0.
    PutIfAbsent,
    /// `read`: what was expected; `write`, `ends`; `result`: 1 or 0.
    Swap,
    /// `read`: what was expected; `result`: 1 or 0.
    CompareAndDelete,
    /// `result`: 1 or 0.
    Delete,
    /// A deletion that does not return whether the key existed.
    Remove,
    /// `read`: the difference; `write`: the sum; `ends`.
    Increment,
    /// `ends`; `result`: 1 or 0.
    Expire,
    /// `read`: the value; `ends`.
    GetAndExpire,
    /// A transaction. `read`: the value; `write`, `ends`.
    ReadAndPut,
}

const KINDS: [Kind; 15] = [
    Kind::Get,
    Kind::Snapshot,
    Kind::GetTtl,
    Kind::Exists,
    Kind::ExpireTime,
    Kind::Put,
    Kind::PutIfAbsent,
    Kind::Swap,
    Kind::CompareAndDelete,
    Kind::Delete,
    Kind::Remove,
    Kind::Increment,
    Kind::Expire,
    Kind::GetAndExpire,
    Kind::ReadAndPut,
];

/// A successful call. A failed call has changed nothing and is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    pub key: i64,
    pub worker: i64,
    pub kind: Kind,
    /// By the monotonic clock, in nanoseconds.
    pub begin: i64,
    pub end: i64,
    /// Clock of the library around the call, in milliseconds.
    pub wall: (i64, i64),
    pub read: i64,
    pub write: i64,
    /// First and last possible expiry time of the written value.
    pub ends: (i64, i64),
    pub result: i64,
}

impl Op {
    pub fn to_line(self) -> String {
        let Op { key, worker, kind, begin, end, wall, read, write, ends, result } = self;
        let kind = KINDS.iter().position(|known| *known == kind).unwrap() as i64;
        let numbers: [i64; FIELDS] =
            [key, worker, kind, begin, end, wall.0, wall.1, read, write, ends.0, ends.1, result];
        numbers.map(|number| number.to_string()).join(" ") + "\n"
    }

    pub fn of_line(line: &str) -> Op {
        let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [key, worker, kind, begin, end, wall_begin, wall_end, read, write, first, last, result] =
            numbers[..]
        else {
            panic!("a line of {} numbers", numbers.len());
        };
        let kind = KINDS[usize::try_from(kind).unwrap()];
        let (wall, ends) = ((wall_begin, wall_end), (first, last));
        Op { key, worker, kind, begin, end, wall, read, write, ends, result }
    }
}

/// Where the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    File,
    Server,
}

/// Possible state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    value: i64,
    ends: (i64, i64),
}

const MISSING: State = State { value: NONE, ends: NEVER };

impl State {
    /// States that an operation may find, by the clock: live, expired, or either.
    fn seen_by(self, op: &Op) -> impl Iterator<Item = State> {
        let (first, last) = self.ends;
        let may_live = self.value != NONE && (self.ends == NEVER || last > op.wall.0);
        let may_be_gone = self.value == NONE || (self.ends != NEVER && first <= op.wall.1);
        // An operation that finds the key live proves that it expires later than the clock reading.
        let ends = if self.ends == NEVER { NEVER } else { (first.max(op.wall.0 + 1), last) };
        let live = may_live.then_some(State { value: self.value, ends });
        live.into_iter().chain(may_be_gone.then_some(MISSING))
    }

    /// Returns the states after the operation, if it finds this state and has the recorded result.
    fn successors(self, op: &Op, home: Home) -> impl Iterator<Item = State> {
        let ends_nothing = match op.kind {
            Kind::Get | Kind::Snapshot | Kind::GetTtl | Kind::Exists | Kind::ExpireTime => true,
            Kind::Swap | Kind::CompareAndDelete | Kind::Expire | Kind::GetAndExpire => home == Home::Server,
            _ => false,
        };
        self.seen_by(op).filter_map(move |seen| {
            let after = seen.after(op)?;
            Some(if ends_nothing && seen == MISSING { self } else { after })
        })
    }

    /// Returns the state after an operation that sees this one; `None` if its result would differ.
    fn after(self, op: &Op) -> Option<State> {
        let is_there = self.value != NONE;
        let written = State { value: op.write, ends: op.ends };
        match op.kind {
            Kind::Get => (self.value == op.read).then_some(self),
            // The clock was read later, so this proves nothing for other calls.
            Kind::Snapshot => (self.value == op.read).then_some(self),
            Kind::GetTtl => {
                let (first, last) = self.ends;
                let left_fits = match (is_there, self.ends) {
                    (false, _) => true,
                    (true, NEVER) => op.result == -1,
                    (true, _) => {
                        (first - op.wall.1).max(1) <= op.result && op.result <= (last - op.wall.0).max(1)
                    }
                };
                (self.value == op.read && left_fits).then_some(self)
            }
            Kind::Exists => (i64::from(is_there) == op.result).then_some(self),
            Kind::ExpireTime => {
                let fits = match is_there {
                    false => op.result == NONE,
                    true => (self.ends.0..=self.ends.1).contains(&op.result),
                };
                // Now the expiry time is known exactly.
                fits.then_some(if is_there && self.ends != NEVER {
                    State { ends: (op.result, op.result), ..self }
                } else {
                    self
                })
            }
            Kind::Put => Some(written),
            Kind::PutIfAbsent => match (is_there, op.result == 1) {
                (false, true) => Some(written),
                (true, false) => Some(self),
                _ => None,
            },
            Kind::Swap => match (self.value == op.read, op.result == 1) {
                (true, true) => Some(written),
                (false, false) => Some(self),
                _ => None,
            },
            Kind::CompareAndDelete => match (self.value == op.read, op.result == 1) {
                (true, true) => Some(MISSING),
                (false, false) => Some(self),
                _ => None,
            },
            Kind::Delete => (i64::from(is_there) == op.result).then_some(MISSING),
            Kind::Remove => Some(MISSING),
            Kind::Increment if is_there => (self.value.checked_add(op.read) == Some(op.write))
                .then_some(State { value: op.write, ..self }),
            Kind::Increment => (op.read == op.write).then_some(written),
            Kind::Expire if is_there => (op.result == 1).then_some(State { ends: op.ends, ..self }),
            Kind::Expire => (op.result == 0).then_some(self),
            Kind::GetAndExpire => (self.value == op.read).then_some(if is_there {
                State { ends: op.ends, ..self }
            } else {
                self
            }),
            Kind::ReadAndPut => (self.value == op.read).then_some(written),
        }
    }
}

/// Counts of what was checked.
#[derive(Debug, Default)]
pub struct Summary {
    pub keys: usize,
    pub operations: usize,
    pub longest: usize,
    /// Maximum number of possible states of a key.
    pub states: usize,
}

/// Checks the histories of all keys. Returns an error for the first key that has no valid order.
pub fn check(operations: impl IntoIterator<Item = Op>, home: Home) -> Result<Summary, String> {
    let mut by_key: BTreeMap<i64, Vec<Op>> = BTreeMap::new();
    for op in operations {
        by_key.entry(op.key).or_default().push(op);
    }
    let mut summary = Summary::default();
    for (key, history) in by_key {
        summary.keys += 1;
        summary.operations += history.len();
        summary.longest = summary.longest.max(history.len());
        let states = check_key(&history, home).map_err(|why| format!("key {key}: {why}"))?;
        summary.states = summary.states.max(states);
    }
    Ok(summary)
}

/// One possible past: which of the running calls have taken effect (by slot), and the resulting
/// state.
type Past = (u64, State);

fn check_key(history: &[Op], home: Home) -> Result<usize, String> {
    // At the same time, begins come before returns, since the calls may overlap.
    let mut events: Vec<(i64, bool, usize)> = Vec::new();
    for (number, op) in history.iter().enumerate() {
        assert!(op.begin <= op.end, "a call that ended before it began: {op:?}");
        events.push((op.begin, false, number));
        events.push((op.end, true, number));
    }
    events.sort_unstable();
    let mut slots: [Option<usize>; 64] = [None; 64];
    let mut pasts: HashSet<Past> = HashSet::from([(0, MISSING)]);
    let mut most = 1;
    for (_, returns, number) in events {
        if !returns {
            let free = slots.iter().position(Option::is_none).expect("at most 64 calls at once");
            slots[free] = Some(number);
            continue;
        }
        let slot = slots.iter().position(|at| *at == Some(number)).unwrap();
        let done = 1 << slot;
        let (mut open, mut after): (Vec<Past>, HashSet<Past>) = (Vec::new(), HashSet::new());
        let mut met: HashSet<Past> = HashSet::new();
        open.extend(&pasts);
        while let Some((effective, state)) = open.pop() {
            if !met.insert((effective, state)) {
                continue;
            }
            if effective & done != 0 {
                after.insert((effective & !done, state));
                continue;
            }
            for (at, other) in slots.iter().enumerate() {
                let Some(other) = other.filter(|_| effective & (1 << at) == 0) else { continue };
                let op = &history[other];
                open.extend(state.successors(op, home).map(|next| (effective | 1 << at, next)));
            }
        }
        if after.is_empty() {
            return Err(explain(history, number, &pasts));
        }
        most = most.max(met.len());
        slots[slot] = None;
        pasts = after;
    }
    Ok(most)
}

fn explain(history: &[Op], number: usize, pasts: &HashSet<Past>) -> String {
    let failed = &history[number];
    let mut near: Vec<&Op> = history.iter().filter(|op| op.begin <= failed.end).collect();
    near.sort_by_key(|op| op.end);
    let states: HashSet<State> = pasts.iter().map(|(_, state)| *state).collect();
    let lines: Vec<String> =
        near.iter().rev().take(16).rev().map(|op| format!("  {}", text(op, failed.begin))).collect();
    format!(
        "no order of the calls explains\n  {}\nbefore it the key was one of {states:?}; the last calls:\n{}",
        text(failed, failed.begin),
        lines.join("\n")
    )
}

fn text(op: &Op, origin: i64) -> String {
    let Op { worker, kind, begin, end, wall, read, write, ends, result, .. } = op;
    let number = |value: i64| if value == NONE { "-".to_owned() } else { value.to_string() };
    format!(
        "[{:+} .. {:+} us] worker {worker} {kind:?} read {} write {} ends {ends:?} result {} wall {wall:?}",
        (begin - origin) / 1000,
        (end - origin) / 1000,
        number(*read),
        number(*write),
        number(*result)
    )
}

// ---- the checker itself --------------------------------------------------------------------------

/// Hand-written histories.
mod made_up {
    use super::*;

    fn op(kind: Kind, begin: i64, end: i64) -> Op {
        Op {
            key: 1,
            worker: 0,
            kind,
            begin,
            end,
            wall: (begin, end),
            read: NONE,
            write: NONE,
            ends: NEVER,
            result: NONE,
        }
    }

    fn put(write: i64, begin: i64, end: i64) -> Op {
        Op { write, ..op(Kind::Put, begin, end) }
    }

    fn put_until(write: i64, ends: i64, begin: i64, end: i64) -> Op {
        Op { ends: (ends, ends), ..put(write, begin, end) }
    }

    fn get(read: i64, begin: i64, end: i64) -> Op {
        Op { read, ..op(Kind::Get, begin, end) }
    }

    fn snapshot(read: i64, wall: i64, begin: i64, end: i64) -> Op {
        Op { read, wall: (wall, wall), ..op(Kind::Snapshot, begin, end) }
    }

    fn increment(sum: i64, begin: i64, end: i64) -> Op {
        Op { read: 1, write: sum, ..op(Kind::Increment, begin, end) }
    }

    fn swap(from: i64, to: i64, result: i64, begin: i64, end: i64) -> Op {
        Op { read: from, write: to, result, ..op(Kind::Swap, begin, end) }
    }

    fn completed(kind: Kind, result: i64, begin: i64, end: i64) -> Op {
        Op { result, ..op(kind, begin, end) }
    }

    #[test]
    fn valid_histories_are_accepted() {
        for history in [
            vec![put(7, 10, 20), get(7, 30, 40)],
            vec![put(7, 10, 50), get(NONE, 20, 30), get(7, 35, 40)],
            vec![put(7, 10, 20), put(8, 30, 60), get(7, 35, 40), get(8, 45, 50)],
            vec![put_until(7, 100, 10, 20), get(7, 90, 99), get(NONE, 100, 110)],
            // The key expires during the call: both results are valid.
            vec![put_until(7, 100, 10, 20), get(7, 90, 105)],
            vec![put_until(7, 100, 10, 20), get(NONE, 90, 105)],
            vec![increment(1, 10, 50), increment(2, 20, 60), get(2, 70, 80)],
            vec![put(7, 10, 20), swap(7, 8, 1, 30, 60), swap(7, 9, 0, 30, 60), get(8, 70, 80)],
            vec![put(7, 10, 20), completed(Kind::Delete, 1, 30, 40), completed(Kind::Delete, 0, 50, 60)],
            vec![put_until(7, 100, 10, 20), completed(Kind::ExpireTime, 100, 30, 40)],
            // A snapshot is read when the key has expired for it, while the key is live for other
            // calls.
            vec![put_until(7, 100, 10, 20), snapshot(NONE, 100, 30, 40), get(7, 50, 60)],
            vec![put(7, 10, 20), put(8, 35, 50), snapshot(7, 90, 30, 40)],
        ] {
            for home in [Home::File, Home::Server] {
                let checked = check(history.clone(), home);
                assert!(checked.is_ok(), "{home:?}: {history:?}: {checked:?}");
            }
        }
    }

    #[track_caller]
    fn assert_refused(history: Vec<Op>) {
        for home in [Home::File, Home::Server] {
            // A worker in another process passes its operations as lines.
            let history = history.iter().map(|op| Op::of_line(op.to_line().trim_end()));
            assert!(check(history, home).is_err(), "{home:?}");
        }
    }

    #[test]
    fn stale_read_is_refused() {
        assert_refused(vec![put(7, 10, 20), put(8, 30, 40), get(7, 50, 60)]);
        assert_refused(vec![put(7, 10, 20), get(NONE, 30, 40)]);
        // Once one reader has seen the new value, no later one sees the old.
        assert_refused(vec![put(7, 10, 20), put(8, 30, 90), get(8, 40, 50), get(7, 60, 70)]);
    }

    #[test]
    fn changing_snapshot_is_refused() {
        assert_refused(vec![put(7, 10, 20), put(8, 50, 60), snapshot(8, 90, 30, 40)]);
        assert_refused(vec![put(7, 10, 20), put(8, 30, 40), snapshot(7, 90, 50, 60)]);
        assert_refused(vec![put_until(7, 100, 10, 20), snapshot(7, 100, 30, 40)]);
        assert_refused(vec![put_until(7, 100, 10, 20), snapshot(NONE, 99, 30, 40)]);
    }

    #[test]
    fn value_never_written_is_refused() {
        assert_refused(vec![get(7, 10, 20)]);
        assert_refused(vec![get(7, 10, 20), put(7, 30, 40)]);
    }

    #[test]
    fn lost_update_is_refused() {
        assert_refused(vec![increment(1, 10, 50), increment(1, 20, 60)]);
        assert_refused(vec![put(7, 10, 20), swap(7, 8, 1, 30, 60), swap(7, 9, 1, 30, 60)]);
        let both_won = |begin| Op { write: 7 + begin, result: 1, ..op(Kind::PutIfAbsent, begin, 50) };
        assert_refused(vec![both_won(10), both_won(20)]);
        let read_and_put = |write| Op { read: 7, write, ..op(Kind::ReadAndPut, 30, 60) };
        assert_refused(vec![put(7, 10, 20), read_and_put(8), read_and_put(9)]);
    }

    #[test]
    fn read_of_expired_value_is_refused() {
        assert_refused(vec![put_until(7, 100, 10, 20), get(7, 100, 110)]);
        // A write has found the key expired, so all later calls must, whatever their clocks return.
        assert_refused(vec![
            put_until(7, 100, 10, 20),
            completed(Kind::Delete, 0, 95, 105),
            Op { wall: (99, 99), ..get(7, 106, 107) },
        ]);
        assert_refused(vec![put_until(7, 100, 10, 20), completed(Kind::Exists, 1, 100, 110)]);
        assert_refused(vec![put_until(7, 100, 10, 20), completed(Kind::Delete, 1, 100, 110)]);
        assert_refused(vec![put_until(7, 100, 10, 20), swap(7, 8, 1, 100, 110)]);
    }

    /// A write has found a key live and has not committed yet; a second one, after the expiry time,
    /// does nothing.
    #[test]
    fn no_op_on_expired_key_fixes_expiry_only_in_file_backend() {
        let prolong = |begin, end| Op { read: 7, ends: (200, 200), ..op(Kind::GetAndExpire, begin, end) };
        for nothing in [
            get(NONE, 100, 110),
            Op { read: NONE, ..op(Kind::GetAndExpire, 100, 110) },
            completed(Kind::Expire, 0, 100, 110),
            swap(7, 8, 0, 100, 110),
            Op { read: 7, ..completed(Kind::CompareAndDelete, 0, 100, 110) },
        ] {
            let history = |prolong| vec![put_until(7, 100, 10, 20), prolong, nothing, get(7, 160, 170)];
            assert!(check(history(prolong(90, 150)), Home::Server).is_ok(), "{nothing:?}");
            let in_file = check(history(prolong(90, 150)), Home::File);
            assert_eq!(in_file.is_ok(), nothing.kind == Kind::Get, "{nothing:?}");
            assert!(
                check(history(prolong(90, 95)), Home::Server).is_err(),
                "acknowledged before: {nothing:?}"
            );
            assert!(check(history(prolong(100, 150)), Home::Server).is_err(), "it was expired: {nothing:?}");
        }
        let deleted = [
            put_until(7, 100, 10, 20),
            prolong(90, 150),
            completed(Kind::Delete, 0, 100, 110),
            get(7, 160, 170),
        ];
        assert!(check(deleted, Home::Server).is_err());
    }

    #[test]
    fn missing_live_value_is_refused() {
        assert_refused(vec![put_until(7, 100, 10, 20), get(NONE, 90, 99)]);
        assert_refused(vec![put_until(7, 100, 10, 20), completed(Kind::Exists, 0, 90, 99)]);
        let expire = Op { ends: (100, 100), ..completed(Kind::Expire, 0, 30, 40) };
        assert_refused(vec![put(7, 10, 20), expire]);
    }

    #[test]
    fn wrong_expiry_is_refused() {
        assert_refused(vec![put_until(7, 100, 10, 20), completed(Kind::ExpireTime, 90, 30, 40)]);
        let left = |result| Op { read: 7, result, ..op(Kind::GetTtl, 30, 40) };
        assert!(check(vec![put_until(7, 100, 10, 20), left(65)], Home::File).is_ok());
        assert_refused(vec![put_until(7, 100, 10, 20), left(71)]);
        assert_refused(vec![put_until(7, 100, 10, 20), left(59)]);
        assert_refused(vec![put_until(7, 100, 10, 20), left(-1)]);
        // A change of the value that removes the TTL.
        let sum = Op { read: 1, write: 8, ..op(Kind::Increment, 30, 40) };
        assert_refused(vec![put_until(7, 100, 10, 20), sum, get(8, 120, 130)]);
    }
}
