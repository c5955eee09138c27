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
#include "call.hpp"
#include "options.hpp"
#include "result.hpp"
#include "time.hpp"
#include "writes.hpp"

namespace kvstore {

/// Functions of stores and families on TTLs, expiry times, purging and write times.
template <class Handle>
class expiry_calls : public write_calls<Handle> {
    using base = write_calls<Handle>;
    using call = detail::functions<Handle>;

public:
#if KVSTORE_EXCEPTIONS
    /// @name Expiry times
    /// @{

    /// Returns the remaining TTL of a key, or `nullopt` if the key does not exist.
    ///
    /// The TTL is 0 if the key has expired and this call is the first of this store to find the
    /// row.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<remaining_ttl> ttl(bytes_view key) const { return try_ttl(key).value(); }

    /// Returns the expiry time of a key, or `nullopt` if the key is not live.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<expiry_time> expires_at(bytes_view key) const { return try_expires_at(key).value(); }

    /// Changes the expiry time of a live key, without touching its value.
    /// @param key 1 to 65536 bytes.
    /// @param expires New TTL or expiry time; never: removes it.
    /// @param condition Condition for the change.
    /// @throws error The write errors.
    expire_result expire(bytes_view key, const expiry& expires, expire_if condition = expire_if::always) {
        return try_expire(key, expires, condition).value();
    }

    /// Removes the expiry time of a live key, so that the key never expires.
    /// @throws error The write errors.
    expire_result persist(bytes_view key) { return try_persist(key).value(); }

    /// Returns the value of a key and sets its expiry time, in one atomic step. Returns `nullopt`
    /// if the key is not live.
    ///
    /// Use it, for example, to extend a session by 20 minutes with each use.
    /// @throws error The write errors.
    std::optional<std::string> get_and_expire(bytes_view key, const expiry& expires) {
        return try_get_and_expire(key, expires).value();
    }

    /// Sets the default TTL of the family: the TTL of keys that put(key, value) writes.
    ///
    /// The setting is stored in the file and applies to every handle and process. Existing keys
    /// keep their expiry times.
    /// @param ttl Up to 20 years; zero: none. Rounded up to a millisecond.
    /// @throws error errc::error (negative or more than 20 years), and the write errors.
    template <class Rep, class Period>
    void set_default_ttl(const std::chrono::duration<Rep, Period>& ttl) {
        try_set_default_ttl(ttl).value();
    }

    /// Removes the default TTL of the family.
    void set_default_ttl(std::nullopt_t) { try_set_default_ttl(std::nullopt).value(); }

    /// Returns the default TTL of the family, or `nullopt` if there is none.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<std::chrono::milliseconds> default_ttl() const { return try_default_ttl().value(); }

    /// Returns the earliest expiry time of the keys of a family, or of all families if called on a
    /// store. Returns `nullopt` if no key has an expiry time.
    ///
    /// The time is in the past if an expired key has not been removed yet.
    /// @throws error The read errors.
    [[nodiscard]] std::optional<time_point> next_expiry() const { return try_next_expiry().value(); }

    /// Removes all expired keys of the family.
    ///
    /// It uses transactions of at most 4096 keys, or the open transaction if there is one. After a
    /// failure, keys that earlier transactions removed stay removed.
    /// @return Number of keys removed.
    /// @throws error The write errors.
    std::uint64_t purge_expired() { return try_purge_expired().value(); }

    /// Removes the keys of the family whose expiry time is before `cutoff`. Live keys stay, even if
    /// `cutoff` is in the future.
    ///
    /// Transactions and errors are those of purge_expired().
    std::uint64_t purge_before(const timestamp& cutoff) { return try_purge_before(cutoff).value(); }

    /// @}
    /// @name Write times
    /// @{

    /// Turns write tracking on or off. With it, the family records when each value is written.
    ///
    /// The setting is stored in the file and applies to every handle and process. When it is turned
    /// on, existing keys count as written now. When it is turned off, all write times are
    /// discarded. Both visit every row, in one transaction.
    /// @throws error The write errors.
    void set_write_tracking(bool on) { try_set_write_tracking(on).value(); }

    /// Returns whether the family records when each value is written.
    /// @throws error The read errors.
    [[nodiscard]] bool write_tracking() const { return try_write_tracking().value(); }

    /// Returns when the value of a key was written, or `nullopt` if the key is not live.
    ///
    /// A change of the expiry time is not a write.
    /// @throws error errc::error if the family does not record write times, and the read errors.
    [[nodiscard]] std::optional<time_point> write_time(bytes_view key) const { return try_write_time(key).value(); }

    /// Removes every key, live or expired, whose value was written longer ago than `max_age`.
    ///
    /// It uses transactions as purge_expired() does.
    /// @return Number of live keys among the removed ones.
    /// @throws error errc::error (the family does not record write times, or `max_age` is
    ///   negative), and the write errors.
    template <class Rep, class Period>
    std::uint64_t sweep(const std::chrono::duration<Rep, Period>& max_age) {
        return try_sweep(max_age).value();
    }

    /// @}
#endif
    /// @name Expiry times without exceptions
    /// @{

    /// Like ttl(), but returns the failure instead of throwing it.
    result<std::optional<remaining_ttl>> try_ttl(bytes_view key) const {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        std::int64_t left = 0;
        const bool found = c.find([&] { return call::ttl_remaining(this->handle(), k.data, k.size, &left); });
        return c.outcome(found ? std::optional<remaining_ttl>(detail::remaining_ttl_of(left)) : std::nullopt);
    }

