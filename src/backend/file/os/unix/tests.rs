//! Tests of the modules for Unix. `two_sqlites.rs` and `forks.rs` of `tests/multiprocess` test what
//! they do together.

use std::ffi::c_int;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rusqlite::ffi;

use super::*;
use crate::atomic::halves::AtomicU64;
use crate::backend::file::os::wal_write_buffer::Frames;
use crate::backend::file::os::*;

/// Creates a file of four bytes in a new directory, and sets up the library, so that opening the
/// file uses the replaced system calls.
fn scratch() -> (tempfile::TempDir, PathBuf) {
    set_up().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    fs::write(&path, "1234").unwrap();
    (folder, path)
}

fn file(path: &Path) -> OsFile {
    OsFile::open(path, true, false).unwrap()
}

/// Returns the number of descriptors of this process that are open on a file.
fn descriptors_on(path: &Path) -> usize {
    let wanted = fs::metadata(path).map(|found| (found.dev(), found.ino())).unwrap();
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok())
        .filter(|found| (found.dev(), found.ino()) == wanted)
        .count()
}

/// Takes a lock of the process on a separate descriptor, like another copy of SQLite.
fn posix_lock(file: &fs::File) -> bool {
    // SAFETY: the struct consists of integers, and the file is open. The lock has the layout of
    // this `fcntl`, which is not the one that SQLite calls on 32-bit systems.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_RDLCK as _;
        lock.l_whence = libc::SEEK_SET as _;
        (lock.l_start, lock.l_len) = (100, 1);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) == 0
    }
}

fn is_locked(file: &OsFile, start: i64) -> bool {
    lock::is_locked(original_calls::before().unwrap(), file.fd(), start, 1)
}

fn set(file: &OsFile, kind: c_int, start: i64) -> bool {
    lock::set(original_calls::before().unwrap(), file.fd(), kind, start, 1)
}

#[test]
fn locks_of_two_files_in_one_process_conflict() {
    let (_folder, path) = scratch();
    let (first, second) = (file(&path), file(&path));
    assert!(descriptors::owns_its_locks(first.fd()) && descriptors::owns_its_locks(second.fd()));
    assert!(set(&first, libc::F_WRLCK as c_int, 7));
    assert!(is_locked(&second, 7) && !is_locked(&first, 7));
    assert!(!set(&second, libc::F_RDLCK as c_int, 7));
    drop(first); // which releases its locks
    assert!(set(&second, libc::F_WRLCK as c_int, 7));
}

#[test]
fn closed_file_is_parked_and_descriptor_reused_by_next_open() {
    let (_folder, path) = scratch();
    let first = file(&path);
    let number = first.fd();
    drop(first);
    assert_eq!(descriptors_on(&path), 1);
    assert_eq!(file(&path).fd(), number);
    // The descriptor is not reused for an open for reading only, because its access differs.
    let reading = OsFile::open(&path, false, false).unwrap();
    assert_ne!(reading.fd(), number);
}

#[test]
fn close_keeps_locks_of_other_sqlite_in_same_process() {
    let (_folder, path) = scratch();
    let stock = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (first, witness) = (file(&path), file(&path));
    assert!(posix_lock(&stock));
    assert!(is_locked(&witness, 100), "each side sees the other's locks");
    drop(first);
    drop(file(&path));
    assert!(is_locked(&witness, 100));
    // The reverse holds, too: when the other copy closes its file, all locks of the process are
    // dropped, but not those of the library.
    assert!(set(&witness, libc::F_WRLCK as c_int, 7));
    drop(stock);
    assert!(!is_locked(&witness, 100));
    assert!(is_locked(&file(&path), 7));
}

#[test]
fn wal_and_unnamed_files_are_not_parked() {
    let (folder, path) = scratch();
    let wal = folder.path().join("a.db-wal");
    fs::write(&wal, "1234").unwrap();
    drop(file(&wal));
    assert_eq!(descriptors_on(&wal), 0);

    let gone = file(&path);
    let keep = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    drop(gone);
    assert_eq!(keep.metadata().unwrap().nlink(), 0);
    let this = format!("/proc/self/fd/{}", keep.as_raw_fd());
    assert_eq!(descriptors_on(Path::new(&this)), 1, "only the one that looks");
}

