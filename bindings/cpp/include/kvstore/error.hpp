/// @file
/// Errors: codes, hints, the value that describes a failure, and the exception type.
#ifndef KVSTORE_ERROR_HPP
#define KVSTORE_ERROR_HPP

#include <kvstore.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

/// @cond
/// 1 if the compiler supports exceptions, 0 with -fno-exceptions. Without exceptions, only the
/// functions that return a kvstore::result are declared.
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define KVSTORE_EXCEPTIONS 1
#else
#define KVSTORE_EXCEPTIONS 0
#endif

/// Marks functions that run only after a failure, so that the compiler does not inline them.
#if defined(__GNUC__)
#define KVSTORE_COLD __attribute__((noinline, cold))
#else
#define KVSTORE_COLD
#endif
/// @endcond

/// An embedded, ordered key-value store with per-key TTL.
namespace kvstore {

/// Error codes of kvstore::failure and kvstore::error. The values are the result codes of the C API.
enum class errc : int {
    /// Invalid argument, wrong order of calls, or a failure without a code of its own.
    error = KVSTORE_ERROR,
    /// Another handle, process or server client holds a lock: retry, or set config::busy_timeout.
    busy = KVSTORE_BUSY,
    /// A lock within this process is held: retry. On a server, the transaction conflicts with
    /// another one: roll back and run it again.
    locked = KVSTORE_LOCKED,
    nomem = KVSTORE_NOMEM, ///< The library is out of memory.
    readonly = KVSTORE_READONLY, ///< A write to a read-only store or file.
    ioerr = KVSTORE_IOERR, ///< A read, write or sync failed, or the connection to the server broke.
    corrupt = KVSTORE_CORRUPT, ///< The file, or the data on the server, is damaged.
    notfound = KVSTORE_NOTFOUND, ///< The family does not exist. A missing key is not an error.
    /// The password is wrong or missing, or the server refused the login.
    auth_failed = KVSTORE_AUTH_FAILED,
    cantopen = KVSTORE_CANTOPEN, ///< The file cannot be opened, or the server cannot be reached.
    protocol = KVSTORE_PROTOCOL, ///< Too many processes competed for a lock of the file.
    /// The object is closed, moved from, inherited through a fork, or unusable.
    misuse = KVSTORE_MISUSE,
    notadb = KVSTORE_NOTADB, ///< The file, or the schema on the server, is not a store.
    full = KVSTORE_FULL, ///< The disk is full, or the store has reached its size limit.
};

/// Advice on an error: what the caller can do. The values are the KVSTORE_HINT_* numbers of the C
/// API.
///
/// A later version of the library may return further values.
enum class hint : int {
    none = KVSTORE_HINT_NONE, ///< There is no advice.
    retry = KVSTORE_HINT_RETRY, ///< Retry later; the cause is temporary.
    raise_busy_timeout = KVSTORE_HINT_RAISE_BUSY_TIMEOUT, ///< Retry, or set a longer config::busy_timeout.
    roll_back = KVSTORE_HINT_ROLL_BACK, ///< Roll the transaction back.
    run_transaction_again = KVSTORE_HINT_RUN_TRANSACTION_AGAIN, ///< Roll the transaction back and run it again.
    end_transaction = KVSTORE_HINT_END_TRANSACTION, ///< Commit or roll back the open transaction.
    begin_transaction = KVSTORE_HINT_BEGIN_TRANSACTION, ///< Begin a transaction first.
    use_write_transaction = KVSTORE_HINT_USE_WRITE_TRANSACTION, ///< Use a write transaction instead of a snapshot.
    open_for_writing = KVSTORE_HINT_OPEN_FOR_WRITING, ///< Open the store without config::read_only.
    open_again = KVSTORE_HINT_OPEN_AGAIN, ///< Close the store and open it again.
    close_other_handles = KVSTORE_HINT_CLOSE_OTHER_HANDLES, ///< Close all other handles of the store.
    use_second_handle = KVSTORE_HINT_USE_SECOND_HANDLE, ///< Use a second store object inside callbacks.
    check_integrity = KVSTORE_HINT_CHECK_INTEGRITY, ///< Run store::integrity_check.
    repair = KVSTORE_HINT_REPAIR, ///< Run store::repair.
    recover = KVSTORE_HINT_RECOVER, ///< Restore a backup, or use kvstore::recover.
    check_permissions = KVSTORE_HINT_CHECK_PERMISSIONS, ///< Change the owner or the permissions of the files.
    free_disk_space = KVSTORE_HINT_FREE_DISK_SPACE, ///< Free space on the disk.
    give_password = KVSTORE_HINT_GIVE_PASSWORD, ///< Open the store with its password.
    omit_password = KVSTORE_HINT_OMIT_PASSWORD, ///< Open the store without a password.
    encrypt = KVSTORE_HINT_ENCRYPT, ///< Encrypt the store.
    rekey = KVSTORE_HINT_REKEY, ///< Change the password of the store.
    build_with_encryption = KVSTORE_HINT_BUILD_WITH_ENCRYPTION, ///< Use a build with encryption.
    build_with_server = KVSTORE_HINT_BUILD_WITH_SERVER, ///< Use a build with support for servers.
    raise_size_limit = KVSTORE_HINT_RAISE_SIZE_LIMIT, ///< Erase keys, or raise the size limit.
    raise_max_value_size = KVSTORE_HINT_RAISE_MAX_VALUE_SIZE, ///< Raise config::max_value_size.
    create_family = KVSTORE_HINT_CREATE_FAMILY, ///< Create the family.
    open_family = KVSTORE_HINT_OPEN_FAMILY, ///< Open the family, which exists.
    close_family = KVSTORE_HINT_CLOSE_FAMILY, ///< Destroy all family objects of the family.
    clear_family = KVSTORE_HINT_CLEAR_FAMILY, ///< Clear the default family; it cannot be dropped.
    track_writes = KVSTORE_HINT_TRACK_WRITES, ///< Switch write tracking on.
    change_eviction = KVSTORE_HINT_CHANGE_EVICTION, ///< Set another eviction policy.
    purge_yourself = KVSTORE_HINT_PURGE_YOURSELF, ///< Call store::purge_step instead.
    stop_cleaner = KVSTORE_HINT_STOP_CLEANER, ///< Stop the cleaner.
    copy_to_store = KVSTORE_HINT_COPY_TO_STORE, ///< Use store::copy_to instead.
    resume_copy = KVSTORE_HINT_RESUME_COPY, ///< Finish the interrupted copy.
    use_shorter_key = KVSTORE_HINT_USE_SHORTER_KEY, ///< Use a shorter key, such as a hash.
    repair_file = KVSTORE_HINT_REPAIR_FILE, ///< Repair the file with the command "kvstore repair".
    give_ttl = KVSTORE_HINT_GIVE_TTL, ///< Pass a std::chrono duration, which is a TTL.
};

/// Returns a short description of an error code, as a static string.
inline const char* describe(errc code) noexcept { return kvstore_strerror(static_cast<int>(code)); }

/// Returns the advice that a hint stands for, as a static string; empty for hint::none.
///
/// It is the text that ends failure::what() and error::what(). For a hint that this header does not know, it is the
/// text of the library.
inline const char* describe(hint advice) noexcept {
    switch (advice) {
    case hint::none: return "";
    case hint::retry: return "retry later";
    case hint::raise_busy_timeout: return "retry, or set a longer config::busy_timeout";
    case hint::roll_back: return "roll the transaction back";
    case hint::run_transaction_again: return "roll the transaction back and run it again from its first read";
    case hint::end_transaction: return "commit or roll back the open transaction first";
    case hint::begin_transaction: return "call store::begin first";
    case hint::use_write_transaction:
        return "end the snapshot, or begin a write transaction with store::begin instead";
    case hint::open_for_writing: return "open the store without config::read_only";
    case hint::open_again: return "close the store and open it again";
    case hint::close_other_handles: return "close the store in all other objects and processes, then retry";
    case hint::use_second_handle: return "open a second store object for use inside callbacks";
    case hint::check_integrity:
        return "run store::integrity_check; if SQLite's part of it passes, store::repair fixes the store; "
               "otherwise restore a backup, or save what can be read with kvstore::recover";
    case hint::repair:
        return "run store::repair; if it fails, restore a backup, or save what can be read with kvstore::recover";
    case hint::recover: return "restore a backup, or save what can be read with kvstore::recover";
    case hint::check_permissions:
        return "change the owner or the permissions; on a read-only file system, open the store with "
               "config::read_only, or open a copy";
    case hint::free_disk_space:
        return "free space on the disk and retry; if there is space, the file is damaged: run "
               "store::integrity_check";
    case hint::give_password: return "open the store with its password: store::open_encrypted";
    case hint::omit_password: return "open the store without a password, or encrypt it with store::open_encrypted";
    case hint::encrypt: return "encrypt it with store::open_encrypted";
    case hint::rekey: return "give it another password with store::reencrypt";
    case hint::build_with_encryption: return "use a build of the library with encryption (make all ENCRYPTION=1)";
    case hint::build_with_server: return "use a build of the library with stores on a server (make all REMOTE=1)";
    case hint::raise_size_limit: return "erase something, or raise the limit with store::set_limit";
    case hint::raise_max_value_size: return "raise config::max_value_size, or split the value";
    case hint::create_family: return "create it with store::create_family";
    case hint::open_family: return "open it with store::family";
    case hint::close_family: return "destroy its family objects of this store first";
    case hint::clear_family: return "remove its keys with store::clear";
    case hint::track_writes: return "turn it on with set_write_tracking(true)";
    case hint::change_eviction: return "choose another policy with store::set_limit first";
    case hint::purge_yourself: return "call store::purge_step instead";
    case hint::stop_cleaner: return "call store::stop_cleaner first";
    case hint::copy_to_store: return "use store::copy_to";
    case hint::resume_copy:
        return "finish that copy with \"kvstore copy --resume\", or drop its progress family in the target with "
               "store::drop_family";
    case hint::use_shorter_key: return "use a shorter key, such as a hash of it";
    case hint::give_ttl: return "pass a duration (std::chrono::seconds and the like) as the TTL";
    case hint::repair_file:
        return "run the command \"kvstore repair\" on the file; if it fails, restore a backup, or save what can be "
               "read with kvstore::recover";
    }
    return kvstore_strhint(static_cast<int>(advice));
}

/// @cond
namespace detail {

/// Returns the text of failure::what(): the reason of the failure, then the advice of the hint.
inline std::string with_advice(std::string reason, hint advice) {
    const char* const text = describe(advice);
    return *text ? std::move(reason) + ": " + text : std::move(reason);
}

} // namespace detail
/// @endcond

/// Description of a failed call: an error code, a hint, and a text with the reason and the advice.
/// A kvstore::result returns it; kvstore::error is the exception with the same content.
///
/// The text is in the words of this header. It names families and settings, never keys or values.
class failure {
public:
    /// Creates a failure with a code, the reason of the failure, and a hint.
    KVSTORE_COLD failure(errc code, const std::string& reason, kvstore::hint advice = kvstore::hint::none)
        : content_(new content{detail::with_advice(reason, advice), reason.size(), code, advice}) {}

