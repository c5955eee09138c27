/// @file
/// Functions of stores and families that write and delete keys.
#ifndef KVSTORE_WRITES_HPP
#define KVSTORE_WRITES_HPP

#include <kvstore.h>

#include <cstdint>
#include <initializer_list>

#include "access.hpp"
#include "bytes.hpp"
#include "call.hpp"
#include "options.hpp"
#include "reads.hpp"
#include "result.hpp"
#include "time.hpp"

namespace kvstore {

/// Functions of stores and families that write and delete keys. Their errors are the write errors
/// listed at keyspace.
template <class Handle>
class write_calls : public read_calls<Handle> {
    using base = read_calls<Handle>;
    using call = detail::functions<Handle>;

public:
#if KVSTORE_EXCEPTIONS
    /// @name Writing
    /// @{

    /// Writes the value of a key. The key gets the default TTL of the family; without one, it never
    /// expires.
    ///
    /// An existing value is replaced, and its expiry time removed.
    void put(bytes_view key, bytes_view value) { try_put(key, value).value(); }

    /// Writes the value of a key with a TTL or an expiry time: `put("otp", "123456", 30s)`. The
    /// default TTL of the family is not used.
    void put(bytes_view key, bytes_view value, const expiry& expires) { try_put(key, value, expires).value(); }

    /// Writes a value only if the key does not exist or has expired. A live key keeps its value and
    /// expiry time.
    ///
    /// Without `expires`, a new key gets the default TTL of the family.
    /// @return Whether the value was written.
    bool put_if_absent(bytes_view key, bytes_view value, const expiry& expires = family_ttl) {
        return try_put_if_absent(key, value, expires).value();
    }

    /// Writes a value with options, such as a TTL, or a condition that the key must meet.
    /// @return Whether their condition held.
    /// @throws error Also errc::error if options exclude each other.
    bool put_with(bytes_view key, bytes_view value, const put_options& options) {
        return try_put_with(key, value, options).value();
    }

    /// Writes a value only if the key is live and its current value equals `expected`.
    ///
    /// `expires`, or without it the default TTL of the family, replaces the current expiry time.
    /// @return Whether the value was written.
    bool compare_and_swap(bytes_view key, bytes_view expected, bytes_view value, const expiry& expires = family_ttl) {
        return try_compare_and_swap(key, expected, value, expires).value();
    }

    /// Adds `delta` to the value of a key, a decimal integer stored as text, and returns the sum.
    ///
    /// A live key keeps its expiry time. A key that is not live counts as 0 and gets `expires`, or
    /// without it the default TTL of the family.
    /// @return The sum.
    /// @throws error errc::error (the value is not a 64-bit integer, or the sum overflows), and the
    ///   write errors.
    std::int64_t increment(bytes_view key, std::int64_t delta = 1, const expiry& expires = family_ttl) {
        return try_increment(key, delta, expires).value();
    }

    /// Deletes a key with its value and expiry time.
    /// @return Whether the key was live.
    bool erase(bytes_view key) { return try_erase(key).value(); }

    /// Deletes several keys in one transaction.
    /// @param keys Range of anything that converts to bytes_view; may generate its elements.
    /// @return Number of live keys deleted.
    template <class Keys>
    std::uint64_t erase_many(const Keys& keys) {
        return try_erase_many(keys).value();
    }

    /// Like erase_many(keys), but the keys are an initializer list: `db.erase_many({"a", "b"})`.
    std::uint64_t erase_many(std::initializer_list<bytes_view> keys) { return try_erase_many(keys).value(); }

    /// Deletes a key only if it is live and its value equals `expected`.
    /// @return Whether the key was deleted.
    bool compare_and_erase(bytes_view key, bytes_view expected) {
        return try_compare_and_erase(key, expected).value();
    }

    /// Deletes all keys from `lower` (included) to `upper` (excluded), in one transaction.
    /// @return Number of live keys deleted.
    std::uint64_t erase_range(const bound& lower, const bound& upper) { return try_erase_range(lower, upper).value(); }

    /// Deletes all keys of the family. The settings of the family remain.
    void clear() { try_clear().value(); }

    /// @}
#endif
    /// @name Writing without exceptions
    /// @{

    /// Like put(), but returns the failure instead of throwing it.
    result<void> try_put(bytes_view key, bytes_view value) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const auto v = c.value(value);
        c.run([&] { return call::put(this->handle(), k.data, k.size, v.data, v.size); });
        return c.outcome();
    }

