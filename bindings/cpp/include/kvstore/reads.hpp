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
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "access.hpp"
#include "bytes.hpp"
#include "call.hpp"
#include "options.hpp"
#include "result.hpp"
#include "time.hpp"

namespace kvstore {

/// Functions of stores and families that read values. Their errors are the read errors listed at
/// keyspace.
template <class Handle>
class read_calls : public detail::access<Handle> {
    using base = detail::access<Handle>;
    using call = detail::functions<Handle>;

public:
#if KVSTORE_EXCEPTIONS
    /// @name Reading
    /// @{

    /// Returns the value of a key, or `nullopt` if the key is not live. The result is a
    /// `std::string` or another container of bytes: `db.get<std::vector<std::byte>>("key")`.
    template <class Bytes = std::string>
    [[nodiscard]] std::optional<Bytes> get(bytes_view key) const {
        return try_get<Bytes>(key).value();
    }

    /// Returns the value of a key in memory that the library allocated, or `nullopt` if the key is
    /// not live.
    ///
    /// It saves the copy that get() makes of a large value.
    [[nodiscard]] std::optional<buffer> get_buffer(bytes_view key) const { return try_get_buffer(key).value(); }

    /// Copies the first `capacity` bytes of a value into a buffer of the caller, without allocating
    /// memory.
    /// @return Full length of the value, which may exceed `capacity`; `nullopt` if the key is not
    ///   live.
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, void* buffer, std::size_t capacity) const {
        return try_get_into(key, buffer, capacity).value();
    }

    /// Like get_into(key, buffer, capacity), but the buffer is a range of bytes: a `std::array`, a
    /// `std::span`, or a vector, whose size stays the same.
    template <class Range, std::enable_if_t<detail::is_writable_byte_range<Range>, int> = 0>
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, Range&& buffer) const {
        return try_get_into(key, buffer).value();
    }

    /// Returns the value of a key and its remaining TTL, or `nullopt` if the key is not live.
    [[nodiscard]] std::optional<value_with_ttl> get_with_ttl(bytes_view key) const {
        return try_get_with_ttl(key).value();
    }

    /// Reads the values of several keys from one snapshot.
    /// @param keys Range of anything that converts to bytes_view; may generate its elements.
    /// @return Values in the order of the keys; `nullopt` for each key that is not live.
    template <class Keys>
    [[nodiscard]] std::vector<std::optional<std::string>> get_many(const Keys& keys) const {
        return try_get_many(keys).value();
    }

    /// Like get_many(keys), but the keys are an initializer list: `db.get_many({"a", "b"})`.
    [[nodiscard]] std::vector<std::optional<std::string>> get_many(std::initializer_list<bytes_view> keys) const {
        return try_get_many(keys).value();
    }

    /// Returns whether a key exists and has not expired.
    [[nodiscard]] bool contains(bytes_view key) const { return try_contains(key).value(); }

    /// Returns the number of rows, including expired rows that have not been removed yet. The call
    /// reads the whole key index.
    ///
    /// An expired row is not counted once a get, contains or ttl call of this store has found it.
    [[nodiscard]] std::uint64_t count() const { return try_count().value(); }

    /// Returns the number of live keys.
    [[nodiscard]] std::uint64_t count_live() const { return try_count_live().value(); }

    /// @}