#[test]
fn deleted_parked_file_is_closed_by_later_open() {
    let (folder, path) = scratch();
    drop(file(&path));
    let keep = fs::File::open(&path).unwrap();
    let this = format!("/proc/self/fd/{}", keep.as_raw_fd());
    assert_eq!(descriptors_on(Path::new(&this)), 2);
    fs::remove_file(&path).unwrap();
    let other = folder.path().join("other.db");
    fs::write(&other, "1").unwrap();
    let closed = (0..1000).any(|_| {
        drop(file(&other));
        descriptors_on(Path::new(&this)) == 1
    });
    assert!(closed);
}

#[test]
fn open_after_replacement_reads_new_file_not_parked_one() {
    let (folder, path) = scratch();
    drop(file(&path));
    let other = folder.path().join("other");
    fs::write(&other, "new").unwrap();
    fs::rename(&other, &path).unwrap();
    let mut content = [0; 8];
    let read = file(&path).read_start(&mut content).unwrap();
    assert_eq!(content.get(..read), Some(&b"new"[..]));
}

#[test]
fn number_of_parked_files_is_bounded() {
    let (folder, _) = scratch();
    let paths: Vec<_> = (0..300).map(|n| folder.path().join(format!("{n}.db"))).collect();
    for path in &paths {
        fs::write(path, "1").unwrap();
        drop(file(path));
    }
    let open: usize = paths.iter().map(|path| descriptors_on(path)).sum();
    assert!(open <= 128, "{open}");
}

#[test]
fn file_falls_back_to_process_locks_without_ofd_locks() {
    let (_folder, path) = scratch();
    lock::refuse_in_this_thread(true);
    let first = file(&path);
    lock::refuse_in_this_thread(false);
    assert!(!descriptors::owns_its_locks(first.fd()));
    // A descriptor that is opened in addition to SQLite's is not closed, because that would drop
    // the locks of the process.
    let number = first.fd();
    drop(first);
    let again = file(&path);
    assert_eq!(again.fd(), number, "taken over by the next open, and still with such locks");
    assert!(!descriptors::owns_its_locks(number));
    // SQLite's own close closes the descriptor, unless that would drop the locks of another
    // connection.
    lock::refuse_in_this_thread(true);
    let other = OsFile::open(&path, false, false).unwrap();
    lock::refuse_in_this_thread(false);
    std::mem::forget(again);
    assert_eq!(parked_files::close(number), 0);
    assert_eq!(descriptors_on(&path), 2);
    let last = other.fd();
    std::mem::forget(other);
    assert_eq!(parked_files::close(last), 0);
    assert_eq!(descriptors_on(&path), 0);
}

#[test]
fn each_file_with_ofd_locks_reports_unique_device_to_sqlite() {
    let (_folder, path) = scratch();
    let file = file(&path);
    let real = fs::metadata(&path).unwrap().dev() as super::original_calls::Device;
    let (first, second) = (descriptors::device_of(file.fd(), real), descriptors::device_of(file.fd(), real));
    assert!(first != real && second != real && first != second);
    lock::refuse_in_this_thread(true);
    let shared = super::tests::file(&path);
    lock::refuse_in_this_thread(false);
    if !descriptors::owns_its_locks(shared.fd()) {
        assert_eq!(descriptors::device_of(shared.fd(), real), descriptors::device_of_this_process(real));
    }
}

#[test]
fn process_lock_is_shared_in_process_and_seen_outside() {
    let (_folder, path) = scratch();
    let (first, second) = (Presence::on(&path).unwrap(), Presence::on(&path).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    assert!(first.is_alone());
    // Another process has an open file description of its own.
    let other = fs::File::open(&path).unwrap();
    let before = original_calls::before().unwrap();
    assert!(lock::set(before, other.as_raw_fd(), libc::F_RDLCK as c_int, (1 << 30) + 512, 1));
    assert!(!first.is_alone());
    drop(other);
    assert!(first.is_alone());
}

/// Runs `f` in a forked child. Returns `true` if `f` did.
fn in_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `f`, which must not depend on other threads, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            libc::_exit(if f() { 0 } else { 1 });
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        status == 0
    }
}

