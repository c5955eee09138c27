/// @file
/// Class session: the state of an open store, shared with its families, cursors, batches and
/// transactions. Internal.
#ifndef KVSTORE_SESSION_HPP
#define KVSTORE_SESSION_HPP

#include <kvstore.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "error.hpp"
#include "time.hpp"

/// @cond
namespace kvstore::detail {

/// Clock function of the user, in the form that the C API calls.
class clock {
public:
    /// Callback for the C API. Its argument is the clock.
    using callback = std::int64_t (*)(void*);

    /// Stores the function and calls it once. An exception that it throws is passed on.
    clock(std::function<time_point()> now, callback reader) : now_(std::move(now)), reader_(reader) { advance(now_()); }

    /// Returns the current time in milliseconds. It is the callback that the C API calls, and never
    /// decreases.
    ///
    /// While the user's function throws, the time stands still, because no exception may cross C.
    template <class Guard>
    static std::int64_t read(void* context) noexcept {
        auto& self = *static_cast<clock*>(context);
        Guard().run([&self] { self.advance(self.now_()); });
        return self.latest_.load(std::memory_order_relaxed);
    }

    callback c_callback() const noexcept { return reader_; }
    std::int64_t now_ms() noexcept { return reader_(this); }

    std::unique_ptr<clock> before; ///< Clock that this one replaced.

private:
    void advance(time_point now) noexcept {
        const std::int64_t ms = now.time_since_epoch().count();
        std::int64_t seen = latest_.load(std::memory_order_relaxed);
        while (ms > seen && !latest_.compare_exchange_weak(seen, ms, std::memory_order_relaxed)) {
        }
    }

    std::function<time_point()> now_;
    const callback reader_;
    std::atomic<std::int64_t> latest_{0};
};

/// Returns the failure of a call on a closed store.
KVSTORE_COLD inline failure closed_store(errc code = errc::misuse) { return {code, "the store is closed"}; }

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

    /// Closes the store and returns the result code; last_failure() has the text. Further calls do
    /// nothing.
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

    /// Returns the failure of a call on the store that returned this code.
    KVSTORE_COLD failure failed(int code) const {
        return is_open() ? last_failure(code, kv) : closed_store(static_cast<errc>(code));
    }

    /// Stores the current time of the store's clock, in milliseconds since the Unix epoch. Returns a
    /// result code.
    ///
    /// The clock is that of the user, of the server, or of the system. The call fails if the server
    /// must be asked and cannot be reached, because the clock of this machine may differ.
    int now_ms(std::int64_t& now) const noexcept {
        if (clock* set = current_.load(std::memory_order_acquire)) {
            now = set->now_ms();
            return KVSTORE_OK;
        }
        return kvstore_time_ms(kv, &now);
    }

    /// Replaces the clock of the store by another one, or by the system clock if it is null. Returns
    /// a result code.
    ///
    /// Replaced clocks are kept as long as the session, because another thread may be calling one.
    int set_clock(std::unique_ptr<clock> next) {
        const std::lock_guard<std::mutex> lock(clock_mutex_);
        const int code = kvstore_set_clock(kv, next ? next->c_callback() : nullptr, next.get());
        if (code == KVSTORE_OK) {
            current_.store(next.get(), std::memory_order_release);
            if (next) {
                next->before = std::move(clock_);
                clock_ = std::move(next);
            }
        }
        return code;
    }

private:
    std::atomic<bool> open_{true};
    std::atomic<clock*> current_{nullptr};
    std::mutex clock_mutex_;
    std::unique_ptr<clock> clock_;
};

} // namespace kvstore::detail
/// @endcond

#endif
