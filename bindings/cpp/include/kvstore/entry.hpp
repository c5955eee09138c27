/// @file
/// An entry of a walk: as the walk shows it, and as a program keeps it.
#ifndef KVSTORE_ENTRY_HPP
#define KVSTORE_ENTRY_HPP

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L && __has_include(<format>)
#include <format>
#endif

#include "time.hpp"

namespace kvstore {

struct entry;

/// An entry that owns its bytes: what is kept of a walk, as by `std::vector(walk.begin(), walk.end())`.
struct owned_entry {
    std::string key;   ///< The key.
    std::string value; ///< The value.

    /// Views of both.
    operator entry() const noexcept;
};

/// A key and its value, in memory of the iterator they came from: valid until it moves or is gone. To keep them,
/// make an owned_entry of it, or a `std::pair` of any types that can be made from both:
/// `std::map<std::string, std::string> all(walk.begin(), walk.end())`.
struct entry {
    std::string_view key;   ///< The key; in a walk over rows its clustering part.
    std::string_view value; ///< The value; empty in a walk with range_flags::keys_only.

    /// Copies of both.
    operator owned_entry() const { return {std::string(key), std::string(value)}; }

    /// Both, as what can be made from them.
    template <class Key, class Value,
              std::enable_if_t<std::is_constructible_v<Key, std::string_view> &&
                                   std::is_constructible_v<Value, std::string_view>,
                               int> = 0>
    operator std::pair<Key, Value>() const {
        return std::pair<Key, Value>(Key(key), Value(value));
    }
};

inline owned_entry::operator entry() const noexcept { return {key, value}; }

/// Whether keys and values are equal.
inline bool operator==(const entry& a, const entry& b) noexcept { return a.key == b.key && a.value == b.value; }
/// Whether keys or values differ.
inline bool operator!=(const entry& a, const entry& b) noexcept { return !(a == b); }

/// A key in a walk over keys (key_view), or a value in one over values (value_view): a `std::string_view` of memory of
/// the iterator, valid until it moves or is gone, which also becomes a `std::string` by itself:
/// `for (std::string key : db.keys())`.
template <class Part>
struct part_view : std::string_view {
    /// Of no bytes.
    constexpr part_view() noexcept = default;
    /// Of these bytes.
    constexpr explicit part_view(std::string_view bytes) noexcept : std::string_view(bytes) {}

    /// A copy.
    operator std::string() const { return std::string(data(), size()); }
};

/// A key in a walk over keys.
using key_view = part_view<struct key_part>;
/// A value in a walk over values.
using value_view = part_view<struct value_part>;

/// An entry with its end of life, as iterator::fetch shows it, in memory of the iterator: valid until it moves,
/// fetches again or is gone.
struct fetched_entry {
    std::string_view key;   ///< The key; in a walk over rows its clustering part.
    std::string_view value; ///< The value; empty in a walk with range_flags::keys_only.
    expiry_time expires_at;     ///< When it expires.
};

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// What algorithms of C++20 may treat two sorts of entries, or a key or value and another string, as.
template <template <class> class A, template <class> class B>
struct std::basic_common_reference<kvstore::entry, kvstore::owned_entry, A, B> {
    using type = kvstore::entry;
};
template <template <class> class A, template <class> class B>
struct std::basic_common_reference<kvstore::owned_entry, kvstore::entry, A, B> {
    using type = kvstore::entry;
};
template <class Part, class Text, template <class> class A, template <class> class B>
    requires(std::is_convertible_v<const Text&, std::string_view> && !std::is_same_v<Text, kvstore::part_view<Part>>)
struct std::basic_common_reference<kvstore::part_view<Part>, Text, A, B> {
    using type = std::string_view;
};
template <class Part, class Text, template <class> class A, template <class> class B>
    requires(std::is_convertible_v<const Text&, std::string_view> && !std::is_same_v<Text, kvstore::part_view<Part>>)
struct std::basic_common_reference<Text, kvstore::part_view<Part>, A, B> {
    using type = std::string_view;
};
#if defined(__cpp_lib_format)
template <class Part>
struct std::formatter<kvstore::part_view<Part>> : std::formatter<std::string_view> {};
#endif
/// @endcond
#endif

#endif
