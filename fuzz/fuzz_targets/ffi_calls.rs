//! Fuzzes sequences of C calls, correct and incorrect: NULL, closed handles, handles of the wrong
//! type, bad lengths with unmapped memory, and calls from inside callbacks. No call may crash, hang
//! or panic internally. Each must return a code that its documentation names, write its outputs as
//! documented, and leave the files sound.
//!
//! `build.rs` generates the calls from the header: `CALLS` has one entry per function, which draws
//! its arguments from a [`World`]. Two handles never have one file open in different journal modes,
//! and none is exclusive while another is open: such an open would wait for 2 seconds.

#![no_main]
#![allow(unsafe_code, non_snake_case)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicI64, Ordering};

use kvstore::{MAX_KEY_SIZE, MAX_VALUE_SIZE};
use libfuzzer_sys::fuzz_target;

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// A function of the header.
pub struct Call {
    name: &'static str,
    /// Codes it may return.
    codes: &'static [c_int],
    run: fn(&World) -> Answer,
}

pub enum Answer {
    Nothing,
    Code(c_int),
    Text(*const c_char),
    Memory(*mut c_void),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Store,
    Family,
    Iterator,
    Batch,
}

const MAX_CALLS: usize = 150;
/// Maximum depth of calls from callbacks.
const MAX_DEPTH: usize = 3;
/// Maximum number of rows per fetch.
const ROWS: usize = 40;
/// Value of each output before a call.
const UNTOUCHED: i64 = 0x5A5A_5A5A_5A5A_5A5A;
/// The longest value of stores with the default configuration. No store here is opened with more.
const DEFAULT_MAX_VALUE: c_int = 10 << 20;
const BEGIN_MS: i64 = 1_000_000;

static NOW_MS: AtomicI64 = AtomicI64::new(BEGIN_MS);

thread_local! {
    /// Whether this thread reads the input. The cleaner's thread does not.
    static DRIVES: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone, Copy)]
struct Handle {
    kind: Kind,
    pointer: *mut c_void,
    /// Whether the handle is open, as far as this program knows.
    open: bool,
}

/// Memory that the arguments of a call point to.
#[derive(Default)]
#[allow(clippy::vec_box)] // an output stays where it is when the next one is added
struct Frame {
    handle: Option<(Kind, Box<*mut c_void>)>,
    pointers: Vec<Box<*mut c_void>>,
    ints: Vec<Box<c_int>>,
    int64s: Vec<Box<i64>>,
    bytes: Vec<Box<[u8]>>,
    texts: Vec<CString>,
    arrays: Vec<Box<[*mut c_void]>>,
    numbers: Vec<Box<[c_int]>>,
    config: Option<Box<KVStoreConfig>>,
    options: Option<Box<KVWriteOptions>>,
    stats: Option<Box<KVStoreStats>>,
    entries: Option<Box<[KVEntry; ROWS]>>,
    /// Length that belongs to the last pointer.
    length: c_int,
    count: c_int,
    journal_mode: c_int,
    used: Vec<*mut c_void>,
}

pub struct World {
    input: RefCell<VecDeque<u8>>,
    handles: RefCell<Vec<Handle>>,
    frames: RefCell<Vec<Frame>>,
    calls: Cell<usize>,
    dir: PathBuf,
}

impl World {
    fn byte(&self) -> u8 {
        self.input.borrow_mut().pop_front().unwrap_or(0)
    }