#endif
    /// @name Reading without exceptions
    /// @{

    /// Like get(), but returns the failure instead of throwing it.
    template <class Bytes = std::string>
    result<std::optional<Bytes>> try_get(bytes_view key) const {
        detail::c_call c = this->start();
        int size = 0;
        const detail::memory value = read(c, key, size);
        auto found = c.outcome(std::optional<Bytes>());
        if (value) {
            *found = this->template copy_of<Bytes>(value, size);
        }
        return found;
    }

    /// Like get_buffer(), but returns the failure instead of throwing it.
    result<std::optional<buffer>> try_get_buffer(bytes_view key) const {
        detail::c_call c = this->start();
        int size = 0;
        detail::memory value = read(c, key, size);
        return c.outcome(value ? std::optional<buffer>(this->buffer_of(std::move(value), size)) : std::nullopt);
    }

    /// Like get_into(), but returns the failure instead of throwing it.
    result<std::optional<std::size_t>> try_get_into(bytes_view key, void* buffer, std::size_t capacity) const {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        const int length = capacity > static_cast<std::size_t>(INT_MAX) ? INT_MAX : static_cast<int>(capacity);
        int size = 0;
        const bool found =
            c.find([&] { return kvstore_cf_get_into(this->cf_, k.data, k.size, buffer, length, &size); });
        return c.outcome(found ? std::optional<std::size_t>(static_cast<std::size_t>(size)) : std::nullopt);
    }

    /// Like get_into(), but returns the failure instead of throwing it.
    template <class Range, std::enable_if_t<detail::is_writable_byte_range<Range>, int> = 0>
    result<std::optional<std::size_t>> try_get_into(bytes_view key, Range&& buffer) const {
        return try_get_into(key, static_cast<void*>(std::data(buffer)), std::size(buffer));
    }

    /// Like get_with_ttl(), but returns the failure instead of throwing it.
    result<std::optional<value_with_ttl>> try_get_with_ttl(bytes_view key) const {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        void* data = nullptr;
        int size = 0;
        std::int64_t left = 0;
        c.find([&] { return call::get_ttl(this->handle(), k.data, k.size, &data, &size, &left); });
        const detail::memory value(data);
        std::optional<value_with_ttl> found;
        if (value) {
            found = value_with_ttl{this->template copy_of<std::string>(value, size), detail::remaining_ttl_of(left)};
        }
        return c.outcome(std::move(found));
    }

    /// Like get_many(), but returns the failure instead of throwing it.
    template <class Keys>
    result<std::vector<std::optional<std::string>>> try_get_many(const Keys& keys) const {
        detail::c_keys<Keys> k(keys);
        detail::c_call c = this->start();
        k.add_failure_to(c);
        std::vector<void*> values(k.data.size());
        std::vector<int> sizes(k.data.size());
        c.run([&] {
            return kvstore_cf_get_many(this->cf_, k.count, k.data.data(), k.sizes.data(), values.data(), sizes.data());
        });
        const free_all owner{values};
        std::vector<std::optional<std::string>> found(values.size());
        for (std::size_t i = 0; i < values.size(); i++) {
            if (values[i]) {
                found[i].emplace(static_cast<const char*>(values[i]), static_cast<std::size_t>(sizes[i]));
            }
        }
        return c.outcome(std::move(found));
    }

    /// Like get_many(), but returns the failure instead of throwing it.
    result<std::vector<std::optional<std::string>>> try_get_many(std::initializer_list<bytes_view> keys) const {
        return try_get_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Like contains(), but returns the failure instead of throwing it.
    result<bool> try_contains(bytes_view key) const {
        detail::c_call c = this->start();
        const auto k = c.key(key);
        int live = 0;
        c.run([&] { return call::exists(this->handle(), k.data, k.size, &live); });
        return c.outcome(live != 0);
    }

    /// Like count(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_count() const {
        detail::c_call c = this->start();
        std::int64_t rows = 0;
        c.run([&] { return call::count(this->handle(), &rows); });
        return c.outcome(static_cast<std::uint64_t>(rows));
    }

    /// Like count_live(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_count_live() const {
        detail::c_call c = this->start();
        std::int64_t keys = 0;
        c.run([&] { return kvstore_cf_count_live(this->cf_, &keys); });
        return c.outcome(static_cast<std::uint64_t>(keys));
    }

    /// @}

protected:
    using base::base;
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    read_calls(read_calls&& other) noexcept = default;
    read_calls& operator=(read_calls&& other) = delete;
    ~read_calls() = default;

private:
    struct free_all {
        std::vector<void*>& values;
        free_all(const free_all&) = delete;
        free_all& operator=(const free_all&) = delete;
        explicit free_all(std::vector<void*>& memory) noexcept : values(memory) {}
        ~free_all() {
            for (void* value : values) {
                kvstore_free(value);
            }
        }
    };

    /// Reads the value of a key. Returns null if the key is not live, or the call failed.
    detail::memory read(detail::c_call& c, bytes_view key, int& size) const {
        const auto k = c.key(key);
        void* value = nullptr;
        c.find([&] { return call::get(this->handle(), k.data, k.size, &value, &size); });
        return detail::memory(value);
    }
};

} // namespace kvstore

#endif
