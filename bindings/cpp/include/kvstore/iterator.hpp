/// @file
/// Input iterators over the entries, keys or values of a cursor.
#ifndef KVSTORE_ITERATOR_HPP
#define KVSTORE_ITERATOR_HPP

#include <kvstore.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#if __cplusplus >= 202002L
#include <ranges>
#endif

#include "entry.hpp"
#include "error.hpp"
#include "result.hpp"
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
template <class View>
struct part;

template <>
struct part<entry> {
    using owner = owned_entry;
    static entry of(const KVEntry& row) noexcept {
        return {view_of(row.pKey, row.nKey), view_of(row.pValue, row.nValue)};
    }
};

template <>
struct part<key_view> {
    using owner = std::string;
    static key_view of(const KVEntry& row) noexcept { return key_view(view_of(row.pKey, row.nKey)); }
};

template <>
struct part<value_view> {
    using owner = std::string;
    static value_view of(const KVEntry& row) noexcept { return value_view(view_of(row.pValue, row.nValue)); }
};

/// Iterator of the C API, and the rows last fetched from it. A cursor and its iterators share one
/// such object.
class cursor_state {
public:
    /// Function that throws a failure.
    using thrower = void (*)(const failure&);

    struct close_iterator {
        void operator()(KVIterator* iterator) const noexcept { kvstore_iterator_close(iterator); }
    };
    using iterator_handle = std::unique_ptr<KVIterator, close_iterator>;

    cursor_state(std::shared_ptr<session> session, iterator_handle handle) noexcept
        : session_(std::move(session)), handle_(std::move(handle)) {}

    KVIterator* handle() const noexcept { return handle_.get(); }
    session* owner() const noexcept { return session_.get(); }

    /// Discards the fetched rows and the last failure. Called before each C call that moves the C
    /// iterator.
    void discard() noexcept {
        row_ = end_ = nullptr;
        exhausted_ = false;
        failure_.reset();
    }

    /// Begins an iteration, and sets what happens at a failure. With a thrower, it throws, and the
    /// position remains. Without one, the iteration ends.
    void begin(thrower function) {
        if (failure_) {
            discard();
        }
        thrower_ = function;
        (void)open();
    }

    /// Makes iterators throw at a failure.
    void set_thrower(thrower function) noexcept { thrower_ = function; }

    /// Returns the last failure of an iterator.
    result<void> status() const { return failure_ ? result<void>(*failure_) : result<void>(); }

    bool at_end() { return row_ == end_ && !fetch(); }

    /// Returns the current row, or null at the end. A failure if there is none.
    const KVEntry* row() {
        // Without a thrower, a row remains available if another thread closes the store.
        if (row_ == end_ ? fetch() : !thrower_ || open()) {
            return row_;
        }
        return no_row();
    }

    /// Returns a view of the current row, as an entry, a key or a value; empty at the end.
    ///
    /// Every call returns a reference to the same object, and updates it.
    template <class View>
    const View& view() {
        View& view = std::get<View>(views_);
        const KVEntry* const current = row();
        view = current ? part<View>::of(*current) : View();
        return view;
    }

    /// Moves to the next row. At the end, does nothing.
    void step() {
        if (open() && !at_end()) {
            ++row_;
        }
    }

private:
    static constexpr int rows_per_fetch = 64;

    bool open() { return session_->is_open() || fail_closed(); }

    KVSTORE_COLD bool fail_closed() {
        fail(closed_store());
        return false;
    }

    KVSTORE_COLD const KVEntry* no_row() {
        if (thrower_ || !failure_) {
            fail({errc::error, "the iterator is at its end: it has no entry"});
        }
        return nullptr;
    }

    KVSTORE_COLD bool fetch() { // not inlined, because it runs once for many rows
        if ((exhausted_ && !thrower_) || !open() || exhausted_) {
            return false;
        }
        if (!rows_) {
            rows_.reset(new KVEntry[static_cast<std::size_t>(rows_per_fetch)]);
        }
        int count = 0;
        const int code = kvstore_iterator_fetch(handle_.get(), rows_.get(), rows_per_fetch, &count);
        if (code != KVSTORE_OK) {
            fail(session_->failed(code));
            return false;
        }
        row_ = rows_.get();
        end_ = row_ + count;
        exhausted_ = count == 0;
        return !exhausted_;
    }

    KVSTORE_COLD void fail(failure why) {
        failure_ = std::move(why);
        if (thrower_) {
            thrower_(*failure_);
        }
        row_ = end_ = nullptr;
        exhausted_ = true;
    }

