/// @file
/// Where a walk is, as the standard library has it: an input iterator. The walk itself is an iterator.
#ifndef KVSTORE_POSITION_HPP
#define KVSTORE_POSITION_HPP

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

/// What a position shows of an entry, and what a program keeps of that.
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

/// An iterator of the C API, and the entries that were fetched from it last. Iterators and positions share it.
class cursor_state {
public:
    cursor_state(std::shared_ptr<session> of, KVIterator* made) noexcept : session_(std::move(of)), handle_(made) {}
    cursor_state(const cursor_state&) = delete;
    cursor_state& operator=(const cursor_state&) = delete;
    ~cursor_state() { kvstore_iterator_close(handle_); }

    KVIterator* handle() const noexcept { return handle_; }

    const session& open() const { return usable(session_); }

    /// For a call that moves the iterator of C: what was fetched is no longer there.
    const session& moving() {
        const session& at = open();
        row_ = end_ = nullptr;
        over_ = false;
        return at;
    }

    bool at_end() { return row_ == end_ && !fetch(); }

    /// The row here.
    const KVEntry& row() {
        open();
        if (at_end()) {
            throw error(errc::error, "the iterator is at its end: it has no entry");
        }
        return *row_;
    }

    /// What is shown of it; the object is always the same.
    template <class Shown>
    const Shown& here() {
        const KVEntry& at = row();
        return std::get<Shown>(shown_) = part<Shown>::of(at);
    }

    /// At the end it stays there.
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
    bool over_ = false; ///< A fetch has found nothing.
};

} // namespace detail
/// @endcond

/// Where a walk over entries (`basic_iterator<entry>`), keys (`basic_iterator<key_view>`) or values (`basic_iterator<value_view>`) is: an
/// input iterator, of C++17 and of C++20, whose end is `basic_iterator()`.
///
/// What it shows is a view that is valid until the next step; its `value_type`, which algorithms keep, owns its
/// bytes. The copies of a position move together: a walk is one pass. It keeps what it needs of the walk alive: it may
/// outlive the iterator it came from, and the store, whose close it tells by errc::misuse. Used by one thread at a time.
///
/// Comparing with the end, `*`, `->` and `++` throw what iterator says, and stay where they are then.
template <class Shown>
class basic_iterator {
public:
    /// One pass.
    using iterator_category = std::input_iterator_tag;
    /// The same, in C++20.
    using iterator_concept = std::input_iterator_tag;
    /// The entry, key or value here, a view.
    using reference = const Shown&;
    /// Points to it.
    using pointer = const Shown*;
    /// The same with its own bytes.
    using value_type = typename detail::part<Shown>::kept;
    /// As every iterator has it.
    using difference_type = std::ptrdiff_t;

    /// What `it++` leaves, with its own bytes.
    class left {
    public:
        /// The entry, key or value.
        const value_type& operator*() const noexcept { return kept_; }

    private:
        friend class basic_iterator;
        explicit left(const Shown& view) : kept_(view) {}

        value_type kept_;
    };

    /// The end of every walk.
    basic_iterator() noexcept = default;

    /// The entry, key or value here. Valid until the next step.
    /// @throws error errc::error at the end.
    reference operator*() const { return state().template here<Shown>(); }

    /// The same.
    pointer operator->() const { return &**this; }

    /// When the entry here expires.
    /// @throws error errc::error at the end.
    expiry_time expires_at() const { return detail::expiry_of(state().row().expireMs); }

    /// Moves to the next entry; at the end it stays.
    basic_iterator& operator++() {
        if (state_) {
            state_->step();
        }
        return *this;
    }

    /// Moves to the next entry, and answers a copy of the one here.
    /// @throws error errc::error at the end.
    left operator++(int) {
        left before(**this);
        ++*this;
        return before;
    }

    /// Whether both are at the end, or in the same walk and not at its end.
    friend bool operator==(const basic_iterator& a, const basic_iterator& b) {
        const bool ended = a.at_end();
        return ended == b.at_end() && (ended || a.state_ == b.state_);
    }
    /// Whether one is at the end and the other is not, or both in walks of their own.
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

} // namespace kvstore

#endif
