/// @file
/// Functions of stores and families that write and delete keys.
#ifndef KVSTORE_WRITES_HPP
#define KVSTORE_WRITES_HPP

#include <kvstore.h>

#include <cstdint>
#include <initializer_list>

#include "access.hpp"
#include "bytes.hpp"
#include "options.hpp"
#include "reads.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// Functions of stores and families that write and delete keys. All of them throw the write errors
/// listed at keyspace.
template <class Handle>
class write_calls : public read_calls<Handle> {
    using base = read_calls<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Writing
    /// @{

    /// Writes the value of a key. The key gets the default TTL of the family; without one, it never
    /// expires.
    ///
    /// An existing value is replaced, and its expiry time removed.
    void put(bytes_view key, bytes_view value) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        session.throw_on_error(call::put(this->handle(), k.data, k.size, v.data, v.size));
    }

    /// Writes the value of a key with a TTL or an expiry time: `put("otp", "123456", 30s)`. The
    /// default TTL of the family is not used.
    void put(bytes_view key, bytes_view value, const expiry& expires) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        session.throw_on_error(call::put_ttl(this->handle(), k.data, k.size, v.data, v.size, session.expire_ms(expires)));
    }

    /// Writes a value only if the key does not exist or has expired. A live key keeps its value and
    /// expiry time.
    ///
    /// The default TTL of the family is not used.
    /// @return Whether the value was written.
    bool put_if_absent(bytes_view key, bytes_view value, const expiry& expires = never) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        int inserted = 0;
        session.throw_on_error(call::put_if_absent(this->handle(), k.data, k.size, v.data, v.size, session.expire_ms(expires),
                                          &inserted));
        return inserted != 0;
    }

    /// Writes a value with options, such as a TTL, or a condition that the key must meet.
    /// @return Whether their condition held.
    /// @throws error Also errc::error if options exclude each other.
    bool put_with(bytes_view key, bytes_view value, const put_options& options) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        const KVWriteOptions how{session.expire_ms(options.expiry_), options.flags_, 0};
        int written = 0;
        session.throw_on_error(kvstore_cf_put_with(this->cf_, k.data, k.size, v.data, v.size, &how, &written));
        return written != 0;
    }

    /// Writes a value only if the key is live and its current value equals `expected`.
    ///
    /// `expires` replaces the current expiry time.
    /// @return Whether the value was written.
    bool compare_and_swap(bytes_view key, bytes_view expected, bytes_view value,
                          const expiry& expires = never) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value e(expected);
        const detail::c_value v(value);
        int swapped = 0;
        session.throw_on_error(kvstore_cf_compare_and_swap(this->cf_, k.data, k.size, e.data, e.size, v.data, v.size,
                                                  session.expire_ms(expires), &swapped));
        return swapped != 0;
    }

    /// Adds `delta` to the value of a key, a decimal integer stored as text, and returns the sum.
    ///
    /// A live key keeps its expiry time. A key that is not live counts as 0 and gets `expires`. If
    /// that is never, the key gets the default TTL of the family, if there is one.
    /// @return The sum.
    /// @throws error errc::error (the value is not a 64-bit integer, or the sum overflows), and the
    ///   write errors.
    std::int64_t increment(bytes_view key, std::int64_t delta = 1, const expiry& expires = never) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        std::int64_t sum = 0;
        session.throw_on_error(kvstore_cf_increment(this->cf_, k.data, k.size, delta, session.expire_ms(expires), &sum));
        return sum;
    }

    /// Deletes a key with its value and expiry time.
    /// @return Whether the key was live.
    bool erase(bytes_view key) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        return session.found(call::erase(this->handle(), k.data, k.size));
    }

    /// Deletes several keys in one transaction.
    /// @param keys Range of anything that converts to bytes_view; may generate its elements.
    /// @return Number of live keys deleted.
    template <class Keys>
    std::uint64_t erase_many(const Keys& keys) {
        const detail::c_keys<Keys> k(keys); // first: generating the keys may close the store
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_delete_many(this->cf_, k.count, k.data.data(), k.sizes.data(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Like erase_many(keys), but the keys are an initializer list: `db.erase_many({"a", "b"})`.
    std::uint64_t erase_many(std::initializer_list<bytes_view> keys) {
        return erase_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Deletes a key only if it is live and its value equals `expected`.
    /// @return Whether the key was deleted.
    bool compare_and_erase(bytes_view key, bytes_view expected) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value e(expected);
        int erased = 0;
        session.throw_on_error(kvstore_cf_compare_and_delete(this->cf_, k.data, k.size, e.data, e.size, &erased));
        return erased != 0;
    }

    /// Deletes all keys from `lower` (included) to `upper` (excluded), in one transaction.
    /// @return Number of live keys deleted.
    std::uint64_t erase_range(const bound& lower, const bound& upper) {
        const detail::session& session = this->usable();
        const detail::c_bytes from(lower);
        const detail::c_bytes to(upper);
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_delete_range(this->cf_, from.data, from.size, to.data, to.size, &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Deletes all keys of the family. The settings of the family remain.
    void clear() {
        const detail::session& session = this->usable();
        session.throw_on_error(call::clear(this->handle()));
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` throw errc::misuse afterwards.
    write_calls(write_calls&& other) noexcept = default;
    write_calls& operator=(write_calls&& other) = delete;
    ~write_calls() = default;
};

} // namespace kvstore

#endif
