//! Declarations of the functions of SQLite's B-tree layer that this crate calls, as in SQLite
//! 3.54.1 (btree.h, vdbe.h, sqliteInt.h).
//!
//! SQLite does not promise that these functions are stable, so build.rs enables the engine only for
//! the versions of SQLite that these declarations fit. Only `tree.rs`, `cursor.rs` and `pager.rs`
//! call the functions.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use rusqlite::ffi::sqlite3;

/// Opaque type of SQLite: one database file of a connection.
#[repr(C)]
pub(super) struct Btree {
    _private: [u8; 0],
}

/// Opaque type of SQLite: the pager, which reads and writes the pages of a database file.
#[repr(C)]
pub(super) struct Pager {
    _private: [u8; 0],
}

/// Opaque type of SQLite: a page in memory.
#[repr(C)]
pub(super) struct DbPage {
    _private: [u8; 0],
}

/// Opaque type of SQLite: a cursor. The caller supplies its memory: `sqlite3BtreeCursorSize` bytes,
/// aligned to 8.
#[repr(C)]
pub(super) struct BtCursor {
    _private: [u8; 0],
}

/// Opaque type of SQLite: the comparison of the keys of an index B-tree.
#[repr(C)]
pub(super) struct KeyInfo {
    _private: [u8; 0],
}

/// Opaque type of SQLite: a search key, split into columns.
#[repr(C)]
pub(super) struct UnpackedRecord {
    _private: [u8; 0],
}

/// Argument of `sqlite3BtreeInsert`: the entry to insert. For an index B-tree, `key` is the record.
/// For a table, `key_size` is the rowid, and `data` is the record.
#[repr(C)]
pub(super) struct BtreePayload {
    pub(super) key: *const c_void,
    pub(super) key_size: i64,
    pub(super) data: *const c_void,
    pub(super) mem: *mut c_void,
    pub(super) mem_count: u16,
    pub(super) data_size: c_int,
    pub(super) zero: c_int,
}

/// Flag of `sqlite3BtreeCursor`: the cursor is for writing.
pub(super) const BTREE_WRCSR: c_int = 0x04;
/// Flag of `sqlite3BtreeInsert`: the cursor is at the entry that is replaced.
pub(super) const BTREE_SAVEPOSITION: c_int = 0x02;
/// Flag of `sqlite3PagerGet`: the page is only read, so it may be a page of the memory map.
pub(super) const PAGER_GET_READONLY: c_int = 0x02;
/// Index for `sqlite3BtreeGetMeta` of a number that changes only with commits of other connections.
pub(super) const BTREE_DATA_VERSION: c_int = 15;
/// Index for `sqlite3BtreeGetMeta` of the number of free pages.
pub(super) const BTREE_FREE_PAGE_COUNT: c_int = 0;
/// Index for `sqlite3BtreeGetMeta` of the number of the greatest root page; 0 if the file has no
/// pointer map.
pub(super) const BTREE_LARGEST_ROOT_PAGE: c_int = 4;
/// Indexes for `sqlite3BtreeGetMeta` of the schema cookie, and of the encoding of texts, where 1 is
/// UTF-8.
pub(super) const BTREE_SCHEMA_VERSION: c_int = 1;
pub(super) const BTREE_TEXT_ENCODING: c_int = 5;
/// Indexes for `sqlite3BtreeGetMeta` of the values of `PRAGMA user_version` and `PRAGMA
/// application_id`.
pub(super) const BTREE_USER_VERSION: c_int = 6;
pub(super) const BTREE_APPLICATION_ID: c_int = 8;
/// Results of `sqlite3PagerGetJournalMode` for the two journal modes that this library uses.
pub(super) const PAGER_JOURNALMODE_DELETE: c_int = 0;
pub(super) const PAGER_JOURNALMODE_WAL: c_int = 5;
/// Flags of `sqlite3BtreeCreateTable`: a table with rowids, and a table without.
pub(super) const BTREE_INTKEY: c_int = 1;
pub(super) const BTREE_BLOBKEY: c_int = 2;
/// Result of `sqlite3BtreeTxnState` inside a write transaction.
pub(super) const TXN_WRITE: c_int = 2;

