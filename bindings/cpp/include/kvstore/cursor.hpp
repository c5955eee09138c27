/// @file
/// Class cursor over live entries, and classes for ranges of keys and of values.
#ifndef KVSTORE_CURSOR_HPP
#define KVSTORE_CURSOR_HPP

#include <kvstore.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <ranges>
#endif

#include "bytes.hpp"
#include "call.hpp"
#include "entry.hpp"
#include "error.hpp"
#include "iterator.hpp"
#include "result.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// Order in which a cursor visits keys.
enum class direction {
    forward, ///< From the least key to the greatest.
    reverse, ///< From the greatest key to the least.
};

/// Flags for keyspace::range and keyspace::rows, combined with `|`.
enum class range_flags : int {
    none = 0, ///< Lower bound included, upper bound excluded, ascending.
    reverse = KVSTORE_RANGE_REVERSE, ///< From the greatest key to the least.
    closed = KVSTORE_RANGE_CLOSED, ///< Includes the upper bound in the range.
    open = KVSTORE_RANGE_OPEN, ///< Excludes the lower bound from the range.
    keys_only = KVSTORE_RANGE_KEYS_ONLY ///< Reads only keys; the value of each entry is empty.
};

/// Returns all flags that are in `a` or in `b`.
constexpr range_flags operator|(range_flags a, range_flags b) noexcept {
    return static_cast<range_flags>(static_cast<int>(a) | static_cast<int>(b));
}

/// Returns the flags that are both in `a` and in `b`.
constexpr range_flags operator&(range_flags a, range_flags b) noexcept {
    return static_cast<range_flags>(static_cast<int>(a) & static_cast<int>(b));
}

/// Cursor over the live entries of a family, or of a part of it. A cursor has a current entry.
/// It is also a range of the entries from that one on:
/// @code
/// for (auto [key, value] : db.items("user:")) ...
/// @endcode
/// A cursor holds no lock: writing, committing and closing remain possible. In C++20 it is a
/// borrowed `std::ranges::input_range`. Used by one thread at a time.
///
/// **Two ways to iterate.** The range (begin() and end(), so a range-for and all algorithms)
/// fetches up to 64 entries at a time, which is much faster than single steps. All of them are live
/// when they are fetched. (For a store on a server, expiry is tested by the server's time as the
/// store knows it, which lags by the transmission time of its last answer.) A write, a rollback or
/// an expiry after the fetch becomes visible with the next 64 entries. Outside a transaction these
/// include the writes of this store, and commits of other handles after a delay.
///
/// To test each entry when the iteration reaches it, use single steps:
/// @code
/// for (kvstore::cursor it = db.items("user:"); !it.eof(); it.next()) use(it.key(), it.value());
/// @endcode
/// Single steps skip entries that have expired meanwhile, and see what this store has written ahead
/// of the position.
///
/// **Memory.** Keys and values are views into memory of the cursor. They are valid until the
/// cursor, or an iterator obtained from it, moves, or until all of these objects are destroyed.
/// Writes, and closing the store, do not invalidate them. See entry for how to copy them.
///
/// **Without exceptions.** until_error() is the range whose iterators do not throw:
/// @code
/// auto items = db.try_items("user:");
/// if (!items.ok()) return report(items.error().what());
/// for (auto [key, value] : items->until_error()) use(key, value);
/// if (auto status = items->status(); !status.ok()) return report(status.error().what());
/// @endcode
/// Whether iterators of one cursor throw depends on the last call: begin() or until_error().
///
/// **Errors.** Every call fails with errc::misuse if the cursor was moved from or the store is
/// closed. Calls that move the cursor also have the read errors (see keyspace). After a failed
/// move, including a failed seek, the cursor is at its end, and next() continues after the last
/// entry it was at.
class cursor {
public:
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    cursor(cursor&& other) noexcept = default;
    /// Discards the current cursor and takes over `other`, whose calls fail with errc::misuse
    /// afterwards.
    cursor& operator=(cursor&& other) noexcept = default;

#if KVSTORE_EXCEPTIONS
    /// Returns whether the cursor is at its end, where it has no current entry.
    bool eof() const { return try_eof().value(); }

    /// Returns the current key, valid until the cursor moves or is destroyed.
    /// @throws error errc::error at the end.
    std::string_view key() const { return try_key().value(); }

