//! Recovery of what can be read of a damaged file. It takes no handle: such a file cannot be opened.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::ptr;

use super::args::bad_argument;
use super::call::{call_without_handle, silence_guarded_panics};
use super::codes::KVSTORE_OK;
use super::conditional::give_count;
use super::under_way;
use crate::{Recovering, path_of};

/// Saves every row that can be read of the file `path`, which may be damaged, into a new store at `newPath`: with its
/// value, its TTL, its write time and its family, whose settings are kept. Rows that have expired are left out.
/// `*pSaved` (may be NULL) is the number of rows saved, `*pLost` (may be NULL) that of all that was found to be lost:
/// rows, pages, tables; 0: everything is there. The text of the calls that fail is in kvstore_errmsg(NULL).
///
/// The file is read as bytes and never written, with the -wal or the rollback journal beside it. Nobody may have it
/// open meanwhile. `newPath` must not exist; it appears when the new store is whole and synced.
///
/// `report` (may be NULL) is called with `context` and `text`, a line about something that is lost, which is valid during
/// the call and has the key of a lost row, if that is known; and now and then with NULL as `text`. `done` and `total`
/// are how many pages were read, and are about to be. What it returns, if not 0, stops the recovery.
///
/// No row is invented: pages of which anything does not agree, and free ones, which may have deleted rows, are not used;
/// what a damaged page led to is given to a family only if the file says to which one. Rows whose family nothing names
/// are saved in families called "recovered-1" and so on. But a byte that was changed inside a key, a value or a time is
/// not noticed.
///
/// Errors: KVSTORE_CANTOPEN (`path` cannot be read), KVSTORE_NOTADB (nothing in it is of a store), KVSTORE_ERROR (a path
/// is NULL; `newPath` exists or cannot be a store's; stopped by report), KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM,
/// KVSTORE_BUSY. No file is left then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_recover(
    path: *const c_char,
    newPath: *const c_char,
    report: Option<
        unsafe extern "C" fn(context: *mut c_void, text: *const c_char, done: i64, total: i64) -> c_int,
    >,
    context: *mut c_void,
    pSaved: *mut i64,
    pLost: *mut i64,
) -> c_int {
    silence_guarded_panics();
    under_way::prepare();
    call_without_handle(|| {
        if path.is_null() || newPath.is_null() {
            return bad_argument("a path is NULL: pass the damaged file, and the name of the new store");
        }
        // SAFETY: NUL-terminated strings, as documented.
        let [from, to] = [path, newPath].map(|path| path_of(unsafe { CStr::from_ptr(path) }.to_bytes()));
        let (from, to) = (from?, to?);
        let (mut done, mut total) = (0, 0);
        let recovered = crate::recover(from, to, |what| {
            let text = match what {
                Recovering::Pages { done: read, total: of } => {
                    (done, total) = (of_c(read), of_c(of));
                    None
                }
                Recovering::Lost(loss) => CString::new(loss.to_string()).ok(),
            };
            let text = text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
            // SAFETY: the caller's function, with the caller's context.
            let stop = report.is_some_and(|report| unsafe { report(context, text, done, total) } != 0);
            if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        // SAFETY: NULL or valid, as documented.
        unsafe {
            give_count(pSaved, recovered.rows);
            give_count(pLost, recovered.rows_lost + recovered.pages_lost + recovered.other_losses);
        }
        Ok(KVSTORE_OK)
    })
}

fn of_c(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
