/// @file
/// Walking over entries.
#ifndef KVSTORE_ITERATOR_HPP
#define KVSTORE_ITERATOR_HPP

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

/// The order of a walk.
enum class direction {
    forward, ///< From the least key to the greatest.
    reverse, ///< From the greatest key to the least.
};

/// How keyspace::range and keyspace::rows walk; combined with `|`.
enum class range_flags : int {
    none = 0,                           ///< From the lower bound to before the upper one.
    reverse = KVSTORE_RANGE_REVERSE,    ///< From the greatest key to the least.
    closed = KVSTORE_RANGE_CLOSED,      ///< The upper bound is part of the range.
    open = KVSTORE_RANGE_OPEN,          ///< The lower bound is not part of the range.
    keys_only = KVSTORE_RANGE_KEYS_ONLY ///< Values are not read: entries have an empty one.
};

/// Both.
constexpr range_flags operator|(range_flags a, range_flags b) noexcept {
    return static_cast<range_flags>(static_cast<int>(a) | static_cast<int>(b));
}

/// What is common.
constexpr range_flags operator&(range_flags a, range_flags b) noexcept {
    return static_cast<range_flags>(static_cast<int>(a) & static_cast<int>(b));
}

/// A position among the live entries of a family, and the rest of the walk from there on, as a range of the standard
/// library:
/// @code
/// for (auto [key, value] : db.items("user:")) ...
/// @endcode
/// It holds no lock: writing, committing and closing are always possible meanwhile. In C++20 it is a
/// `std::ranges::input_range`, and a borrowed one. Used by one thread at a time.
///
/// **Fast or fresh.** The range (begin() and end(), and so a range-for and all algorithms) fetches up to 64 entries at
/// a time, a fraction of the work of moving to each. All of them are alive when they are fetched (on a server: as the
/// store handle knows its time, which is late by as long as its newest answer was on its way). What is written,
/// rolled back or expires while they are shown is seen from the next 64 on: from there, outside a transaction, what
/// this store has written, and what others have committed, sooner or later. To see every entry as it is when the walk
/// comes to it, move row by row:
/// @code
/// for (kvstore::cursor it = db.items("user:"); !it.eof(); it.next()) use(it.key(), it.value());
/// @endcode
/// That passes over every entry that has expired by then, and sees what this store has written ahead of it.
///
/// **Whose memory.** Keys and values are views of the cursor's memory: valid until it, or a position that came from
/// it, makes its next step, until a call here moves it, or until all of them are gone. Neither a write nor closing the
/// store touches them. Copy what must live longer: entry says how.
///
/// Every call throws errc::misuse if the cursor was moved from or the store is closed; those that move also
/// what reading may throw: errc::ioerr, errc::nomem, errc::corrupt, and errc::busy (only in DELETE journal
/// mode). After such a failure, also of a seek, it is at the end; next() goes on after the last entry it was at.
class cursor {
public:
    /// The other one throws errc::misuse from now on.
    cursor(cursor&& other) noexcept = default;
    /// Leaves the walk this had. The other one throws errc::misuse from now on.
    cursor& operator=(cursor&& other) noexcept = default;

    /// Whether there is no entry here.
    bool eof() const {
        open();
        return kvstore_iterator_eof(state_->handle()) != 0;
    }

    /// The key here. Valid until the cursor moves or is gone.
    /// @throws error errc::error at the end.
    std::string_view key() const { return view(&kvstore_iterator_key); }

    /// The value here. Valid until the cursor moves or is gone.
    /// @throws error errc::error at the end, and in a walk with range_flags::keys_only.
    std::string_view value() const { return view(&kvstore_iterator_value); }

    /// When the entry here expires.
    /// @throws error errc::error at the end.
    expiry_time expires_at() const {
        std::int64_t ms = 0;
        const detail::session& session = open();
        session.throw_on_error(kvstore_iterator_expire_ms(state_->handle(), &ms));
        return detail::expiry_of(ms);
    }

    /// Moves to the first entry of the walk (of a reverse one: the greatest). Whether there is one.
    bool first() { return move(&kvstore_iterator_first); }

    /// Moves a reverse cursor to the greatest entry. Whether there is one.
    /// @throws error errc::error on a forward cursor.
    bool last() { return move(&kvstore_iterator_last); }

    /// Moves to the next entry in the order of the walk. Whether there is one; at the end it stays there.
    bool next() { return move(&kvstore_iterator_next); }

    /// Moves a reverse cursor to the entry before, which is next() there. Whether there is one.
    /// @throws error errc::error on a forward cursor.
    bool prev() { return move(&kvstore_iterator_prev); }

    /// Moves to the first entry at or after a key; in a reverse walk, at or before it. Whether there is one
    /// in the range of the walk. A key outside of that range is no entry's: it leaves the walk at its end.
    /// @throws error errc::error for a key of a bad length, and on a walk over expiring keys.
    bool seek(bytes_view key) {
        const detail::session& session = state().moving();
        session.throw_on_error(kvstore_iterator_seek(state_->handle(), key.data(), detail::c_length(key.size(), "key")));
        return kvstore_iterator_eof(state_->handle()) == 0;
    }

    /// The live entries from here on, at most `max`, and moves behind them: what key(), value() and next() show one
    /// by one, in a fraction of the time; but the current one as it is now, if this store has written since. Maybe fewer
    /// than there are; none only at the end (or if `max` is 0).
    /// @throws error as a move does; the cursor stays where it is then, or behind an entry that was found gone.
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

    /// The rest of the walk, from here. It is the cursor's own: this is behind what was fetched for it, and moving
    /// this moves it.
    basic_iterator<entry> begin() {
        open();
        return basic_iterator<entry>(state_);
    }
    /// The end of the walk.
    basic_iterator<entry> end() const noexcept { return {}; }

    /// The handle, for calls of the C API. It stays this object's; null if this was moved from. A call that moves it
    /// ends the life of what positions show.
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

/// A walk over keys (key_range) or values (value_range) alone:
/// @code
/// for (std::string_view key : db.keys("user:")) ...
/// @endcode
/// Otherwise as the range that an cursor is.
template <class Shown>
class part_range {
public:
    /// The rest of the walk.
    basic_iterator<Shown> begin() {
        state_.open();
        return basic_iterator<Shown>(state_.state_);
    }
    /// The end of the walk.
    basic_iterator<Shown> end() const noexcept { return {}; }

private:
    template <class Handle>
    friend class range_calls;
    explicit part_range(cursor&& made) noexcept : state_(std::move(made)) {}

    cursor state_;
};

/// A walk over keys, which reads no values.
using key_range = part_range<key_view>;
/// A walk over values, in the order of their keys.
using value_range = part_range<value_view>;

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// A position keeps its walk alive.
template <>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::cursor> = true;
template <class Shown>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::part_range<Shown>> = true;
/// @endcond
#endif

#endif