#[test]
fn forked_child_cannot_use_inherited_files_or_descriptors() {
    let (_folder, path) = scratch();
    let (open, parked) = (file(&path), file(&path));
    let number = parked.fd();
    drop(parked);
    assert!(set(&open, libc::F_WRLCK as c_int, 7));
    assert!(in_child(|| {
        let mut byte = [0; 1];
        // SAFETY: this reads flags of descriptors by their numbers.
        let (is_parked_open, is_taken) =
            unsafe { (libc::fcntl(number, libc::F_GETFD) >= 0, libc::fcntl(open.fd(), libc::F_GETFD) >= 0) };
        open.read_start(&mut byte).is_err() && is_taken && !is_parked_open
    }));
    // The exit of the child has released no lock of this process.
    assert!(is_locked(&file(&path), 7));
}

#[cfg(feature = "remote")]
#[test]
fn forked_child_cannot_use_sockets_and_parent_still_can() {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    super::watch_forks().unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    let mortal = Mortal::new(&near).unwrap();
    assert!(in_child(|| {
        // SAFETY: this reads flags of a descriptor by its number.
        let is_taken = unsafe { libc::fcntl(near.as_raw_fd(), libc::F_GETFD) >= 0 };
        (&near).write(b"x").is_err() && is_taken
    }));
    (&near).write_all(b"y").unwrap();
    let mut byte = [0; 1];
    far.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"y");
    // A later file with the same number is not mistaken for the socket.
    let number = near.as_raw_fd();
    drop(near);
    let (next, _other) = UnixStream::pair().unwrap();
    let nexts = (next.as_raw_fd() == number).then(|| Mortal::new(&next).unwrap());
    drop(mortal);
    assert!(nexts.is_none() || in_child(|| (&next).write(b"x").is_err()));
}

#[test]
fn forked_child_sees_parent_locks_and_takes_own_locks() {
    let (_folder, path) = scratch();
    let open = file(&path);
    assert!(set(&open, libc::F_WRLCK as c_int, 7));
    assert!(in_child(|| {
        let own = file(&path);
        is_locked(&own, 7) && !set(&own, libc::F_RDLCK as c_int, 7) && set(&own, libc::F_WRLCK as c_int, 8)
    }));
}

#[test]
fn forked_child_never_finds_split_64_bit_atomic_locked() {
    super::watch_forks().unwrap();
    let (number, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    number.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let all = (0..200).all(|_| in_child(|| number.fetch_add(1, Ordering::Relaxed) < u64::MAX));
        done.store(true, Ordering::Relaxed);
        assert!(all);
    });
}

#[test]
fn fork_ignores_lock_of_64_bit_atomic_and_child_can_use_it() {
    super::watch_forks().unwrap();
    let number = &AtomicU64::new(7);
    let (inside, is_inside) = channel();
    let (forked, has_forked) = channel::<()>();
    std::thread::scope(|scope| {
        let staying = scope.spawn(move || {
            let mut released = false;
            number.stay_inside(|| {
                inside.send(()).unwrap();
                // Stays inside, like a thread that waits for a lock of the program while a fork
                // handler of the program holds that lock.
                released = has_forked.recv_timeout(Duration::from_secs(10)).is_ok();
            });
            released
        });
        is_inside.recv().unwrap();
        let went_on = in_child(|| number.fetch_add(1, Ordering::Relaxed) == 7);
        let _ = forked.send(());
        assert!(staying.join().unwrap(), "the fork waited");
        assert!(went_on);
    });
    assert_eq!(number.load(Ordering::Relaxed), 7);
}

