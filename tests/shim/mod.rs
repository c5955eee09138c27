//! A disk that keeps a diary and can be made to fail: an SQLite VFS over the default one, and the system calls
//! of `fsync`, `unlink` and `link`, which this program defines itself.
//!
//! It looks only at files in directories that are watched ([`Watch`]); all others go to the real VFS untouched.
//! The files are real. Nothing is ever synced for real: these tests cut the power in a model (`disk.rs`).
//!
//! Must not enter: what a store is, but for `scenario.rs`.

#![allow(dead_code)] // each test file uses its part

pub mod disk;
pub mod scenario;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::ffi;

/// How long a long run may last, if this is one.
pub fn torture_time() -> Option<Duration> {
    let seconds = env::var("KVSTORE_TORTURE_SECONDS").ok()?;
    Some(Duration::from_secs_f64(seconds.parse().unwrap()))
}

// ---- what is written down ------------------------------------------------------------------------

/// A file, whatever its names are.
pub type Id = usize;

/// What happened to the disk.
#[derive(Debug, Clone)]
pub enum Event {
    /// A file has come, empty, under a name.
    Create(Id, String),
    Write(Id, u64, Vec<u8>),
    Truncate(Id, u64),
    Sync(Id),
    SyncDirectory,
    Unlink(String),
    /// A second name.
    Link(Id, String),
    /// What the test knows at this point, and the wal-index as it is.
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
    /// `fsync`, whoever calls it.
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

    /// How it can fail.
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

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing, and answers this.
    Code(c_int),
    /// The disk is full in the middle of a write.
    Half,
    /// A read finds the file's end too early.
    Short,
    /// A map is refused, which is no error.
    Refuse,
}

/// Which calls fail.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub call: Call,
    /// The first is 1.
    pub nth: u64,
    pub fault: Fault,
    /// Also all that follow.
    pub from_then_on: bool,
}

#[derive(Default)]
struct State {
    recording: bool,
    log: Vec<Event>,
    names: BTreeMap<String, Id>,
    files: Id,
    /// Where the wal-index is mapped.
    index: Option<usize>,
    calls: BTreeMap<Call, u64>,
    plan: Option<Plan>,
    injected: u64,
}

/// Size of the part of the wal-index that marks keep.
const INDEX: usize = 32_768;