    const std::shared_ptr<session> session_;
    const iterator_handle handle_;
    std::unique_ptr<KVEntry[]> rows_;
    const KVEntry* row_ = nullptr;
    const KVEntry* end_ = nullptr;
    std::tuple<entry, key_view, value_view> views_;
    bool exhausted_ = false; ///< Whether a fetch has returned no row, or a failure has ended the iteration.
    thrower thrower_ = nullptr;
    std::optional<failure> failure_;
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
/// single-pass. An iterator may outlive its cursor and its store; its operations fail with
/// errc::misuse once the store is closed. Used by one thread at a time.
///
/// Comparison with the end, `*`, `->` and `++` throw what a cursor throws; the iterator then keeps
/// its position. Iterators of an error_free_range, and those of try_find(), do not throw: at a
/// failure they become equal to the end iterator, and status() returns the failure.
template <class View>
class basic_iterator {
public:
    /// Category of the iterator: input, because a range can be traversed only once.
    using iterator_category = std::input_iterator_tag;
    /// Category of the iterator for C++20: input, because a range can be traversed only once.
    using iterator_concept = std::input_iterator_tag;
    /// View of the current entry, key or value.
    using reference = const View&;
    /// Pointer to the view of the current entry, key or value.
    using pointer = const View*;
    /// Entry, key or value that owns its bytes.
    using value_type = typename detail::part<View>::owner;
    /// Type of the distance between two iterators. Input iterators must declare it.
    using difference_type = std::ptrdiff_t;

    /// Result of `it++`: a copy of the entry, key or value before the move.
    class previous {
    public:
        /// Returns the copied entry, key or value.
        const value_type& operator*() const noexcept { return value_; }

    private:
        friend class basic_iterator;
        explicit previous(const View& view) : value_(view) {}

        value_type value_;
    };

    /// Creates the end iterator.
    basic_iterator() noexcept = default;

    /// Returns the current entry, key or value, valid until the next step.
    /// @throws error errc::error at the end. An iterator that does not throw returns an empty view.
    reference operator*() const { return state_ ? state_->template view<View>() : no_entry(); }

    /// Returns a pointer to the current entry, key or value.
    pointer operator->() const { return &**this; }

    /// Returns the expiry time of the current entry.
    /// @throws error errc::error at the end. An iterator that does not throw returns never.
    expiry_time expires_at() const {
        if (!state_) {
            no_entry();
            return never;
        }
        const KVEntry* const row = state_->row();
        return row ? detail::expiry_of(row->expireMs) : expiry_time(never);
    }

    /// Moves to the next entry. At the end, does nothing.
    basic_iterator& operator++() {
        if (state_) {
            state_->step();
        }
        return *this;
    }

    /// Moves to the next entry, and returns a copy of the entry before the move.
    /// @throws error errc::error at the end.
    previous operator++(int) {
        previous before(**this);
        ++*this;
        return before;
    }

    /// Returns the last failure of this iterator, of its copies, and of other iterators of the same
    /// cursor. Success, if there is none.
    result<void> status() const { return state_ ? state_->status() : result<void>(); }

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
    template <class Part>
    friend class error_free_range;
    template <class Handle>
    friend class range_calls;
    explicit basic_iterator(std::shared_ptr<detail::cursor_state> state) noexcept : state_(std::move(state)) {}

    bool at_end() const { return !state_ || state_->at_end(); }

    /// Handles the use of an end iterator that belongs to no cursor.
    static reference no_entry() {
#if KVSTORE_EXCEPTIONS
        throw error(errc::error, "this is the end iterator: it has no entry");
#else
        static const View empty{};
        return empty;
#endif
    }

    std::shared_ptr<detail::cursor_state> state_;
};

/// Iterator over entries.
using iterator = basic_iterator<entry>;
/// Iterator over keys.
using key_iterator = basic_iterator<key_view>;
/// Iterator over values.
using value_iterator = basic_iterator<value_view>;

/// Range whose iterators do not throw: the iteration ends at the end of the range or at the first
/// failure, which cursor::status() and part_range::status() return. Returned by
/// cursor::until_error() and part_range::until_error().
template <class View>
class error_free_range {
public:
    /// Returns an iterator at the current entry, key or value.
    basic_iterator<View> begin() const {
        if (state_) {
            state_->begin(nullptr);
        }
        return basic_iterator<View>(state_);
    }
    /// Returns the end iterator.
    basic_iterator<View> end() const noexcept { return {}; }

private:
    friend class cursor;
    template <class Part>
    friend class part_range;
    explicit error_free_range(std::shared_ptr<detail::cursor_state> state) noexcept : state_(std::move(state)) {}

    std::shared_ptr<detail::cursor_state> state_;
};

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// An iterator shares ownership of its cursor.
template <class View>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::error_free_range<View>> = true;
/// @endcond
#endif

#endif