/// Two copies of a WAL: `plain` as SQLite itself would write it, and `kept` as written through
/// [`Frames`]. `calls` is the number of writes of `kept`; while `full` is true, writes fail.
#[derive(Default)]
struct TwoLogs {
    plain: Vec<u8>,
    kept: Vec<u8>,
    calls: usize,
    full: bool,
}

fn put(file: &mut Vec<u8>, bytes: &[u8], at: i64) {
    let at = usize::try_from(at).unwrap();
    file.resize(file.len().max(at + bytes.len()), 0);
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

impl TwoLogs {
    fn write(&mut self, frames: &mut Frames, bytes: &[u8], at: i64) -> (c_int, bool) {
        put(&mut self.plain, bytes, at);
        let (kept, calls, full) = (&mut self.kept, &mut self.calls, self.full);
        frames.write(bytes, at, &mut |bytes: &[u8], at| {
            *calls += 1;
            if full {
                return ffi::SQLITE_FULL;
            }
            put(kept, bytes, at);
            ffi::SQLITE_OK
        })
    }

    fn flush(&mut self, frames: &mut Frames) {
        assert_eq!(
            frames.flush(&mut |bytes: &[u8], at| {
                self.calls += 1;
                put(&mut self.kept, bytes, at);
                ffi::SQLITE_OK
            }),
            ffi::SQLITE_OK
        );
    }

    fn frame(&mut self, frames: &mut Frames, number: i64, mark: u8, commits: bool) -> (c_int, bool) {
        let at = 32 + number * (24 + PAGE);
        let mut header = [mark; 24];
        header[4..8].copy_from_slice(&u32::from(commits).to_be_bytes());
        let (code, whole) = self.write(frames, &header, at);
        assert!(!whole);
        if code != ffi::SQLITE_OK {
            return (code, false);
        }
        self.write(frames, &[mark; PAGE as usize], at + 24)
    }
}

const PAGE: i64 = 512;

#[test]
fn commit_frames_are_written_in_one_call_before_it_returns() {
    let (mut logs, mut frames) = (TwoLogs::default(), Frames::default());
    assert_eq!(logs.write(&mut frames, &[9; 32], 0), (ffi::SQLITE_OK, false));
    assert_eq!((logs.calls, &logs.kept), (1, &logs.plain));
    for number in 0..3 {
        assert_eq!(logs.frame(&mut frames, number, 1, false), (ffi::SQLITE_OK, false));
        assert_eq!(logs.calls, 1);
    }
    assert_eq!(logs.frame(&mut frames, 3, 1, true), (ffi::SQLITE_OK, true));
    assert_eq!((logs.calls, &logs.kept), (2, &logs.plain));
    assert_eq!(frames.end(), 32 + 4 * (24 + PAGE));
}

#[test]
fn uncommitted_frames_flush_at_limit_and_drop_on_unlock() {
    let (mut logs, mut frames) = (TwoLogs::default(), Frames::default());
    for number in 0..1000 {
        assert_eq!(logs.frame(&mut frames, number, 1, false), (ffi::SQLITE_OK, false));
        assert!(logs.plain.len() - logs.kept.len() <= 64 * 1024);
    }
    let written = logs.kept.clone();
    frames.discard();
    logs.flush(&mut frames);
    assert_eq!(logs.kept, written);
}

#[test]
fn failed_commit_write_reports_full_and_keeps_earlier_frames() {
    let (mut logs, mut frames) = (TwoLogs::default(), Frames::default());
    assert_eq!(logs.frame(&mut frames, 0, 1, false), (ffi::SQLITE_OK, false));
    logs.full = true;
    assert_eq!(logs.frame(&mut frames, 1, 2, true), (ffi::SQLITE_FULL, false));
    assert!(logs.kept.is_empty());
    logs.full = false;
    logs.flush(&mut frames);
    assert_eq!(logs.kept, logs.plain[..logs.kept.len()]);
    assert_eq!(logs.kept.len(), usize::try_from(32 + 24 + PAGE).unwrap());
    // The second write of the commit frame succeeds.
    assert_eq!(logs.frame(&mut frames, 1, 3, true), (ffi::SQLITE_OK, true));
    assert_eq!(logs.kept, logs.plain);
}

#[test]
fn rewritten_headers_and_partial_frames_bypass_buffer() {
    let (mut logs, mut frames) = (TwoLogs::default(), Frames::default());
    for number in 0..4 {
        logs.frame(&mut frames, number, 1, false);
    }
    logs.flush(&mut frames); // as a read does
    for number in 0..4 {
        assert_eq!(logs.write(&mut frames, &[2; 24], 32 + number * (24 + PAGE)), (ffi::SQLITE_OK, false));
        assert_eq!(logs.kept, logs.plain);
    }
    // The page comes in two parts, with a sync between them.
    let at = 32 + 4 * (24 + PAGE);
    logs.write(&mut frames, &[0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3], at);
    logs.write(&mut frames, &[3; 100], at + 24);
    assert_eq!(logs.kept, logs.plain);
    logs.write(&mut frames, &[3; 412], at + 124);
    assert_eq!(logs.kept, logs.plain);
}

/// Returns the next pseudorandom number: SplitMix64 (Steele, Lea, Flood 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[test]
fn buffered_wal_equals_plain_wal_after_each_random_commit() {
    for seed in 0..500 {
        let (mut logs, mut frames, mut state) = (TwoLogs::default(), Frames::default(), seed);
        let mut number = 0;
        for _ in 0..60 {
            let mark = u8::try_from(random(&mut state) % 250 + 1).unwrap();
            match random(&mut state) % 12 {
                // A rollback to a savepoint.
                0 => number = i64::try_from(random(&mut state)).unwrap_or(0).rem_euclid(number + 1),
                1 => logs.flush(&mut frames),
                2 if number > 0 => {
                    let again = i64::try_from(random(&mut state) >> 1).unwrap() % number;
                    logs.write(&mut frames, &[mark; 24], 32 + again * (24 + PAGE));
                }
                3 if number > 0 => {
                    let again = i64::try_from(random(&mut state) >> 1).unwrap() % number;
                    logs.write(&mut frames, &[mark; PAGE as usize], 32 + again * (24 + PAGE) + 24);
                }
                4 => {
                    logs.write(&mut frames, &[mark; 32], 0);
                    number = 0;
                }
                5 => {
                    logs.frame(&mut frames, number, mark, true);
                    assert_eq!(logs.kept, logs.plain, "{seed}");
                    number += 1;
                }
                _ => {
                    logs.frame(&mut frames, number, mark, false);
                    number += 1;
                }
            }
        }
        logs.flush(&mut frames);
        assert_eq!(logs.kept, logs.plain, "{seed}");
    }
}

/// Opens a database through the library's VFS.
fn connection_to(path: &Path) -> rusqlite::Connection {
    set_up().unwrap();
    let flags = rusqlite::OpenFlags::default();
    rusqlite::Connection::open_with_flags_and_vfs(path, flags, vfs::name_as_str().unwrap()).unwrap()
}

/// Creates a database in WAL mode with `commits` commits, through the library's VFS.
fn database_with_wal(path: &Path, commits: u32) -> rusqlite::Connection {
    let conn = connection_to(path);
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t(x)")
        .unwrap();
    for n in 0..commits {
        conn.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
    }
    conn
}

#[test]
fn async_sync_completes_and_reports_completion() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = database_with_wal(&path, 1);
    assert!(vfs::is_over_the_systems(&conn));
    let mut several: Vec<_> =
        (0..100).filter_map(|_| HandedOver::begin(&conn, Opened::Main, &file(&path))).collect();
    assert!(several.iter_mut().all(|sync| sync.wait(&conn)));
    // A child neither waits for the syncs of its parent nor regards them as successful.
    if let Some(mut sync) = HandedOver::begin(&conn, Opened::Main, &file(&path)) {
        assert!(in_child(|| {
            crate::fork::begin_generation();
            sync.outcome(&conn) == Some(false)
        }));
        assert!(sync.wait(&conn));
    }
}

