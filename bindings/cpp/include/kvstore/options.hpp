/// @file
/// What the calls of a store and a family take and answer: bounds, conditions, options.
#ifndef KVSTORE_OPTIONS_HPP
#define KVSTORE_OPTIONS_HPP

#include <kvstore.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bytes.hpp"
#include "time.hpp"

namespace kvstore {

/// A bound of a range; `std::nullopt` is open.
using bound = std::optional<bytes_view>;

/// A value, and what is left of its life.
struct value_with_ttl {
    std::string value; ///< The value.
    remaining_ttl ttl;     ///< What is left.
};

/// What a call did that changes when a key expires.
enum class expire_result {
    missing,   ///< There is no such key, or it has expired.
    unchanged, ///< The key is there, but the condition did not hold, or there was nothing to change.
    changed,   ///< It changed.
};

/// On what condition keyspace::expire changes a key. A key without a TTL counts as expiring later than any
/// moment.
enum class expire_if : int {
    always = 0,                 ///< On none.
    no_ttl = KVSTORE_EXPIRE_NX, ///< The key has no TTL.
    has_ttl = KVSTORE_EXPIRE_XX,   ///< The key has a TTL.
    later = KVSTORE_EXPIRE_GT,  ///< The new end is later than the old one.
    earlier = KVSTORE_EXPIRE_LT ///< The new end is earlier than the old one.
};

/// How keyspace::put_with writes; at first: always, never expiring.
/// @code
/// db.put_with("job", "done", kvstore::put_options().if_present().keep_ttl());
/// @endcode
class put_options {
public:
    /// When the key is to end. Not together with default_ttl().
    put_options& expires(const expiry& when) {
        expiry_ = when;
        return *this;
    }
    /// The family's default TTL instead, if it has one.
    put_options& default_ttl() noexcept { return add(KVSTORE_PUT_DEFAULT_TTL); }
    /// A live key keeps the TTL it has, also none; a new key gets the one given.
    put_options& keep_ttl() noexcept { return add(KVSTORE_PUT_KEEP_TTL); }
    /// Only if the key is missing or expired.
    put_options& if_absent() noexcept { return add(KVSTORE_PUT_IF_ABSENT); }
    /// Only if the key is alive.
    put_options& if_present() noexcept { return add(KVSTORE_PUT_IF_PRESENT); }

private:
    template <class Handle>
    friend class write_calls;

    put_options& add(int flag) noexcept {
        flags_ |= static_cast<std::uint32_t>(flag);
        return *this;
    }

    expiry expiry_ = never;
    std::uint32_t flags_ = 0;
};

} // namespace kvstore

#endif
