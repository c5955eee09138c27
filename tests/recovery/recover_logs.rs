//! Recovery of files with a damaged WAL or rollback journal: commits that are lost with it are
//! reported, and the files that a crash leaves are not damage.

use std::fs;

use crate::common::recovered::{Done, Rows, recover, rows_of};
use crate::common::{Scratch, python};
use kvstore::{CheckpointMode, Config, JournalMode, Store};

const PAGE: usize = 512;
/// Length of a frame of the WAL, including its header.
const FRAME: usize = 24 + PAGE;
const WAL_HEADER: usize = 32;
/// Length of a record of the journal.
const RECORD: usize = PAGE + 8;

#[track_caller]
fn is_whole(done: &Done, all: &Rows) {
    assert_eq!(done.told, Vec::<String>::new());
    assert!(done.recovered.is_complete() && done.rows == *all, "{} of {} rows", done.rows.len(), all.len());
}

#[track_caller]
fn assert_reports(done: &Done, what: &str) {
    assert!(done.told.iter().any(|line| line.contains(what)), "{:?}", done.told);
    assert!(!done.recovered.is_complete());
}

// ---- the WAL -------------------------------------------------------------------------------------

/// A store with commits in its WAL, as a crash leaves it. Contains the state after each commit, and
/// where its frames end.
struct Logged {
    scratch: Scratch,
    file: Vec<u8>,
    wal: Vec<u8>,
    states: Vec<(usize, Rows)>,
}

impl Logged {
    fn new() -> Logged {
        let store_of = Scratch::new();
        let store = store_of.open_with(&Config::new().page_size(PAGE as u32));
        // Frames of an earlier round of the WAL, which is longer than the current one.
        (0..200).for_each(|n| store.put(format!("key {n:03}"), vec![1; 60]).unwrap());
        store.checkpoint(CheckpointMode::Restart).unwrap();
        let mut states = vec![(0, rows_of(&store))];
        for round in 0..12_u8 {
            store
                .transaction(|tx| {
                    (0..5)
                        .try_for_each(|n| tx.put(format!("key {:03}", n * 37 + round as usize), [round; 70]))
                })
                .unwrap();
            states.push((frames_of_this_round(&fs::read(store_of.wal()).unwrap()), rows_of(&store)));
        }
        let logged = Logged {
            scratch: Scratch::new(),
            file: fs::read(store_of.path()).unwrap(),
            wal: fs::read(store_of.wal()).unwrap(),
            states,
        };
        assert!(
            logged.wal.len() > WAL_HEADER + (logged.frames() + 1) * FRAME,
            "no frame of an earlier round"
        );
        logged
    }

    fn frames(&self) -> usize {
        self.states.last().unwrap().0
    }

    fn rows(&self) -> &Rows {
        &self.states.last().unwrap().1
    }

    /// Rows that were committed in the first frames.
    fn before(&self, frames: usize) -> &Rows {
        &self.states.iter().rfind(|(end, _)| *end <= frames).unwrap().1
    }

    #[track_caller]
    fn with(&self, damage: impl FnOnce(&mut Vec<u8>)) -> Done {
        let mut wal = self.wal.clone();
        damage(&mut wal);
        fs::write(self.scratch.path(), &self.file).unwrap();
        fs::write(self.scratch.wal(), wal).unwrap();
        recover(&self.scratch.path()).unwrap()
    }
}

fn frames_of_this_round(wal: &[u8]) -> usize {
    wal[WAL_HEADER..].chunks_exact(FRAME).take_while(|frame| frame[8..16] == wal[16..24]).count()
}

fn frame(n: usize) -> std::ops::Range<usize> {
    WAL_HEADER + n * FRAME..WAL_HEADER + (n + 1) * FRAME
}

#[test]
fn damaged_wal_frame_is_reported_with_lost_commits() {
    let logged = Logged::new();
    for n in (0..logged.frames() - 1).step_by(2) {
        for (what, damage) in [
            ("zeroed", (|frame: &mut [u8]| frame.fill(0)) as fn(&mut [u8])),
            ("a bit of the page", |frame| frame[24 + 300] ^= 1),
            ("the number of the page", |frame| frame[3] ^= 1),
        ] {
            let done = logged.with(|wal| damage(&mut wal[frame(n)]));
            assert_reports(&done, &format!("the -wal is damaged after frame {n}"));
            assert!(done.rows == *logged.before(n), "frame {n}, {what}");
        }
    }
}

#[test]
fn damaged_frame_salt_or_checksum_loses_no_data() {
    let logged = Logged::new();
    for n in (0..logged.frames() - 1).step_by(2) {
        is_whole(&logged.with(|wal| wal[frame(n)][9] ^= 4), logged.rows());
        is_whole(&logged.with(|wal| wal[frame(n)][20] ^= 4), logged.rows());
    }
    is_whole(&logged.with(|wal| wal[frame(logged.frames() - 1)][9] ^= 4), logged.rows());
    assert_reports(&logged.with(|wal| wal[frame(logged.frames() - 1)][20] ^= 4), "the -wal is damaged");
}