struct Watched {
    dir: PathBuf,
    state: Mutex<State>,
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and says whether and how it is to fail.
    fn fault(&self, call: Call) -> Option<Fault> {
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

    /// The same for calls that can only answer a code.
    fn code(&self, call: Call) -> Option<c_int> {
        match self.fault(call)? {
            Fault::Code(code) => Some(code),
            Fault::Half | Fault::Short | Fault::Refuse => Some(ffi::SQLITE_IOERR),
        }
    }

    fn record(&self, event: impl FnOnce(&mut State) -> Option<Event>) {
        let mut state = self.state();
        if state.recording
            && let Some(event) = event(&mut state)
        {
            state.log.push(event);
        }
    }

    /// The file of this name, which comes into being if it is not known.
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

fn watched() -> MutexGuard<'static, Vec<Arc<Watched>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watched directory a path is in, and its name there.
fn find(path: &[u8]) -> Option<(Arc<Watched>, String)> {
    let path = Path::new(OsStr::from_bytes(path));
    let dir = path.parent()?;
    let found = watched().iter().find(|watched| watched.dir == dir).map(Arc::clone)?;
    Some((found, path.file_name()?.to_str()?.to_owned()))
}

/// The files of a directory in the order of their names.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory that is watched as long as this lives.
pub struct Watch(Arc<Watched>);

impl Watch {
    /// Begins to watch. If what happens is to be recorded, files that are there have the numbers that
    /// `Disk::holding` gives them.
    pub fn on(dir: &Path, recording: bool) -> Watch {
        register();
        let names: BTreeMap<String, Id> =
            names(dir).into_iter().enumerate().map(|(id, name)| (name, id)).collect();
        let watch = Arc::new(Watched {
            dir: dir.canonicalize().unwrap(),
            state: Mutex::new(State { recording, files: names.len(), names, ..State::default() }),
        });
        watched().push(Arc::clone(&watch));
        Watch(watch)
    }

    /// Puts a mark into the diary.
    pub fn mark(&self, number: usize) {
        self.0.record(|state| {
            let index = state.index.map_or_else(Vec::new, |start| {
                // SAFETY: the wal-index is mapped from xShmMap to xShmUnmap, which forgets it. SQLite changes
                // it under locks; the tests mark only while nobody is inside SQLite.
                unsafe { std::slice::from_raw_parts(start as *const u8, INDEX).to_vec() }
            });
            Some(Event::Mark(number, index))
        });
    }

    /// The diary so far, which ends here.
    pub fn take_log(&self) -> Vec<Event> {
        let mut state = self.0.state();
        state.recording = false;
        std::mem::take(&mut state.log)
    }

    /// Makes calls fail, counted from now on.
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

// ---- the VFS -------------------------------------------------------------------------------------

struct RealVfs(*mut ffi::sqlite3_vfs);
// SAFETY: SQLite's own VFS is never freed, and may be used by all threads.
unsafe impl Send for RealVfs {}
// SAFETY: as above.
unsafe impl Sync for RealVfs {}

static REAL: OnceLock<RealVfs> = OnceLock::new();

fn real_vfs() -> *mut ffi::sqlite3_vfs {
    REAL.get().expect("registered").0
}

/// Makes the shim the default VFS of this process.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default VFS is copied, with functions of the same types in it. The copy is never freed.
        unsafe {
            let real = ffi::sqlite3_vfs_find(ptr::null());
            assert!(!real.is_null());
            assert!(REAL.set(RealVfs(real)).is_ok());
            let mut shim = Box::new(*real);
            shim.zName = c"shim".as_ptr();
            shim.pNext = ptr::null_mut();
            shim.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
            shim.xOpen = Some(open);
            shim.xDelete = Some(delete);
            shim.xAccess = Some(access);
            shim.xSleep = Some(sleep);
            assert_eq!(ffi::sqlite3_vfs_register(Box::into_raw(shim), 1), ffi::SQLITE_OK);
        }
    });
}

/// An open file of a watched directory. The real one lies behind it.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    watched: *const Watched,
    id: Id,
    /// Whether its size and content matter: not those of the wal-index.
    main: bool,
}

/// # Safety
/// The file was opened by [`open`].
unsafe fn parts<'f>(file: *mut ffi::sqlite3_file) -> (&'f File, *mut ffi::sqlite3_file) {
    let file: *mut File = file.cast();
    // SAFETY: `open` made it one of ours, with room for the real one behind it.
    unsafe { (&*file, file.add(1).cast()) }
}

/// Calls a method of the real file.
macro_rules! real {
    ($real:expr, $method:ident $(, $argument:expr)*) => {
        // SAFETY: the real file is open, and has all methods of version 3, as SQLite's own files have.
        unsafe { (*(*$real).pMethods).$method.unwrap()($real $(, $argument)*) }
    };
}

