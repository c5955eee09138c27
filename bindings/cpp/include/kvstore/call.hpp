/// @file
/// Class c_call: one call of the C API, with the conversion of its arguments and its result.
/// Internal.
#ifndef KVSTORE_CALL_HPP
#define KVSTORE_CALL_HPP

#include <kvstore.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "bytes.hpp"
#include "error.hpp"
#include "options.hpp"
#include "result.hpp"
#include "session.hpp"
#include "time.hpp"

/// @cond
namespace kvstore::detail {

/// Byte argument in the form that the C API takes: a pointer and a length.
struct c_bytes {
    const void* data = nullptr;
    int size = 0;
};

/// One call of the C API. It converts arguments, calls the C function unless an argument was
/// invalid, and returns the result. It keeps the first failure; later steps then do nothing.
class c_call {
public:
    /// Starts a call without a store.
    c_call() noexcept = default;

    /// Starts a call on an object of the store with this session. Fails with errc::misuse if the
    /// session is null, because the object was moved from, or if the store is closed.
    explicit c_call(session* of) : session_(of) {
        if (!session_ || !session_->is_open()) {
            fail_unusable();
        }
    }

    /// Returns whether nothing has failed.
    bool ok() const noexcept { return !failure_; }

    /// Returns the handle of the store. Requires ok().
    KVStore* kv() const noexcept { return session_->kv; }

    /// Makes the call fail, unless it has failed already.
    KVSTORE_COLD void fail(failure why) {
        if (!failure_) {
            failure_.emplace(std::move(why));
        }
    }

    /// Converts a length to the `int` that the C API takes. Fails if it exceeds INT_MAX.
    int length(std::size_t size, const char* what) {
        if (size > static_cast<std::size_t>(INT_MAX)) {
            fail_length(size, what);
            return 0;
        }
        return static_cast<int>(size);
    }

    c_bytes bytes(bytes_view bytes, const char* what) { return {bytes.data(), length(bytes.size(), what)}; }
    c_bytes key(bytes_view key) { return bytes(key, "key"); }
    c_bytes value(bytes_view value) { return bytes(value, "value"); }
    c_bytes bound(const kvstore::bound& bound) { return bound ? bytes(*bound, "bound") : c_bytes{}; }

    /// Converts a name or path to a C string. Fails if it contains a NUL, at which C would cut it
    /// off.
    const char* text(const std::string& text, const char* what) {
        if (text.find('\0') != std::string::npos) {
            fail({errc::error, std::string("a NUL inside the ") + what});
        }
        return text.c_str();
    }

    /// Returns a time or duration that to_ms() made. Fails if it was not a number.
    std::int64_t ms(std::int64_t ms) {
        if (ms == not_a_number_ms) {
            fail({errc::error, "a duration is not a number"});
        }
        return ms;
    }

    /// Converts an expiry to the `expire_ms` of the C API (see expiry::expire_ms).
    ///
    /// For a TTL, or a time before 1973, it asks the clock of the store, which fails if a server
    /// cannot be reached.
    std::int64_t expire_ms(const expiry& expires) {
        std::int64_t now = 0;
        if (expires.needs_now() && ok()) {
            done(session_->now_ms(now));
        }
        (void)ms(expires.ms_);
        return expires.expire_ms(now);
    }

    /// Calls a C function that returns a result code. Returns whether it succeeded.
    template <class Function>
    bool run(const Function& function) {
        return ok() && done(function());
    }

    /// Calls a C function on a key. Returns whether it succeeded and found the key; KVSTORE_NOTFOUND
    /// is not a failure.
    template <class Function>
    bool find(const Function& function) {
        if (!ok()) {
            return false;
        }
        const int code = function();
        return code != KVSTORE_NOTFOUND && done(code);
    }

    /// Handles the result code of a C function. Returns whether it succeeded.
    bool done(int code) {
        if (code != KVSTORE_OK) {
            fail_code(code);
            return false;
        }
        return true;
    }

    /// Returns the failure. Requires that something has failed.
    failure&& error() noexcept { return std::move(*failure_); }

    /// Returns the result of a call that returns nothing.
    result<void> outcome() { return failure_ ? result<void>(error()) : result<void>(); }

    /// Returns the result of the call: the given value, or the failure.
    template <class T>
    result<std::decay_t<T>> outcome(T&& value) {
        if (failure_) {
            return error();
        }
        return std::forward<T>(value);
    }

private:
    KVSTORE_COLD void fail_unusable() {
        fail(session_ ? closed_store()
                      : failure(errc::misuse, "this object was moved from: use the one it was moved to"));
    }

    KVSTORE_COLD void fail_length(std::size_t size, const char* what) {
        fail({errc::error, std::string("a ") + what + " of " + std::to_string(size) +
                               " bytes is longer than any length this library takes"});
    }

    KVSTORE_COLD void fail_code(int code) { fail(session_ ? session_->failed(code) : last_failure(code)); }

    session* session_ = nullptr;
    std::optional<failure> failure_;
};

} // namespace kvstore::detail
/// @endcond

#endif