    /// Copies a failure.
    KVSTORE_COLD failure(const failure& other)
        : content_(other.content_ ? new content(*other.content_) : nullptr) {}
    /// Copies a failure.
    failure& operator=(const failure& other) {
        failure copy(other);
        content_.swap(copy.content_);
        return *this;
    }
    /// Move constructor. `other` has no text afterwards.
    failure(failure&& other) noexcept = default;
    /// Takes over the content of `other`, which has no text afterwards.
    failure& operator=(failure&& other) noexcept = default;

    /// Returns the error code.
    errc code() const noexcept { return content_ ? content_->code : errc::error; }

    /// Returns the advice on this failure, or hint::none.
    kvstore::hint hint() const noexcept { return content_ ? content_->advice : kvstore::hint::none; }

    /// Returns what failed and what to do. The text is valid until this object is destroyed or
    /// assigned to.
    const char* what() const noexcept { return content_ ? content_->text.c_str() : ""; }

    /// Returns the reason of the failure: the text of what() without the advice. The view is valid
    /// as long as what().
    std::string_view reason() const noexcept { return {what(), content_ ? content_->reason_size : 0}; }

    /// Returns whether a retry of the same call can succeed, because only a lock prevented it.
    bool retryable() const noexcept { return code() == errc::busy || code() == errc::locked; }

private:
    struct content {
        std::string text;
        std::size_t reason_size;
        errc code;
        kvstore::hint advice;
    };