    /// Like expires_at(), but returns the failure instead of throwing it.
    result<std::optional<expiry_time>> try_expires_at(bytes_view key) const {
        return this->read_time(&kvstore_cf_expire_time, key, detail::expiry_of);
    }

    /// Like expire(), but returns the failure instead of throwing it.
    result<expire_result> try_expire(bytes_view key, const expiry& expires, expire_if condition = expire_if::always) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const std::int64_t expire_ms = c.expire_ms(expires);
        int changed = 0;
        const bool live = c.find([&] {
            return kvstore_cf_expire(this->cf_, k.data, k.size, expire_ms, static_cast<int>(condition), &changed);
        });
        return c.outcome(expire_result_of(live, changed));
    }

    /// Like persist(), but returns the failure instead of throwing it.
    result<expire_result> try_persist(bytes_view key) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        int changed = 0;
        const bool live = c.find([&] { return kvstore_cf_persist(this->cf_, k.data, k.size, &changed); });
        return c.outcome(expire_result_of(live, changed));
    }

    /// Like get_and_expire(), but returns the failure instead of throwing it.
    result<std::optional<std::string>> try_get_and_expire(bytes_view key, const expiry& expires) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const std::int64_t expire_ms = c.expire_ms(expires);
        void* data = nullptr;
        int size = 0;
        c.find([&] { return kvstore_cf_get_and_expire(this->cf_, k.data, k.size, expire_ms, &data, &size); });
        const detail::memory value(data);
        return c.outcome(value ? std::optional<std::string>(this->template copy_of<std::string>(value, size))
                               : std::nullopt);
    }

    /// Like set_default_ttl(), but returns the failure instead of throwing it.
    template <class Rep, class Period>
    result<void> try_set_default_ttl(const std::chrono::duration<Rep, Period>& ttl) {
        detail::c_call c = this->start();
        const std::int64_t ms = c.ms(detail::to_ms(ttl));
        c.run([&] { return kvstore_cf_set_default_ttl(this->cf_, ms); });
        return c.outcome();
    }

    /// Like set_default_ttl(), but returns the failure instead of throwing it.
    result<void> try_set_default_ttl(std::nullopt_t) { return try_set_default_ttl(std::chrono::milliseconds(0)); }

    /// Like default_ttl(), but returns the failure instead of throwing it.
    result<std::optional<std::chrono::milliseconds>> try_default_ttl() const {
        detail::c_call c = this->start();
        std::int64_t ms = 0;
        c.run([&] { return kvstore_cf_get_default_ttl(this->cf_, &ms); });
        return c.outcome(ms == 0 ? std::nullopt : std::optional<std::chrono::milliseconds>(ms));
    }

    /// Like next_expiry(), but returns the failure instead of throwing it.
    result<std::optional<time_point>> try_next_expiry() const {
        detail::c_call c = this->start();
        std::int64_t ms = 0;
        const bool found = c.find([&] { return call::next_expiry(this->handle(), &ms); });
        return c.outcome(found ? std::optional<time_point>(detail::from_ms(ms)) : std::nullopt);
    }

    /// Like purge_expired(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_purge_expired() {
        detail::c_call c = this->start();
        int removed = 0;
        c.run([&] { return call::purge_expired(this->handle(), &removed); });
        return c.outcome(static_cast<std::uint64_t>(removed));
    }

    /// Like purge_before(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_purge_before(const timestamp& cutoff) {
        detail::c_call c = this->start();
        const std::int64_t cutoff_ms = c.ms(cutoff.ms());
        std::int64_t removed = 0;
        c.run([&] { return kvstore_cf_purge_before(this->cf_, cutoff_ms, &removed); });
        return c.outcome(static_cast<std::uint64_t>(removed));
    }

    /// @}
    /// @name Write times without exceptions
    /// @{

    /// Like set_write_tracking(), but returns the failure instead of throwing it.
    result<void> try_set_write_tracking(bool on) {
        detail::c_call c = this->start();
        c.run([&] { return kvstore_cf_set_write_tracking(this->cf_, on ? 1 : 0); });
        return c.outcome();
    }

    /// Like write_tracking(), but returns the failure instead of throwing it.
    result<bool> try_write_tracking() const {
        detail::c_call c = this->start();
        int on = 0;
        c.run([&] { return kvstore_cf_get_write_tracking(this->cf_, &on); });
        return c.outcome(on != 0);
    }

    /// Like write_time(), but returns the failure instead of throwing it.
    result<std::optional<time_point>> try_write_time(bytes_view key) const {
        return this->read_time(&kvstore_cf_write_time, key, detail::from_ms);
    }

    /// Like sweep(), but returns the failure instead of throwing it.
    template <class Rep, class Period>
    result<std::uint64_t> try_sweep(const std::chrono::duration<Rep, Period>& max_age) {
        detail::c_call c = this->start();
        const std::int64_t max_age_ms = c.ms(detail::to_ms(max_age));
        std::int64_t removed = 0;
        c.run([&] { return kvstore_cf_sweep(this->cf_, max_age_ms, &removed); });
        return c.outcome(static_cast<std::uint64_t>(removed));
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    expiry_calls(expiry_calls&& other) noexcept = default;
    expiry_calls& operator=(expiry_calls&& other) = delete;
    ~expiry_calls() = default;

private:
    static expire_result expire_result_of(bool live, int changed) noexcept {
        return !live ? expire_result::missing : changed ? expire_result::changed : expire_result::unchanged;
    }
};

} // namespace kvstore

#endif
