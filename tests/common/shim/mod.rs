//! A simulated disk that logs every change and can be made to fail. It consists of an SQLite VFS on
//! top of the default one, and of `fsync`, `unlink` and `link`, which `tests/durability/syscalls.rs`
//! defines. Without that file, syncs and links are neither logged nor made to fail.
//!
//! Only files in watched directories are affected ([`Watch`]); calls for all other files go to the
//! real VFS unchanged. The files are real; power cuts are simulated by `disk.rs`.
//!
//! Must not use kvstore, except in `scenario.rs`.

#![allow(dead_code)] // each test file uses its part

pub mod disk;
pub mod scenario;
mod vfs;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::ffi;

/// Duration of a long run; `None` for the short form.
pub fn torture_time() -> Option<Duration> {
    let seconds = env::var("KVSTORE_TORTURE_SECONDS").ok()?;
    Some(Duration::from_secs_f64(seconds.parse().unwrap()))
}

// ---- what is written down ------------------------------------------------------------------------

/// A file, under whatever name.
pub type Id = usize;

/// A change to the disk.
#[derive(Debug, Clone)]
pub enum Event {
    /// A file was created, empty, under this name.
    Create(Id, String),
    Write(Id, u64, Vec<u8>),
    Truncate(Id, u64),
    Sync(Id),
    /// A sync failed. What it should have written is lost, because the next sync takes it for
    /// written.
    Forget(Id),
    SyncDirectory,
    Unlink(String),
    /// A second name.
    Link(Id, String),
    /// A mark set by the test, with the present wal-index.
    Mark(usize, Vec<u8>),
}

// ---- what can fail -------------------------------------------------------------------------------

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Open,
    Access,
    Delete,
    Read,
    Write,
    Truncate,
    /// `fsync`, from any caller.
    Sync,
    FileSize,
    Lock,
    ShmMap,
    ShmLock,
    Fetch,
    /// `link`, which the library calls itself.
    Link,
}

impl Call {
    pub const ALL: [Call; 13] = [
        Call::Open,
        Call::Access,
        Call::Delete,
        Call::Read,
        Call::Write,
        Call::Truncate,
        Call::Sync,
        Call::FileSize,
        Call::Lock,
        Call::ShmMap,
        Call::ShmLock,
        Call::Fetch,
        Call::Link,
    ];

    /// Returns the ways in which it can fail.
    pub fn faults(self) -> &'static [Fault] {
        match self {
            Call::Open => &[Fault::Code(ffi::SQLITE_CANTOPEN), Fault::Code(ffi::SQLITE_IOERR)],
            Call::Access => &[Fault::Code(ffi::SQLITE_IOERR_ACCESS)],
            Call::Delete => &[Fault::Code(ffi::SQLITE_IOERR_DELETE)],
            Call::Read => &[Fault::Code(ffi::SQLITE_IOERR_READ)],
            Call::Write => {
                &[Fault::Code(ffi::SQLITE_IOERR_WRITE), Fault::Code(ffi::SQLITE_FULL), Fault::Half]
            }
            Call::Truncate => &[Fault::Code(ffi::SQLITE_IOERR_TRUNCATE)],
            Call::Sync | Call::Link => &[Fault::Code(ffi::SQLITE_IOERR)], // as errno: EIO
            Call::FileSize => &[Fault::Code(ffi::SQLITE_IOERR_FSTAT)],
            Call::Lock => &[Fault::Code(ffi::SQLITE_BUSY), Fault::Code(ffi::SQLITE_IOERR_LOCK)],
            Call::ShmMap => &[Fault::Code(ffi::SQLITE_IOERR_SHMMAP), Fault::Code(ffi::SQLITE_IOERR_NOMEM)],
            Call::ShmLock => &[Fault::Code(ffi::SQLITE_BUSY), Fault::Code(ffi::SQLITE_IOERR_SHMLOCK)],
            Call::Fetch => &[Fault::Refuse, Fault::Code(ffi::SQLITE_IOERR_MMAP)],
        }
    }
}

/// A way in which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing and returns this code.
    Code(c_int),
    /// The disk is full in the middle of a write.
    Half,
    /// A read returns too few bytes, as at the end of a file.
    Short,
    /// A memory map is refused, which is no error.
    Refuse,
}

/// Which calls fail.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub call: Call,
    /// The first is 1.
    pub nth: u64,
    pub fault: Fault,
    /// Also fails all later calls.
    pub from_then_on: bool,
}

#[derive(Default)]
pub struct State {
    recording: bool,
    log: Vec<Event>,
    pub names: BTreeMap<String, Id>,
    files: Id,
    /// Where the wal-index is mapped.
    index: Option<usize>,
    calls: BTreeMap<Call, u64>,
    plan: Option<Plan>,
    injected: u64,
}

