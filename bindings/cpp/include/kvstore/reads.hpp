/// @file
/// Reading keys, of a store and a family.
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

/// The reads of a keyspace.
template <class Handle>
class read_calls : public detail::access<Handle> {
    using base = detail::access<Handle>;
    using call = detail::functions<Handle>;

public:
    /// @name Reading
    /// @{

    /// The value of a live key, as a `std::string`, or any other container of bytes:
    /// `db.get<std::vector<std::byte>>("key")`.
    template <class Bytes = std::string>
    [[nodiscard]] std::optional<Bytes> get(bytes_view key) const {
        const std::optional<buffer> value = get_buffer(key);
        return value ? std::optional<Bytes>(detail::copy_of<Bytes>(value->view())) : std::nullopt;
    }

    /// The value of a live key, in the library's memory: for large values, which get() would copy once more.
    [[nodiscard]] std::optional<buffer> get_buffer(bytes_view key) const {
        return this->read([&](const detail::c_key& k, void** value, int* n) {
            return call::get(this->handle(), k.data, k.size, value, n);
        }, key);
    }

    /// Reads a value into the caller's memory, without allocating: its first bytes, at most `capacity`.
    /// Answers its full length, also if that is more, or `nullopt` for a missing key.
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

    /// The same, with a range of bytes in the caller's memory: a `std::array`, a vector, which stays as long as it is,
    /// a `std::span`.
    template <class Range, std::enable_if_t<detail::is_writable_byte_range<Range>, int> = 0>
    [[nodiscard]] std::optional<std::size_t> get_into(bytes_view key, Range&& buffer) const {
        return get_into(key, static_cast<void*>(std::data(buffer)), std::size(buffer));
    }

    /// The value of a live key, and what is left of its life.
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

    /// Reads several values from one snapshot, in the order of the keys: `nullopt` for each that is missing.
    /// `keys` is a range of anything a bytes_view can be made from, also one that makes its keys as it goes.
    template <class Keys>
    [[nodiscard]] std::vector<std::optional<std::string>> get_many(const Keys& keys) const {
        const detail::c_keys<Keys> k(keys); // first: it runs what makes the keys, which may close the store
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

    /// The same, of keys that are listed.
    [[nodiscard]] std::vector<std::optional<std::string>>
    get_many(std::initializer_list<bytes_view> keys) const {
        return get_many<std::initializer_list<bytes_view>>(keys);
    }

    /// Whether a key is there and alive.
    [[nodiscard]] bool contains(bytes_view key) const { return exists(key); }

    /// The same, by the name that it has in the other languages.
    [[nodiscard]] bool exists(bytes_view key) const {
        const detail::session& session = this->usable();
        const detail::c_key k(key);
        int there = 0;
        session.throw_on_error(call::exists(this->handle(), k.data, k.size, &there));
        return there != 0;
    }

    /// How many rows there are. Expired ones are included as long as nothing has removed them, and no get, contains
    /// or ttl of this store has met them. Reads the whole key tree.
    [[nodiscard]] std::uint64_t count() const {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(call::count(this->handle(), &n));
        return static_cast<std::uint64_t>(n);
    }

    /// How many keys are alive.
    [[nodiscard]] std::uint64_t count_live() const {
        const detail::session& session = this->usable();
        std::int64_t n = 0;
        session.throw_on_error(kvstore_cf_count_live(this->cf_, &n));
        return static_cast<std::uint64_t>(n);
    }

    /// @}

protected:
    using base::base;
    read_calls(read_calls&& other) noexcept = default; ///< The other one answers errc::misuse from now on.
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
