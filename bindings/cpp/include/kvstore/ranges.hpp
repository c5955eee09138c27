/// @file
/// Ranges over the entries of a store or family.
#ifndef KVSTORE_RANGES_HPP
#define KVSTORE_RANGES_HPP

#include <kvstore.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "access.hpp"
#include "bytes.hpp"
#include "call.hpp"
#include "cursor.hpp"
#include "expiry.hpp"
#include "iterator.hpp"
#include "options.hpp"
#include "result.hpp"
#include "time.hpp"

namespace kvstore {

/// Functions of stores and families that return cursors and ranges. Their errors are the read
/// errors listed at keyspace.
template <class Handle>
class range_calls : public expiry_calls<Handle> {
    using base = expiry_calls<Handle>;
    using call = detail::functions<Handle>;

public:
#if KVSTORE_EXCEPTIONS
    /// @name Ranges
    /// Each is at its first entry. Visibility of writes and lifetime of the views: see cursor.
    /// @{

    /// Returns an iterator at the entry with the given key, or end() if the key is not live.
    /// Incrementing it visits the keys after that one.
    ///
    /// get() is faster if only the value is needed.
    [[nodiscard]] basic_iterator<entry> find(bytes_view key) const {
        basic_iterator<entry> found = try_find(key).value();
        if (found.state_) {
            found.state_->set_thrower(&detail::throw_failure);
        }
        return found;
    }

    /// Returns a cursor over the live entries whose keys start with `prefix`. An empty prefix, the
    /// default, selects all entries.
    [[nodiscard]] cursor items(bytes_view prefix = {}, direction order = direction::forward) const {
        return try_items(prefix, order).value();
    }

    /// Returns a range over the live keys that start with `prefix`. An empty prefix, the default,
    /// selects all keys.
    ///
    /// It reads no values.
    [[nodiscard]] key_range keys(bytes_view prefix = {}, direction order = direction::forward) const {
        return try_keys(prefix, order).value();
    }

    /// Returns a range over the values of the live keys that start with `prefix`, in the order of
    /// the keys. An empty prefix, the default, selects all keys.
    [[nodiscard]] value_range values(bytes_view prefix = {}, direction order = direction::forward) const {
        return try_values(prefix, order).value();
    }

    /// Returns a cursor over the live entries whose keys are from `lower` (included) to `upper`
    /// (excluded).
    ///
    /// The range is empty if `lower` is not below `upper`.
    /// @throws error errc::error if a bound is too long.
    [[nodiscard]] cursor range(const bound& lower, const bound& upper,
                               range_flags flags = range_flags::none) const {
        return try_range(lower, upper, flags).value();
    }

    /// Returns a cursor over the rows of one partition of row keys (see row_key()), from the
    /// clustering part `start` (included) to `finish` (excluded).
    ///
    /// Keys of the cursor, and those it seeks, are clustering parts.
    [[nodiscard]] cursor rows(bytes_view partition, const bound& start = {}, const bound& finish = {},
                              range_flags flags = range_flags::none) const {
        return try_rows(partition, start, finish, flags).value();
    }

    /// Returns a cursor over the entries that expire from `from` (included) to `to` (excluded),
    /// earliest first.
    ///
    /// Expired rows that have not been removed yet are included. The cursor cannot seek;
    /// cursor::expires_at returns the expiry times.
    [[nodiscard]] cursor expiring(const timestamp& from, const timestamp& to) const {
        return try_expiring(from, to).value();
    }

    /// Like expiring(from, to), but without an upper bound. It includes keys that expire at the
    /// last representable time.
    [[nodiscard]] cursor expiring(const timestamp& from, never_t) const { return try_expiring(from, never).value(); }

    /// @}
#endif
    /// @name Ranges without exceptions
    /// Each is at its first entry. Iterate with until_error(): see cursor.
    /// @{

    /// Returns the end iterator, to compare with the result of find() or try_find().
    ///
    /// A store has no begin() that returns an iterator: store::begin begins a transaction. Use
    /// items().
    [[nodiscard]] basic_iterator<entry> end() const noexcept { return {}; }

    /// Like find(), but returns the failure instead of throwing it. The iterator does not throw:
    /// see basic_iterator::status.
    result<basic_iterator<entry>> try_find(bytes_view key) const {
        result<cursor> found = create([&](KVIterator** it) { return call::iterator(this->handle(), it); });
        if (!found.ok()) {
            return std::move(found).error();
        }
        if (result<bool> sought = found->try_seek(key); !sought.ok()) {
            return std::move(sought).error();
        }
        const basic_iterator<entry> at = found->until_error().begin();
        // Compares the fetched key, because the key may have expired since the seek.
        const bool live = at != end() && at->key == key.view();
        if (result<void> status = at.status(); !status.ok()) {
            return std::move(status).error();
        }
        return live ? at : end();
    }

