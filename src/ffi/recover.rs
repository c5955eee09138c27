//! Recovery of damaged files.
//!
//! The function takes no handle, because a damaged file may not open.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::ptr;

use super::args::bad_argument;
use super::call::{call_without_handle, silence_guarded_panics};
use super::codes::KVSTORE_OK;
use super::conditional::give_count;
use super::hazard;
use crate::{RecoverEvent, path_of};

/// Saves every readable row of a damaged file into a new store, with its family, value, expiry time
/// and write time. Expired rows are left out.
///
/// @param path Damaged file. It is read as bytes, together with its -wal or rollback journal, and
///   never written. It must not be open elsewhere.
/// @param newPath Path of the new store. It must not exist; the file appears when the store is
///   complete and synced.
/// @param report Called with `context` and a text for each loss found; the text is valid during the
///   call and contains the key of a lost row, if known. Also called at intervals with NULL as text.
///   `done` and `total` are numbers of pages. A result other than 0 cancels the recovery. May be
///   NULL.
/// @param context Passed to `report`.
/// @param pSaved Receives the number of rows saved. May be NULL.
/// @param pLost Receives the number of losses found: rows, pages and tables; 0 if everything was
///   saved. May be NULL.
///
/// No row is invented. Inconsistent pages are not used, nor are free pages, which may contain
/// deleted rows. Rows under a damaged page are assigned to a family only if the file names it. Rows
/// of an unknown family are saved in families called "recovered-1" and so on. A changed byte within
/// a key, a value or a time is not detected.
///
/// The settings of the families are saved too.
///
/// Errors: KVSTORE_CANTOPEN (`path` cannot be read), KVSTORE_NOTADB (the file contains nothing of a
/// store), KVSTORE_ERROR (a path is NULL, `newPath` exists or cannot be that of a store, or
/// `report` cancelled the recovery), KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_BUSY. No
/// new file is left then. kvstore_errmsg(NULL) returns the text.
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
    hazard::prepare();
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
                RecoverEvent::Progress { pages_done: read, pages_total: of } => {
                    (done, total) = (of_c(read), of_c(of));
                    None
                }
                RecoverEvent::Lost(loss) => CString::new(loss.to_string()).ok(),
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
