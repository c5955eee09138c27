/// @file
/// What a call that fails throws, and the codes it carries. Knows no handle.
#ifndef KVSTORE_ERROR_HPP
#define KVSTORE_ERROR_HPP

#include <kvstore.h>

#include <stdexcept>
#include <string>

/// An embedded, ordered key-value store with an end of life for each key.
namespace kvstore {

/// The kind of a failure; the values are the codes of the C API.
enum class errc : int {
    error = KVSTORE_ERROR,             ///< A wrong argument, a wrong order of calls, or nothing below.
    busy = KVSTORE_BUSY,               ///< Another handle, process or client holds a lock: retry, or busy_timeout.
    locked = KVSTORE_LOCKED,           ///< A lock inside this process: retry. On a server: roll back, run it again.
    nomem = KVSTORE_NOMEM,             ///< The library is out of memory.
    readonly = KVSTORE_READONLY,       ///< A write where only reading is allowed.
    ioerr = KVSTORE_IOERR,             ///< Reading, writing or syncing failed, or the connection to the server broke.
    corrupt = KVSTORE_CORRUPT,         ///< The file, or what the server has, is damaged.
    notfound = KVSTORE_NOTFOUND,       ///< No such family. (A key that is missing is no error.)
    auth_failed = KVSTORE_AUTH_FAILED, ///< A wrong password, or none for an encrypted store or a server.
    cantopen = KVSTORE_CANTOPEN,       ///< The file cannot be opened, or the server not be reached.
    protocol = KVSTORE_PROTOCOL,       ///< The locking protocol of the file failed.
    misuse = KVSTORE_MISUSE,           ///< Closed, moved from, inherited through a fork, or unusable.
    notadb = KVSTORE_NOTADB,           ///< The file, or the schema on the server, is not a store.
    full = KVSTORE_FULL,               ///< The disk is full, or the store has reached its limit.
};

/// What a code means, in a few words. The text is static.
inline const char* describe(errc code) noexcept { return kvstore_strerror(static_cast<int>(code)); }

/// The one exception of this library. `what()` says what is wrong and what to do; it names families and
/// settings, never keys or values.
class error : public std::runtime_error {
public:
    /// An error of a kind, with its text.
    error(errc code, const std::string& text) : std::runtime_error(text), code_(code) {}
    /// An error of a kind, with its text.
    error(errc code, const char* text) : std::runtime_error(text), code_(code) {}

    /// The kind of failure.
    errc code() const noexcept { return code_; }

    /// Whether the same call may succeed later, because only a lock stood in the way.
    bool retryable() const noexcept { return code_ == errc::busy || code_ == errc::locked; }

private:
    errc code_;
};

} // namespace kvstore

#endif
