/// @file
/// Class batch: writes that are collected in memory and committed together.
#ifndef KVSTORE_BATCH_HPP
#define KVSTORE_BATCH_HPP

#include <kvstore.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "access.hpp"
#include "bytes.hpp"
#include "family.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// List of writes and deletions that are committed atomically, created by store::batch.
///
/// Destroying it discards what was not committed. Used by one thread at a time.
class batch {
public:
    /// Adds a write to the batch: key and value for the default family. Both are copied.
    /// @param key 1 to 65536 bytes.
    /// @param value Up to config::max_value_size bytes.
    /// @param expires TTL or expiry time. A TTL counts from this call, not from the commit. The
    ///   default TTL of the family is not used.
    /// @throws error errc::error (a length is out of bounds), errc::misuse. Nothing is added then.
    void put(bytes_view key, bytes_view value, const expiry& expires = never) {
        put(detail::usable(session_).cf, key, value, expires);
    }

    /// Adds a write to the batch: key and value for the family `to`. Both are copied.
    ///
    /// The family object may be destroyed before the commit. Expiry and errors are those of
    /// put(key, value, expires).
    /// @throws error Also errc::error if the family belongs to another store object.
    void put(const family& to, bytes_view key, bytes_view value, const expiry& expires = never) {
        put(to.native_handle(), key, value, expires);
    }

    /// Adds a deletion to the batch: of a key in the default family. A key that does not exist at
    /// the commit is ignored.
    /// @throws error errc::error (the length is out of bounds), errc::misuse. Nothing is added
    ///   then.
    void erase(bytes_view key) { erase(detail::usable(session_).cf, key); }

    /// Adds a deletion to the batch: of a key in the family `from`. A key that does not exist at
    /// the commit is ignored.
    /// @throws error Also errc::error if the family belongs to another store object.
    void erase(const family& from, bytes_view key) { erase(from.native_handle(), key); }

    /// Returns the number of writes and deletions in the batch.
    [[nodiscard]] std::uint64_t count() const {
        std::int64_t n = 0;
        const detail::session& session = detail::usable(session_);
        session.throw_on_error(kvstore_batch_count(handle_.get(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Removes all writes and deletions from the batch.
    void clear() {
        const detail::session& session = detail::usable(session_);
        session.throw_on_error(kvstore_batch_clear(handle_.get()));
    }

    /// Commits all writes and deletions of the batch atomically. Inside a transaction they become
    /// part of it.
    ///
    /// After success the batch is empty and can be used again; after a failure it keeps its
    /// content.
    /// @throws error As every write (see keyspace); errc::error if a family was dropped.
    void commit() {
        const detail::session& session = detail::usable(session_);
        session.throw_on_error(kvstore_batch_commit(handle_.get()));
    }

    /// Returns the handle to pass to functions of the C API; null if this object was moved from.
    /// This object still owns the handle.
    KVBatch* native_handle() const noexcept { return handle_.get(); }

private:
    friend class store;

    struct free {
        void operator()(KVBatch* made) const noexcept { kvstore_batch_free(made); }
    };

    batch(std::shared_ptr<detail::session> session, KVBatch* made) noexcept
        : session_(std::move(session)), handle_(made) {}

    void put(KVColumnFamily* to, bytes_view key, bytes_view value, const expiry& expires) {
        const detail::session& session = detail::usable(session_);
        const detail::c_key k(key);
        const detail::c_value v(value);
        need(to);
        session.throw_on_error(
            kvstore_batch_put(handle_.get(), to, k.data, k.size, v.data, v.size, session.expire_ms(expires)));
    }

    void erase(KVColumnFamily* from, bytes_view key) {
        const detail::session& session = detail::usable(session_);
        const detail::c_key k(key);
        need(from);
        session.throw_on_error(kvstore_batch_delete(handle_.get(), from, k.data, k.size));
    }

    static void need(const KVColumnFamily* cf) {
        if (!cf) {
            throw error(errc::misuse, "the family was moved from: use the one it was moved to");
        }
    }

    std::shared_ptr<detail::session> session_;
    std::unique_ptr<KVBatch, free> handle_;
};

} // namespace kvstore

#endif
