//! Every kind of call on a store on a server, while a proxy cuts, halves or delays the connection at
//! one of its messages, or the backend process is terminated.
//!
//! A call is done once; or it fails and has changed nothing; or it reports an unknown outcome, and
//! is done once or not at all. The scenario (`scenario.rs`) first runs on a store in memory,
//! which gives the expected answer of each call and the expected content after it. Then it runs
//! through the proxy many times. Each run harms one message of each call: the first run the first
//! message, the next run the second. After each call, a handle with a connection of its own reads
//! the whole store.
//!
//! `KVSTORE_CONNECTION_LOSS=all` harms every message; without it a sample, which differs between the kinds of
//! harm.

mod harm;
mod scenario;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::proxy::{Proxy, Way};
use crate::common::{TestClock, on_a_server};
use harm::{Harm, HarmOnce, Rule};
use kvstore::{Config, ErrorKind, Hint, Store};
use scenario::{Around, May, NOW, STEPS, State, state_of};

/// Numbers of the messages that are harmed, one per run. Messages beyond the first 20 occur only in
/// transactions and copies, and are alike.
fn numbers(sort: usize, all: bool) -> Vec<usize> {
    match all {
        true => (0..20).chain((20..60).step_by(4)).collect(),
        false => vec![sort * 5 % 14],
    }
}

/// Answers of the scenario without a fault, and the content before it and after each call.
struct Expected {
    answers: Vec<String>,
    states: Vec<State>,
}

fn expected() -> Expected {
    let (store, folder) = (Store::open_in_memory(&Config::new()).unwrap(), tempfile::tempdir().unwrap());
    let around = Around { folder: folder.path().to_path_buf(), clock: TestClock::at(NOW) };
    let clock = around.clock.clone();
    store.set_clock(move || clock.now());
    let mut expected = Expected { answers: Vec::new(), states: vec![state_of(&store)] };
    for step in STEPS {
        let answer = (step.call)(&store, &around).unwrap_or_else(|e| panic!("{}: {e}", step.name));
        expected.answers.push(answer);
        expected.states.push(state_of(&store));
    }
    expected
}

/// Outcome of a call of which a message was harmed.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Outcome {
    #[default]
    Done,
    Failed,
    Unknown,
}