/// Size of the part of the wal-index that marks keep.
const INDEX: usize = 32_768;

pub struct Watched {
    pub dir: PathBuf,
    state: Mutex<State>,
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. Returns the fault to inject, if any.
    pub fn fault(&self, call: Call) -> Option<Fault> {
        let mut state = self.state();
        let count = state.calls.entry(call).or_insert(0);
        *count += 1;
        let count = *count;
        let plan = state.plan.filter(|plan| plan.call == call)?;
        if count == plan.nth || plan.from_then_on && count > plan.nth {
            state.injected += 1;
            return Some(plan.fault);
        }
        None
    }

    /// Like `fault`, for calls that can only return a code.
    fn code(&self, call: Call) -> Option<c_int> {
        match self.fault(call)? {
            Fault::Code(code) => Some(code),
            Fault::Half | Fault::Short | Fault::Refuse => Some(ffi::SQLITE_IOERR),
        }
    }

    pub fn record(&self, event: impl FnOnce(&mut State) -> Option<Event>) {
        let mut state = self.state();
        if state.recording
            && let Some(event) = event(&mut state)
        {
            state.log.push(event);
        }
    }

    /// Returns the id of the file with this name. Registers the file if it is new.
    fn opened(&self, name: &str) -> Id {
        let mut state = self.state();
        if let Some(id) = state.names.get(name) {
            return *id;
        }
        let id = state.files;
        state.files += 1;
        state.names.insert(name.to_owned(), id);
        if state.recording {
            state.log.push(Event::Create(id, name.to_owned()));
        }
        id
    }
}

static WATCHED: Mutex<Vec<Arc<Watched>>> = Mutex::new(Vec::new());

pub fn watched() -> MutexGuard<'static, Vec<Arc<Watched>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the watched directory of a path, and the name in it.
pub fn find(path: &[u8]) -> Option<(Arc<Watched>, String)> {
    let path = Path::new(OsStr::from_bytes(path));
    let dir = path.parent()?;
    let found = watched().iter().find(|watched| watched.dir == dir).map(Arc::clone)?;
    Some((found, path.file_name()?.to_str()?.to_owned()))
}

/// The bytes of a C string; none for NULL.
pub fn bytes<'s>(text: *const c_char) -> &'s [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: SQLite gives C strings, which outlive the call.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Returns the names of the files in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Watches a directory until it is dropped.
pub struct Watch(Arc<Watched>);

impl Watch {
    /// Begins to watch. If what happens is to be recorded, files that are there have the numbers that
    /// `Disk::holding` gives them.
    pub fn on(dir: &Path, recording: bool) -> Watch {
        vfs::register();
        let names: BTreeMap<String, Id> =
            names(dir).into_iter().enumerate().map(|(id, name)| (name, id)).collect();
        let watch = Arc::new(Watched {
            dir: dir.canonicalize().unwrap(),
            state: Mutex::new(State { recording, files: names.len(), names, ..State::default() }),
        });
        watched().push(Arc::clone(&watch));
        Watch(watch)
    }

    /// Adds a mark to the log.
    pub fn mark(&self, number: usize) {
        self.0.record(|state| {
            let index = state.index.map_or_else(Vec::new, |start| {
                // SAFETY: the wal-index is mapped from xShmMap to xShmUnmap, which clears this
                // address. SQLite changes it under locks, and the tests set marks only while no
                // thread is inside SQLite.
                unsafe { std::slice::from_raw_parts(start as *const u8, INDEX).to_vec() }
            });
            Some(Event::Mark(number, index))
        });
    }

    /// Returns the log so far, and ends it.
    pub fn take_log(&self) -> Vec<Event> {
        let mut state = self.0.state();
        state.recording = false;
        std::mem::take(&mut state.log)
    }

    /// Makes calls fail. Calls are counted from now on.
    pub fn fail(&self, plan: Plan) {
        let mut state = self.0.state();
        state.calls.clear();
        state.injected = 0;
        state.plan = Some(plan);
    }

    /// Everything works again.
    pub fn heal(&self) {
        self.0.state().plan = None;
    }

    /// How many calls have failed since `fail`.
    pub fn injected(&self) -> u64 {
        self.0.state().injected
    }

    /// Calls of each kind since the last `fail` or `count`.
    pub fn calls(&self, call: Call) -> u64 {
        self.0.state().calls.get(&call).copied().unwrap_or(0)
    }

    /// Counts calls from now on.
    pub fn count(&self) {
        self.0.state().calls.clear();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watched().retain(|watched| !Arc::ptr_eq(watched, &self.0));
    }
}