    /// Like items(), but returns the failure instead of throwing it.
    result<cursor> try_items(bytes_view prefix = {}, direction order = direction::forward) const {
        const bool forward = order == direction::forward;
        if (prefix.size() == 0) {
            result<cursor> all = create([&](KVIterator** it) {
                return forward ? call::iterator(this->handle(), it) : call::reverse_iterator(this->handle(), it);
            });
            if (all.ok()) {
                if (result<bool> first = all->try_first(); !first.ok()) {
                    return std::move(first).error();
                }
            }
            return all;
        }
        detail::c_call c = this->start();
        const auto p = c.bytes(prefix, "prefix");
        return create(c, [&](KVIterator** it) {
            return forward ? call::prefix_iterator(this->handle(), p.data, p.size, it)
                           : call::reverse_prefix_iterator(this->handle(), p.data, p.size, it);
        });
    }

    /// Like keys(), but returns the failure instead of throwing it.
    result<key_range> try_keys(bytes_view prefix = {}, direction order = direction::forward) const {
        const std::string after = after_prefix(prefix.view());
        const range_flags how = order == direction::forward ? range_flags::none : range_flags::reverse;
        return part_of<key_range>(try_range(prefix.size() == 0 ? bound() : bound(prefix),
                                            after.empty() ? bound() : bound(after), how | range_flags::keys_only));
    }

    /// Like values(), but returns the failure instead of throwing it.
    result<value_range> try_values(bytes_view prefix = {}, direction order = direction::forward) const {
        return part_of<value_range>(try_items(prefix, order));
    }

    /// Like range(), but returns the failure instead of throwing it.
    result<cursor> try_range(const bound& lower, const bound& upper, range_flags flags = range_flags::none) const {
        detail::c_call c = this->start();
        const auto from = c.bound(lower);
        const auto to = c.bound(upper);
        return create(c, [&](KVIterator** it) {
            return kvstore_cf_range_iterator_create(this->cf_, from.data, from.size, to.data, to.size,
                                                    static_cast<int>(flags), it);
        });
    }

    /// Like rows(), but returns the failure instead of throwing it.
    result<cursor> try_rows(bytes_view partition, const bound& start = {}, const bound& finish = {},
                            range_flags flags = range_flags::none) const {
        detail::c_call c = this->start();
        const auto p = c.bytes(partition, "partition key");
        const auto from = c.bound(start);
        const auto to = c.bound(finish);
        return create(c, [&](KVIterator** it) {
            return kvstore_cf_row_iterator_create(this->cf_, p.data, p.size, from.data, from.size, to.data, to.size,
                                                  static_cast<int>(flags), it);
        });
    }

    /// Like expiring(), but returns the failure instead of throwing it.
    result<cursor> try_expiring(const timestamp& from, const timestamp& to) const {
        detail::c_call c = this->start();
        const std::int64_t from_ms = c.ms(from.ms());
        const std::int64_t to_ms = c.ms(to.ms());
        return create(c, [&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(this->cf_, from_ms, to_ms, it);
        });
    }

    /// Like expiring(), but returns the failure instead of throwing it.
    result<cursor> try_expiring(const timestamp& from, never_t) const {
        detail::c_call c = this->start();
        const std::int64_t from_ms = c.ms(from.ms());
        return create(c, [&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(this->cf_, from_ms, detail::max_ms, it);
        });
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    range_calls(range_calls&& other) noexcept = default;
    range_calls& operator=(range_calls&& other) = delete;
    ~range_calls() = default;

private:
    /// Returns the least string that is greater than all strings with a prefix; empty if there is
    /// none.
    static std::string after_prefix(std::string_view prefix) {
        std::string after(prefix);
        while (!after.empty() && after.back() == '\xff') {
            after.pop_back();
        }
        if (!after.empty()) {
            after.back() = static_cast<char>(static_cast<unsigned char>(after.back()) + 1U);
        }
        return after;
    }

    template <class Range>
    static result<Range> part_of(result<cursor> entries) {
        if (!entries.ok()) {
            return std::move(entries).error();
        }
        return Range(*std::move(entries));
    }

    template <class Create>
    result<cursor> create(detail::c_call& c, const Create& create_iterator) const {
        KVIterator* it = nullptr;
        if (!c.run([&] { return create_iterator(&it); })) {
            return c.error();
        }
        return cursor(this->session_, detail::cursor_state::iterator_handle(it));
    }

    template <class Create>
    result<cursor> create(const Create& create_iterator) const {
        detail::c_call c = this->start();
        return create(c, create_iterator);
    }
};

} // namespace kvstore

#endif
