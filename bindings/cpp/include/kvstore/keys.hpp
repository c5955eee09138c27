/// @file
/// Functions that build keys and passwords: row_key and raw_key.
#ifndef KVSTORE_KEYS_HPP
#define KVSTORE_KEYS_HPP

#include <kvstore.h>

#include <cstddef>
#include <string>
#include <utility>

#include "bytes.hpp"
#include "call.hpp"
#include "error.hpp"
#include "result.hpp"

namespace kvstore {

/// Like row_key(), but returns the failure instead of throwing it.
inline result<std::string> try_row_key(bytes_view partition, bytes_view clustering) {
    detail::c_call c;
    const auto p = c.bytes(partition, "partition key");
    const auto k = c.bytes(clustering, "clustering part");
    int length = 0;
    c.run([&] { return kvstore_row_key(p.data, p.size, k.data, k.size, nullptr, 0, &length); });
    std::string key(static_cast<std::size_t>(length), '\0');
    c.run([&] { return kvstore_row_key(p.data, p.size, k.data, k.size, key.data(), length, &length); });
    return c.outcome(std::move(key));
}

/// Like raw_key(), but returns the failure instead of throwing it.
inline result<std::string> try_raw_key(bytes_view key) {
    constexpr std::size_t key_size = 32;
    if (key.size() != key_size) {
        return failure(errc::error, "a raw key of " + std::to_string(key.size()) +
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
    return result<std::string>(std::move(text)); // moved: a copy would leave the key in freed memory
}

#if KVSTORE_EXCEPTIONS

/// Returns a key built from a partition key and clustering columns. The keys of one partition are
/// adjacent, and sorted by the bytes of their clustering columns.
///
/// The key can be used with every function; keyspace::rows iterates over a partition.
/// @param partition Partition key; may be empty.
/// @param clustering Clustering columns; may be empty.
/// @throws error errc::error if the key would exceed 65536 bytes.
inline std::string row_key(bytes_view partition, bytes_view clustering) {
    return try_row_key(partition, clustering).value();
}

/// Returns a password text that makes a store use the 32 bytes of `key` directly as its encryption
/// key, without key derivation.
///
/// The text is `x'`, 64 hexadecimal digits and `'`. It is as secret as the key.
/// @throws error errc::error if the key does not have 32 bytes.
inline std::string raw_key(bytes_view key) { return try_raw_key(key).value(); }

#endif

} // namespace kvstore

#endif
