/// @file
/// Walking over the keys of a store and a family.
#ifndef KVSTORE_WALKS_HPP
#define KVSTORE_WALKS_HPP

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

/// The walks over a keyspace.
template <class Handle>
class range_calls : public expiry_calls<Handle> {
    using base = expiry_calls<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Walks
    /// Each is at its first entry from the start. cursor says how fresh what they show is, and how long it lives.
    /// @{

    /// The position of a live key, from which the walk goes on to the keys after it; end() if it is missing. For its
    /// value alone, get() is faster.
    [[nodiscard]] basic_iterator<entry> find(bytes_view key) const {
        cursor made = make([&](KVIterator** it) { return call::iterator(this->handle(), it); });
        made.seek(key);
        const basic_iterator<entry> at = made.begin();
        return at != end() && at->key == key.view() ? at : end(); // as it was fetched: it may have expired since seek
    }

    /// The end of every walk. (Its beginning is that of items() and the others; store::begin begins a transaction.)
    [[nodiscard]] basic_iterator<entry> end() const noexcept { return {}; }

    /// Walks over the live entries whose keys start with a prefix; all of them without one.
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

    /// Walks over the live keys that start with a prefix, all of them without one, and reads no values.
    [[nodiscard]] key_range keys(bytes_view prefix = {}, direction order = direction::forward) const {
        const std::string after = after_prefix(prefix.view());
        const range_flags how = order == direction::forward ? range_flags::none : range_flags::reverse;
        return key_range(range(prefix.size() == 0 ? bound() : bound(prefix),
                               after.empty() ? bound() : bound(after), how | range_flags::keys_only));
    }

    /// Walks over the values of the live keys that start with a prefix, of all of them without one, in the order of the
    /// keys.
    [[nodiscard]] value_range values(bytes_view prefix = {}, direction order = direction::forward) const {
        return value_range(items(prefix, order));
    }

    /// Walks over the live entries from `lower` to before `upper`. A lower bound that is not below the upper
    /// one: nothing is in it.
    [[nodiscard]] cursor range(const bound& lower, const bound& upper,
                                 range_flags flags = range_flags::none) const {
        const detail::c_bytes from(lower);
        const detail::c_bytes to(upper);
        return make([&](KVIterator** it) {
            return kvstore_cf_range_iterator_create(this->cf_, from.data, from.size, to.data, to.size,
                                                    static_cast<int>(flags), it);
        });
    }

    /// Walks over one partition of row keys (see row_key()), from the clustering part `start` to before
    /// `finish`. Its keys, and those it seeks, are clustering parts.
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

    /// Walks over the keys that expire at or after `from` and before `to`, in the order of their expiry,
    /// those that have expired but are still there included. cursor::expires_at shows when. It cannot
    /// seek.
    [[nodiscard]] cursor expiring(const timestamp& from, const timestamp& to) const {
        return make([&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(this->cf_, from.ms(), to.ms(), it);
        });
    }

    /// The same without an end: all keys with a TTL that expire at or after `from`, those of the last moment
    /// there is included.
    [[nodiscard]] cursor expiring(const timestamp& from, never_t) const {
        return make([&](KVIterator** it) {
            return kvstore_cf_expiring_iterator_create(this->cf_, from.ms(), detail::max_ms, it);
        });
    }

    /// @}

protected:
    using base::base;
    range_calls(range_calls&& other) noexcept = default; ///< The other one answers errc::misuse from now on.
    range_calls& operator=(range_calls&& other) = delete;
    ~range_calls() = default;

private:
    /// The first string after all that start with a prefix; empty if there is none.
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
