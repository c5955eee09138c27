/// @file
/// Walking over entries.
#ifndef KVSTORE_ITERATOR_HPP
#define KVSTORE_ITERATOR_HPP

#include <kvstore.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "error.hpp"
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

/// A key and its value, in memory of the iterator they came from: valid until it moves or is gone.
struct entry {
    std::string_view key;   ///< The key; in a walk over rows its clustering part.
    std::string_view value; ///< The value.
};

/// An entry with its end of life, as iterator::fetch shows it, in memory of the iterator: valid until it moves,
/// fetches again or is gone.
struct fetched_entry {
    std::string_view key;   ///< The key; in a walk over rows its clustering part.
    std::string_view value; ///< The value; empty in a walk with range_flags::keys_only.
    expiry expire_time;     ///< When it expires.
};

/// The end of a walk in a range-for.
struct end_of_entries {};

template <class Value>
class position;

/// A position among the live entries of a family, and the rest of the walk from there on:
/// @code
/// for (auto [key, value] : db.items("user:")) ...
/// @endcode
/// Keys and values are views of the iterator's memory: copy what must outlive the step.
///
/// It holds no lock: writing, committing and closing are always possible meanwhile. Outside a transaction it
/// sees, ahead of its position, what its store writes, and what others commit, sooner or later. In C++20 it
/// is a `std::ranges::input_range`: a walk in one pass. Used by one thread at a time.
///
/// Every call throws errc::misuse if the iterator was moved from or the store is closed; those that move also
/// what reading may throw: errc::ioerr, errc::nomem, errc::corrupt, and errc::busy (only in DELETE journal
/// mode). After such a failure, also of a seek, it is at the end; next() goes on after the last entry it was at.
class iterator {
public:
    /// Whether there is no entry here.
    bool eof() const {
        detail::usable(session_);
        return kvstore_iterator_eof(handle_.get()) != 0;
    }

    /// The key here. Valid until the iterator moves or is gone.
    /// @throws error errc::error at the end.
    std::string_view key() const { return view(&kvstore_iterator_key); }

    /// The value here. Valid until the iterator moves or is gone.
    /// @throws error errc::error at the end, and in a walk with range_flags::keys_only.
    std::string_view value() const { return view(&kvstore_iterator_value); }

    /// When the entry here expires.
    /// @throws error errc::error at the end.
    expiry expire_time() const {
        std::int64_t ms = 0;
        const detail::session& session = detail::usable(session_);
        session.check(kvstore_iterator_expire_ms(handle_.get(), &ms));
        return ms == KVSTORE_NO_TTL ? expiry(never) : expiry(detail::from_ms(ms));
    }

    /// Moves to the first entry of the walk (of a reverse one: the greatest). Whether there is one.
    bool first() { return move(&kvstore_iterator_first); }

    /// Moves a reverse iterator to the greatest entry. Whether there is one.
    /// @throws error errc::error on a forward iterator.
    bool last() { return move(&kvstore_iterator_last); }

    /// Moves to the next entry in the order of the walk. Whether there is one; at the end it stays there.
    bool next() { return move(&kvstore_iterator_next); }

    /// Moves a reverse iterator to the entry before, which is next() there. Whether there is one.
    /// @throws error errc::error on a forward iterator.
    bool prev() { return move(&kvstore_iterator_prev); }

    /// Moves to the first entry at or after a key; in a reverse walk, at or before it. Whether there is one
    /// in the range of the walk.
    /// @throws error errc::error for a key of a bad length, and on a walk over expiring keys.
    bool seek(bytes_view key) {
        const detail::session& session = detail::usable(session_);
        session.check(kvstore_iterator_seek(handle_.get(), key.data(), detail::c_length(key.size(), "key")));
        return !eof();
    }

