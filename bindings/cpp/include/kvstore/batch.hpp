/// @file
/// Class batch: writes that are collected in memory and committed together.
#ifndef KVSTORE_BATCH_HPP
#define KVSTORE_BATCH_HPP

#include <kvstore.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "bytes.hpp"
#include "call.hpp"
#include "family.hpp"
#include "result.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// List of writes and deletions that are committed atomically, created by store::batch.
///
/// Destroying it discards what was not committed. Used by one thread at a time.
class batch {
public:
#if KVSTORE_EXCEPTIONS
    /// Adds a write to the batch: key and value for the default family. Both are copied.
    /// @param key 1 to 65536 bytes.
    /// @param value Up to config::max_value_size bytes.
    /// @param expires TTL or expiry time. A TTL counts from this call, not from the commit. Without
    ///   it, the default TTL of the family counts from the commit.
    /// @throws error errc::error (a length is out of bounds), errc::misuse. Nothing is added then.
    void put(bytes_view key, bytes_view value, const expiry& expires = family_ttl) { try_put(key, value, expires).value(); }

    /// Adds a write to the batch: key and value for the family `to`. Both are copied.
    ///
    /// The family object may be destroyed before the commit. Expiry and errors are those of
    /// put(key, value, expires).
    /// @throws error Also errc::error if the family belongs to another store object.
    void put(const family& to, bytes_view key, bytes_view value, const expiry& expires = family_ttl) {
        try_put(to, key, value, expires).value();
    }

    /// Adds a deletion to the batch: of a key in the default family. A key that does not exist at
    /// the commit is ignored.
    /// @throws error errc::error (the length is out of bounds), errc::misuse. Nothing is added
    ///   then.
    void erase(bytes_view key) { try_erase(key).value(); }

    /// Adds a deletion to the batch: of a key in the family `from`. A key that does not exist at
    /// the commit is ignored.
    /// @throws error Also errc::error if the family belongs to another store object.
    void erase(const family& from, bytes_view key) { try_erase(from, key).value(); }

    /// Returns the number of writes and deletions in the batch.
    [[nodiscard]] std::uint64_t count() const { return try_count().value(); }

    /// Removes all writes and deletions from the batch.
    void clear() { try_clear().value(); }

    /// Commits all writes and deletions of the batch atomically. Inside a transaction they become
    /// part of it.
    ///
    /// After success the batch is empty and can be used again; after a failure it keeps its
    /// content.
    /// @throws error As every write (see keyspace); errc::error if a family was dropped.
    void commit() { try_commit().value(); }
#endif

    /// Like put(), but returns the failure instead of throwing it.
    result<void> try_put(bytes_view key, bytes_view value, const expiry& expires = family_ttl) {
        return put_into(session_ ? session_->cf : nullptr, key, value, expires);
    }

    /// Like put(), but returns the failure instead of throwing it.
    result<void> try_put(const family& to, bytes_view key, bytes_view value, const expiry& expires = family_ttl) {
        return put_into(to.native_handle(), key, value, expires);
    }

    /// Like erase(), but returns the failure instead of throwing it.
    result<void> try_erase(bytes_view key) { return erase_from(session_ ? session_->cf : nullptr, key); }

    /// Like erase(), but returns the failure instead of throwing it.
    result<void> try_erase(const family& from, bytes_view key) { return erase_from(from.native_handle(), key); }

    /// Like count(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_count() const {
        detail::c_call c(session_.get());
        std::int64_t count = 0;
        c.run([&] { return kvstore_batch_count(handle_.get(), &count); });
        return c.outcome(static_cast<std::uint64_t>(count));
    }

    /// Like clear(), but returns the failure instead of throwing it.
    result<void> try_clear() {
        detail::c_call c(session_.get());
        c.run([&] { return kvstore_batch_clear(handle_.get()); });
        return c.outcome();
    }

    /// Like commit(), but returns the failure instead of throwing it.
    result<void> try_commit() {
        detail::c_call c(session_.get());
        c.run([&] { return kvstore_batch_commit(handle_.get()); });
        return c.outcome();
    }

    /// Returns the handle to pass to functions of the C API; null if this object was moved from.
    /// This object still owns the handle.
    KVBatch* native_handle() const noexcept { return handle_.get(); }

private:
    friend class store;

    struct free_batch {
        void operator()(KVBatch* handle) const noexcept { kvstore_batch_free(handle); }
    };

    batch(std::shared_ptr<detail::session> session, KVBatch* handle) noexcept
        : session_(std::move(session)), handle_(handle) {}

    result<void> put_into(KVColumnFamily* to, bytes_view key, bytes_view value, const expiry& expires) {
        detail::c_call c = start(to);
        const auto k = c.key(key);
        const auto v = c.value(value);
        const std::int64_t expire_ms = c.expire_ms(expires);
        c.run([&] { return kvstore_batch_put(handle_.get(), to, k.data, k.size, v.data, v.size, expire_ms); });
        return c.outcome();
    }

    result<void> erase_from(KVColumnFamily* from, bytes_view key) {
        detail::c_call c = start(from);
        const auto k = c.key(key);
        c.run([&] { return kvstore_batch_delete(handle_.get(), from, k.data, k.size); });
        return c.outcome();
    }

    /// Starts a call with a family, which is null if it was moved from.
    detail::c_call start(const KVColumnFamily* cf) const {
        detail::c_call c(session_.get());
        if (!cf) {
            c.fail({errc::misuse, "the family was moved from: use the one it was moved to"});
        }
        return c;
    }

    std::shared_ptr<detail::session> session_;
    std::unique_ptr<KVBatch, free_batch> handle_;
};

} // namespace kvstore

#endif