/// The parts of a file.
macro_rules! ours {
    ($file:expr) => {{
        // SAFETY: SQLite calls the methods of our files with our files, which are open.
        let (file, real) = unsafe { parts($file) };
        // SAFETY: `open` took a reference, which `close` gives back.
        (file, unsafe { &*file.watched }, real)
    }};
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

/// The bytes of a C string; none for NULL.
fn bytes<'s>(text: *const c_char) -> &'s [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: SQLite gives C strings, which outlive the call.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let vfs = real_vfs();
    // SAFETY: the real VFS has all its functions.
    let real_open = unsafe { (*vfs).xOpen.unwrap() };
    let Some((watched, name_there)) = find(bytes(name)) else {
        // SAFETY: SQLite's arguments; there is more room than the real file needs.
        return unsafe { real_open(vfs, name, file, flags, out) };
    };
    // SAFETY: SQLite closes a file whose open failed only if it has methods.
    unsafe { (*file).pMethods = ptr::null() };
    if let Some(code) = watched.code(Call::Open) {
        return code;
    }
    let ours: *mut File = file.cast();
    // SAFETY: SQLite gives `szOsFile` bytes: ours, and behind them the real file.
    unsafe {
        let real: *mut ffi::sqlite3_file = ours.add(1).cast();
        (*real).pMethods = ptr::null();
        let code = real_open(vfs, name, real, flags, out);
        if code != ffi::SQLITE_OK {
            return code;
        }
        let id = watched.opened(&name_there);
        let main = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
        let base = ffi::sqlite3_file { pMethods: &raw const METHODS };
        ours.write(File { base, watched: Arc::into_raw(watched), id, main });
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    if let Some((watched, _)) = find(bytes(name))
        && let Some(code) = watched.code(Call::Delete)
    {
        return code;
    }
    let vfs = real_vfs();
    // SAFETY: SQLite's arguments. The real VFS calls our `unlink` and `fsync`.
    unsafe { (*vfs).xDelete.unwrap()(vfs, name, sync) }
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    if let Some((watched, _)) = find(bytes(name))
        && let Some(code) = watched.code(Call::Access)
    {
        return code;
    }
    let vfs = real_vfs();
    // SAFETY: SQLite's arguments.
    unsafe { (*vfs).xAccess.unwrap()(vfs, name, flags, out) }
}

/// Who waits for a lock that a fault refuses waits in vain: it need not take time.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    if watched().iter().all(|watched| watched.state().plan.is_none()) {
        std::thread::sleep(std::time::Duration::from_micros(microseconds.unsigned_abs().into()));
    }
    microseconds
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let (ours, _, real) = ours!(file);
    let watched = ours.watched;
    let code = real!(real, xClose);
    // SAFETY: gives back what `open` took, once.
    drop(unsafe { Arc::from_raw(watched) });
    // SAFETY: the file is closed: SQLite looks at nothing but this.
    unsafe { (*file).pMethods = ptr::null() };
    code
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, size: c_int, at: i64) -> c_int {
    let (_, watched, real) = ours!(file);
    match watched.fault(Call::Read) {
        None => real!(real, xRead, to, size, at),
        Some(Fault::Short) => {
            let code = real!(real, xRead, to, size, at);
            if code != ffi::SQLITE_OK {
                return code;
            }
            let half = usize::try_from(size).unwrap() / 2;
            // SAFETY: SQLite gives room for `size` bytes. A short read fills the rest with zeros.
            unsafe { to.cast::<u8>().add(half).write_bytes(0, usize::try_from(size).unwrap() - half) };
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Some(Fault::Code(code)) => code,
        Some(Fault::Half | Fault::Refuse) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, size: c_int, at: i64) -> c_int {
    let (ours, watched, real) = ours!(file);
    let (size, code) = match watched.fault(Call::Write) {
        None => (size, None),
        Some(Fault::Half) => (size / 2, Some(ffi::SQLITE_FULL)),
        Some(Fault::Code(code)) => return code,
        Some(Fault::Short | Fault::Refuse) => return ffi::SQLITE_IOERR_WRITE,
    };
    let wrote = real!(real, xWrite, from, size, at);
    if wrote != ffi::SQLITE_OK {
        return wrote;
    }
    watched.record(|_| {
        // SAFETY: SQLite gives `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(size).ok()?) };
        Some(Event::Write(ours.id, at.unsigned_abs(), bytes.to_vec()))
    });
    code.unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let (ours, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::Truncate) {
        return code;
    }
    let code = real!(real, xTruncate, size);
    if code == ffi::SQLITE_OK {
        watched.record(|_| Some(Event::Truncate(ours.id, size.unsigned_abs())));
    }
    code
}

/// Recorded, and made to fail, by `fsync`.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xSync, flags)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    let (_, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::FileSize) {
        return code;
    }
    real!(real, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let (_, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::Lock) {
        return code;
    }
    real!(real, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    let (ours, watched, real) = ours!(file);
    if op != ffi::SQLITE_FCNTL_SIZE_HINT {
        return real!(real, xFileControl, op, argument);
    }
    // With a memory map this one lengthens the file.
    let (mut before, mut after) = (0, 0);
    let _ = real!(real, xFileSize, &raw mut before);
    let code = real!(real, xFileControl, op, argument);
    let _ = real!(real, xFileSize, &raw mut after);
    if before != after {
        watched.record(|_| Some(Event::Truncate(ours.id, after.unsigned_abs())));
    }
    code
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let (ours, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::ShmMap) {
        // SAFETY: a place for the answer.
        unsafe { *out = ptr::null_mut() };
        return code;
    }
    let code = real!(real, xShmMap, region, size, extend, out);
    // SAFETY: a place that was answered in.
    let start = unsafe { *out };
    if code == ffi::SQLITE_OK && region == 0 && ours.main && !start.is_null() {
        watched.state().index = Some(start as usize);
    }
    code
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, at: c_int, n: c_int, flags: c_int) -> c_int {
    let (_, watched, real) = ours!(file);
    // Giving a lock back never fails.
    if flags & ffi::SQLITE_SHM_LOCK != 0
        && let Some(code) = watched.code(Call::ShmLock)
    {
        return code;
    }
    real!(real, xShmLock, at, n, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    let (_, _, real) = ours!(file);
    real!(real, xShmBarrier);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    let (_, watched, real) = ours!(file);
    watched.state().index = None;
    real!(real, xShmUnmap, delete)
}

unsafe extern "C" fn fetch(
    file: *mut ffi::sqlite3_file,
    at: i64,
    size: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let (_, watched, real) = ours!(file);
    // SAFETY: a place for the answer.
    unsafe { *out = ptr::null_mut() };
    match watched.fault(Call::Fetch) {
        None => real!(real, xFetch, at, size, out),
        Some(Fault::Code(code)) => code,
        Some(_) => ffi::SQLITE_OK,
    }
}

unsafe extern "C" fn unfetch(file: *mut ffi::sqlite3_file, at: i64, page: *mut c_void) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xUnfetch, at, page)
}

// ---- system calls --------------------------------------------------------------------------------
//
// The program's own definitions come before those of the C library, for SQLite and for Rust's `std::fs`.

fn failed(errno: c_int) -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn synced(fd: c_int) -> c_int {
    if watched().is_empty() {
        return 0;
    }
    let mut path = [0u8; 4096];
    let link = format!("/proc/self/fd/{fd}\0");
    // SAFETY: a C string, and room for the answer.
    let length = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    let Some(path) = usize::try_from(length).ok().and_then(|length| path.get(..length)) else { return 0 };
    let directory =
        watched().iter().find(|watched| watched.dir.as_os_str().as_bytes() == path).map(Arc::clone);
    let (watched, name) = match directory {
        Some(watched) => (watched, None),
        None => match find(path) {
            Some((watched, name)) => (watched, Some(name)),
            None => return 0,
        },
    };
    if watched.fault(Call::Sync).is_some() {
        return failed(libc::EIO);
    }
    watched.record(|state| match name {
        None => Some(Event::SyncDirectory),
        Some(name) => state.names.get(&name).map(|id| Event::Sync(*id)),
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    synced(fd)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    synced(fd)
}

#[unsafe(no_mangle)]
extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's C string.
    let code = unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) };
    if code == 0
        && let Some((watched, name)) = find(bytes(path))
    {
        watched.record(|state| state.names.remove(&name).map(|_| Event::Unlink(name)));
    }
    c_int::try_from(code).unwrap_or(-1)
}

fn linked(from: *const c_char, to: *const c_char, flags: c_int) -> c_int {
    let found = find(bytes(to));
    if let Some((watched, _)) = &found
        && watched.fault(Call::Link).is_some()
    {
        return failed(libc::EIO);
    }
    // SAFETY: the caller's C strings.
    let code = unsafe { libc::syscall(libc::SYS_linkat, libc::AT_FDCWD, from, libc::AT_FDCWD, to, flags) };
    if code == 0
        && let (Some((watched, name)), Some((_, old))) = (found, find(bytes(from)))
    {
        watched.record(|state| {
            let id = *state.names.get(&old)?;
            state.names.insert(name.clone(), id);
            Some(Event::Link(id, name))
        });
    }
    c_int::try_from(code).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    assert!(from_dir == libc::AT_FDCWD && to_dir == libc::AT_FDCWD);
    linked(from, to, flags)
}

#[unsafe(no_mangle)]
extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    linked(from, to, 0)
}