    /// The live entries from here on, at most `max`, and moves behind them: what key(), value() and next() show one
    /// by one, in a fraction of the time. Maybe fewer than there are; none only at the end (or if `max` is 0).
    /// @throws error as a move does; the iterator stays where it is then.
    std::vector<fetched_entry> fetch(std::size_t max) {
        const detail::session& session = detail::usable(session_);
        std::vector<KVEntry> shown((std::min)(max, std::size_t{1024}));
        int count = 0;
        session.check(kvstore_iterator_fetch(handle_.get(), shown.data(), static_cast<int>(shown.size()), &count));
        std::vector<fetched_entry> entries;
        entries.reserve(static_cast<std::size_t>(count));
        for (int n = 0; n < count; n++) {
            const KVEntry& one = shown[static_cast<std::size_t>(n)];
            entries.push_back({view_of(one.pKey, one.nKey), view_of(one.pValue, one.nValue),
                               one.expireMs == KVSTORE_NO_TTL ? expiry(never)
                                                              : expiry(detail::from_ms(one.expireMs))});
        }
        return entries;
    }

    /// The rest of the walk, from here. Not a copy: both move together.
    position<entry> begin();
    /// The end of the walk.
    end_of_entries end() const noexcept { return {}; }

    /// The handle, for calls of the C API. It stays this object's; null if this was moved from.
    KVIterator* native_handle() const noexcept { return handle_.get(); }

private:
    template <class Handle>
    friend class keyspace;
    template <class Value>
    friend class position;

    struct close {
        void operator()(KVIterator* it) const noexcept { kvstore_iterator_close(it); }
    };

    iterator(std::shared_ptr<detail::session> session, KVIterator* made, bool keys_only) noexcept
        : session_(std::move(session)), handle_(made), keys_only_(keys_only) {}

    bool move(int (*how)(KVIterator*)) {
        step(how);
        return !eof();
    }

    void step(int (*how)(KVIterator*)) {
        const detail::session& session = detail::usable(session_);
        session.check(how(handle_.get()));
    }

    std::string_view view(int (*what)(KVIterator*, void**, int*)) const {
        void* data = nullptr;
        int size = 0;
        const detail::session& session = detail::usable(session_);
        session.check(what(handle_.get(), &data, &size));
        return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
    }

    static std::string_view view_of(const void* data, int size) noexcept {
        return data ? std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(size))
                    : std::string_view();
    }

    std::shared_ptr<detail::session> session_;
    std::unique_ptr<KVIterator, close> handle_;
    bool keys_only_;
};

/// A walk over keys alone, without reading values:
/// @code
/// for (std::string_view key : db.keys("user:")) ...
/// @endcode
/// Otherwise as iterator.
class key_range {
public:
    /// The rest of the walk.
    position<std::string_view> begin();
    /// The end of the walk.
    end_of_entries end() const noexcept { return {}; }

private:
    template <class Handle>
    friend class keyspace;
    explicit key_range(iterator&& walk) noexcept : walk_(std::move(walk)) {}

    iterator walk_;
};

/// Where a range-for is: points to the iterator it came from, which must stay where it is. Its values are
/// views that are valid until the next step.
template <class Value>
class position {
public:
    /// One pass: a step moves all positions of a walk.
    using iterator_concept = std::input_iterator_tag;
    /// An entry, or a key.
    using value_type = Value;
    /// As every iterator has it.
    using difference_type = std::ptrdiff_t;

    /// The entry or key here.
    Value operator*() const {
        if constexpr (std::is_same_v<Value, entry>) {
            return {walk_->key(), walk_->keys_only_ ? std::string_view() : walk_->value()};
        } else {
            return walk_->key();
        }
    }

    /// Moves to the next entry.
    position& operator++() {
        walk_->step(&kvstore_iterator_next);
        return *this;
    }
    /// Moves to the next entry.
    void operator++(int) { ++*this; }

    /// Whether the walk is over.
    friend bool operator==(const position& at, end_of_entries) { return at.walk_->eof(); }
    /// Whether there is an entry.
    friend bool operator!=(const position& at, end_of_entries) { return !at.walk_->eof(); }
    /// Whether the walk is over.
    friend bool operator==(end_of_entries, const position& at) { return at.walk_->eof(); }
    /// Whether there is an entry.
    friend bool operator!=(end_of_entries, const position& at) { return !at.walk_->eof(); }

private:
    friend class iterator;
    friend class key_range;
    explicit position(iterator* walk) noexcept : walk_(walk) {}

    iterator* walk_;
};

inline position<entry> iterator::begin() { return position<entry>(this); }
inline position<std::string_view> key_range::begin() { return position<std::string_view>(&walk_); }

} // namespace kvstore

#endif