fn passive(conn: &Connection) -> (u32, u32) {
    let (log, done) = checkpoint(conn, ffi::SQLITE_CHECKPOINT_PASSIVE).unwrap();
    (log.unsigned_abs(), done.unsigned_abs())
}

/// Returns the page number and the salts of each of the first `count` frames in a WAL file.
fn frames_in(path: &Path, count: u32) -> Vec<(u32, Salts)> {
    let wal = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let salt = |at: usize| u32::from_ne_bytes(wal[at..at + 4].try_into().unwrap());
    let frame = 24 + word(8) as usize;
    (0..count as usize).map(|n| 32 + n * frame).map(|at| (word(at), [salt(at + 8), salt(at + 12)])).collect()
}

#[test]
fn backfill_counts_after_publication_and_only_for_same_wal() {
    let folder = tempfile::tempdir().unwrap();
    let conn = database_with_wal(&folder.path().join("a.db"), 3);
    let index = WalIndex::of(&conn).unwrap();
    let (salts, frames) = index.state().unwrap();
    assert!(frames > 0);
    assert_eq!((salts, index.written_back()), (index.salts(), 0));
    // Nothing begins for another WAL, or for frames that do not exist.
    assert_eq!(index.begin(&conn, [salts[0].wrapping_add(1), salts[1]], frames).unwrap(), None);
    assert_eq!(index.begin(&conn, salts, frames + 1).unwrap(), None);
    assert_eq!(index.begun(), 0);
    let begun = index.begin(&conn, salts, frames).unwrap().unwrap();
    assert_eq!((begun.before, begun.frames, index.begun()), (0, frames, frames));
    assert_eq!(index.while_writing_back(&conn, &begun, || 7).unwrap(), Some(Some(7)));
    assert_eq!(index.written_back(), 0);
    assert_eq!(index.set_written_back(&conn, &begun).unwrap(), Some(Some(())));
    assert_eq!(index.written_back(), frames);
    // The attempt is not valid a second time, because its frames are in the database already.
    assert_eq!(index.while_writing_back(&conn, &begun, || 7).unwrap(), Some(None));
    assert_eq!(index.begin(&conn, salts, frames).unwrap(), None);
    // SQLite accepts the result as its own: nothing is left to write back, and the next write
    // restarts the WAL.
    assert_eq!(passive(&conn), (frames, frames));
    conn.execute("INSERT INTO t VALUES (4)", []).unwrap();
    assert_ne!(index.salts(), salts);
    assert_eq!(index.set_written_back(&conn, &begun).unwrap(), Some(None));
    assert_eq!(index.written_back(), 0);
}