#[test]
fn damaged_wal_header_is_reported_unless_only_checksum() {
    let logged = Logged::new();
    for at in 0..24 {
        let done = logged.with(|wal| wal[at] ^= 1);
        // The checkpoint number and the salts are needed for the checksums only.
        assert_reports(&done, "the header of the -wal is damaged");
        assert!(done.rows == logged.states[0].1, "byte {at}");
    }
    is_whole(&logged.with(|wal| wal[27] ^= 1), logged.rows());
    assert_reports(&logged.with(|wal| wal[..WAL_HEADER].fill(0)), "the header of the -wal is damaged");
    assert_reports(&logged.with(|wal| wal.truncate(20)), "the header of the -wal is damaged");
}

#[test]
fn wal_left_by_crash_is_not_damage() {
    let logged = Logged::new();
    let frames = logged.frames();
    // Frames of an earlier round after the last commit.
    is_whole(&logged.with(|_| ()), logged.rows());
    // Frames are overwritten with zeros, or cut off.
    is_whole(&logged.with(|wal| wal[frame(frames).start..].fill(0)), logged.rows());
    is_whole(&logged.with(|wal| wal.truncate(frame(frames).start)), logged.rows());
    is_whole(&logged.with(|wal| wal.fill(0)), &logged.states[0].1);
    is_whole(&logged.with(Vec::clear), &logged.states[0].1);
    // An unfinished transaction: frames without a commit, of which the last is torn.
    let (start, end) = (logged.states[logged.states.len() - 2].0, frames);
    assert!(end - start > 2);
    for cut in [0, 10, 24, 100] {
        let done = logged.with(|wal| wal.truncate(frame(end - 2).start + cut));
        is_whole(&done, logged.before(start));
    }
    let done = logged.with(|wal| {
        wal.truncate(frame(end - 2).end);
        wal[frame(end - 2)][200..].fill(0);
    });
    is_whole(&done, logged.before(start));
}

// ---- the rollback journal ------------------------------------------------------------------------

/// A store with a hot journal: a process died in a transaction after it had written to the file.
struct Hot {
    scratch: Scratch,
    file: Vec<u8>,
    journal: Vec<u8>,
    rows: Rows,
}

impl Hot {
    fn new(sync: &str) -> Hot {
        let scratch = Scratch::new();
        let config = Config::new().page_size(PAGE as u32).journal_mode(JournalMode::Delete);
        let store = scratch.open_with(&config);
        (0..400).for_each(|n| store.put(format!("key {n:03}"), vec![n as u8; n % 60]).unwrap());
        let rows = rows_of(&store);
        store.close().unwrap();
        python(
            &scratch.path(),
            &format!(
                "con.execute('pragma synchronous = {sync}')
con.execute('pragma cache_size = 5')
con.execute('begin immediate')
con.execute('update \"data:default\" set value = x\\'00\\' where value is not null')
os._exit(0)"
            ),
        );
        let journal = fs::read(scratch.file("store.db-journal")).unwrap();
        let file = fs::read(scratch.path()).unwrap();
        Hot { scratch, file, journal, rows }
    }

    #[track_caller]
    fn with(&self, damage: impl FnOnce(&mut Vec<u8>)) -> Done {
        let mut journal = self.journal.clone();
        damage(&mut journal);
        fs::write(self.scratch.path(), &self.file).unwrap();
        fs::write(self.scratch.file("store.db-journal"), journal).unwrap();
        recover(&self.scratch.path()).unwrap()
    }

    /// Returns where the parts of the journal begin, and how many records each has.
    fn parts(&self) -> Vec<(usize, usize)> {
        let number = |at: usize| u32::from_be_bytes(self.journal[at..at + 4].try_into().unwrap()) as usize;
        let (sector, mut parts, mut at) = (number(20), Vec::new(), 0);
        while at + 28 <= self.journal.len() && self.journal[at..].starts_with(b"\xd9\xd5\x05\xf9") {
            let records = number(at + 8).min((self.journal.len() - at - sector) / RECORD);
            parts.push((at + sector, records));
            at = (at + sector + records * RECORD).next_multiple_of(sector);
        }
        parts
    }
}

#[test]
fn damaged_journal_record_loses_only_its_page() {
    for sync in ["full", "off"] {
        let hot = Hot::new(sync);
        is_whole(&hot.with(|_| ()), &hot.rows);
        let parts = hot.parts();
        let each = parts.iter().flat_map(|(at, count)| (0..*count).map(move |n| at + n * RECORD));
        let records: Vec<usize> = each.collect();
        assert!(records.len() > 10 && parts.iter().any(|(_, count)| *count > 1));
        // If the number of records is unknown, the last one may be torn.
        let kept = if sync == "off" { 1 } else { 0 };
        for record in records.iter().rev().skip(kept).step_by(3) {
            let done = hot.with(|journal| journal[record + 4 + PAGE - 200] ^= 1);
            assert_reports(&done, "the -journal is damaged");
            assert!(
                done.rows.iter().all(|(key, row)| hot.rows.get(key) == Some(row)),
                "{sync}, record at {record}"
            );
            assert!(done.rows.len() + 40 > hot.rows.len(), "{} rows", done.rows.len());
            assert_reports(
                &hot.with(|journal| journal[*record..record + RECORD].fill(0)),
                "the -journal is damaged",
            );
        }
    }
}

