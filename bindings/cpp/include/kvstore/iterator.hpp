/// @file
/// Input iterators over the entries, keys or values of a cursor.
#ifndef KVSTORE_ITERATOR_HPP
#define KVSTORE_ITERATOR_HPP

#include <kvstore.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "entry.hpp"
#include "error.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// @cond
namespace detail {

inline std::string_view view_of(const void* data, int size) noexcept {
    return data ? std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(size))
                : std::string_view();
}

/// Traits of what an iterator shows (entry, key_view or value_view): its conversion from a fetched
/// row, and the type that owns a copy of it.
template <class Shown>
struct part;

template <>
struct part<entry> {
    using kept = owned_entry;
    static entry of(const KVEntry& row) noexcept {
        return {view_of(row.pKey, row.nKey), view_of(row.pValue, row.nValue)};
    }
};

template <>
struct part<key_view> {
    using kept = std::string;
    static key_view of(const KVEntry& row) noexcept { return key_view(view_of(row.pKey, row.nKey)); }
};

template <>
struct part<value_view> {
    using kept = std::string;
    static value_view of(const KVEntry& row) noexcept { return value_view(view_of(row.pValue, row.nValue)); }
};

/// Iterator of the C API, and the rows last fetched from it. A cursor and its iterators share one
/// such object.
class cursor_state {
public:
    cursor_state(std::shared_ptr<session> of, KVIterator* made) noexcept : session_(std::move(of)), handle_(made) {}
    cursor_state(const cursor_state&) = delete;
    cursor_state& operator=(const cursor_state&) = delete;
    ~cursor_state() { kvstore_iterator_close(handle_); }

    KVIterator* handle() const noexcept { return handle_; }

    const session& open() const { return usable(session_); }

    /// Discards the fetched rows. Called before each C call that moves the C iterator.
    const session& moving() {
        const session& at = open();
        row_ = end_ = nullptr;
        over_ = false;
        return at;
    }

    bool at_end() { return row_ == end_ && !fetch(); }

    /// Returns the current row. Throws errc::error at the end.
    const KVEntry& row() {
        open();
        if (at_end()) {
            throw error(errc::error, "the iterator is at its end: it has no entry");
        }
        return *row_;
    }

    /// Returns a view of the current row, as an entry, a key or a value.
    ///
    /// Every call returns a reference to the same object, and updates it.
    template <class Shown>
    const Shown& here() {
        const KVEntry& at = row();
        return std::get<Shown>(shown_) = part<Shown>::of(at);
    }

    /// Moves to the next row. At the end, does nothing.
    void step() {
        open();
        if (!at_end()) {
            ++row_;
        }
    }

private:
    static constexpr int most = 64;

    bool fetch() {
        const session& at = open();
        if (over_) {
            return false;
        }
        if (!rows_) {
            rows_.reset(new KVEntry[static_cast<std::size_t>(most)]);
        }
        int count = 0;
        at.throw_on_error(kvstore_iterator_fetch(handle_, rows_.get(), most, &count));
        row_ = rows_.get();
        end_ = row_ + count;
        over_ = count == 0;
        return !over_;
    }

    const std::shared_ptr<session> session_;
    KVIterator* const handle_;
    std::unique_ptr<KVEntry[]> rows_;
    const KVEntry* row_ = nullptr;
    const KVEntry* end_ = nullptr;
    std::tuple<entry, key_view, value_view> shown_;
    bool over_ = false; ///< Whether a fetch has returned no row: the end is reached.
};

} // namespace detail
/// @endcond

/// Input iterator over entries (`basic_iterator<entry>`), keys (`basic_iterator<key_view>`) or
/// values (`basic_iterator<value_view>`). A default-constructed object is the end iterator.
///
/// It meets the requirements of C++17 and of C++20.
///
/// The iterator shows a view that is valid until the next step. Its `value_type` owns its bytes,
/// and is what algorithms store. Copies of an iterator move together, because the range is
/// single-pass. An iterator may outlive its cursor and its store; it throws errc::misuse once the
/// store is closed. Used by one thread at a time.
///
/// Comparison with the end, `*`, `->` and `++` throw what a cursor throws; the iterator then keeps
/// its position.
template <class Shown>
class basic_iterator {
public:
    /// Category of the iterator: input, because a range can be traversed only once.
    using iterator_category = std::input_iterator_tag;
    /// Category of the iterator for C++20: input, because a range can be traversed only once.
    using iterator_concept = std::input_iterator_tag;
    /// View of the current entry, key or value.
    using reference = const Shown&;
    /// Pointer to the view of the current entry, key or value.
    using pointer = const Shown*;
    /// Entry, key or value that owns its bytes.
    using value_type = typename detail::part<Shown>::kept;
    /// Type of the distance between two iterators. Input iterators must declare it.
    using difference_type = std::ptrdiff_t;

    /// Result of `it++`: a copy of the entry, key or value before the move.
    class left {
    public:
        /// Returns the copied entry, key or value.
        const value_type& operator*() const noexcept { return kept_; }

    private:
        friend class basic_iterator;
        explicit left(const Shown& view) : kept_(view) {}

        value_type kept_;
    };

    /// Creates the end iterator.
    basic_iterator() noexcept = default;

    /// Returns the current entry, key or value, valid until the next step.
    /// @throws error errc::error at the end.
    reference operator*() const { return state().template here<Shown>(); }

    /// Returns a pointer to the current entry, key or value.
    pointer operator->() const { return &**this; }

    /// Returns the expiry time of the current entry.
    /// @throws error errc::error at the end.
    expiry_time expires_at() const { return detail::expiry_of(state().row().expireMs); }

    /// Moves to the next entry. At the end, does nothing.
    basic_iterator& operator++() {
        if (state_) {
            state_->step();
        }
        return *this;
    }

    /// Moves to the next entry, and returns a copy of the entry before the move.
    /// @throws error errc::error at the end.
    left operator++(int) {
        left before(**this);
        ++*this;
        return before;
    }

    /// Returns whether both iterators are at the end, or both belong to the same cursor, which is
    /// not at its end.
    friend bool operator==(const basic_iterator& a, const basic_iterator& b) {
        const bool ended = a.at_end();
        return ended == b.at_end() && (ended || a.state_ == b.state_);
    }
    /// Returns whether only one of the iterators is at the end, or both are before the end of
    /// different cursors.
    friend bool operator!=(const basic_iterator& a, const basic_iterator& b) { return !(a == b); }

private:
    friend class cursor;
    template <class Part>
    friend class part_range;
    explicit basic_iterator(std::shared_ptr<detail::cursor_state> in) noexcept : state_(std::move(in)) {}

    bool at_end() const { return !state_ || state_->at_end(); }

    detail::cursor_state& state() const {
        if (!state_) {
            throw error(errc::error, "this is the end iterator: it has no entry");
        }
        return *state_;
    }

    std::shared_ptr<detail::cursor_state> state_;
};

/// Iterator over entries.
using iterator = basic_iterator<entry>;
/// Iterator over keys.
using key_iterator = basic_iterator<key_view>;
/// Iterator over values.
using value_iterator = basic_iterator<value_view>;

} // namespace kvstore

#endif