#[test]
fn reader_takes_write_lock_only_for_torn_wal_index_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = database_with_wal(&path, 3);
    let lock = |number, flags| {
        let file = sqlite_file::object(&conn, Opened::Main).unwrap();
        // SAFETY: SQLite's object of an open file, which this thread uses alone.
        unsafe { (*(*file).pMethods).xShmLock.unwrap()(file, number, 1, flags) }
    };
    let take = || {
        let code = lock(0, ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE);
        if code == ffi::SQLITE_OK {
            lock(0, ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE);
        }
        code
    };
    let shared = fs::File::options().read(true).write(true).open(folder.path().join("a.db-shm")).unwrap();
    let tear = |copy: u64| {
        let mut commits = [0];
        shared.read_exact_at(&mut commits, copy * 48 + 8).unwrap();
        shared.write_all_at(&[!commits[0]], copy * 48 + 8).unwrap();
    };
    assert_eq!(take(), ffi::SQLITE_BUSY); // the reader only has to read the header again
    tear(0);
    assert_eq!(take(), ffi::SQLITE_OK);
    tear(1); // both copies are equal, but their checksum is wrong
    assert_eq!(take(), ffi::SQLITE_OK);
    // The commit continues, if the thread runs in time.
    let goes_on = || {
        tear(0);
        std::thread::scope(|scope| {
            scope.spawn(|| tear(1));
            take() == ffi::SQLITE_BUSY
        })
    };
    assert!((0..50).any(|_| goes_on()));
    // A connection that holds a reader's lock, or that of a checkpoint, wants to write.
    for other in [3, 1] {
        let flags = if other == 1 { ffi::SQLITE_SHM_EXCLUSIVE } else { ffi::SQLITE_SHM_SHARED };
        assert_eq!(lock(other, ffi::SQLITE_SHM_LOCK | flags), ffi::SQLITE_OK);
        assert_eq!(take(), ffi::SQLITE_OK);
        assert_eq!(lock(other, ffi::SQLITE_SHM_UNLOCK | flags), ffi::SQLITE_OK);
        assert_eq!(take(), ffi::SQLITE_BUSY);
    }
}

