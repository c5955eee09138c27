/// @file
/// Ranges over the entries of a store or family.
#ifndef KVSTORE_RANGES_HPP
#define KVSTORE_RANGES_HPP

#include <kvstore.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "access.hpp"
#include "bytes.hpp"
#include "cursor.hpp"
#include "expiry.hpp"
#include "options.hpp"
#include "iterator.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// Functions of stores and families that return cursors and ranges. All of them throw the read
/// errors listed at keyspace.
template <class Handle>
class range_calls : public expiry_calls<Handle> {
    using base = expiry_calls<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Ranges
    /// Each is at its first entry. Visibility of writes and lifetime of the views: see cursor.
    /// @{

    /// Returns an iterator at the entry with the given key, or end() if the key is not live.
    /// Incrementing it visits the keys after that one.
    ///
    /// get() is faster if only the value is needed.
    [[nodiscard]] basic_iterator<entry> find(bytes_view key) const {
        cursor made = make([&](KVIterator** it) { return call::iterator(this->handle(), it); });
        made.seek(key);
        const basic_iterator<entry> at = made.begin();
        return at != end() && at->key == key.view() ? at : end(); // compares what was fetched: the key may have expired since seek
    }

    /// Returns the end iterator, to compare with the result of find().
    ///
    /// A store has no begin() that returns an iterator: store::begin begins a transaction. Use
    /// items().
    [[nodiscard]] basic_iterator<entry> end() const noexcept { return {}; }

    /// Returns a cursor over the live entries whose keys start with `prefix`. An empty prefix, the
    /// default, selects all entries.
    [[nodiscard]] cursor items(bytes_view prefix = {}, direction order = direction::forward) const {
        const bool forward = order == direction::forward;
        if (prefix.size() == 0) {
            cursor made = make([&](KVIterator** it) {
                return forward ? call::iterator(this->handle(), it) : call::reverse_iterator(this->handle(), it);
            });
            made.first();
            return made;
        }
        const detail::c_bytes p(prefix, "prefix");
        return make([&](KVIterator** it) {
            return forward ? call::prefix_iterator(this->handle(), p.data, p.size, it)
                           : call::reverse_prefix_iterator(this->handle(), p.data, p.size, it);
        });
    }

    /// Returns a range over the live keys that start with `prefix`. An empty prefix, the default,
    /// selects all keys.
    ///
    /// It reads no values.
    [[nodiscard]] key_range keys(bytes_view prefix = {}, direction order = direction::forward) const {
        const std::string after = after_prefix(prefix.view());
        const range_flags how = order == direction::forward ? range_flags::none : range_flags::reverse;
        return key_range(range(prefix.size() == 0 ? bound() : bound(prefix),
                               after.empty() ? bound() : bound(after), how | range_flags::keys_only));
    }

    /// Returns a range over the values of the live keys that start with `prefix`, in the order of
    /// the keys. An empty prefix, the default, selects all keys.
    [[nodiscard]] value_range values(bytes_view prefix = {}, direction order = direction::forward) const {
        return value_range(items(prefix, order));
    }

    /// Returns a cursor over the live entries whose keys are from `lower` (included) to `upper`
    /// (excluded).
    ///
    /// The range is empty if `lower` is not below `upper`.
    /// @throws error errc::error if a bound is too long.
    [[nodiscard]] cursor range(const bound& lower, const bound& upper,
                                 range_flags flags = range_flags::none) const {
        const detail::c_bytes from(lower);
        const detail::c_bytes to(upper);
        return make([&](KVIterator** it) {
            return kvstore_cf_range_iterator_create(this->cf_, from.data, from.size, to.data, to.size,
                                                    static_cast<int>(flags), it);
        });
    }

    /// Returns a cursor over the rows of one partition of row keys (see row_key()), from the
    /// clustering part `start` (included) to `finish` (excluded).
    ///
    /// Keys of the cursor, and those it seeks, are clustering parts.
    [[nodiscard]] cursor rows(bytes_view partition, const bound& start = {}, const bound& finish = {},
                                range_flags flags = range_flags::none) const {
        const detail::c_bytes of(partition, "partition key");
        const detail::c_bytes from(start);
        const detail::c_bytes to(finish);
        return make([&](KVIterator** it) {
            return kvstore_cf_row_iterator_create(this->cf_, of.data, of.size, from.data, from.size, to.data,
                                                  to.size, static_cast<int>(flags), it);
        });
    }

    /// Returns a cursor over the entries that expire from `from` (included) to `to` (excluded),
    /// earliest first.
    ///
    /// Expired rows that have not been removed yet are included. The cursor cannot seek;
    /// cursor::expires_at returns the expiry times.
    [[nodiscard]] cursor expiring(const timestamp& from, const timestamp& to) const {
        return make([&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(this->cf_, from.ms(), to.ms(), it);
        });
    }

    /// Like expiring(from, to), but without an upper bound. It includes keys that expire at the
    /// last representable time.
    [[nodiscard]] cursor expiring(const timestamp& from, never_t) const {
        return make([&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(this->cf_, from.ms(), detail::max_ms, it);
        });
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` throw errc::misuse afterwards.
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

    template <class Create>
    cursor make(const Create& create) const {
        const detail::session& session = this->usable();
        KVIterator* it = nullptr;
        session.throw_on_error(create(&it));
        return cursor(this->session_, it);
    }
};

} // namespace kvstore

#endif
