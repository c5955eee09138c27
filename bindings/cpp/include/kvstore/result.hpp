/// @file
/// Class result: the value of a call that does not throw, or the reason why the call failed.
#ifndef KVSTORE_RESULT_HPP
#define KVSTORE_RESULT_HPP

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "error.hpp"

namespace kvstore {

/// Result of a function whose name begins with `try_`: its value, or the failure of the call.
/// @code
/// kvstore::result<std::optional<std::string>> name = db.try_get("user:1");
/// if (!name.ok()) return report(name.error().what()); // the call failed
/// if (*name) use(**name);                             // the key is live
/// @endcode
/// There is no conversion to bool, because `if (db.try_contains("key"))` would test whether the
/// call succeeded, not what it returned.
///
/// The operators `*` and `->` require ok(), and error() requires that the call failed. Otherwise
/// they end the program with std::abort().
template <class T>
class [[nodiscard]] result {
public:
    /// Type of the value.
    using value_type = T;

    /// Creates the result of a successful call.
    template <class U = T, std::enable_if_t<!std::is_same_v<std::decay_t<U>, failure> &&
                                                !std::is_same_v<std::decay_t<U>, result> &&
                                                std::is_convertible_v<U&&, T>,
                                            int> = 0>
    result(U&& value) : state_(std::in_place_index<0>, std::forward<U>(value)) {}

    /// Creates the result of a failed call.
    result(failure why) : state_(std::in_place_index<1>, std::move(why)) {}

    /// Returns whether the call succeeded.
    bool ok() const noexcept { return state_.index() == 0; }

    /// Returns the value.
    T& operator*() & noexcept { return *need<0>(*this); }
    /// Returns the value.
    const T& operator*() const& noexcept { return *need<0>(*this); }
    /// Returns the value, which can be moved from.
    T&& operator*() && noexcept { return std::move(*need<0>(*this)); }
    /// Returns a pointer to the value.
    T* operator->() noexcept { return need<0>(*this); }
    /// Returns a pointer to the value.
    const T* operator->() const noexcept { return need<0>(*this); }

    /// Returns the value, or `other` if the call failed.
    template <class U>
    T value_or(U&& other) && {
        return ok() ? std::move(**this) : static_cast<T>(std::forward<U>(other));
    }

    /// Returns why the call failed.
    const failure& error() const& noexcept { return *need<1>(*this); }
    /// Returns why the call failed. The failure can be moved from.
    failure&& error() && noexcept { return std::move(*need<1>(*this)); }

#if KVSTORE_EXCEPTIONS
    /// Returns the value, or throws. Not declared with -fno-exceptions.
    /// @throws error The failure of the call.
    const T& value() const& {
        if (!ok()) {
            detail::throw_failure(error());
        }
        return **this;
    }
    /// Returns the value, or throws. Not declared with -fno-exceptions.
    /// @throws error The failure of the call.
    T value() && {
        if (!ok()) {
            detail::throw_failure(error());
        }
        return std::move(**this);
    }
#endif

private:
    template <std::size_t Index, class Self>
    static auto* need(Self& self) noexcept {
        auto* const found = std::get_if<Index>(&self.state_);
        if (!found) {
            std::abort();
        }
        return found;
    }

    std::variant<T, failure> state_;
};

/// Result of a call that returns nothing.
template <>
class [[nodiscard]] result<void> {
public:
    /// Type of the value.
    using value_type = void;

    /// Creates the result of a successful call.
    result() noexcept = default;
    /// Creates the result of a failed call.
    result(failure why) : failure_(std::move(why)) {}

    /// Returns whether the call succeeded.
    bool ok() const noexcept { return !failure_; }

    /// Returns why the call failed.
    const failure& error() const& noexcept {
        need();
        return *failure_;
    }
    /// Returns why the call failed. The failure can be moved from.
    failure&& error() && noexcept {
        need();
        return std::move(*failure_);
    }

#if KVSTORE_EXCEPTIONS
    /// Throws if the call failed. Not declared with -fno-exceptions.
    /// @throws error The failure of the call.
    void value() const {
        if (!ok()) {
            detail::throw_failure(error());
        }
    }
#endif

private:
    void need() const noexcept {
        if (!failure_) {
            std::abort();
        }
    }

    std::optional<failure> failure_;
};

} // namespace kvstore

#endif
