/// @file
/// Types for times and TTLs, and their conversion to milliseconds.
///
/// Times are whole milliseconds. An argument may be any std::chrono duration or system_clock
/// time point. It is **rounded away from zero**, so that a key never expires early, and
/// **saturates** at 64 bits of milliseconds. A call with a floating-point duration that is not a
/// number fails with errc::error.
#ifndef KVSTORE_TIME_HPP
#define KVSTORE_TIME_HPP

#include <kvstore.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

namespace kvstore {

/// Time point of system_clock in whole milliseconds, as the library returns it.
using time_point = std::chrono::time_point<std::chrono::system_clock, std::chrono::milliseconds>;

/// Type of the constant kvstore::never, which stands for "the key never expires".
struct never_t {
    /// Default constructor. It is explicit, so that `{}` does not convert to kvstore::never.
    explicit constexpr never_t() = default;
};

/// Constant to pass instead of an expiry time: the key never expires.
inline constexpr never_t never{};

/// Type of the constant kvstore::family_ttl, which stands for the default TTL of a family.
struct family_ttl_t {
    /// Default constructor. It is explicit, as that of never_t.
    explicit constexpr family_ttl_t() = default;
};
/// Constant to pass instead of an expiry time to a write: the key gets the default TTL of the
/// family, or never expires if the family has none. It is the default argument of writes.
inline constexpr family_ttl_t family_ttl{};

/// @cond
namespace detail {

class c_call;

// max is in parentheses, because windows.h defines it as a macro.
inline constexpr std::int64_t max_ms = (std::numeric_limits<std::int64_t>::max)();

/// Result of to_ms() for a duration that is not a number. Calls that take the duration fail.
inline constexpr std::int64_t not_a_number_ms = -max_ms - 1;

/// Returns count * num / den, rounded up and limited to max_ms.
constexpr std::int64_t scale_up(std::uint64_t count, std::uint64_t num, std::uint64_t den) {
    constexpr auto limit = static_cast<std::uint64_t>(max_ms);
    const std::uint64_t whole = count / den;
    const std::uint64_t rest = count % den;
    if (whole > limit / num || rest > limit / num) {
        return max_ms;
    }
    const std::uint64_t part = rest * num / den + (rest * num % den != 0 ? 1U : 0U);
    return whole * num > limit - part ? max_ms : static_cast<std::int64_t>(whole * num + part);
}

/// Converts a duration to whole milliseconds, rounded away from zero. A duration that exceeds 64
/// bits becomes max_ms or -max_ms; one that is not a number becomes not_a_number_ms.
template <class Rep, class Period>
constexpr std::int64_t to_ms(const std::chrono::duration<Rep, Period>& duration) {
    static_assert(std::is_arithmetic_v<Rep>, "a duration of an arithmetic type is needed");
    using ratio = std::ratio_divide<Period, std::milli>;
    if constexpr (std::is_floating_point_v<Rep>) {
        constexpr long double limit = 9223372036854775808.0L; // 2^63
        const long double exact = static_cast<long double>(duration.count()) *
                                  static_cast<long double>(ratio::num) / static_cast<long double>(ratio::den);
        if (exact != exact) {
            return not_a_number_ms;
        }
        if (exact >= limit || exact <= -limit) {
            return exact > 0 ? max_ms : -max_ms;
        }
        const auto whole = static_cast<std::int64_t>(exact);
        const long double rest = exact - static_cast<long double>(whole);
        return whole + (rest > 0 && whole < max_ms ? 1 : 0) - (rest < 0 && whole > -max_ms ? 1 : 0);
    } else {
        const auto count = static_cast<std::uint64_t>(duration.count());
        if constexpr (std::is_signed_v<Rep>) {
            if (duration.count() < 0) {
                return -scale_up(std::uint64_t{0} - count, ratio::num, ratio::den);
            }
        }
        return scale_up(count, ratio::num, ratio::den);
    }
}

/// Converts milliseconds since the Unix epoch to a time point.
constexpr time_point from_ms(std::int64_t ms) { return time_point(std::chrono::milliseconds(ms)); }

} // namespace detail
/// @endcond

/// Function argument for a time. Any time point of system_clock converts to it, rounded up to a
/// millisecond.
class timestamp {
public:
    /// Converts a time point of any precision.
    template <class Duration>
    constexpr timestamp(const std::chrono::time_point<std::chrono::system_clock, Duration>& at)
        : ms_(detail::to_ms(at.time_since_epoch())) {}

    /// Returns the time in milliseconds since the Unix epoch.
    constexpr std::int64_t ms() const noexcept { return ms_; }

private:
    std::int64_t ms_;
};

/// Expiry time of a key: a time point, or never, which compares as later than any time point.
class expiry_time {
public:
    /// Creates the expiry time of a key that never expires.
    constexpr expiry_time(never_t) noexcept {}
    /// Creates an expiry time from a time point.
    constexpr explicit expiry_time(time_point at) noexcept : at_(at) {}

    /// Returns whether the key never expires.
    constexpr bool never_expires() const noexcept { return at_ == (time_point::max)(); }
    /// Returns the time at which the key expires; `time_point::max()` if it never expires.
    constexpr time_point at() const noexcept { return at_; }