    /// Returns the current value, valid until the cursor moves or is destroyed.
    /// @throws error errc::error at the end, and with range_flags::keys_only.
    std::string_view value() const { return try_value().value(); }

    /// Returns the expiry time of the current entry.
    /// @throws error errc::error at the end.
    expiry_time expires_at() const { return try_expires_at().value(); }

    /// Moves to the first entry of the range, in the order of iteration.
    /// @return Whether there is one.
    bool first() { return try_first().value(); }

    /// Moves a reverse cursor to the entry with the greatest key.
    /// @return Whether there is one.
    /// @throws error errc::error on a forward cursor.
    bool last() { return try_last().value(); }

    /// Moves to the next entry in the order of iteration. At the end, does nothing.
    /// @return Whether there is one.
    bool next() { return try_next().value(); }

    /// Moves a reverse cursor to the entry with the next smaller key. On a reverse cursor, next()
    /// does the same.
    /// @return Whether there is one.
    /// @throws error errc::error on a forward cursor.
    bool prev() { return try_prev().value(); }

    /// Moves to the first entry whose key is greater than or equal to `key`; on a reverse cursor,
    /// less than or equal.
    ///
    /// A key outside the range moves the cursor to its end.
    /// @return Whether there is such an entry.
    /// @throws error errc::error (the length of the key is out of bounds, or the cursor is in order
    ///   of expiry).
    bool seek(bytes_view key) { return try_seek(key).value(); }

    /// Returns up to `max` live entries, starting with the current one, and moves past them.
    ///
    /// It is equivalent to a loop of key(), value() and next(), and much faster. If this store has
    /// written since, the current entry is returned in its new state. The result may be shorter
    /// than `max` before the end; it is empty only at the end, or if `max` is 0.
    /// @throws error As next(). The cursor then stays at its entry, or moves to the following one
    ///   if its entry no longer exists.
    std::vector<fetched_entry> fetch(std::size_t max) { return try_fetch(max).value(); }

    /// Returns an iterator at the current entry.
    ///
    /// The iterator belongs to this cursor: moving one moves the other. The cursor itself is past
    /// the entries that were fetched for the iterator.
    basic_iterator<entry> begin() { return begin_as<entry>(); }
    /// Returns the end iterator.
    basic_iterator<entry> end() const noexcept { return {}; }
#endif

    /// Like eof(), but returns the failure instead of throwing it.
    result<bool> try_eof() const {
        detail::c_call c = start();
        return c.outcome(!c.ok() || at_end());
    }

    /// Like key(), but returns the failure instead of throwing it.
    result<std::string_view> try_key() const { return view(&kvstore_iterator_key); }

    /// Like value(), but returns the failure instead of throwing it.
    result<std::string_view> try_value() const { return view(&kvstore_iterator_value); }

    /// Like expires_at(), but returns the failure instead of throwing it.
    result<expiry_time> try_expires_at() const {
        detail::c_call c = start();
        std::int64_t ms = 0;
        c.run([&] { return kvstore_iterator_expire_ms(state_->handle(), &ms); });
        return c.outcome(detail::expiry_of(ms));
    }

    /// Like first(), but returns the failure instead of throwing it.
    result<bool> try_first() { return move(&kvstore_iterator_first); }

    /// Like last(), but returns the failure instead of throwing it.
    result<bool> try_last() { return move(&kvstore_iterator_last); }

    /// Like next(), but returns the failure instead of throwing it.
    result<bool> try_next() { return move(&kvstore_iterator_next); }

    /// Like prev(), but returns the failure instead of throwing it.
    result<bool> try_prev() { return move(&kvstore_iterator_prev); }

    /// Like seek(), but returns the failure instead of throwing it.
    result<bool> try_seek(bytes_view key) {
        detail::c_call c = start();
        const auto k = c.key(key);
        c.run([&] {
            state_->discard();
            return kvstore_iterator_seek(state_->handle(), k.data, k.size);
        });
        return c.outcome(c.ok() && !at_end());
    }

