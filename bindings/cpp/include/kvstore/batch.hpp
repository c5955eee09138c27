/// @file
/// Writes that are committed together.
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

/// Writes and deletions to be committed together: made by store::batch. What was not committed is forgotten
/// with the object. Used by one thread at a time.
class batch {
public:
    /// Adds a write to the default family. A TTL counts from now, not from the commit; the family's default
    /// TTL is not used. Key and value are copied.
    /// @throws error errc::error for a bad length, errc::misuse. Nothing is added then.
    void put(bytes_view key, bytes_view value, const expiry& expires = never) {
        put(detail::usable(session_).cf, key, value, expires);
    }

    /// Adds a write to a family, whose handle may be closed before the commit.
    /// @throws error errc::error also for a family of another store object.
    void put(const family& to, bytes_view key, bytes_view value, const expiry& expires = never) {
        put(to.native_handle(), key, value, expires);
    }

    /// Adds a deletion from the default family. A key that is missing at the commit is no error.
    /// @throws error errc::error for a bad length, errc::misuse. Nothing is added then.
    void erase(bytes_view key) { erase(detail::usable(session_).cf, key); }

    /// Adds a deletion from a family.
    /// @throws error errc::error also for a family of another store object.
    void erase(const family& from, bytes_view key) { erase(from.native_handle(), key); }

    /// How many writes and deletions there are.
    [[nodiscard]] std::uint64_t count() const {
        std::int64_t n = 0;
        const detail::session& session = detail::usable(session_);
        session.throw_on_error(kvstore_batch_count(handle_.get(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Forgets them.
    void clear() {
        const detail::session& session = detail::usable(session_);
        session.throw_on_error(kvstore_batch_clear(handle_.get()));
    }

    /// Commits all in one transaction (or as part of the open one), or nothing. The batch is empty
    /// afterwards, but only on success, and can be used again.
    /// @throws error What writing throws; errc::error if a family was dropped meanwhile.
    void commit() {
        const detail::session& session = detail::usable(session_);
        session.throw_on_error(kvstore_batch_commit(handle_.get()));
    }

    /// The handle, for calls of the C API. It stays this object's; null if this was moved from.
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