#[test]
fn backfill_stops_at_reader_snapshot_and_other_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = database_with_wal(&path, 3);
    let index = WalIndex::of(&conn).unwrap();
    let (salts, seen) = index.state().unwrap();
    let reader = Connection::open(&path).unwrap();
    let count = |reader: &Connection| {
        reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader), 3);
    conn.execute("INSERT INTO t VALUES (4)", []).unwrap();
    let frames = index.state().unwrap().1;
    let begun = index.begin(&conn, salts, frames).unwrap().unwrap();
    assert_eq!((begun.frames, index.begun()), (seen, seen));
    // Another connection writes more frames back.
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(passive(&conn), (frames, frames));
    assert_eq!(index.while_writing_back(&conn, &begun, || ()).unwrap(), Some(None));
    // A reader that reads only the database prevents the write-back while it reads.
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader), 4);
    conn.execute("INSERT INTO t VALUES (5)", []).unwrap();
    let (salts, frames) = index.state().unwrap();
    let begun = index.begin(&conn, salts, frames).unwrap().unwrap();
    assert_eq!(index.while_writing_back(&conn, &begun, || ()).unwrap(), None);
    assert_eq!(index.set_written_back(&conn, &begun).unwrap(), None);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(index.while_writing_back(&conn, &begun, || ()).unwrap(), Some(Some(())));
    // This write-back also prevents those of other connections.
    let other = || checkpoint(&reader, ffi::SQLITE_CHECKPOINT_PASSIVE);
    let busy = index.while_writing_back(&conn, &begun, || other().is_err()).unwrap();
    assert_eq!((busy, other().is_ok()), (Some(Some(true)), true));
}

/// An attempt to copy frames is void once another connection has begun one, even for as many
/// frames. The other connection may have written older pages into the database since.
#[test]
fn overtaken_backfill_is_void_even_with_equal_frame_count() {
    let folder = tempfile::tempdir().unwrap();
    let conn = database_with_wal(&folder.path().join("a.db"), 1);
    let index = WalIndex::of(&conn).unwrap();
    let (salts, older) = index.state().unwrap();
    conn.execute("INSERT INTO t VALUES (2)", []).unwrap();
    let frames = index.state().unwrap().1;
    let begin = |frames| index.begin(&conn, salts, frames).unwrap().unwrap();
    let stopped = begin(frames);
    assert_eq!(index.while_writing_back(&conn, &stopped, || ()).unwrap(), Some(Some(())));
    assert_eq!(index.begin(&conn, salts, older).unwrap(), None, "less than was begun");
    let others = begin(frames);
    assert_eq!(index.while_writing_back(&conn, &stopped, || ()).unwrap(), Some(None));
    assert_eq!(index.set_written_back(&conn, &stopped).unwrap(), Some(None));
    assert_eq!(index.written_back(), 0);
    assert_eq!(index.set_written_back(&conn, &others).unwrap(), Some(Some(())));
}

