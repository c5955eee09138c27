/// @file
/// Types for byte arguments and results: bytes_view and buffer.
#ifndef KVSTORE_BYTES_HPP
#define KVSTORE_BYTES_HPP

#include <kvstore.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

/// Deleter for memory that the library allocated.
struct free_memory {
    void operator()(void* memory) const noexcept { kvstore_free(memory); }
};
using memory = std::unique_ptr<void, free_memory>;

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
    buffer(detail::memory memory, int size) noexcept
        : memory_(std::move(memory)), size_(static_cast<std::size_t>(size)) {}

    detail::memory memory_;
    std::size_t size_;
};

} // namespace kvstore

#endif