unsafe extern "C" {
    pub(super) fn sqlite3DbNameToBtree(db: *mut sqlite3, name: *const c_char) -> *mut Btree;
    pub(super) fn sqlite3DbFree(db: *mut sqlite3, memory: *mut c_void);
    pub(super) fn sqlite3KeyInfoAlloc(
        db: *mut sqlite3,
        key_fields: c_int,
        other_fields: c_int,
    ) -> *mut KeyInfo;
    pub(super) fn sqlite3KeyInfoUnref(info: *mut KeyInfo);
    pub(super) fn sqlite3VdbeAllocUnpackedRecord(info: *mut KeyInfo) -> *mut UnpackedRecord;
    pub(super) fn sqlite3VdbeRecordUnpack(size: c_int, record: *const c_void, into: *mut UnpackedRecord);

    pub(super) fn sqlite3BtreeBeginTrans(btree: *mut Btree, write: c_int, cookie: *mut c_int) -> c_int;
    pub(super) fn sqlite3BtreeGetMeta(btree: *mut Btree, number: c_int, value: *mut u32);
    pub(super) fn sqlite3BtreeIncrVacuum(btree: *mut Btree) -> c_int;
    pub(super) fn sqlite3BtreeUpdateMeta(btree: *mut Btree, number: c_int, value: u32) -> c_int;
    pub(super) fn sqlite3BtreeCreateTable(btree: *mut Btree, root: *mut u32, flags: c_int) -> c_int;
    pub(super) fn sqlite3ResetAllSchemasOfConnection(db: *mut sqlite3);
    pub(super) fn sqlite3BtreeCommit(btree: *mut Btree) -> c_int;
    pub(super) fn sqlite3BtreeCommitPhaseOne(btree: *mut Btree, super_journal: *const c_char) -> c_int;
    pub(super) fn sqlite3BtreeCommitPhaseTwo(btree: *mut Btree, cleanup: c_int) -> c_int;
    pub(super) fn sqlite3BtreeRollback(btree: *mut Btree, trip_code: c_int, write_only: c_int) -> c_int;
    pub(super) fn sqlite3BtreePager(btree: *mut Btree) -> *mut Pager;
    pub(super) fn sqlite3BtreeSetSpillSize(btree: *mut Btree, pages: c_int) -> c_int;
    pub(super) fn sqlite3BtreeSetMmapLimit(btree: *mut Btree, bytes: i64) -> c_int;
    pub(super) fn sqlite3BtreeGetPageSize(btree: *mut Btree) -> c_int;
    pub(super) fn sqlite3BtreeLastPage(btree: *mut Btree) -> u32;
    pub(super) fn sqlite3BtreeGetReserveNoMutex(btree: *mut Btree) -> c_int;
    pub(super) fn sqlite3PagerGet(
        pager: *mut Pager,
        number: u32,
        page: *mut *mut DbPage,
        flags: c_int,
    ) -> c_int;
    pub(super) fn sqlite3PagerGetData(page: *mut DbPage) -> *mut c_void;
    pub(super) fn sqlite3PagerUnrefNotNull(page: *mut DbPage);
    pub(super) fn sqlite3PagerGetJournalMode(pager: *mut Pager) -> c_int;
    pub(super) fn sqlite3PagerMaxPageCount(pager: *mut Pager, pages: u32) -> u32;
    pub(super) fn sqlite3PagerJournalSizeLimit(pager: *mut Pager, bytes: i64) -> i64;
    pub(super) fn sqlite3PagerWalCallback(pager: *mut Pager) -> c_int;
    pub(super) fn sqlite3BtreeTxnState(btree: *mut Btree) -> c_int;

    pub(super) fn sqlite3BtreeCursorSize() -> c_int;
    pub(super) fn sqlite3BtreeCursorZero(cursor: *mut BtCursor);
    pub(super) fn sqlite3BtreeCursor(
        btree: *mut Btree,
        root: u32,
        write: c_int,
        info: *mut KeyInfo,
        cursor: *mut BtCursor,
    ) -> c_int;
    pub(super) fn sqlite3BtreeCloseCursor(cursor: *mut BtCursor) -> c_int;
    pub(super) fn sqlite3BtreeCursorHasMoved(cursor: *mut BtCursor) -> c_int;
    pub(super) fn sqlite3BtreeCursorIsValidNN(cursor: *mut BtCursor) -> c_int;
    pub(super) fn sqlite3BtreeIndexMoveto(
        cursor: *mut BtCursor,
        key: *mut UnpackedRecord,
        result: *mut c_int,
    ) -> c_int;
    pub(super) fn sqlite3BtreeTableMoveto(
        cursor: *mut BtCursor,
        key: i64,
        bias: c_int,
        result: *mut c_int,
    ) -> c_int;
    pub(super) fn sqlite3BtreeFirst(cursor: *mut BtCursor, empty: *mut c_int) -> c_int;
    pub(super) fn sqlite3BtreeLast(cursor: *mut BtCursor, empty: *mut c_int) -> c_int;
    pub(super) fn sqlite3BtreeNext(cursor: *mut BtCursor, flags: c_int) -> c_int;
    pub(super) fn sqlite3BtreePrevious(cursor: *mut BtCursor, flags: c_int) -> c_int;
    pub(super) fn sqlite3BtreeIntegerKey(cursor: *mut BtCursor) -> i64;
    pub(super) fn sqlite3BtreePayloadSize(cursor: *mut BtCursor) -> u32;
    pub(super) fn sqlite3BtreeMaxRecordSize(cursor: *mut BtCursor) -> i64;
    pub(super) fn sqlite3BtreePayloadFetch(cursor: *mut BtCursor, local: *mut u32) -> *const c_void;
    pub(super) fn sqlite3BtreePayload(
        cursor: *mut BtCursor,
        offset: u32,
        amount: u32,
        into: *mut c_void,
    ) -> c_int;
    pub(super) fn sqlite3BtreeInsert(
        cursor: *mut BtCursor,
        payload: *const BtreePayload,
        flags: c_int,
        seek_result: c_int,
    ) -> c_int;
    pub(super) fn sqlite3BtreeDelete(cursor: *mut BtCursor, flags: u8) -> c_int;
    pub(super) fn sqlite3BtreeCount(db: *mut sqlite3, cursor: *mut BtCursor, count: *mut i64) -> c_int;
}