    /// Returns whether two expiry times are equal.
    friend constexpr bool operator==(const expiry_time& a, const expiry_time& b) noexcept { return a.at_ == b.at_; }
    /// Returns whether two expiry times differ.
    friend constexpr bool operator!=(const expiry_time& a, const expiry_time& b) noexcept { return a.at_ != b.at_; }
    /// Returns whether `a` is earlier than `b`.
    friend constexpr bool operator<(const expiry_time& a, const expiry_time& b) noexcept { return a.at_ < b.at_; }

private:
    time_point at_ = (time_point::max)();
};

/// Remaining TTL of a key: a duration, or unlimited. Functions return it in a `std::optional`, which
/// is `nullopt` for a missing key:
/// @code
/// if (auto left = db.ttl("session"); !left) ...      // the key does not exist
/// else if (left->never_expires()) ...                // the key has no expiry time
/// else if (left->duration() < 5min) ...              // false for keys that never expire
/// @endcode
class remaining_ttl {
public:
    /// Creates the TTL of a key that never expires.
    constexpr remaining_ttl(never_t) noexcept {}
    /// Creates a remaining TTL from a duration.
    constexpr explicit remaining_ttl(std::chrono::milliseconds left) noexcept : left_(left) {}

    /// Returns whether the key never expires.
    constexpr bool never_expires() const noexcept { return left_ == (std::chrono::milliseconds::max)(); }
    /// Returns the remaining time. It is 0 if the key has just expired, and `milliseconds::max()`
    /// if the key never expires.
    constexpr std::chrono::milliseconds duration() const noexcept { return left_; }

    /// Returns whether two TTLs are equal.
    friend constexpr bool operator==(const remaining_ttl& a, const remaining_ttl& b) noexcept {
        return a.left_ == b.left_;
    }
    /// Returns whether two TTLs differ.
    friend constexpr bool operator!=(const remaining_ttl& a, const remaining_ttl& b) noexcept {
        return a.left_ != b.left_;
    }
    /// Returns whether `a` is shorter than `b`.
    friend constexpr bool operator<(const remaining_ttl& a, const remaining_ttl& b) noexcept {
        return a.left_ < b.left_;
    }

private:
    std::chrono::milliseconds left_ = (std::chrono::milliseconds::max)();
};

/// @cond
namespace detail {

/// Converts an expiry time of the C API, in milliseconds or KVSTORE_NO_TTL, to an expiry_time.
constexpr expiry_time expiry_of(std::int64_t ms) noexcept {
    return ms == KVSTORE_NO_TTL ? expiry_time(never) : expiry_time(from_ms(ms));
}

constexpr remaining_ttl remaining_ttl_of(std::int64_t ms) noexcept {
    return ms == KVSTORE_NO_TTL ? remaining_ttl(never) : remaining_ttl(std::chrono::milliseconds(ms));
}

} // namespace detail
/// @endcond

/// Function argument that sets when a key expires: a TTL (`30s`), an expiry time
/// (`system_clock::now() + 1h`, or the expiry_time of another key), kvstore::never, or
/// kvstore::family_ttl.
///
/// A TTL counts from the call. Both are rounded up to a millisecond. With a TTL of zero or less, or
/// a time in the past, the key is expired at once; this is not an error. A TTL that is too large
/// ends at the last time that can be represented.
class expiry {
public:
    /// Creates the value for a key that never expires.
    constexpr expiry(never_t) noexcept : kind_(kind::no_expiry), ms_(0) {}

    /// Creates the value for a key that gets the default TTL of its family.
    constexpr expiry(family_ttl_t) noexcept : kind_(kind::by_family), ms_(0) {}

    /// Creates a value from a TTL. It counts from the call, by the clock of the store.
    template <class Rep, class Period>
    constexpr expiry(const std::chrono::duration<Rep, Period>& ttl)
        : kind_(kind::ttl), ms_(detail::to_ms(ttl)) {}

    /// Creates a value from the time point at which the key expires.
    template <class Duration>
    constexpr expiry(const std::chrono::time_point<std::chrono::system_clock, Duration>& at)
        : kind_(kind::time), ms_(detail::to_ms(at.time_since_epoch())) {}

    /// Creates a value from the expiry time of another key.
    constexpr expiry(const expiry_time& at) noexcept
        : kind_(at.never_expires() ? kind::no_expiry : kind::time),
          ms_(detail::to_ms(at.at().time_since_epoch())) {}

private:
    friend class detail::c_call;

    enum class kind { no_expiry, by_family, ttl, time };

    /// 1 January 1973 and 1 January 2001, in milliseconds. While the clock is past the latter, the C
    /// API takes an expiry time before the former for a duration, and refuses it.
    static constexpr std::int64_t first_moment_ms = 94694400000;
    static constexpr std::int64_t clock_is_set_ms = 978307200000;

    constexpr bool needs_now() const noexcept {
        return kind_ == kind::ttl || (kind_ == kind::time && ms_ < first_moment_ms);
    }

    /// Returns the expiry time as the C API takes it: milliseconds since the Unix epoch, greater
    /// than 0; KVSTORE_NO_TTL if the key never expires; or 0 for the default TTL of the family. `now`
    /// is used if needs_now(), and never negative.
    constexpr std::int64_t expire_ms(std::int64_t now) const noexcept {
        switch (kind_) {
        case kind::no_expiry:
            return KVSTORE_NO_TTL;
        case kind::by_family:
            return 0;
        case kind::time:
            return accepted(ms_, now);
        case kind::ttl:
            break;
        }
        return accepted(ms_ > detail::max_ms - now ? detail::max_ms : now + ms_, now);
    }

    /// Returns an expiry time that the C API accepts: `ms`, or if that is too early another time in
    /// the past, with which the key is expired, too.
    static constexpr std::int64_t accepted(std::int64_t ms, std::int64_t now) noexcept {
        const std::int64_t first = now > clock_is_set_ms ? first_moment_ms : 1;
        return ms < first ? first : ms;
    }

    kind kind_;
    std::int64_t ms_;
};

} // namespace kvstore

#endif
