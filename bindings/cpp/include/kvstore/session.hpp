/// @file
/// State that a store shares with its families, cursors, batches and transactions, and the
/// conversion of result codes into exceptions. Internal.
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

/// Clock of the user, in the form that the C API calls.
class clock {
public:
    /// Calls the clock once, so that one that throws is rejected here with its own exception.
    explicit clock(std::function<time_point()> now) : now_(std::move(now)) { advance(now_()); }

    /// Returns the time for C. It never decreases, and keeps its value while the user's function
    /// throws, because no exception may cross C.
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

/// State of one open store; destroyed with the last object that belongs to it. After the store is
/// closed, `kv` is not passed to C any more, because its memory may belong to another store.
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

    KVStore* const kv; ///< Store.
    KVColumnFamily* const cf; ///< Its default family.

    bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

    /// Closes the store once. Returns a code, because a destructor calls it; kvstore_errmsg(NULL)
    /// has the text.
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

    /// Returns whether a call on a key found it; throws for codes other than OK and NOTFOUND.
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

    /// Returns the time of the store's clock: of the user, of the server, or of the system. Throws
    /// if the server must be asked and cannot be reached, because the clock of this machine may
    /// differ.
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

    /// Replaces the clock. Replaced clocks are kept as long as the session, because another thread
    /// may be calling one.
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

/// Returns the session of an object. Throws if it was moved from or its store is closed.
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