    /// Like put(), but returns the failure instead of throwing it.
    result<void> try_put(bytes_view key, bytes_view value, const expiry& expires) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const auto v = c.value(value);
        const std::int64_t expire_ms = c.expire_ms(expires);
        c.run([&] { return call::put_ttl(this->handle(), k.data, k.size, v.data, v.size, expire_ms); });
        return c.outcome();
    }

    /// Like put_if_absent(), but returns the failure instead of throwing it.
    result<bool> try_put_if_absent(bytes_view key, bytes_view value, const expiry& expires = family_ttl) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const auto v = c.value(value);
        const std::int64_t expire_ms = c.expire_ms(expires);
        int written = 0;
        c.run([&] {
            return call::put_if_absent(this->handle(), k.data, k.size, v.data, v.size, expire_ms, &written);
        });
        return c.outcome(written != 0);
    }

    /// Like put_with(), but returns the failure instead of throwing it.
    result<bool> try_put_with(bytes_view key, bytes_view value, const put_options& options) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const auto v = c.value(value);
        const KVWriteOptions c_options{c.expire_ms(options.expiry_), options.flags_, 0};
        int written = 0;
        c.run([&] {
            return kvstore_cf_put_with(this->cf_, k.data, k.size, v.data, v.size, &c_options, &written);
        });
        return c.outcome(written != 0);
    }

    /// Like compare_and_swap(), but returns the failure instead of throwing it.
    result<bool> try_compare_and_swap(bytes_view key, bytes_view expected, bytes_view value,
                                      const expiry& expires = family_ttl) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const auto e = c.value(expected);
        const auto v = c.value(value);
        const std::int64_t expire_ms = c.expire_ms(expires);
        int swapped = 0;
        c.run([&] {
            return kvstore_cf_compare_and_swap(this->cf_, k.data, k.size, e.data, e.size, v.data, v.size, expire_ms,
                                               &swapped);
        });
        return c.outcome(swapped != 0);
    }

    /// Like increment(), but returns the failure instead of throwing it.
    result<std::int64_t> try_increment(bytes_view key, std::int64_t delta = 1, const expiry& expires = family_ttl) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const std::int64_t expire_ms = c.expire_ms(expires);
        std::int64_t sum = 0;
        c.run([&] { return kvstore_cf_increment(this->cf_, k.data, k.size, delta, expire_ms, &sum); });
        return c.outcome(sum);
    }

    /// Like erase(), but returns the failure instead of throwing it.
    result<bool> try_erase(bytes_view key) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const bool live = c.find([&] { return call::erase(this->handle(), k.data, k.size); });
        return c.outcome(live);
    }

    /// Like erase_many(), but returns the failure instead of throwing it.
    template <class Keys>
    result<std::uint64_t> try_erase_many(const Keys& keys) {
        detail::c_keys<Keys> k(keys);
        detail::c_call c = this->start();
        k.add_failure_to(c);
        std::int64_t erased = 0;
        c.run([&] { return kvstore_cf_delete_many(this->cf_, k.count, k.data.data(), k.sizes.data(), &erased); });
        return c.outcome(static_cast<std::uint64_t>(erased));
    }

    /// Like erase_many(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_erase_many(std::initializer_list<bytes_view> keys) {
        return try_erase_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Like compare_and_erase(), but returns the failure instead of throwing it.
    result<bool> try_compare_and_erase(bytes_view key, bytes_view expected) {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const auto e = c.value(expected);
        int erased = 0;
        c.run([&] { return kvstore_cf_compare_and_delete(this->cf_, k.data, k.size, e.data, e.size, &erased); });
        return c.outcome(erased != 0);
    }

    /// Like erase_range(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_erase_range(const bound& lower, const bound& upper) {
        detail::c_call c = this->start();
        const auto from = c.bound(lower);
        const auto to = c.bound(upper);
        std::int64_t erased = 0;
        c.run([&] { return kvstore_cf_delete_range(this->cf_, from.data, from.size, to.data, to.size, &erased); });
        return c.outcome(static_cast<std::uint64_t>(erased));
    }

    /// Like clear(), but returns the failure instead of throwing it.
    result<void> try_clear() {
        detail::c_call c = this->start();
        c.run([&] { return call::clear(this->handle()); });
        return c.outcome();
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    write_calls(write_calls&& other) noexcept = default;
    write_calls& operator=(write_calls&& other) = delete;
    ~write_calls() = default;
};

} // namespace kvstore

#endif