#[test]
fn backfill_writes_last_frame_of_each_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = database_with_wal(&path, 4500); // more than one region of the wal-index
    let index = WalIndex::of(&conn).unwrap();
    let (salts, frames) = index.state().unwrap();
    assert!(frames > 4096, "{frames}");
    let in_the_file = frames_in(&folder.path().join("a.db-wal"), frames);
    assert!(in_the_file.iter().all(|(_, of)| *of == salts));
    for before in [0, 1, 4000, 4062, 4063, 4100, frames - 1] {
        let begun = Begun { salts, before, frames, attempt: 0 };
        let mut last = std::collections::BTreeMap::new();
        for (frame, (page, _)) in (1..).zip(&in_the_file).skip(before as usize) {
            last.insert(*page, frame);
        }
        assert_eq!(
            index.last_frames(&conn, &begun).unwrap(),
            last.into_iter().collect::<Vec<_>>(),
            "{before}"
        );
    }
}

#[test]
fn commit_with_failed_sync_is_erased_from_wal() {
    let mut file = vec![0; 32];
    let mut write = |bytes: &[u8], at: i64| {
        let at = at as usize;
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
        ffi::SQLITE_OK
    };
    let (page, mut frames) = ([7; 512], Frames::default());
    let mut commit = |at: i64, frames: &mut Frames, well: Option<bool>| {
        frames.write(&[1; 24], at, &mut write);
        assert_eq!(frames.write(&page, at + 24, &mut write), (ffi::SQLITE_OK, true));
        frames.awaits_sync(24 + page.len());
        match well {
            Some(well) => frames.synced(well, &mut write),
            None => frames.discard(),
        }
        frames.synced(false, &mut write); // a failed sync of other bytes
    };
    commit(32, &mut frames, Some(true));
    commit(568, &mut frames, None);
    commit(1104, &mut frames, Some(false));
    assert_eq!(
        (&file[32..56], &file[568..592], &file[1104..1128]),
        (&[1; 24][..], &[1; 24][..], &[0; 24][..])
    );
    assert_eq!(&file[1128..], page);
}

#[test]
fn abandoned_syncs_do_not_fill_queue() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = database_with_wal(&path, 1);
    // This runs in a child, which has a queue of its own: a full queue would make syncs of other
    // tests fail.
    assert!(in_child(|| {
        crate::fork::begin_generation();
        let database = file(&path);
        for n in 0..2_000 {
            if HandedOver::begin(&conn, Opened::Main, &database).is_none() {
                return n == 0; // not available here
            }
        }
        // The queue may be full now, but only for a short time.
        let begun = || HandedOver::begin(&conn, Opened::Main, &database).unwrap().wait(&conn);
        (0..1_000).any(|_| {
            begun() || {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        })
    }));
}

#[test]
fn lost_async_sync_fails_and_disables_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = database_with_wal(&path, 1);
    assert!(in_child(|| {
        crate::fork::begin_generation(); // gives the child a queue of its own
        if let Some(mut sync) = HandedOver::begin(&conn, Opened::Main, &file(&path)) {
            aio_sync::forget_the_queue();
            if sync.wait(&conn) {
                return false;
            }
        }
        HandedOver::begin(&conn, Opened::Main, &file(&path)).is_none()
    }));
}

#[test]
fn waits_for_a_lock_are_counted_for_all_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let holder = database_with_wal(&path, 1);
    let busy = BusyHandler::default(); // dropped after the connection
    let waiter = connection_to(&path);
    waiter.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(); // opens the WAL
    let seen = WalIndex::of(&holder).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (counts, timeout) in [(false, 3), (true, 3), (true, 200), (true, 0)] {
        if counts {
            busy.count_waits_in(WalIndex::of(&waiter).unwrap());
        }
        busy.set_timeout(&waiter, Duration::from_millis(timeout)).unwrap();
        let (before, began) = (seen.waits(), std::time::Instant::now());
        assert!(waiter.execute_batch("BEGIN IMMEDIATE").is_err());
        assert!(began.elapsed() >= Duration::from_millis(timeout));
        assert_eq!(seen.waits() > before, counts && timeout > 0, "timeout {timeout}");
    }
    holder.execute_batch("COMMIT").unwrap();
    let before = seen.waits();
    waiter.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
    assert_eq!(seen.waits(), before);
}