#[test]
fn truncated_journal_or_damaged_header_is_reported() {
    let hot = Hot::new("full");
    let parts = hot.parts();
    let (last, count) = *parts.iter().rfind(|(_, count)| *count > 0).unwrap();
    // At the end of a part, nothing shows that another part followed.
    for keep in [20, 28, 300, 512 + 100, parts[3].0, parts[4].0 + 100, last + count * RECORD - 1] {
        assert_reports(&hot.with(|journal| journal.truncate(keep)), "-journal is damaged");
    }
    for at in [0, 3, 7, 18, 22, 26] {
        assert_reports(&hot.with(|journal| journal[at] ^= 1), "-journal");
    }
    // The checksums of the records show where they begin and how many there are.
    let done = hot.with(|journal| journal[13] ^= 1);
    is_whole(&done, &hot.rows);
    let done = hot.with(|journal| journal[8..12].fill(0));
    assert!(done.rows.iter().all(|(key, row)| hot.rows.get(key) == Some(row)));
    // A later part.
    if let Some((second, _)) = parts.get(1).filter(|(_, count)| *count > 1) {
        let done = hot.with(|journal| journal[second - 512] ^= 1);
        assert!(done.rows == hot.rows || !done.recovered.is_complete());
    }
}

#[test]
fn ended_or_unsynced_journal_is_not_damage() {
    let hot = Hot::new("full");
    let store = Scratch::new();
    let all = {
        let store = store.open_with(&Config::new().page_size(PAGE as u32).journal_mode(JournalMode::Delete));
        (0..400).for_each(|n| store.put(format!("key {n:03}"), vec![n as u8; n % 60]).unwrap());
        rows_of(&store)
    };
    let beside = store.file("store.db-journal");
    let recovered = |journal: &[u8]| {
        fs::write(&beside, journal).unwrap();
        recover(&store.path()).unwrap()
    };
    // `journal_mode = persist` ends a transaction with zeros.
    let mut ended = hot.journal.clone();
    ended[..28].fill(0);
    is_whole(&recovered(&ended), &all);
    is_whole(&recovered(&[]), &all);
    is_whole(&recovered(&[0; 2000]), &all);
    // A crash before the sync: the file is unchanged, and the header states no records yet.
    fs::remove_file(&beside).unwrap();
    let program = "con.execute('begin immediate')
con.execute('update \"data:default\" set value = x\\'00\\' where value is not null')
os._exit(0)";
    python(&store.path(), program);
    let journal = fs::read(&beside).unwrap();
    assert!(journal.len() > 1000 && journal[8..12] == [0; 4]);
    is_whole(&recovered(&journal), &all);
    for cut in [512, 700, 1500, journal.len() - 3] {
        is_whole(&recovered(&journal[..cut]), &all);
    }
    drop(Store::open(store.path()).unwrap());
}

// ---- pages of which a part belongs to another page ---------------------------------------------

#[test]
fn reserved_bytes_per_page_are_detected_without_page_1() {
    for (size, reserved) in [(512, 32), (1024, 8), (4096, 200)] {
        let scratch = Scratch::new();
        let program = format!(
            "con.execute('pragma page_size = {size}')\ncon.execute('pragma auto_vacuum = 2')\ncon.execute('vacuum')"
        );
        python(&scratch.path(), &program);
        let mut empty = fs::read(scratch.path()).unwrap();
        empty[20] = reserved;
        empty[105..107].copy_from_slice(&((size - usize::from(reserved)) as u16).to_be_bytes());
        fs::write(scratch.path(), empty).unwrap();
        let store = scratch.open_with(&Config::new().journal_mode(JournalMode::Delete));
        (0..300).for_each(|n: usize| store.put(format!("key {n:03}"), vec![n as u8; n * 37 % 3000]).unwrap());
        let all = rows_of(&store);
        store.close().unwrap();
        let bytes = fs::read(scratch.path()).unwrap();
        assert_eq!(bytes[20], reserved);
        is_whole(&recover(&scratch.path()).unwrap(), &all);
        for wrong in [0, 1, reserved ^ 64] {
            let mut damaged = bytes.clone();
            damaged[20] = wrong;
            fs::write(scratch.path(), &damaged).unwrap();
            assert_eq!(recover(&scratch.path()).unwrap().rows, all, "{size}: {wrong} for {reserved}");
        }
        let mut damaged = bytes;
        damaged[..size].fill(0);
        fs::write(scratch.path(), &damaged).unwrap();
        let done = recover(&scratch.path()).unwrap();
        assert_reports(&done, "the list of tables");
        let values =
            |rows: &Rows| rows.iter().map(|((_, key), row)| (key.clone(), row.clone())).collect::<Vec<_>>();
        assert!(values(&done.rows) == values(&all), "{size}: {} of {} rows", done.rows.len(), all.len());
    }
}
