/// @file
/// Expiry times, TTLs, purging and write times of a store or family.
#ifndef KVSTORE_EXPIRY_HPP
#define KVSTORE_EXPIRY_HPP

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

/// Functions of stores and families on TTLs, expiry times, purging and write times.
template <class Handle>
class expiry_calls : public write_calls<Handle> {
    using base = write_calls<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Expiry times
    /// @{

    /// Returns the remaining TTL of a key, or `nullopt` if the key does not exist.
    ///
    /// The TTL is 0 if the key has expired and this call is the first of this store to find the
    /// row.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<remaining_ttl> ttl(bytes_view key) const {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        std::int64_t left = 0;
        if (!session.found(call::ttl_remaining(this->handle(), k.data, k.size, &left))) {
            return std::nullopt;
        }
        return detail::remaining_ttl_of(left);
    }

    /// Returns the expiry time of a key, or `nullopt` if the key is not live.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<expiry_time> expires_at(bytes_view key) const {
        const std::optional<std::int64_t> ms = this->read_ms(&kvstore_cf_expire_time, key);
        return ms ? std::optional<expiry_time>(detail::expiry_of(*ms)) : std::nullopt;
    }

    /// Changes the expiry time of a live key, without touching its value.
    /// @param key 1 to 65536 bytes.
    /// @param expires New TTL or expiry time; never: removes it.
    /// @param condition Condition for the change.
    /// @throws error The write errors.
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

    /// Removes the expiry time of a live key, so that the key never expires.
    /// @throws error The write errors.
    expire_result persist(bytes_view key) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        int changed = 0;
        if (!session.found(kvstore_cf_persist(this->cf_, k.data, k.size, &changed))) {
            return expire_result::missing;
        }
        return changed ? expire_result::changed : expire_result::unchanged;
    }

    /// Returns the value of a key and sets its expiry time, in one atomic step. Returns `nullopt`
    /// if the key is not live.
    ///
    /// Use it, for example, to extend a session by 20 minutes with each use.
    /// @throws error The write errors.
    std::optional<std::string> get_and_expire(bytes_view key, const expiry& expires) {
        const std::optional<buffer> value = this->read([&](const detail::c_key& k, void** data, int* n) {
            return kvstore_cf_get_and_expire(this->cf_, k.data, k.size, this->session_->expire_ms(expires), data, n);
        }, key);
        return value ? std::optional<std::string>(value->view()) : std::nullopt;
    }

    /// Sets the default TTL of the family: the TTL of keys that put(key, value) writes.
    ///
    /// The setting is stored in the file and applies to every handle and process. Existing keys
    /// keep their expiry times.
    /// @param ttl Up to 20 years; zero: none. Rounded up to a millisecond.
    /// @throws error errc::error (negative or more than 20 years), and the write errors.
    template <class Rep, class Period>
    void set_default_ttl(const std::chrono::duration<Rep, Period>& ttl) {
        set_default_ttl_ms(detail::to_ms(ttl));
    }

    /// Removes the default TTL of the family.
    void set_default_ttl(std::nullopt_t) { set_default_ttl_ms(0); }

    /// Returns the default TTL of the family, or `nullopt` if there is none.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<std::chrono::milliseconds> default_ttl() const {
        const detail::session& session = this->usable();
        std::int64_t ms = 0;
        session.throw_on_error(kvstore_cf_get_default_ttl(this->cf_, &ms));
        return ms == 0 ? std::nullopt : std::optional<std::chrono::milliseconds>(ms);
    }

    /// Returns the earliest expiry time of the keys of a family, or of all families if called on a
    /// store. Returns `nullopt` if no key has an expiry time.
    ///
    /// The time is in the past if an expired key has not been removed yet.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<time_point> next_expiry() const {
        const detail::session& session = this->usable();
        std::int64_t ms = 0;
        if (!session.found(call::next_expiry(this->handle(), &ms))) {
            return std::nullopt;
        }
        return detail::from_ms(ms);
    }

    /// Removes all expired keys of the family.
    ///
    /// It uses transactions of at most 256 keys, or the open transaction if there is one. After a
    /// failure, keys that earlier transactions removed stay removed.
    /// @return Number of keys removed.
    /// @throws error The write errors.
    std::uint64_t purge_expired() {
        const detail::session& session = this->usable();
        int n = 0;
        session.throw_on_error(call::purge_expired(this->handle(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Removes the keys of the family whose expiry time is before `cutoff`. Live keys stay, even if
    /// `cutoff` is in the future.
    ///
    /// Transactions and errors are those of purge_expired().
    std::uint64_t purge_before(const timestamp& cutoff) {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_purge_before(this->cf_, cutoff.ms(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}
    /// @name Write times
    /// @{

    /// Turns write tracking on or off. With it, the family records when each value is written.
    ///
    /// The setting is stored in the file and applies to every handle and process. When it is turned
    /// on, existing keys count as written now. When it is turned off, all write times are
    /// discarded. Both visit every row, in one transaction.
    /// @throws error The write errors.
    void set_write_tracking(bool on) {
        const detail::session& session = this->usable();
        session.throw_on_error(kvstore_cf_set_write_tracking(this->cf_, on ? 1 : 0));
    }

    /// Returns whether the family records when each value is written.
    /// @throws error The read errors.
    [[nodiscard]] bool write_tracking() const {
        const detail::session& session = this->usable();
        int on = 0;
        session.throw_on_error(kvstore_cf_get_write_tracking(this->cf_, &on));
        return on != 0;
    }

    /// Returns when the value of a key was written, or `nullopt` if the key is not live.
    ///
    /// A change of the expiry time is not a write.
    /// @throws error errc::error if the family does not record write times, and the read errors.
    [[nodiscard]] std::optional<time_point> write_time(bytes_view key) const {
        const std::optional<std::int64_t> ms = this->read_ms(&kvstore_cf_write_time, key);
        return ms ? std::optional<time_point>(detail::from_ms(*ms)) : std::nullopt;
    }

    /// Removes every key, live or expired, whose value was written longer ago than `max_age`.
    ///
    /// It uses transactions as purge_expired() does.
    /// @return Number of live keys among the removed ones.
    /// @throws error errc::error (the family does not record write times, or `max_age` is
    ///   negative), and the write errors.
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
    /// Move constructor. Calls on `other` throw errc::misuse afterwards.
    expiry_calls(expiry_calls&& other) noexcept = default;
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
