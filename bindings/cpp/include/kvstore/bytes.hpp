/// @file
/// Types for byte arguments and results (bytes_view, buffer), and functions that build keys and
/// passwords (row_key, raw_key).
#ifndef KVSTORE_BYTES_HPP
#define KVSTORE_BYTES_HPP

#include <kvstore.h>

#include <climits>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "error.hpp"

namespace kvstore {

/// @cond
namespace detail {

template <class T>
inline constexpr bool is_byte = std::is_same_v<T, std::byte> || std::is_same_v<T, unsigned char> ||
                                std::is_same_v<T, signed char> || std::is_same_v<T, char>;

/// True if T is a contiguous range of std::byte or of a char type: an array, a vector, a span.
template <class T, class = void>
struct is_byte_range : std::false_type {};
template <class T>
struct is_byte_range<T, std::void_t<decltype(std::data(std::declval<const T&>())),
                                    decltype(std::size(std::declval<const T&>()))>>
    : std::bool_constant<
          is_byte<std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<const T&>()))>>>> {};

/// True if T is a contiguous range of bytes, or a view of one, whose bytes can be written.
template <class T, class = void>
inline constexpr bool is_writable_byte_range = false;
template <class T>
inline constexpr bool is_writable_byte_range<T, std::void_t<decltype(std::data(std::declval<T&>())),
                                                            decltype(std::size(std::declval<T&>()))>> =
    is_byte<std::remove_pointer_t<decltype(std::data(std::declval<T&>()))>>;

/// Copies bytes into a new container of type Bytes.
template <class Bytes>
Bytes copy_of(std::string_view bytes) {
    using byte = typename Bytes::value_type;
    static_assert(is_byte<byte>, "a container of std::byte, or of a char type, is needed");
    const auto* first = reinterpret_cast<const byte*>(bytes.data());
    return Bytes(first, first + bytes.size());
}

template <class Handle>
class access;

/// Returns a length as the `int` that the C API takes. Throws if the length exceeds INT_MAX.
inline int c_length(std::size_t size, const char* what) {
    if (size > static_cast<std::size_t>(INT_MAX)) {
        throw error(errc::error, std::string("a ") + what + " of " + std::to_string(size) +
                                     " bytes is longer than any length this library takes");
    }
    return static_cast<int>(size);
}

/// Deleter for memory that the library allocated.
struct free_memory {
    void operator()(void* memory) const noexcept { kvstore_free(memory); }
};
using memory = std::unique_ptr<void, free_memory>;

/// Returns a name or path as a C string. Throws if it contains a NUL, at which C would cut it off.
inline const char* c_string(const std::string& text, const char* what) {
    if (text.find('\0') != std::string::npos) {
        throw error(errc::error, std::string("a NUL inside the ") + what);
    }
    return text.c_str();
}

} // namespace detail
/// @endcond

/// Function argument for a key or value: a view of bytes. The called function copies what it needs
/// before it returns.
///
/// It converts from everything that std::string_view converts from, and from contiguous ranges of
/// `std::byte`, `char` or `unsigned char`: `std::vector`, `std::array`, arrays and (C++20)
/// `std::span`. A string literal ends at its first NUL, as with std::string_view; write `"a\0b"sv`
/// to include one. A view of no bytes may have a null pointer.
class bytes_view {
public:
    /// Creates an empty view.
    constexpr bytes_view() noexcept = default;
    bytes_view(std::nullptr_t) = delete;

    /// Creates a view from a pointer and a length.
    bytes_view(const void* data, std::size_t size) noexcept
        : bytes_(not_null({static_cast<const char*>(data), size})) {}

    /// Creates a view of the bytes of a string.
    template <class Text, std::enable_if_t<std::is_convertible_v<const Text&, std::string_view>, int> = 0>
    constexpr bytes_view(const Text& text) noexcept : bytes_(not_null(text)) {}

