/// @file
/// When keys of a store and a family expire, and how old their values are.
#ifndef KVSTORE_LIFETIMES_HPP
#define KVSTORE_LIFETIMES_HPP

#include <kvstore.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "access.hpp"
#include "bytes.hpp"
#include "options.hpp"
#include "session.hpp"
#include "time.hpp"
#include "writes.hpp"

namespace kvstore {

/// What a keyspace knows of the lives of its keys and the ages of their values.
template <class Handle>
class expiry_calls : public write_calls<Handle> {
    using base = write_calls<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name The life of a key
    /// @{

    /// What is left of a key's life: `nullopt` if there is no such key, 0 if it has expired but this call
    /// is the first one of this store to meet its row.
    [[nodiscard]] std::optional<remaining_ttl> ttl(bytes_view key) const {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        std::int64_t left = 0;
        if (!session.found(call::ttl_remaining(this->handle(), k.data, k.size, &left))) {
            return std::nullopt;
        }
        return detail::remaining_ttl_of(left);
    }

    /// When a live key expires.
    [[nodiscard]] std::optional<expiry_time> expires_at(bytes_view key) const {
        const std::optional<std::int64_t> ms = this->read_ms(&kvstore_cf_expire_time, key);
        return ms ? std::optional<expiry_time>(detail::expiry_of(*ms)) : std::nullopt;
    }

    /// Changes when a live key expires, without touching its value.
    expire_result expire(bytes_view key, const expiry& expires, expire_if condition = expire_if::always) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        int changed = 0;
        if (!session.found(kvstore_cf_expire(this->cf_, k.data, k.size, session.expire_ms(expires),
                                             static_cast<int>(condition), &changed))) {
            return expire_result::missing;
        }
        return changed ? expire_result::changed : expire_result::unchanged;
    }

    /// Takes the TTL from a live key.
    expire_result persist(bytes_view key) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        int changed = 0;
        if (!session.found(kvstore_cf_persist(this->cf_, k.data, k.size, &changed))) {
            return expire_result::missing;
        }
        return changed ? expire_result::changed : expire_result::unchanged;
    }

    /// Reads a value, and in the same step changes when the key expires: a session that lives 20 minutes from
    /// its last use. Throws what writing throws.
    std::optional<std::string> get_and_expire(bytes_view key, const expiry& expires) {
        const std::optional<buffer> value = this->read([&](const detail::c_key& k, void** data, int* n) {
            return kvstore_cf_get_and_expire(this->cf_, k.data, k.size, this->session_->expire_ms(expires), data, n);
        }, key);
        return value ? std::optional<std::string>(value->view()) : std::nullopt;
    }

    /// Sets the TTL that put(key, value) gives from now on in this family, through whatever handle and
    /// process; zero: none. It is kept in the file. Keys that are there keep what they have.
    /// @throws error errc::error if it is negative, or more than 20 years.
    template <class Rep, class Period>
    void set_default_ttl(const std::chrono::duration<Rep, Period>& ttl) {
        set_default_ttl_ms(detail::to_ms(ttl));
    }

    /// Removes the default TTL.
    void set_default_ttl(std::nullopt_t) { set_default_ttl_ms(0); }

    /// The default TTL, if there is one.
    [[nodiscard]] std::optional<std::chrono::milliseconds> default_ttl() const {
        const detail::session& session = this->usable();
        std::int64_t ms = 0;
        session.throw_on_error(kvstore_cf_get_default_ttl(this->cf_, &ms));
        return ms == 0 ? std::nullopt : std::optional<std::chrono::milliseconds>(ms);
    }

    /// The earliest moment at which a key expires, or has expired if nothing has removed it yet: when a timer
    /// should purge. Of a store: over all its families. `nullopt` if no key has a TTL.
    [[nodiscard]] std::optional<time_point> next_expiry() const {
        const detail::session& session = this->usable();
        std::int64_t ms = 0;
        if (!session.found(call::next_expiry(this->handle(), &ms))) {
            return std::nullopt;
        }
        return detail::from_ms(ms);
    }

    /// Removes every key of this family that has expired, in transactions of at most 256 keys, between which
    /// others may write, or in the open one. Answers how many. What earlier transactions removed stays
    /// removed after a failure.
    std::uint64_t purge_expired() {
        const detail::session& session = this->usable();
        int n = 0;
        session.throw_on_error(call::purge_expired(this->handle(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Removes the keys of this family that expired before a moment; live keys stay. Otherwise as
    /// purge_expired().
    std::uint64_t purge_before(const timestamp& cutoff) {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_purge_before(this->cf_, cutoff.ms(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}
    /// @name The age of a value
    /// @{

    /// Switches write tracking of this family on or off, for every handle and process; it is kept in the
    /// file. Switched on, the keys that are there count as written now; switched off, all write times are
    /// forgotten. Both look at every row, in one transaction.
    void set_write_tracking(bool on) {
        const detail::session& session = this->usable();
        session.throw_on_error(kvstore_cf_set_write_tracking(this->cf_, on ? 1 : 0));
    }

    /// Whether this family tracks writes.
    [[nodiscard]] bool write_tracking() const {
        const detail::session& session = this->usable();
        int on = 0;
        session.throw_on_error(kvstore_cf_get_write_tracking(this->cf_, &on));
        return on != 0;
    }

    /// When the value of a live key was written. A change of its TTL is not a write.
    /// @throws error errc::error if the family does not track writes.
    [[nodiscard]] std::optional<time_point> write_time(bytes_view key) const {
        const std::optional<std::int64_t> ms = this->read_ms(&kvstore_cf_write_time, key);
        return ms ? std::optional<time_point>(detail::from_ms(*ms)) : std::nullopt;
    }

    /// Removes every key that was written longer ago than `max_age`, live or expired, and answers how many of
    /// them were alive. In transactions as purge_expired().
    /// @throws error errc::error if the family does not track writes, or for a negative age.
    template <class Rep, class Period>
    std::uint64_t sweep(const std::chrono::duration<Rep, Period>& max_age) {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_sweep(this->cf_, detail::to_ms(max_age), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}

protected:
    using base::base;
    expiry_calls(expiry_calls&& other) noexcept = default; ///< The other one answers errc::misuse from now on.
    expiry_calls& operator=(expiry_calls&& other) = delete;
    ~expiry_calls() = default;

private:
    void set_default_ttl_ms(std::int64_t ms) {
        const detail::session& session = this->usable();
        session.throw_on_error(kvstore_cf_set_default_ttl(this->cf_, ms));
    }
};

} // namespace kvstore

#endif