    fn of<T: Copy>(&self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    fn frame<R>(&self, f: impl FnOnce(&mut Frame) -> R) -> R {
        f(self.frames.borrow_mut().last_mut().expect("a call is being made"))
    }

    // ---- handles ------------------------------------------------------------------------------

    fn handle(&self, kind: Kind) -> *mut c_void {
        let (how, which) = (self.byte(), usize::from(self.byte()));
        let handles = self.handles.borrow();
        let fitting = |handle: &&Handle| match how {
            0..4 => true,                                  // of any type, open or closed
            4..24 => handle.kind == kind,                  // closed ones, too
            24..28 => handle.kind == kind && !handle.open, // closed ones
            _ => handle.kind == kind && handle.open,
        };
        let found: Vec<_> = handles.iter().rev().filter(fitting).take(8).collect();
        let pointer =
            if how == 255 || found.is_empty() { null_mut() } else { found[which % found.len()].pointer };
        self.frame(|frame| frame.used.push(pointer));
        pointer
    }

    fn store(&self) -> *mut KVStore {
        self.handle(Kind::Store).cast()
    }

    fn family(&self) -> *mut KVColumnFamily {
        self.handle(Kind::Family).cast()
    }

    fn iterator(&self) -> *mut KVIterator {
        self.handle(Kind::Iterator).cast()
    }

    fn batch(&self) -> *mut KVBatch {
        self.handle(Kind::Batch).cast()
    }

    fn handle_output(&self, kind: Kind) -> *mut *mut c_void {
        if self.byte() == 255 {
            return null_mut();
        }
        self.frame(|frame| {
            let (_, output) = frame.handle.insert((kind, Box::new(UNTOUCHED as *mut c_void)));
            &raw mut **output
        })
    }

    fn mark_closed(&self, pointer: *mut c_void, kind: Kind) {
        for handle in self.handles.borrow_mut().iter_mut() {
            if handle.pointer == pointer && handle.kind == kind {
                handle.open = false;
            }
        }
    }

    // ---- bytes --------------------------------------------------------------------------------

    /// Keeps bytes for the duration of the call, in an allocation of exactly their size.
    fn keep(&self, bytes: Vec<u8>, length: c_int) -> *const c_void {
        self.frame(|frame| {
            frame.length = length;
            frame.bytes.push(bytes.into_boxed_slice());
            frame.bytes.last().expect("pushed just now").as_ptr().cast()
        })
    }

    fn key(&self) -> Vec<u8> {
        let bytes = [0, b'a', b'b', 0xFF];
        match self.byte() % 16 {
            0..9 => vec![self.of(&bytes)],
            9..14 => vec![self.of(&bytes), self.of(&bytes)],
            14 => [b"a\0\x01", &[self.of(&bytes)][..]].concat(),
            _ => vec![self.of(&bytes); self.of(&[60, 193, 480, 1500, 5000, MAX_KEY_SIZE])],
        }
    }

    fn value(&self) -> Vec<u8> {
        match self.byte() % 16 {
            0..8 => vec![b'v'; usize::from(self.byte() % 13)],
            8..11 => self.of(&[&b"0"[..], b"41", b"-9223372036854775808", b"9223372036854775807"]).to_vec(),
            11..14 => vec![b'w'; 56 + usize::from(self.byte())],
            14 => vec![b'x'; 1000 + usize::from(self.byte()) * 31],
            _ => vec![b'y'; self.of(&[40_000, 70_000])],
        }
    }

    /// Returns the pointer of a pointer-length pair.
    fn bytes(&self, name: &str) -> *const c_void {
        let is_value = matches!(name, "pValue" | "pExpected");
        match self.byte() {
            0..6 => {
                let length = self.of(&[0, 1, -1, 5, c_int::MAX]);
                self.frame(|frame| frame.length = length);
                null()
            }
            6..12 => {
                // Lengths that are rejected before the memory is read.
                let too_long = c_int::try_from(if is_value { MAX_VALUE_SIZE } else { MAX_KEY_SIZE });
                let too_long = too_long.expect("a limit that C can tell") + 1;
                let length = match name {
                    "pValue" => self.of(&[-1, c_int::MIN, c_int::MAX, too_long, DEFAULT_MAX_VALUE + 1]),
                    _ => self.of(&[-1, c_int::MIN, c_int::MAX, too_long]),
                };
                self.keep(vec![b'?'], length)
            }
            12..14 => self.keep(Vec::new(), 0),
            _ => {
                let bytes = if is_value { self.value() } else { self.key() };
                let length = c_int::try_from(bytes.len()).expect("short");
                self.keep(bytes, length)
            }
        }
    }

    fn length(&self) -> c_int {
        self.frame(|frame| frame.length)
    }

    fn buffer(&self) -> *mut c_void {
        let length = match self.byte() {
            0 => self.of(&[-1, c_int::MIN]),
            1..8 => {
                let length = self.of(&[0, 0, 5, c_int::MAX]);
                self.frame(|frame| frame.length = length);
                return null_mut();
            }
            n => c_int::from(n),
        };
        let size = usize::try_from(length).unwrap_or(0);
        self.keep(vec![0xEE; size], length).cast_mut()
    }

    fn capacity(&self) -> c_int {
        self.length()
    }

    fn text(&self, text: impl Into<Vec<u8>>) -> *const c_char {
        let text = CString::new(text).unwrap_or_default();
        self.frame(|frame| {
            frame.texts.push(text);
            frame.texts.last().expect("pushed just now").as_ptr()
        })
    }

    fn name(&self) -> *const c_char {
        match self.byte() {
            0..4 => null(),
            4..8 => self.text(""),
            8..12 => self.text(self.of(&["__a", "_snkv_", "kvstore", "kvstore_meta"])),
            12..16 => self.text(vec![b'n'; self.of(&[255, 256, 5000])]),
            16..20 => self.text(*b"\xFF\xFE"),
            20..24 => self.text(self.of(&["it's", "a\"b", "^A", "data:x", "Users", "😀"])),
            24..60 => self.text("default"),
            n => self.text([b'a' + n % 4]),
        }
    }

    fn path(&self, of_copy: bool) -> *const c_char {
        let (name, mode) = match self.byte() {
            0 => ("missing/a", KVSTORE_JOURNAL_WAL),
            1 => (".", KVSTORE_JOURNAL_WAL),
            2 => ("text", KVSTORE_JOURNAL_WAL),
            3 => return null(),
            4 => return self.text(self.of(&["", ":memory:"])),
            5..40 => ("delete.db", KVSTORE_JOURNAL_DELETE),
            40..60 => {
                self.frame(|frame| frame.journal_mode = KVSTORE_JOURNAL_WAL);
                return self.text(":memory:");
            }
            _ if of_copy => ("copy.db", KVSTORE_JOURNAL_WAL),
            _ => ("wal.db", KVSTORE_JOURNAL_WAL),
        };
        if of_copy && name == "copy.db" && self.byte() & 1 == 0 {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        self.frame(|frame| frame.journal_mode = mode);
        self.text(self.dir.join(name).into_os_string().into_encoded_bytes())
    }

    // ---- numbers ------------------------------------------------------------------------------

    fn small(&self) -> c_int {
        match self.byte() {
            n @ 0..100 => c_int::from(n % 4),
            n @ 100..200 => c_int::from(n % 20),
            n => [-1, c_int::MAX, c_int::MIN, 255, 256][usize::from(n) % 5],
        }
    }

    fn journal_mode(&self) -> c_int {
        let mode = self.frame(|frame| frame.journal_mode);
        match self.byte() {
            0..4 => self.of(&[-1, 3, c_int::MAX]),
            4..60 if mode == KVSTORE_JOURNAL_WAL => 0,
            _ => mode,
        }
    }

    fn malloc_size(&self) -> c_int {
        self.of(&[-1, 0, 1, 5, 1000, c_int::MIN])
    }

    fn time(&self) -> i64 {
        let now = NOW_MS.load(Ordering::Relaxed);
        match self.byte() {
            0..8 => self.of(&[i64::MIN, -1, i64::MAX, i64::MAX - 1, 630_720_000_000, 630_720_000_001]),
            n @ 8..70 => i64::from(n) - 8,
            n => now + (i64::from(n) - 120) * 10,
        }
    }

    fn interval(&self) -> i64 {
        self.of(&[0, -1, i64::MIN, 1 << 40, i64::MAX, 3_600_000])
    }

    fn int_output(&self) -> *mut c_int {
        if self.byte() == 255 {
            return null_mut();
        }
        self.frame(|frame| {
            frame.ints.push(Box::new(UNTOUCHED as c_int));
            &raw mut **frame.ints.last_mut().expect("pushed just now")
        })
    }

    /// Draws a size limit: invalid ones, and ones that are soon reached.
    fn max_bytes(&self) -> i64 {
        self.of(&[
            0,
            -1,
            1,
            16_384,
            17_000,
            32_768,
            131_072,
            150_000,
            2_097_152,
            5_000_000,
            i64::MIN,
            i64::MAX,
        ])
    }

    fn int64_output(&self) -> *mut i64 {
        if self.byte() == 255 {
            return null_mut();
        }
        self.frame(|frame| {
            frame.int64s.push(Box::new(UNTOUCHED));
            &raw mut **frame.int64s.last_mut().expect("pushed just now")
        })
    }

    fn pointer_output(&self) -> *mut *mut c_void {
        if self.byte() == 255 {
            return null_mut();
        }
        self.frame(|frame| {
            frame.pointers.push(Box::new(UNTOUCHED as *mut c_void));
            &raw mut **frame.pointers.last_mut().expect("pushed just now")
        })
    }

    // ---- structs ------------------------------------------------------------------------------

    fn config(&self) -> *const KVStoreConfig {
        let mode = self.frame(|frame| frame.journal_mode);
        if mode != KVSTORE_JOURNAL_DELETE && self.byte() < 60 {
            return null();
        }
        let mut config = Box::new(KVStoreConfig {
            journalMode: self.journal_mode(),
            syncLevel: KVSTORE_SYNC_OFF,
            cacheSize: 0,
            pageSize: self.of(&[0, 512, 1024]),
            readOnly: c_int::from(self.byte() > 240),
            busyTimeout: -1,
            walSizeLimit: self.of(&[0, 0, 0, 1, 3]),
            allowEncrypted: 1,
            fullMutex: -1,
            maxValueSize: self.of(&[0, 0, 0, 1, 1000]),
            mmapSize: self.of(&[0, -1, 1, 4096, 1 << 20]),
            exclusive: 0,
            holdReads: self.of(&[0, 0, -1, 1]),
            walPages: self.of(&[0, 16, 100]),
            secureDelete: self.of(&[0, 0, 1]),
            profile: self.of(&[0, 0, KVSTORE_SMALL]),
            mode: self.of(&[0, 0, 0o600, 0o660, 0o400]),
            purgePerWrite: self.of(&[0, 0, 1, 40]),
            onlyEncrypted: self.of(&[0, 0, 1, -1]),
            reserved: [0; 2],
        });
        match self.byte() {
            0 => config.reserved[1] = 1,
            1 => config.pageSize = self.small(),
            2 => config.cacheSize = self.of(&[1, 2, 10, -1, c_int::MIN, c_int::MAX]),
            3 => config.syncLevel = self.small(),
            4 => config.busyTimeout = self.of(&[1, 2, -1, c_int::MIN]),
            5 => config.walSizeLimit = self.small(),
            6 => config.maxValueSize = self.of(&[-1, c_int::MIN, c_int::MAX, DEFAULT_MAX_VALUE]),
            7 => config.mmapSize = self.time(),
            8 => config.holdReads = self.small(),
            9 => config.walPages = self.small(),
            10 => config.purgePerWrite = self.small(),
            _ => {}
        }
        self.frame(|frame| &raw const **frame.config.insert(config))
    }

    fn options(&self) -> *const KVWriteOptions {
        if self.byte() < 20 {
            return null();
        }
        let flags = self.of(&[0, 1, 2, 4, 8, 5, 6, 12, 9, 10, 3, 15, 16, u32::MAX]);
        let expireMs = if self.byte() < 100 { 0 } else { self.time() };
        let options = KVWriteOptions { expireMs, flags, reserved: u32::from(self.byte() == 255) };
        self.frame(|frame| &raw const **frame.options.insert(Box::new(options)))
    }

    fn stats(&self) -> *mut KVStoreStats {
        if self.byte() == 255 {
            return null_mut();
        }
        // SAFETY: a struct of numbers.
        let stats = Box::new(unsafe { std::mem::zeroed::<KVStoreStats>() });
        self.frame(|frame| &raw mut **frame.stats.insert(stats))
    }

    fn entries(&self) -> *mut KVEntry {
        if self.byte() < 4 {
            return null_mut();
        }
        // SAFETY: a struct of numbers and pointers.
        let entries = Box::new(unsafe { std::mem::zeroed::<[KVEntry; ROWS]>() });
        self.frame(|frame| frame.entries.insert(entries).as_mut_ptr())
    }

    fn rows(&self) -> c_int {
        match self.byte() {
            0..4 => self.of(&[-1, c_int::MIN]),
            n => c_int::from(n) % (ROWS as c_int + 1),
        }
    }

    // ---- arrays -------------------------------------------------------------------------------

    fn count(&self) -> c_int {
        let count = match self.byte() {
            0..6 => -1,
            6..8 => c_int::MAX,
            n => c_int::from(n % 5),
        };
        self.frame(|frame| frame.count = count);
        count
    }

    /// Number of elements in the arrays. With a count of INT_MAX one array is NULL, so no element
    /// is read.
    fn elements(&self) -> usize {
        let count = self.frame(|frame| frame.count);
        if count == c_int::MAX { 0 } else { usize::try_from(count).unwrap_or(0) }
    }

    fn array(&self, elements: Vec<*mut c_void>) -> *mut *mut c_void {
        self.frame(|frame| {
            frame.arrays.push(elements.into_boxed_slice());
            frame.arrays.last_mut().expect("pushed just now").as_mut_ptr()
        })
    }

    fn number_array(&self, elements: Vec<c_int>) -> *mut c_int {
        self.frame(|frame| {
            frame.numbers.push(elements.into_boxed_slice());
            frame.numbers.last_mut().expect("pushed just now").as_mut_ptr()
        })
    }

    fn keys(&self) -> *const *const c_void {
        if self.frame(|frame| frame.count) == c_int::MAX || self.byte() < 4 {
            return null();
        }
        let (mut keys, mut lengths) = (Vec::new(), Vec::new());
        for _ in 0..self.elements() {
            keys.push(self.bytes("pKey").cast_mut());
            lengths.push(self.length());
        }
        self.number_array(lengths);
        self.array(keys).cast_const().cast()
    }

    fn lengths(&self) -> *const c_int {
        if self.byte() < 4 {
            return null();
        }
        self.frame(|frame| frame.numbers.last().map_or(null(), |lengths| lengths.as_ptr()))
    }

    fn values(&self) -> *mut *mut c_void {
        if self.byte() < 4 {
            return null_mut();
        }
        // May be empty, which is rejected.
        self.array(vec![null_mut(); self.elements()])
    }

    fn value_lengths(&self) -> *mut c_int {
        if self.byte() < 4 {
            return null_mut();
        }
        self.number_array(vec![-1; self.elements()])
    }

    // ---- callbacks ----------------------------------------------------------------------------

    fn context(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    fn memory(&self) -> *mut c_void {
        // SAFETY: any number is allowed.
        if self.byte() < 20 { null_mut() } else { unsafe { kvstore_malloc(c_int::from(self.byte())) } }
    }

    fn clock(&self) -> Option<unsafe extern "C" fn(*mut c_void) -> i64> {
        match self.byte() {
            0..20 => None,
            20..140 => Some(calm_clock),
            _ => Some(calling_clock),
        }
    }

    /// Always the same, because it outlives the world.
    #[allow(clippy::unused_self, reason = "it is called like the others")]
    fn wait_hook(&self) -> Option<unsafe extern "C" fn(*mut c_void) -> c_int> {
        Some(no_wait)
    }

    fn progress(&self) -> Option<unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int> {
        match self.byte() {
            0..60 => None,
            _ => Some(calling_progress),
        }
    }

    fn copied(&self) -> Option<unsafe extern "C" fn(*mut c_void, i64, i64) -> c_int> {
        match self.byte() {
            0..60 => None,
            _ => Some(calling_copied),
        }
    }

    fn report(&self) -> Option<unsafe extern "C" fn(*mut c_void, *const c_char, i64, i64) -> c_int> {
        match self.byte() {
            0..60 => None,
            _ => Some(calling_report),
        }
    }

    // ---- a call -------------------------------------------------------------------------------

    fn step(&self) {
        self.calls.set(self.calls.get() + 1);
        let choice = self.byte();
        if choice >= 240 {
            NOW_MS.fetch_add(i64::from(choice - 238) * 10, Ordering::Relaxed);
        }
        let call = &CALLS[usize::from(choice) % CALLS.len()];
        self.make(call);
    }

    fn make(&self, call: &Call) {
        self.frames.borrow_mut().push(Frame::default());
        if trace() {
            eprintln!("{:1$}{2}", "", self.frames.borrow().len(), call.name);
        }
        let answer = (call.run)(self);
        let frame = self.frames.borrow_mut().pop().expect("pushed above");
        match answer {
            Answer::Code(code) if call.name != "kvstore_iterator_eof" => {
                if trace() {
                    eprintln!("{:1$}= {code}", "", self.frames.borrow().len() + 1);
                }
                self.check(call, code, frame);
            }
            Answer::Code(code) => assert!(code == 0 || code == 1),
            // SAFETY: a text of the library's, not NULL as is checked.
            Answer::Text(text) => drop(unsafe {
                assert!(!text.is_null(), "{} gave NULL", call.name);
                CStr::from_ptr(text).to_owned()
            }),
            // SAFETY: malloc'd just now, or NULL.
            Answer::Memory(memory) => unsafe { kvstore_free(memory) },
            Answer::Nothing => {
                let kind = match call.name {
                    "kvstore_cf_close" => Kind::Family,
                    "kvstore_iterator_close" => Kind::Iterator,
                    "kvstore_batch_free" => Kind::Batch,
                    _ => return,
                };
                self.mark_closed(frame.used[0], kind);
            }
        }
    }

    fn check(&self, call: &Call, code: c_int, frame: Frame) {
        let name = call.name;
        assert!(call.codes.contains(&code), "{name} returned {code}, which its documentation does not name");
        // SAFETY: NULL is allowed.
        assert!(!unsafe { kvstore_errmsg(null_mut()) }.is_null());
        let done = code == KVSTORE_OK;
        if let Some((kind, output)) = &frame.handle {
            assert!(**output as i64 != UNTOUCHED, "{name} left its handle output unset");
            assert_eq!(output.is_null(), !done, "{name} returned {code} and the handle {:?}", **output);
            if done {
                self.handles.borrow_mut().push(Handle { kind: *kind, pointer: **output, open: true });
                if *kind == Kind::Store {
                    // SAFETY: the world outlives its stores.
                    unsafe { kvstore_set_clock((**output).cast(), Some(calm_clock), self.context()) };
                }
            }
        }
        if name == "kvstore_close" && code != KVSTORE_MISUSE {
            self.mark_closed(frame.used[0], Kind::Store);
        }
        // SAFETY: what a call handed out is freed, or read where it is the iterator's, once.
        unsafe { self.take_results(name, code, &frame) };
    }

    unsafe fn take_results(&self, name: &str, code: c_int, frame: &Frame) {
        let untouched = frame.ints.iter().all(|int| **int == UNTOUCHED as c_int)
            && frame.int64s.iter().all(|int| **int == UNTOUCHED)
            && frame.pointers.iter().all(|pointer| **pointer as i64 == UNTOUCHED);
        if name == "kvstore_integrity_check" {
            for message in &frame.pointers {
                let there = **message as i64 != UNTOUCHED && !message.is_null();
                assert!(!there || code == KVSTORE_CORRUPT);
                if there {
                    // SAFETY: a text that is ours now.
                    unsafe { kvstore_free(**message) };
                }
            }
            return assert!(code != KVSTORE_CORRUPT, "the store is damaged");
        }
        if matches!(name, "kvstore_get_many" | "kvstore_cf_get_many") {
            let lengths = frame.numbers.last();
            for values in frame.arrays.iter().skip(1) {
                for (n, value) in values.iter().enumerate() {
                    if value.is_null() {
                        continue;
                    }
                    assert_eq!(code, KVSTORE_OK);
                    let length = lengths.expect("lengths of values")[n];
                    // SAFETY: a copy with a NUL after it.
                    unsafe { read(*value, length + 1, true) };
                }
            }
            return;
        }
        if code != KVSTORE_OK && code != KVSTORE_NOTFOUND {
            return assert!(untouched, "{name} returned {code} and wrote to an output");
        }
        if code == KVSTORE_NOTFOUND {
            let empty =
                frame.pointers.iter().all(|pointer| pointer.is_null() || **pointer as i64 == UNTOUCHED);
            return assert!(empty, "{name} found nothing and gave out memory");
        }
        if let (Some(entries), Some(count)) = (&frame.entries, frame.ints.first()) {
            for entry in &entries[..usize::try_from(**count).expect("a count")] {
                // SAFETY: the iterator's, until it moves.
                unsafe {
                    read(entry.pKey.cast_mut(), entry.nKey, false);
                    if !entry.pValue.is_null() {
                        read(entry.pValue.cast_mut(), entry.nValue, false);
                    }
                }
            }
        }
        let Some(pointer) = frame.pointers.first() else { return };
        let length = **frame.ints.first().expect("a call that gives out memory tells its length");
        match name {
            // SAFETY: an array of as many texts, with a NULL after them.
            "kvstore_cf_list" => unsafe {
                let names = **pointer as *mut *mut c_void;
                let count = usize::try_from(length).expect("a count");
                assert!((*names.add(count)).is_null());
                for n in 0..count {
                    kvstore_free(*names.add(n));
                }
                kvstore_free(names.cast());
            },
            // SAFETY: the iterator's, until it moves.
            "kvstore_iterator_key" | "kvstore_iterator_value" => unsafe { read(**pointer, length, false) },
            // SAFETY: a copy with a NUL after it.
            _ => unsafe {
                read(**pointer, length + 1, true);
            },
        }
    }

    fn close_everything(&self) {
        let stores_first = self.byte() & 1 == 0;
        let mut handles = self.handles.take();
        if !stores_first {
            handles.reverse();
        }
        for _ in 0..2 {
            for handle in &handles {
                // SAFETY: handles of these types, open or closed.
                unsafe {
                    match handle.kind {
                        Kind::Store => {
                            kvstore_close(handle.pointer.cast());
                        }
                        Kind::Family => kvstore_cf_close(handle.pointer.cast()),
                        Kind::Iterator => kvstore_iterator_close(handle.pointer.cast()),
                        Kind::Batch => kvstore_batch_free(handle.pointer.cast()),
                    }
                }
            }
        }
    }

    fn open(&self, name: &str, mode: c_int) -> *mut KVStore {
        let path = CString::new(self.dir.join(name).into_os_string().into_encoded_bytes()).expect("a path");
        let mut store = null_mut();
        // SAFETY: a path and an output.
        let code = unsafe { kvstore_open(path.as_ptr(), &raw mut store, mode) };
        // SAFETY: a text.
        assert_eq!(code, KVSTORE_OK, "{name}: {:?}", unsafe { CStr::from_ptr(kvstore_errmsg(null_mut())) });
        store
    }

    /// Opens two handles on one file, each with a family, so that the first call has valid
    /// arguments.
    fn begin(&self) {
        // SAFETY: a function that uses no context. By default, calls wait for locks for 5 seconds.
        unsafe { kvstore_set_wait_hook(self.wait_hook(), null_mut()) };
        for _ in 0..2 {
            let store = self.open("wal.db", KVSTORE_JOURNAL_WAL);
            let mut family = null_mut();
            // SAFETY: an open store, an output, and a world that outlives the store.
            unsafe {
                kvstore_set_clock(store, Some(calm_clock), self.context());
                assert_eq!(kvstore_cf_get_default(store, &raw mut family), KVSTORE_OK);
            }
            let mut handles = self.handles.borrow_mut();
            handles.push(Handle { kind: Kind::Store, pointer: store.cast(), open: true });
            handles.push(Handle { kind: Kind::Family, pointer: family.cast(), open: true });
        }
    }

    fn check_files(&self) {
        for (name, mode) in [
            ("wal.db", KVSTORE_JOURNAL_WAL),
            ("delete.db", KVSTORE_JOURNAL_DELETE),
            ("copy.db", KVSTORE_JOURNAL_WAL),
        ] {
            if !std::fs::metadata(self.dir.join(name)).is_ok_and(|file| file.len() > 0) {
                continue;
            }
            let store = self.open(name, mode);
            let mut message: *mut c_char = null_mut();
            // SAFETY: an open store and an output.
            unsafe {
                let code = kvstore_integrity_check(store, &raw mut message);
                assert_eq!(
                    code,
                    KVSTORE_OK,
                    "{name}: {:?}",
                    (!message.is_null()).then(|| CStr::from_ptr(message))
                );
                kvstore_close(store);
            }
        }
    }
}

/// Reads memory that a call returned, and frees it if `free` is set.
unsafe fn read(memory: *mut c_void, length: c_int, free: bool) {
    let length = usize::try_from(length).expect("a length");
    // SAFETY: valid for as much, says the call.
    unsafe {
        let bytes = std::slice::from_raw_parts(memory.cast::<u8>(), length);
        std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        if free {
            assert_eq!(bytes.last(), Some(&0), "no NUL after a copy");
            kvstore_free(memory);
        }
    }
}

unsafe extern "C" fn no_wait(_: *mut c_void) -> c_int {
    1
}

unsafe extern "C" fn calm_clock(_: *mut c_void) -> i64 {
    NOW_MS.load(Ordering::Relaxed)
}

unsafe extern "C" fn calling_clock(context: *mut c_void) -> i64 {
    // SAFETY: the context is a world that outlives its stores.
    unsafe { call_back(context) };
    NOW_MS.load(Ordering::Relaxed)
}

unsafe extern "C" fn calling_progress(context: *mut c_void, _: c_int, _: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { call_back(context) };
    // SAFETY: as above.
    c_int::from(unsafe { &*context.cast::<World>() }.byte() > 200)
}

unsafe extern "C" fn calling_copied(context: *mut c_void, _: i64, _: i64) -> c_int {
    // SAFETY: as above.
    unsafe { calling_progress(context, 0, 0) }
}

unsafe extern "C" fn calling_report(context: *mut c_void, _: *const c_char, _: i64, _: i64) -> c_int {
    // SAFETY: as above.
    unsafe { calling_progress(context, 0, 0) }
}

unsafe fn call_back(context: *mut c_void) {
    if !DRIVES.get() {
        return; // the cleaner's thread
    }
    // SAFETY: as above.
    let world = unsafe { &*context.cast::<World>() };
    let depth = world.frames.borrow().len();
    if depth <= MAX_DEPTH && !world.input.borrow().is_empty() && world.calls.get() < MAX_CALLS {
        world.step();
    }
}

fn trace() -> bool {
    static TRACE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *TRACE.get_or_init(|| std::env::var_os("KVSTORE_FUZZ_TRACE").is_some())
}

/// Makes every panic a finding. The library itself catches panics and suppresses their messages.
fn let_no_panic_pass() {
    let mut store = null_mut();
    // SAFETY: an output; no path is a store in memory.
    unsafe {
        assert_eq!(kvstore_open(null(), &raw mut store, 0), KVSTORE_OK); // sets the hook that silences
        kvstore_close(store);
    }
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }));
}

fuzz_target!(|input: &[u8]| {
    static ONCE: Once = Once::new();
    ONCE.call_once(let_no_panic_pass);
    assert_eq!(kvstore::engine(), "btree", "the flags of .cargo/config.toml are not in use");
    DRIVES.set(true);
    NOW_MS.store(BEGIN_MS, Ordering::Relaxed);
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(
        dir.path().join("text"),
        "not a store, but a text that is longer than a header of SQLite's",
    )
    .expect("a file");
    let world = Box::new(World {
        input: RefCell::new(input.iter().copied().collect()),
        handles: RefCell::default(),
        frames: RefCell::default(),
        calls: Cell::new(0),
        dir: dir.path().to_owned(),
    });
    world.begin();
    while !world.input.borrow().is_empty() && world.calls.get() < MAX_CALLS {
        world.step();
    }
    world.close_everything();
    NOW_MS.store(BEGIN_MS, Ordering::Relaxed);
    world.check_files();
});
