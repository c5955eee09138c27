/// @file
/// Argument and result types of the functions on keys: bounds, conditions, options.
#ifndef KVSTORE_OPTIONS_HPP
#define KVSTORE_OPTIONS_HPP

#include <kvstore.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bytes.hpp"
#include "time.hpp"

namespace kvstore {

/// Lower or upper bound of a range of keys; `std::nullopt` means unbounded.
using bound = std::optional<bytes_view>;

/// Value and remaining TTL of a key, returned by keyspace::get_with_ttl.
struct value_with_ttl {
    std::string value; ///< Value.
    remaining_ttl ttl; ///< Remaining TTL.
};

/// Result of keyspace::expire and keyspace::persist.
enum class expire_result {
    missing, ///< The key does not exist or has expired.
    unchanged, ///< The condition did not hold, or there was nothing to change.
    changed, ///< The expiry time was changed.
};

/// Condition under which keyspace::expire changes the expiry time. A key without an expiry time
/// counts as expiring later than any time.
enum class expire_if : int {
    always = 0, ///< No condition.
    no_ttl = KVSTORE_EXPIRE_NX, ///< The key has no expiry time.
    has_ttl = KVSTORE_EXPIRE_XX, ///< The key has an expiry time.
    later = KVSTORE_EXPIRE_GT, ///< The new expiry time is later than the current one.
    earlier = KVSTORE_EXPIRE_LT ///< The new expiry time is earlier than the current one.
};

/// Options of keyspace::put_with. A default-constructed object writes unconditionally, with the
/// default TTL of the family.
/// @code
/// db.put_with("job", "done", kvstore::put_options().if_present().keep_ttl());
/// @endcode
class put_options {
public:
    /// Sets the TTL or expiry time that the key gets.
    put_options& expires(const expiry& when) {
        expiry_ = when;
        return *this;
    }
    /// Keeps the expiry time of a live key, or its lack of one. A new key gets what expires() set,
    /// or the default TTL of the family.
    put_options& keep_ttl() noexcept { return add(KVSTORE_PUT_KEEP_TTL); }
    /// Writes only if the key does not exist or has expired.
    put_options& if_absent() noexcept { return add(KVSTORE_PUT_IF_ABSENT); }
    /// Writes only if the key is live.
    put_options& if_present() noexcept { return add(KVSTORE_PUT_IF_PRESENT); }

private:
    template <class Handle>
    friend class write_calls;

    put_options& add(int flag) noexcept {
        flags_ |= static_cast<std::uint32_t>(flag);
        return *this;
    }

    expiry expiry_ = family_ttl;
    std::uint32_t flags_ = 0;
};

} // namespace kvstore

#endif
