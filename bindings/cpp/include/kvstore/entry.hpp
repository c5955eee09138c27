/// @file
/// Types for the entries of a range: entry and part_view refer to memory of a cursor, owned_entry
/// owns its bytes.
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

/// Key and value as strings. Use it to collect entries in a container: `std::vector(range.begin(),
/// range.end())`.
struct owned_entry {
    std::string key; ///< Key.
    std::string value; ///< Value.

    /// Converts to views of the key and the value.
    operator entry() const noexcept;
};

/// Views of a key and its value in memory of a cursor, valid until the cursor moves or is
/// destroyed.
///
/// To keep them, convert to owned_entry, or to a `std::pair` of types that can be constructed from
/// them: `std::map<std::string, std::string> all(range.begin(), range.end())`.
struct entry {
    std::string_view key; ///< Key; in a range of rows, its clustering part.
    std::string_view value; ///< Value; empty with range_flags::keys_only.

    /// Converts to copies of the key and the value.
    operator owned_entry() const { return {std::string(key), std::string(value)}; }

    /// Converts the key and the value to the two types of a `std::pair`.
    template <class Key, class Value,
              std::enable_if_t<std::is_constructible_v<Key, std::string_view> &&
                                   std::is_constructible_v<Value, std::string_view>,
                               int> = 0>
    operator std::pair<Key, Value>() const {
        return std::pair<Key, Value>(Key(key), Value(value));
    }
};

inline owned_entry::operator entry() const noexcept { return {key, value}; }

/// Returns whether two entries have the same key and the same value.
inline bool operator==(const entry& a, const entry& b) noexcept { return a.key == b.key && a.value == b.value; }
/// Returns whether two entries differ in their keys or their values.
inline bool operator!=(const entry& a, const entry& b) noexcept { return !(a == b); }

/// View of a key (key_view) or a value (value_view) in memory of a cursor, valid until the cursor
/// moves or is destroyed.
///
/// It is a `std::string_view` that also converts to `std::string` implicitly: `for (std::string key
/// : db.keys())`.
template <class Part>
struct part_view : std::string_view {
    /// Creates an empty view.
    constexpr part_view() noexcept = default;
    /// Creates a view of the given bytes.
    constexpr explicit part_view(std::string_view bytes) noexcept : std::string_view(bytes) {}

    /// Returns a copy of the bytes as a string.
    operator std::string() const { return std::string(data(), size()); }
};

/// View of a key, as the iterators of a key_range return it.
using key_view = part_view<struct key_part>;
/// View of a value, as the iterators of a value_range return it.
using value_view = part_view<struct value_part>;

/// Key, value and expiry time of an entry, returned by cursor::fetch.
///
/// Key and value are views of memory of the cursor, valid until it moves, fetches again or is
/// destroyed.
struct fetched_entry {
    std::string_view key; ///< Key; in a range of rows, its clustering part.
    std::string_view value; ///< Value; empty with range_flags::keys_only.
    expiry_time expires_at; ///< Expiry time of the key.
};

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// Common reference types that C++20 algorithms need: of entry and owned_entry, of part_view and other strings.
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
