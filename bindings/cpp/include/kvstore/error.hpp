/// @file
/// Exception type of the library, and its codes.
#ifndef KVSTORE_ERROR_HPP
#define KVSTORE_ERROR_HPP

#include <kvstore.h>

#include <stdexcept>
#include <string>

/// An embedded, ordered key-value store with per-key TTL.
namespace kvstore {

/// Kind of a failure. The values are the result codes of the C API.
enum class errc : int {
    /// Invalid argument, wrong order of calls, or a failure without a code of its own.
    error = KVSTORE_ERROR,
    /// Another handle, process or server client holds a lock: retry, or set config::busy_timeout.
    busy = KVSTORE_BUSY,
    /// Lock within this process: retry. On a server: conflict; roll back and run the transaction
    /// again.
    locked = KVSTORE_LOCKED,
    nomem = KVSTORE_NOMEM, ///< The library is out of memory.
    readonly = KVSTORE_READONLY, ///< Write to a read-only store or file.
    ioerr = KVSTORE_IOERR, ///< A read, write or sync failed, or the connection to the server broke.
    corrupt = KVSTORE_CORRUPT, ///< The file, or the data on the server, is damaged.
    notfound = KVSTORE_NOTFOUND, ///< There is no such family. (A missing key is not an error.)
    /// The password is wrong or missing, or the server refused the login.
    auth_failed = KVSTORE_AUTH_FAILED,
    cantopen = KVSTORE_CANTOPEN, ///< The file cannot be opened, or the server cannot be reached.
    protocol = KVSTORE_PROTOCOL, ///< The locking protocol of the file failed.
    /// The object is closed, moved from, inherited through a fork, or unusable.
    misuse = KVSTORE_MISUSE,
    notadb = KVSTORE_NOTADB, ///< The file, or the schema on the server, is not a store.
    full = KVSTORE_FULL, ///< The disk is full, or the store has reached its size limit.
};

/// Returns a short description of a code. The string is static.
inline const char* describe(errc code) noexcept { return kvstore_strerror(static_cast<int>(code)); }

/// Exception thrown by every function of this library. `what()` states what failed and what to do.
/// It names families and settings, never keys or values.
class error : public std::runtime_error {
public:
    /// Creates an error with a kind and a text.
    error(errc code, const std::string& text) : std::runtime_error(text), code_(code) {}
    /// Creates an error with a kind and a text.
    error(errc code, const char* text) : std::runtime_error(text), code_(code) {}

    /// Returns the kind of failure.
    errc code() const noexcept { return code_; }

    /// Returns whether the same call may succeed later, because only a lock prevented it.
    bool retryable() const noexcept { return code_ == errc::busy || code_ == errc::locked; }

private:
    errc code_;
};

} // namespace kvstore

#endif