    /// Creates a view of a contiguous range of bytes.
    template <class Range, std::enable_if_t<!std::is_convertible_v<const Range&, std::string_view> &&
                                                detail::is_byte_range<Range>::value,
                                            long> = 0>
    bytes_view(const Range& range) noexcept
        : bytes_view(static_cast<const void*>(std::data(range)), std::size(range)) {}

    /// Returns a pointer to the first byte; never null.
    constexpr const char* data() const noexcept { return bytes_.data(); }
    /// Returns the number of bytes.
    constexpr std::size_t size() const noexcept { return bytes_.size(); }
    /// Returns the bytes as a std::string_view.
    constexpr std::string_view view() const noexcept { return bytes_; }

private:
    // In C, NULL means an unbounded range; an empty view must not turn into it.
    static constexpr std::string_view not_null(std::string_view bytes) noexcept {
        return bytes.data() ? bytes : std::string_view("");
    }

    std::string_view bytes_ = "";
};

/// Owner of a value in memory that the library allocated, returned by get_buffer(). It saves a copy
/// into a std::string.
class buffer {
public:
    /// Returns a view of the value, valid until this buffer is destroyed. A NUL follows the last
    /// byte.
    std::string_view view() const noexcept { return {data(), size()}; }
    /// Converts to a view of the value, like view().
    operator std::string_view() const noexcept { return view(); }
    /// Returns a pointer to the first byte of the value; null only if the buffer was moved from.
    const char* data() const noexcept { return static_cast<const char*>(memory_.get()); }
    /// Returns the number of bytes.
    std::size_t size() const noexcept { return memory_ ? size_ : 0; }

private:
    template <class Handle>
    friend class detail::access;
    buffer(void* memory, int size) noexcept : memory_(memory), size_(static_cast<std::size_t>(size)) {}

    detail::memory memory_;
    std::size_t size_;
};

/// Returns a key built from a partition key and clustering columns. The keys of one partition are
/// adjacent, and sorted by the bytes of their clustering columns.
///
/// The key can be used with every function; keyspace::rows iterates over a partition.
/// @param partition Partition key; may be empty.
/// @param clustering Clustering columns; may be empty.
/// @throws error errc::error if the key would exceed 65536 bytes.
inline std::string row_key(bytes_view partition, bytes_view clustering) {
    const int partition_length = detail::c_length(partition.size(), "partition key");
    const int clustering_length = detail::c_length(clustering.size(), "clustering part");
    const auto fail = [](int code) { throw detail::last_error(code); };
    int length = 0;
    int code = kvstore_row_key(partition.data(), partition_length, clustering.data(), clustering_length,
                               nullptr, 0, &length);
    if (code != KVSTORE_OK) {
        fail(code);
    }
    std::string key(static_cast<std::size_t>(length), '\0');
    code = kvstore_row_key(partition.data(), partition_length, clustering.data(), clustering_length,
                           key.data(), length, &length);
    if (code != KVSTORE_OK) {
        fail(code);
    }
    return key;
}

/// Returns a password text that makes a store use the 32 bytes of `key` directly as its encryption
/// key, without key derivation.
///
/// The text is `x'`, 64 hexadecimal digits and `'`. It is as secret as the key.
/// @throws error errc::error if the key does not have 32 bytes.
inline std::string raw_key(bytes_view key) {
    constexpr std::size_t key_size = 32;
    if (key.size() != key_size) {
        throw error(errc::error, "a raw key of " + std::to_string(key.size()) +
                                     " bytes: it must have 32; a password is passed as it is");
    }
    std::string text;
    text.reserve(2 * key_size + 3); // one allocation: growing would leave parts of the key in freed memory
    text += "x'";
    for (const char byte : key.view()) {
        const auto bits = static_cast<unsigned char>(byte);
        text += "0123456789abcdef"[bits >> 4];
        text += "0123456789abcdef"[bits & 15];
    }
    text += '\'';
    return text;
}

} // namespace kvstore

#endif