    std::unique_ptr<content> content_; ///< A pointer, so that results of successful calls are small.
};

#if KVSTORE_EXCEPTIONS

/// Exception thrown by the functions of this library. `what()` returns the reason and the advice.
///
/// The content is that of a kvstore::failure. The class is not declared with -fno-exceptions.
class error : public std::runtime_error {
public:
    /// Creates an error with a code, the reason of the failure, and a hint.
    error(errc code, const std::string& reason, kvstore::hint advice = kvstore::hint::none)
        : error(failure(code, reason, advice)) {}

    /// Creates an error from a failure.
    explicit error(const failure& why)
        : std::runtime_error(why.what()), code_(why.code()), hint_(why.hint()), reason_size_(why.reason().size()) {}

    /// Returns the error code.
    errc code() const noexcept { return code_; }

    /// Returns the advice on this error, or hint::none.
    kvstore::hint hint() const noexcept { return hint_; }

    /// Returns the reason of the failure: the text of what() without the advice. The view is valid
    /// until this object is destroyed.
    std::string_view reason() const noexcept { return {what(), reason_size_}; }

    /// Returns whether a retry of the same call can succeed, because only a lock prevented it.
    bool retryable() const noexcept { return code_ == errc::busy || code_ == errc::locked; }

private:
    errc code_;
    kvstore::hint hint_;
    std::size_t reason_size_;
};

#endif

/// @cond
namespace detail {

/// Returns the last failure on the store `kv`. If `kv` is null, returns this thread's last failure
/// of a call without a store.
KVSTORE_COLD inline failure last_failure(int code, KVStore* kv = nullptr) {
    return {static_cast<errc>(code), kvstore_errreason(kv), static_cast<hint>(kvstore_errhint(kv))};
}

#if KVSTORE_EXCEPTIONS
[[noreturn]] KVSTORE_COLD inline void throw_failure(const failure& why) { throw error(why); }
#endif

} // namespace detail
/// @endcond

} // namespace kvstore

#endif