#[derive(Default)]
struct Tally(Mutex<BTreeMap<(&'static str, Outcome), usize>>);

/// Runs the scenario with one harmed message in each call that has enough messages. Returns the
/// number of such calls.
fn run(rule: Rule, expected: &Expected, tally: &Tally) -> usize {
    let url = on_a_server::new_url();
    let proxy = Proxy::before(on_a_server::server().folder(), HarmOnce::default());
    on_a_server::opened(&url);
    // A call may wait for a lock held by a lost statement.
    let config = Config::new().busy_timeout(Duration::from_secs(20));
    let store = Store::open_with(proxy.url(&url), &config).unwrap();
    let direct = Store::open_with(&url, &config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let around = Around { folder: folder.path().to_path_buf(), clock: TestClock::at(NOW) };
    around.clock.drive(&store);
    around.clock.drive(&direct);
    let mut harmed_calls = 0;
    for (number, step) in STEPS.iter().enumerate() {
        let said = || format!("{} with {rule:?}", step.name);
        proxy.rules().set(rule);
        let answer = (step.call)(&store, &around);
        let was_harmed = proxy.rules().lift();
        harmed_calls += usize::from(was_harmed);
        let outcome = match &answer {
            Ok(_) => Outcome::Done,
            Err(e) if e.to_string().contains("unknown") => Outcome::Unknown,
            Err(_) => Outcome::Failed,
        };
        if was_harmed {
            *tally.0.lock().unwrap().entry((step.name, outcome)).or_default() += 1;
        }
        let (before, after) = (&expected.states[number], &expected.states[number + 1]);
        match answer {
            Ok(answer) => {
                let tells_less = was_harmed && step.may == May::RepeatAndTellLess;
                assert!(answer == expected.answers[number] || tells_less, "{}: {answer}", said());
                // Compared only after a harmed call. This also shows the effects of the calls
                // before it.
                assert!(!was_harmed || state_of(&direct) == *after, "{}: was not done, or twice", said());
                if was_harmed && rule.harm == Harm::Terminate {
                    // The server's message about the ended backend may still be on its way. The next
                    // write would fail with it; this read is repeated.
                    store.family_names().unwrap_or_else(|e| panic!("after {}: {e}", said()));
                }
                continue;
            }
            Err(e) => {
                // A backup of a store on a server is a copy.
                assert!(
                    !matches!(e.hint(), Some(Hint::RollBack | Hint::RunTransactionAgain))
                        || ["transaction", "copy", "backup"].iter().any(|part| step.name.contains(part)),
                    "{}: {e}",
                    said()
                );
                assert!(was_harmed && rule.harm != Harm::Delay, "{}: {e}", said());
                assert!(step.may == May::Fail, "{}: may be run again, and is not: {e}", said());
                assert!(
                    matches!(e.kind(), ErrorKind::Io | ErrorKind::CantOpen),
                    "{}: {e} ({:?})",
                    said(),
                    e.kind()
                );
            }
        }
        // The next call ends whatever the broken connection still has in progress.
        store.family_names().unwrap_or_else(|e| panic!("after {}: {e}", said()));
        let found = state_of(&direct);
        assert!(found == *before || outcome == Outcome::Unknown, "{}: failed, and changed something", said());
        // A copy has a connection of its own: the server must learn that the broken one is closed,
        // before the call is repeated.
        proxy.notify_server();
        if found != *after {
            assert!(found == *before, "{}: was done by half, or twice", said());
            let answer = (step.call)(&store, &around).unwrap_or_else(|e| panic!("{} again: {e}", said()));
            assert_eq!(answer, expected.answers[number], "{} again", said());
            assert!(state_of(&direct) == *after, "{} again: was not done", said());
        } else if before == after {
            let answer = (step.call)(&store, &around).unwrap_or_else(|e| panic!("{} again: {e}", said()));
            assert_eq!(answer, expected.answers[number], "{} again", said());
        }
    }
    direct.integrity_check().unwrap();
    store.close().unwrap();
    harmed_calls
}

#[test]
fn call_is_done_once_or_reported_unknown_if_message_is_lost() {
    let (all, expected, tally) =
        (std::env::var_os("KVSTORE_CONNECTION_LOSS").is_some(), expected(), Tally::default());
    let mut sorts = Vec::new();
    for harm in [Harm::Before, Harm::Half, Harm::After, Harm::Delay, Harm::Terminate] {
        for way in [Way::ToServer, Way::ToClient] {
            for tells_server in [true, false] {
                if harm.cuts() || tells_server {
                    sorts.push(Rule { way, harm, number: 0, tells_server });
                }
            }
        }
    }
    let (next, harmed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((at, sort)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, sorts.get(at)?)))
                {
                    for number in numbers(at, all) {
                        let calls = run(Rule { number, ..*sort }, &expected, &tally);
                        harmed.fetch_add(calls, Ordering::Relaxed);
                        if calls == 0 {
                            break;
                        }
                    }
                }
            });
        }
    });
    let tally = tally.0.into_inner().unwrap();
    let of = |outcome| {
        tally.iter().filter(|((_, found), _)| *found == outcome).map(|(_, count)| count).sum::<usize>()
    };
    println!(
        "{} harmed calls: {} done, {} failed, {} unknown",
        harmed.into_inner(),
        of(Outcome::Done),
        of(Outcome::Failed),
        of(Outcome::Unknown)
    );
    println!("{tally:?}");
    assert!(of(Outcome::Done) > 100 && of(Outcome::Failed) > 10 && of(Outcome::Unknown) > 5);
}
