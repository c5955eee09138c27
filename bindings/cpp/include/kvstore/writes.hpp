/// @file
/// Writing and deleting keys, of a store and a family.
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

/// The writes of a keyspace.
template <class Handle>
class write_calls : public read_calls<Handle> {
    using base = read_calls<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Writing
    /// @{

    /// Writes a value. The key loses the TTL it had, and gets the family's default TTL if there is one.
    void put(bytes_view key, bytes_view value) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        session.throw_on_error(call::put(this->handle(), k.data, k.size, v.data, v.size));
    }

    /// Writes a value that lives as long as said: `put("otp", "123456", 30s)`. The default TTL is not used.
    void put(bytes_view key, bytes_view value, const expiry& expires) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        session.throw_on_error(call::put_ttl(this->handle(), k.data, k.size, v.data, v.size, session.expire_ms(expires)));
    }

    /// Writes a value only if the key is missing or expired, and says whether it did. A live key keeps its
    /// value and TTL. The default TTL is not used.
    bool put_if_absent(bytes_view key, bytes_view value, const expiry& expires = never) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        int inserted = 0;
        session.throw_on_error(call::put_if_absent(this->handle(), k.data, k.size, v.data, v.size, session.expire_ms(expires),
                                          &inserted));
        return inserted != 0;
    }

    /// Writes a value as the options say, and says whether their condition held.
    /// @throws error errc::error also for options that exclude each other.
    bool put_with(bytes_view key, bytes_view value, const put_options& options) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value v(value);
        const KVWriteOptions how{session.expire_ms(options.expiry_), options.flags_, 0};
        int written = 0;
        session.throw_on_error(kvstore_cf_put_with(this->cf_, k.data, k.size, v.data, v.size, &how, &written));
        return written != 0;
    }

    /// Writes a value only if the key is alive and its value equal to `expected`, and says whether it did.
    /// The key then lives as long as said, whatever it had before.
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

    /// Adds to the number under a key, kept as decimal text, and answers the sum. A missing or expired key
    /// counts as 0, and then lives as long as said; never means by the family's default TTL, if it has one.
    /// A live key keeps its TTL.
    /// @throws error errc::error if the value is no whole number of 64 bits, or the sum is none.
    std::int64_t increment(bytes_view key, std::int64_t delta = 1, const expiry& expires = never) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        std::int64_t sum = 0;
        session.throw_on_error(kvstore_cf_increment(this->cf_, k.data, k.size, delta, session.expire_ms(expires), &sum));
        return sum;
    }

    /// Deletes a key with its TTL, and says whether it was alive.
    bool erase(bytes_view key) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        return session.found(call::erase(this->handle(), k.data, k.size));
    }

    /// Deletes keys, all in one transaction, and answers how many were alive. `keys` is a range of anything a bytes_view can
    /// be made from, also one that makes its keys as it goes.
    template <class Keys>
    std::uint64_t erase_many(const Keys& keys) {
        const detail::c_keys<Keys> k(keys); // first: it runs what makes the keys, which may close the store
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_delete_many(this->cf_, k.count, k.data.data(), k.sizes.data(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// The same, of keys that are listed.
    std::uint64_t erase_many(std::initializer_list<bytes_view> keys) {
        return erase_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Deletes a key only if it is alive and its value equal to `expected`, and says whether it did.
    bool compare_and_erase(bytes_view key, bytes_view expected) {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const detail::c_value e(expected);
        int erased = 0;
        session.throw_on_error(kvstore_cf_compare_and_delete(this->cf_, k.data, k.size, e.data, e.size, &erased));
        return erased != 0;
    }

    /// Deletes the keys from `lower` to before `upper` in one transaction, and answers how many were alive.
    std::uint64_t erase_range(const bound& lower, const bound& upper) {
        const detail::session& session = this->usable();
        const detail::c_bytes from(lower);
        const detail::c_bytes to(upper);
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_delete_range(this->cf_, from.data, from.size, to.data, to.size, &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Deletes everything in this family.
    void clear() {
        const detail::session& session = this->usable();
        session.throw_on_error(call::clear(this->handle()));
    }

    /// @}

protected:
    using base::base;
    write_calls(write_calls&& other) noexcept = default; ///< The other one answers errc::misuse from now on.
    write_calls& operator=(write_calls&& other) = delete;
    ~write_calls() = default;
};

} // namespace kvstore

#endif
