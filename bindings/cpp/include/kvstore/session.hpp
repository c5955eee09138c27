/// @file
/// Class session: the state of an open store, shared with its families, cursors, batches and
/// transactions. It converts result codes into exceptions. Internal.
#ifndef KVSTORE_SESSION_HPP
#define KVSTORE_SESSION_HPP

#include <kvstore.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "bytes.hpp"
#include "error.hpp"
#include "time.hpp"

/// @cond
namespace kvstore::detail {

/// Clock function of the user, in the form that the C API calls.
class clock {
public:
    /// Stores the function and calls it once. An exception that it throws is passed on.
    explicit clock(std::function<time_point()> now) : now_(std::move(now)) { advance(now_()); }

    /// Returns the current time in milliseconds. It is the callback that the C API calls, and never
    /// decreases.
    ///
    /// While the user's function throws, the time stands still, because no exception may cross C.
    static std::int64_t read(void* context) noexcept {
        auto& self = *static_cast<clock*>(context);
        try {
            self.advance(self.now_());
        } catch (...) {
        }
        return self.latest_.load(std::memory_order_relaxed);
    }

    std::unique_ptr<clock> before; ///< Clock that this one replaced.

private:
    void advance(time_point now) noexcept {
        const std::int64_t ms = now.time_since_epoch().count();
        std::int64_t seen = latest_.load(std::memory_order_relaxed);
        while (ms > seen && !latest_.compare_exchange_weak(seen, ms, std::memory_order_relaxed)) {
        }
    }

    std::function<time_point()> now_;
    std::atomic<std::int64_t> latest_{0};
};

/// State of an open store, shared by the store and all objects that belong to it. The last of them
/// destroys it.
///
/// After the store is closed, `kv` is not passed to C any more, because its memory may belong to
/// another store.
class session {
public:
    session(KVStore* opened, KVColumnFamily* default_family) noexcept : kv(opened), cf(default_family) {}
    session(const session&) = delete;
    session& operator=(const session&) = delete;

    ~session() {
        if (open_) {
            (void)clock_.release(); // closing was refused: the store keeps calling its clock
        }
    }

    KVStore* const kv; ///< Handle of the store.
    KVColumnFamily* const cf; ///< Handle of the default family of the store.

    bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

    /// Closes the store and returns the result code. Further calls do nothing.
    ///
    /// It returns a code because a destructor calls it; kvstore_errmsg(NULL) has the text.
    int close() noexcept {
        if (!open_.exchange(false)) {
            return KVSTORE_OK;
        }
        const int code = kvstore_close(kv);
        if (code == KVSTORE_MISUSE) {
            open_ = true; // refused: called by a callback of this store, or in a forked child
        } else {
            kvstore_cf_close(cf);
        }
        return code;
    }

    void throw_on_error(int code) const {
        if (code != KVSTORE_OK) {
            fail(code);
        }
    }

    /// Converts the result code of a call on a key: true if the key was found, false for
    /// KVSTORE_NOTFOUND. Throws for a failure.
    bool found(int code) const {
        if (code == KVSTORE_NOTFOUND) {
            return false;
        }
        throw_on_error(code);
        return true;
    }

    [[noreturn]] void fail(int code) const {
        if (!is_open()) {
            throw error(static_cast<errc>(code), "the store is closed");
        }
        throw last_error(code, kv);
    }

    /// Returns the current time of the store's clock, in milliseconds since the Unix epoch.
    ///
    /// The clock is that of the user, of the server, or of the system. Throws if the server must be
    /// asked and cannot be reached, because the clock of this machine may differ.
    std::int64_t now_ms() const {
        if (clock* set = current_.load(std::memory_order_acquire)) {
            return clock::read(set);
        }
        std::int64_t now = 0;
        throw_on_error(kvstore_time_ms(kv, &now));
        return now;
    }

    std::int64_t expire_ms(const expiry& expires) const {
        return expires.expire_ms([this] { return now_ms(); });
    }

    /// Replaces the clock of the store.
    ///
    /// Replaced clocks are kept as long as the session, because another thread may be calling one.
    void set_clock(std::unique_ptr<clock> made) {
        const std::lock_guard<std::mutex> lock(clock_mutex_);
        throw_on_error(kvstore_set_clock(kv, made ? &clock::read : nullptr, made.get()));
        current_.store(made.get(), std::memory_order_release);
        if (made) {
            made->before = std::move(clock_);
            clock_ = std::move(made);
        }
    }

private:
    std::atomic<bool> open_{true};
    std::atomic<clock*> current_{nullptr};
    std::mutex clock_mutex_;
    std::unique_ptr<clock> clock_;
};

[[noreturn]] inline void moved_from() {
    throw error(errc::misuse, "this object was moved from: use the one it was moved to");
}

/// Returns the session of an object. Throws errc::misuse if the object was moved from or its store
/// is closed.
inline session& usable(const std::shared_ptr<session>& of) {
    if (!of) {
        moved_from();
    }
    if (!of->is_open()) {
        throw error(errc::misuse, "the store is closed");
    }
    return *of;
}

} // namespace kvstore::detail
/// @endcond

#endif
