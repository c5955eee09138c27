/// @file
/// Functions of the user that C calls. No exception may leave them. Internal.
#ifndef KVSTORE_CALLBACK_HPP
#define KVSTORE_CALLBACK_HPP

#include <exception>
#include <type_traits>
#include <utility>

#include "error.hpp"

/// @cond
namespace kvstore::detail {

#if KVSTORE_EXCEPTIONS

/// Runs functions of the user inside a callback, and keeps the exception that one of them throws.
class catching_guard {
public:
    /// Calls a function. Returns `false` if it threw.
    template <class Function>
    bool run(const Function& function) noexcept {
        try {
            function();
            return true;
        } catch (...) {
            thrown_ = std::current_exception();
            return false;
        }
    }

    /// Rethrows the exception that run() kept, if there is one.
    void rethrow() const {
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
    }

private:
    std::exception_ptr thrown_;
};

using callback_guard = catching_guard;

#else

/// Runs functions of the user, which throw nothing because exceptions are disabled.
class plain_guard {
public:
    template <class Function>
    bool run(const Function& function) noexcept {
        function();
        return true;
    }

    void rethrow() const noexcept {}
};

using callback_guard = plain_guard;

#endif

// Functions that use a guard have its type as a template parameter. So they are different functions
// in files compiled with and without exceptions, and both kinds of files can be linked together.

/// Progress function of the user, in the form that the C API calls.
///
/// If the function returns a bool, `false` cancels the operation. An exception cancels it, too.
template <class Function, class Guard>
class progress_callback {
public:
    explicit progress_callback(Function& function) noexcept : function_(function) {}

    /// Callback for the C API. The result is not 0 if the operation is to be cancelled.
    template <class... Args>
    static int call(void* context, Args... args) noexcept {
        auto& self = *static_cast<progress_callback*>(context);
        const bool returned = self.guard_.run([&] {
            if constexpr (std::is_void_v<std::invoke_result_t<Function&, Args...>>) {
                self.function_(args...);
            } else {
                self.cancelled_ = !self.function_(args...);
            }
        });
        self.cancelled_ = self.cancelled_ || !returned;
        return self.cancelled_ ? 1 : 0;
    }

    /// Returns the context argument for the C API.
    void* context() noexcept { return static_cast<void*>(this); }

    /// Returns whether the function cancelled the operation. Rethrows its exception.
    bool cancelled() const {
        guard_.rethrow();
        return cancelled_;
    }

private:
    Function& function_;
    Guard guard_;
    bool cancelled_ = false;
};

} // namespace kvstore::detail
/// @endcond

#endif
