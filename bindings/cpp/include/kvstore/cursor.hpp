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
#include "entry.hpp"
#include "error.hpp"
#include "iterator.hpp"
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
/// Every call throws errc::misuse if the cursor was moved from or the store is closed. Calls that
/// move the cursor also throw the read errors (see keyspace). After a failed move, including a
/// failed seek, the cursor is at its end, and next() continues after the last entry it was at.
class cursor {
public:
    /// Move constructor. Calls on `other` throw errc::misuse afterwards.
    cursor(cursor&& other) noexcept = default;
    /// Discards the current cursor and takes over `other`, whose calls throw errc::misuse
    /// afterwards.
    cursor& operator=(cursor&& other) noexcept = default;

    /// Returns whether the cursor is at its end, where it has no current entry.
    bool eof() const {
        open();
        return kvstore_iterator_eof(state_->handle()) != 0;
    }

    /// Returns the current key, valid until the cursor moves or is destroyed.
    /// @throws error errc::error at the end.
    std::string_view key() const { return view(&kvstore_iterator_key); }

    /// Returns the current value, valid until the cursor moves or is destroyed.
    /// @throws error errc::error at the end, and with range_flags::keys_only.
    std::string_view value() const { return view(&kvstore_iterator_value); }

    /// Returns the expiry time of the current entry.
    /// @throws error errc::error at the end.
    expiry_time expires_at() const {
        std::int64_t ms = 0;
        const detail::session& session = open();
        session.throw_on_error(kvstore_iterator_expire_ms(state_->handle(), &ms));
        return detail::expiry_of(ms);
    }

    /// Moves to the first entry of the range, in the order of iteration.
    /// @return Whether there is one.
    bool first() { return move(&kvstore_iterator_first); }

    /// Moves a reverse cursor to the entry with the greatest key.
    /// @return Whether there is one.
    /// @throws error errc::error on a forward cursor.
    bool last() { return move(&kvstore_iterator_last); }

    /// Moves to the next entry in the order of iteration. At the end, does nothing.
    /// @return Whether there is one.
    bool next() { return move(&kvstore_iterator_next); }

    /// Moves a reverse cursor to the entry with the next smaller key. On a reverse cursor, next()
    /// does the same.
    /// @return Whether there is one.
    /// @throws error errc::error on a forward cursor.
    bool prev() { return move(&kvstore_iterator_prev); }

    /// Moves to the first entry whose key is greater than or equal to `key`; on a reverse cursor,
    /// less than or equal.
    ///
    /// A key outside the range moves the cursor to its end.
    /// @return Whether there is such an entry.
    /// @throws error errc::error (the length of the key is out of bounds, or the cursor is in order
    ///   of expiry).
    bool seek(bytes_view key) {
        const detail::session& session = state().moving();
        session.throw_on_error(kvstore_iterator_seek(state_->handle(), key.data(), detail::c_length(key.size(), "key")));
        return kvstore_iterator_eof(state_->handle()) == 0;
    }

    /// Returns up to `max` live entries, starting with the current one, and moves past them.
    ///
    /// It is equivalent to a loop of key(), value() and next(), and much faster. If this store has
    /// written since, the current entry is returned in its new state. The result may be shorter
    /// than `max` before the end; it is empty only at the end, or if `max` is 0.
    /// @throws error As next(). The cursor then stays at its entry, or moves to the following one
    ///   if its entry no longer exists.
    std::vector<fetched_entry> fetch(std::size_t max) {
        const detail::session& session = state().moving();
        std::vector<KVEntry> rows((std::min)(max, std::size_t{1024}));
        int count = 0;
        session.throw_on_error(kvstore_iterator_fetch(state_->handle(), rows.data(), static_cast<int>(rows.size()), &count));
        rows.resize(static_cast<std::size_t>(count));
        std::vector<fetched_entry> entries;
        entries.reserve(rows.size());
        for (const KVEntry& row : rows) {
            entries.push_back({detail::view_of(row.pKey, row.nKey), detail::view_of(row.pValue, row.nValue),
                               detail::expiry_of(row.expireMs)});
        }
        return entries;
    }

    /// Returns an iterator at the current entry.
    ///
    /// The iterator belongs to this cursor: moving one moves the other. The cursor itself is past
    /// the entries that were fetched for the iterator.
    basic_iterator<entry> begin() {
        open();
        return basic_iterator<entry>(state_);
    }
    /// Returns the end iterator.
    basic_iterator<entry> end() const noexcept { return {}; }

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

    cursor(std::shared_ptr<detail::session> session, KVIterator* made)
        : state_(made_state(std::move(session), made)) {}

    static std::shared_ptr<detail::cursor_state> made_state(std::shared_ptr<detail::session> session, KVIterator* made) {
        try {
            return std::make_shared<detail::cursor_state>(std::move(session), made);
        } catch (...) {
            kvstore_iterator_close(made);
            throw;
        }
    }

    detail::cursor_state& state() const {
        if (!state_) {
            detail::moved_from();
        }
        return *state_;
    }

    const detail::session& open() const { return state().open(); }

    bool move(int (*how)(KVIterator*)) {
        const detail::session& session = state().moving();
        session.throw_on_error(how(state_->handle()));
        return kvstore_iterator_eof(state_->handle()) == 0;
    }

    std::string_view view(int (*what)(KVIterator*, void**, int*)) const {
        void* data = nullptr;
        int size = 0;
        const detail::session& session = open();
        session.throw_on_error(what(state_->handle(), &data, &size));
        return detail::view_of(data, size);
    }

    std::shared_ptr<detail::cursor_state> state_;
};

/// Range over the keys (key_range) or the values (value_range) of entries:
/// @code
/// for (std::string_view key : db.keys("user:")) ...
/// @endcode
/// Visibility, memory and errors are those of a cursor.
template <class Shown>
class part_range {
public:
    /// Returns an iterator at the current key or value of the range.
    basic_iterator<Shown> begin() {
        state_.open();
        return basic_iterator<Shown>(state_.state_);
    }
    /// Returns the end iterator.
    basic_iterator<Shown> end() const noexcept { return {}; }

private:
    template <class Handle>
    friend class range_calls;
    explicit part_range(cursor&& made) noexcept : state_(std::move(made)) {}

    cursor state_;
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
template <class Shown>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::part_range<Shown>> = true;
/// @endcond
#endif

#endif
