/// @file
/// What every call of a store and a family stands on: the handle and its session, the C functions that there are for
/// both, and arguments as C takes them. Nothing in here is for users.
#ifndef KVSTORE_ACCESS_HPP
#define KVSTORE_ACCESS_HPP

#include <kvstore.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "error.hpp"
#include "options.hpp"
#include "session.hpp"

/// @cond
namespace kvstore::detail {

/// The C functions that exist for stores and for families.
template <class Handle>
struct functions;

template <>
struct functions<KVStore> {
    static constexpr auto put = &kvstore_put;
    static constexpr auto put_ttl = &kvstore_put_ttl;
    static constexpr auto put_if_absent = &kvstore_put_if_absent;
    static constexpr auto get = &kvstore_get;
    static constexpr auto get_ttl = &kvstore_get_ttl;
    static constexpr auto exists = &kvstore_exists;
    static constexpr auto ttl_remaining = &kvstore_ttl_remaining;
    static constexpr auto erase = &kvstore_delete;
    static constexpr auto clear = &kvstore_clear;
    static constexpr auto count = &kvstore_count;
    static constexpr auto purge_expired = &kvstore_purge_expired;
    static constexpr auto next_expiry = &kvstore_next_expiry;
    static constexpr auto iterator = &kvstore_iterator_create;
    static constexpr auto reverse_iterator = &kvstore_reverse_iterator_create;
    static constexpr auto prefix_iterator = &kvstore_prefix_iterator_create;
    static constexpr auto reverse_prefix_iterator = &kvstore_reverse_prefix_iterator_create;
};

template <>
struct functions<KVColumnFamily> {
    static constexpr auto put = &kvstore_cf_put;
    static constexpr auto put_ttl = &kvstore_cf_put_ttl;
    static constexpr auto put_if_absent = &kvstore_cf_put_if_absent;
    static constexpr auto get = &kvstore_cf_get;
    static constexpr auto get_ttl = &kvstore_cf_get_ttl;
    static constexpr auto exists = &kvstore_cf_exists;
    static constexpr auto ttl_remaining = &kvstore_cf_ttl_remaining;
    static constexpr auto erase = &kvstore_cf_delete;
    static constexpr auto clear = &kvstore_cf_clear;
    static constexpr auto count = &kvstore_cf_count;
    static constexpr auto purge_expired = &kvstore_cf_purge_expired;
    static constexpr auto next_expiry = &kvstore_cf_next_expiry;
    static constexpr auto iterator = &kvstore_cf_iterator_create;
    static constexpr auto reverse_iterator = &kvstore_cf_reverse_iterator_create;
    static constexpr auto prefix_iterator = &kvstore_cf_prefix_iterator_create;
    static constexpr auto reverse_prefix_iterator = &kvstore_cf_reverse_prefix_iterator_create;
};

/// An argument as C takes it.
struct c_bytes {
    c_bytes(bytes_view bytes, const char* what) : data(bytes.data()), size(c_length(bytes.size(), what)) {}
    explicit c_bytes(const bound& bytes)
        : data(bytes ? bytes->data() : nullptr), size(bytes ? c_length(bytes->size(), "bound") : 0) {}

    const void* data;
    int size;
};

struct c_key : c_bytes {
    c_key(bytes_view key) : c_bytes(key, "key") {}
};

struct c_value : c_bytes {
    c_value(bytes_view value) : c_bytes(value, "value") {}
};

/// Keys for C, of a range of anything a bytes_view can be made from.
struct c_keys {
    template <class Keys>
    explicit c_keys(const Keys& keys) {
        for (const auto& key : keys) {
            const c_key k{bytes_view(key)};
            data.push_back(k.data);
            sizes.push_back(k.size);
        }
        count = c_length(data.size(), "list of keys");
    }

    std::vector<const void*> data;
    std::vector<int> sizes;
    int count = 0;
};

/// The session of a store or a family, and its handle.
template <class Handle>
class access {
protected:
    using call = functions<Handle>;

    /// `cf` is not owned.
    access(std::shared_ptr<session> of, KVColumnFamily* cf) noexcept : session_(std::move(of)), cf_(cf) {}
    access(access&& other) noexcept = default;
    access& operator=(access&& other) = delete;
    ~access() = default;

    void swap(access& other) noexcept {
        std::swap(session_, other.session_);
        std::swap(cf_, other.cf_);
    }

    /// The session, if this may be used.
    session& usable() const { return detail::usable(session_); }

    /// What the C functions take.
    Handle* handle() const noexcept {
        if constexpr (std::is_same_v<Handle, KVStore>) {
            return session_->kv;
        } else {
            return cf_;
        }
    }

    template <class Call>
    std::optional<buffer> read(const Call& ask, bytes_view key) const {
        const session& open = usable();
        const c_key k(key);
        void* value = nullptr;
        int n = 0;
        if (!open.found(ask(k, &value, &n))) {
            return std::nullopt;
        }
        return buffer(value, n);
    }

    std::optional<std::int64_t> read_ms(int (*ask)(KVColumnFamily*, const void*, int, std::int64_t*),
                                        bytes_view key) const {
        const session& open = usable();
        const c_key k(key);
        std::int64_t ms = 0;
        return open.found(ask(cf_, k.data, k.size, &ms)) ? std::optional<std::int64_t>(ms) : std::nullopt;
    }

    std::shared_ptr<session> session_; ///< Null if moved from.
    KVColumnFamily* cf_;               ///< This family, or the default one.
};

} // namespace kvstore::detail
/// @endcond

#endif