    /// Like fetch(), but returns the failure instead of throwing it.
    result<std::vector<fetched_entry>> try_fetch(std::size_t max) {
        detail::c_call c = start();
        std::vector<KVEntry> rows((std::min)(max, std::size_t{1024}));
        int count = 0;
        c.run([&] {
            state_->discard();
            return kvstore_iterator_fetch(state_->handle(), rows.data(), static_cast<int>(rows.size()), &count);
        });
        rows.resize(static_cast<std::size_t>(count));
        std::vector<fetched_entry> entries;
        entries.reserve(rows.size());
        for (const KVEntry& row : rows) {
            entries.push_back({detail::view_of(row.pKey, row.nKey), detail::view_of(row.pValue, row.nValue),
                               detail::expiry_of(row.expireMs)});
        }
        return c.outcome(std::move(entries));
    }

    /// Returns the range from the current entry to the end, whose iterators do not throw.
    ///
    /// The iteration ends at the first failure; status() returns it. The range may be used after
    /// this object is destroyed.
    error_free_range<entry> until_error() const noexcept { return error_free_range<entry>(state_); }

    /// Returns the last failure of an iterator of this cursor. Success if there is none since the
    /// cursor last moved, or since the iteration began.
    result<void> status() const { return status_of(state_); }

    /// Returns the handle to pass to functions of the C API; null if this object was moved from.
    /// This object still owns the handle.
    ///
    /// A C call that moves the handle invalidates what iterators show.
    KVIterator* native_handle() const noexcept { return state_ ? state_->handle() : nullptr; }

private:
    template <class Handle>
    friend class range_calls;
    template <class Part>
    friend class part_range;

    cursor(std::shared_ptr<detail::session> session, detail::cursor_state::iterator_handle handle)
        : state_(std::make_shared<detail::cursor_state>(std::move(session), std::move(handle))) {}

    /// Starts a call on this object.
    detail::c_call start() const { return detail::c_call(state_ ? state_->owner() : nullptr); }

    bool at_end() const noexcept { return kvstore_iterator_eof(state_->handle()) != 0; }

    result<bool> move(int (*function)(KVIterator*)) {
        detail::c_call c = start();
        c.run([&] {
            state_->discard();
            return function(state_->handle());
        });
        return c.outcome(c.ok() && !at_end());
    }

    result<std::string_view> view(int (*function)(KVIterator*, void**, int*)) const {
        detail::c_call c = start();
        void* data = nullptr;
        int size = 0;
        c.run([&] { return function(state_->handle(), &data, &size); });
        return c.outcome(detail::view_of(data, size));
    }

    static result<void> status_of(const std::shared_ptr<detail::cursor_state>& state) {
        return state ? state->status() : detail::c_call(nullptr).outcome();
    }

#if KVSTORE_EXCEPTIONS
    template <class View>
    basic_iterator<View> begin_as() const {
        start().outcome().value();
        state_->begin(&detail::throw_failure);
        return basic_iterator<View>(state_);
    }
#endif

    std::shared_ptr<detail::cursor_state> state_;
};

/// Range over the keys (key_range) or the values (value_range) of entries:
/// @code
/// for (std::string_view key : db.keys("user:")) ...
/// @endcode
/// Visibility, memory and errors are those of a cursor.
template <class View>
class part_range {
public:
#if KVSTORE_EXCEPTIONS
    /// Returns an iterator at the current key or value of the range.
    basic_iterator<View> begin() { return cursor_.begin_as<View>(); }
    /// Returns the end iterator.
    basic_iterator<View> end() const noexcept { return {}; }
#endif

    /// Returns this range with iterators that do not throw.
    ///
    /// The iteration ends at the first failure; status() returns it. The range may be used after
    /// this object is destroyed.
    error_free_range<View> until_error() const noexcept { return error_free_range<View>(cursor_.state_); }

    /// Returns the last failure of an iterator of this range. Success if there is none since the
    /// iteration began.
    result<void> status() const { return cursor_.status(); }

private:
    template <class Handle>
    friend class range_calls;
    explicit part_range(cursor&& entries) noexcept : cursor_(std::move(entries)) {}

    cursor cursor_;
};

/// Range over keys, which reads no values from the store.
using key_range = part_range<key_view>;
/// Range over values, in the order of their keys.
using value_range = part_range<value_view>;

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// An iterator shares ownership of its cursor.
template <>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::cursor> = true;
template <class View>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::part_range<View>> = true;
/// @endcond
#endif

#endif
