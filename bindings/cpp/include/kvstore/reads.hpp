/// @file
/// Functions of stores and families that read values.
#ifndef KVSTORE_READS_HPP
#define KVSTORE_READS_HPP

#include <kvstore.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "access.hpp"
#include "bytes.hpp"
#include "options.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

/// Functions of stores and families that read values. All of them throw the read errors listed at
/// keyspace.
template <class Handle>
class read_calls : public detail::access<Handle> {
    using base = detail::access<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Reading
    /// @{

    /// Returns the value of a key, or `nullopt` if the key is not live. The result is a
    /// `std::string` or another container of bytes: `db.get<std::vector<std::byte>>("key")`.
    template <class Bytes = std::string>
    [[nodiscard]] std::optional<Bytes> get(bytes_view key) const {
        const std::optional<buffer> value = get_buffer(key);
        return value ? std::optional<Bytes>(detail::copy_of<Bytes>(value->view())) : std::nullopt;
    }

    /// Returns the value of a key in memory that the library allocated, or `nullopt` if the key is
    /// not live.
    ///
    /// It saves the copy that get() makes of a large value.
    [[nodiscard]] std::optional<buffer> get_buffer(bytes_view key) const {
        return this->read([&](const detail::c_key& k, void** value, int* n) {
            return call::get(this->handle(), k.data, k.size, value, n);
        }, key);
    }

    /// Copies the first `capacity` bytes of a value into a buffer of the caller, without allocating
    /// memory.
    /// @return Full length of the value, which may exceed `capacity`; `nullopt` if the key is not
    ///   live.
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, void* buffer,
                                                      std::size_t capacity) const {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        const int room = capacity > static_cast<std::size_t>(INT_MAX) ? INT_MAX : static_cast<int>(capacity);
        int n = 0;
        if (!session.found(kvstore_cf_get_into(this->cf_, k.data, k.size, buffer, room, &n))) {
            return std::nullopt;
        }
        return static_cast<std::size_t>(n);
    }

    /// Like get_into(key, buffer, capacity), but the buffer is a range of bytes: a `std::array`, a
    /// `std::span`, or a vector, whose size stays the same.
    template <class Range, std::enable_if_t<detail::is_writable_byte_range<Range>, int> = 0>
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, Range&& buffer) const {
        return get_into(key, static_cast<void*>(std::data(buffer)), std::size(buffer));
    }

    /// Returns the value of a key and its remaining TTL, or `nullopt` if the key is not live.
    [[nodiscard]] std::optional<value_with_ttl> get_with_ttl(bytes_view key) const {
        std::int64_t left = 0;
        const std::optional<buffer> value = this->read([&](const detail::c_key& k, void** data, int* n) {
            return call::get_ttl(this->handle(), k.data, k.size, data, n, &left);
        }, key);
        if (!value) {
            return std::nullopt;
        }
        return value_with_ttl{std::string(value->view()), detail::remaining_ttl_of(left)};
    }

    /// Reads the values of several keys from one snapshot.
    /// @param keys Range of anything that converts to bytes_view; may generate its elements.
    /// @return Values in the order of the keys; `nullopt` for each key that is not live.
    template <class Keys>
    [[nodiscard]] std::vector<std::optional<std::string>> get_many(const Keys& keys) const {
        const detail::c_keys<Keys> k(keys); // first: generating the keys may close the store
        const detail::session& session = this->usable();
        std::vector<void*> values(k.data.size());
        std::vector<int> value_sizes(k.data.size());
        session.throw_on_error(kvstore_cf_get_many(
            this->cf_, k.count, k.data.data(), k.sizes.data(), values.data(), value_sizes.data()));
        const free_all owner{values};
        std::vector<std::optional<std::string>> found(values.size());
        for (std::size_t i = 0; i < values.size(); i++) {
            if (values[i]) {
                const auto size = static_cast<std::size_t>(value_sizes[i]);
                found[i].emplace(static_cast<const char*>(values[i]), size);
            }
        }
        return found;
    }

    /// Like get_many(keys), but the keys are an initializer list: `db.get_many({"a", "b"})`.
    [[nodiscard]] std::vector<std::optional<std::string>>
    get_many(std::initializer_list<bytes_view> keys) const {
        return get_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Returns whether a key exists and has not expired.
    [[nodiscard]] bool contains(bytes_view key) const { return exists(key); }

    /// Returns whether a key exists and has not expired, like contains().
    ///
    /// The function has this name in the other languages.
    [[nodiscard]] bool exists(bytes_view key) const {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        int there = 0;
        session.throw_on_error(call::exists(this->handle(), k.data, k.size, &there));
        return there != 0;
    }

    /// Returns the number of rows, including expired rows that have not been removed yet. The call
    /// reads the whole key index.
    ///
    /// An expired row is not counted once a get, contains or ttl call of this store has found it.
    [[nodiscard]] std::uint64_t count() const {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(call::count(this->handle(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// Returns the number of live keys.
    [[nodiscard]] std::uint64_t count_live() const {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_count_live(this->cf_, &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` throw errc::misuse afterwards.
    read_calls(read_calls&& other) noexcept = default;
    read_calls& operator=(read_calls&& other) = delete;
    ~read_calls() = default;

private:
    struct free_all {
        std::vector<void*>& values;
        free_all(const free_all&) = delete;
        free_all& operator=(const free_all&) = delete;
        explicit free_all(std::vector<void*>& of) noexcept : values(of) {}
        ~free_all() {
            for (void* value : values) {
                kvstore_free(value);
            }
        }
    };
};

} // namespace kvstore

#endif
