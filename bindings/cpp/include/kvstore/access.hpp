/// @file
/// Base of stores and families: their handle and session, the C functions that exist for both,
/// and the conversion of lists of keys. Internal.
#ifndef KVSTORE_ACCESS_HPP
#define KVSTORE_ACCESS_HPP

#include <kvstore.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <ranges>
#endif

#include "bytes.hpp"
#include "call.hpp"
#include "result.hpp"
#include "session.hpp"

/// @cond
namespace kvstore::detail {

/// Maps a handle type (KVStore or KVColumnFamily) to the C functions that work on it.
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

namespace range_for {
using std::begin;
/// Iterator type that a range-for over a Range uses.
template <class Range>
using iterator_of = decltype(begin(std::declval<const Range&>()));
} // namespace range_for

/// True if an iterator type is at least a forward iterator according to its iterator_category.
///
/// is_multi_pass uses it for types without iterator_concept (C++20).
template <class Iterator, class = void>
struct has_forward_category : std::false_type {};
template <class Iterator>
struct has_forward_category<Iterator, std::void_t<typename std::iterator_traits<Iterator>::iterator_category>>
    : std::is_base_of<std::forward_iterator_tag, typename std::iterator_traits<Iterator>::iterator_category> {};
template <class Iterator, class = void>
struct is_multi_pass : has_forward_category<Iterator> {};
template <class Iterator>
struct is_multi_pass<Iterator, std::void_t<typename Iterator::iterator_concept>>
    : std::is_base_of<std::forward_iterator_tag, typename Iterator::iterator_concept> {};

/// True if T is a view: it refers to bytes that it does not own, which remain valid when the T is
/// destroyed.
template <class T>
inline constexpr bool is_view =
    std::is_pointer_v<T> || std::is_same_v<T, bytes_view> ||
    (std::is_base_of_v<std::string_view, T> && std::is_trivially_copyable_v<T>); // a part_view, too
#if __cplusplus >= 202002L // such as a span
template <std::ranges::borrowed_range T>
inline constexpr bool is_view<T> = true;
#endif

/// List of keys as the pointers and lengths that the C API takes, made from a range of anything
/// that converts to bytes_view.
///
/// Keys that do not outlive a step of the range are stored here: as values if the range is
/// multi-pass, and as copies of their bytes if it is single-pass. The list must be made before the
/// c_call that uses it, because the range may close the store.
template <class Keys>
struct c_keys {
    explicit c_keys(const Keys& keys) {
        for (auto&& key : keys) {
            if constexpr (outlives_step) {
                add(bytes_view(key));
            } else if constexpr (std::is_same_v<stored, value>) {
                add(bytes_view(storage_.emplace_back(static_cast<reference&&>(key))));
            } else {
                add(bytes_view(storage_.emplace_back(bytes_view(key).view())));
            }
        }
        count = conversion_.length(data.size(), "list of keys");
    }
    c_keys(const c_keys&) = delete;
    c_keys& operator=(const c_keys&) = delete;

    /// Makes the call fail if a key or the list is too long.
    void add_failure_to(c_call& c) {
        if (!conversion_.ok()) {
            c.fail(conversion_.error());
        }
    }

    std::vector<const void*> data;
    std::vector<int> sizes;
    int count = 0;

private:
    using iterator = range_for::iterator_of<Keys>;
    using reference = decltype(*std::declval<iterator&>());
    using value = std::remove_cv_t<reference>; ///< Value type, without reference and const.
    static constexpr bool outlives_step =
        is_multi_pass<iterator>::value && (std::is_reference_v<reference> || is_view<value>);
    static constexpr bool is_stored_as_value = is_multi_pass<iterator>::value && std::is_move_constructible_v<value>;
    using stored = std::conditional_t<!outlives_step && is_stored_as_value, value, std::string>;

    void add(bytes_view key) {
        const c_bytes k = conversion_.key(key);
        data.push_back(k.data);
        sizes.push_back(k.size);
    }

    c_call conversion_;
    /// Storage for keys that do not outlive a step of the range. A deque never moves its elements.
    std::conditional_t<outlives_step, std::tuple<>, std::deque<stored>> storage_;
};

/// Base of stores and families that holds their session and their C handle.
template <class Handle>
class access {
protected:
    using call = functions<Handle>;

    /// Creates the object with a session and a family handle. The destructor does not close the
    /// handle.
    access(std::shared_ptr<session> of, KVColumnFamily* cf) noexcept : session_(std::move(of)), cf_(cf) {}
    access(access&& other) noexcept = default;
    access& operator=(access&& other) = delete;
    ~access() = default;

    void swap(access& other) noexcept {
        std::swap(session_, other.session_);
        std::swap(cf_, other.cf_);
    }

    /// Starts a call on this object.
    c_call start() const { return c_call(session_.get()); }

    /// Returns the C handle: the KVStore of a store, or the KVColumnFamily of a family. The object
    /// must not have been moved from.
    Handle* handle() const noexcept {
        if constexpr (std::is_same_v<Handle, KVStore>) {
            return session_->kv;
        } else {
            return cf_;
        }
    }

    static buffer buffer_of(memory value, int size) noexcept { return buffer(std::move(value), size); }

    template <class Bytes>
    static Bytes copy_of(const memory& value, int size) {
        return detail::copy_of<Bytes>({static_cast<const char*>(value.get()), static_cast<std::size_t>(size)});
    }

    /// Calls a C function that returns a time of a key, and converts the time. The result is empty
    /// if the key is not live.
    template <class Time>
    result<std::optional<Time>> read_time(int (*function)(KVColumnFamily*, const void*, int, std::int64_t*),
                                          bytes_view key, Time (*time_of)(std::int64_t)) const {
        c_call c = start();
        const c_bytes k = c.key(key);
        std::int64_t ms = 0;
        const bool found = c.find([&] { return function(cf_, k.data, k.size, &ms); });
        return c.outcome(found ? std::optional<Time>(time_of(ms)) : std::nullopt);
    }

    std::shared_ptr<session> session_; ///< Session of the store; null if moved from.
    KVColumnFamily* cf_; ///< Handle of this family, or of the default family of a store.
};

} // namespace kvstore::detail
/// @endcond

#endif
