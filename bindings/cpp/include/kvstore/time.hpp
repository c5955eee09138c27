/// @file
/// Durations and moments: what the calls take and answer, and the one place that rounds. Knows no handle
/// and no clock.
///
/// Times are whole milliseconds. What goes in may be any std::chrono duration or system_clock time point:
/// it is **rounded away from zero** (a key never dies early), and what is too large for 64 bits of
/// milliseconds **saturates**. A floating-point duration that is not a number is an error.
#ifndef KVSTORE_TIME_HPP
#define KVSTORE_TIME_HPP

#include <kvstore.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

#include "error.hpp"

namespace kvstore {

/// A moment as the library has it: system_clock, in whole milliseconds.
using time_point = std::chrono::time_point<std::chrono::system_clock, std::chrono::milliseconds>;

/// The type of kvstore::never.
struct never_t {
    /// Made by name only.
    explicit constexpr never_t() = default;
};

/// In place of an end of life: the key never expires.
inline constexpr never_t never{};

/// @cond
namespace detail {

// Each max is in brackets: windows.h has it as a macro.
inline constexpr std::int64_t max_ms = (std::numeric_limits<std::int64_t>::max)();

/// count * num / den, rounded up, at most max_ms.
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

/// Whole milliseconds, rounded away from zero and saturating.
template <class Rep, class Period>
constexpr std::int64_t to_ms(const std::chrono::duration<Rep, Period>& duration) {
    static_assert(std::is_arithmetic_v<Rep>, "a duration of an arithmetic type is needed");
    using ratio = std::ratio_divide<Period, std::milli>;
    if constexpr (std::is_floating_point_v<Rep>) {
        constexpr long double limit = 9223372036854775808.0L; // 2^63
        const long double exact = static_cast<long double>(duration.count()) *
                                  static_cast<long double>(ratio::num) / static_cast<long double>(ratio::den);
        if (exact != exact) {
            throw error(errc::error, "a duration is not a number");
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

/// A moment from the milliseconds of the C API.
constexpr time_point from_ms(std::int64_t ms) { return time_point(std::chrono::milliseconds(ms)); }

} // namespace detail
/// @endcond

/// A moment, as an argument: made from any time point of system_clock, rounded up to a millisecond.
class timestamp {
public:
    /// From a time point of any precision.
    template <class Duration>
    constexpr timestamp(const std::chrono::time_point<std::chrono::system_clock, Duration>& at)
        : ms_(detail::to_ms(at.time_since_epoch())) {}

    /// Milliseconds since the Unix epoch.
    constexpr std::int64_t ms() const noexcept { return ms_; }

private:
    std::int64_t ms_;
};

/// When a key ends, as an answer: at a moment, or never. Never is later than any moment.
class expiry_time {
public:
    /// Never.
    constexpr expiry_time(never_t) noexcept {}
    /// At a moment.
    constexpr explicit expiry_time(time_point at) noexcept : at_(at) {}

    /// Whether the key never expires.
    constexpr bool never_expires() const noexcept { return at_ == (time_point::max)(); }
    /// The moment from which on the key is gone; `time_point::max()` for never.
    constexpr time_point at() const noexcept { return at_; }

    /// Whether both are the same moment, or never.
    friend constexpr bool operator==(const expiry_time& a, const expiry_time& b) noexcept { return a.at_ == b.at_; }
    /// Whether they differ.
    friend constexpr bool operator!=(const expiry_time& a, const expiry_time& b) noexcept { return a.at_ != b.at_; }
    /// Whether `a` is earlier.
    friend constexpr bool operator<(const expiry_time& a, const expiry_time& b) noexcept { return a.at_ < b.at_; }

private:
    time_point at_ = (time_point::max)();
};

/// What is left of a key's life, as an answer: a TTL, or for ever. A missing key is not a remaining_ttl, but the
/// `nullopt` around it:
/// @code
/// if (auto left = db.ttl("session"); !left) ...      // no such key
/// else if (left->never_expires()) ...                // lives for ever
/// else if (left->duration() < 5min) ...              // true for no key that lives for ever
/// @endcode
class remaining_ttl {
public:
    /// For ever.
    constexpr remaining_ttl(never_t) noexcept {}
    /// A TTL.
    constexpr explicit remaining_ttl(std::chrono::milliseconds left) noexcept : left_(left) {}

    /// Whether the key never expires.
    constexpr bool never_expires() const noexcept { return left_ == (std::chrono::milliseconds::max)(); }
    /// The time that is left, 0 if the key has just expired; `milliseconds::max()` for one that never does.
    constexpr std::chrono::milliseconds duration() const noexcept { return left_; }

    /// Whether as much is left of both.
    friend constexpr bool operator==(const remaining_ttl& a, const remaining_ttl& b) noexcept {
        return a.left_ == b.left_;
    }
    /// Whether they differ.
    friend constexpr bool operator!=(const remaining_ttl& a, const remaining_ttl& b) noexcept {
        return a.left_ != b.left_;
    }
    /// Whether less is left of `a`.
    friend constexpr bool operator<(const remaining_ttl& a, const remaining_ttl& b) noexcept {
        return a.left_ < b.left_;
    }

private:
    std::chrono::milliseconds left_ = (std::chrono::milliseconds::max)();
};

/// @cond
namespace detail {

/// From what the C API answers.
constexpr expiry_time expiry_of(std::int64_t ms) noexcept {
    return ms == KVSTORE_NO_TTL ? expiry_time(never) : expiry_time(from_ms(ms));
}

constexpr remaining_ttl remaining_ttl_of(std::int64_t ms) noexcept {
    return ms == KVSTORE_NO_TTL ? remaining_ttl(never) : remaining_ttl(std::chrono::milliseconds(ms));
}

} // namespace detail
/// @endcond

/// How long a key is to live, as an argument: a TTL that counts from the call (`30s`), a moment
/// (`system_clock::now() + 1h`, or an expiry that another call answered), or kvstore::never.
///
/// Rounded up to a millisecond. A TTL that is zero or negative, and a moment in the past, are no error: the
/// key is gone at once. A TTL that is too large ends at the last moment there is.
class expiry {
public:
    /// For ever.
    constexpr expiry(never_t) noexcept : kind_(kind::no_expiry), ms_(0) {}

    /// A TTL, from the call on, by the store's clock.
    template <class Rep, class Period>
    constexpr expiry(const std::chrono::duration<Rep, Period>& ttl)
        : kind_(kind::ttl), ms_(detail::to_ms(ttl)) {}

    /// Until a moment.
    template <class Duration>
    constexpr expiry(const std::chrono::time_point<std::chrono::system_clock, Duration>& at)
        : kind_(kind::time), ms_(detail::to_ms(at.time_since_epoch())) {}

    /// Until another key's end.
    constexpr expiry(const expiry_time& at) noexcept
        : kind_(at.never_expires() ? kind::no_expiry : kind::time),
          ms_(at.at().time_since_epoch().count()) {}

    /// The `expire_ms` of the C API: 0 for never, otherwise greater than 0. `now_ms()` is only asked for a
    /// TTL.
    template <class Now>
    std::int64_t expire_ms(const Now& now_ms) const {
        switch (kind_) {
        case kind::no_expiry:
            return 0;
        case kind::time:
            return at_least_1(ms_);
        case kind::ttl:
            break;
        }
        const std::int64_t now = now_ms(); // never negative
        return at_least_1(ms_ > detail::max_ms - now ? detail::max_ms : now + ms_);
    }

private:
    enum class kind { no_expiry, ttl, time };

    /// 0 would be never, and the C API refuses what is negative: both are long past.
    static constexpr std::int64_t at_least_1(std::int64_t ms) noexcept { return ms < 1 ? 1 : ms; }

    kind kind_;
    std::int64_t ms_;
};

} // namespace kvstore

#endif
