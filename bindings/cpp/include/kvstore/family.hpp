/// @file
/// Class family: a handle on one of the named sets of keys in a store.
#ifndef KVSTORE_FAMILY_HPP
#define KVSTORE_FAMILY_HPP

#include <kvstore.h>

#include <memory>
#if __cplusplus >= 202002L
#include <ranges>
#endif
#include <string>
#include <utility>

#include "call.hpp"
#include "iterator.hpp"
#include "keyspace.hpp"
#include "result.hpp"
#include "session.hpp"

namespace kvstore {

/// Handle on a family, a named set of keys in a store. Returned by store::family and similar
/// functions.
///
/// Threads may share the handle. It may outlive its store; its calls then fail with errc::misuse.
class family : public keyspace<KVColumnFamily> {
public:
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    family(family&& other) noexcept = default;
    /// Closes the current handle and takes over that of `other`, whose calls fail with errc::misuse
    /// afterwards.
    family& operator=(family&& other) noexcept {
        family taken(std::move(other));
        swap(taken);
        return *this;
    }
    /// Closes the handle.
    ~family() {
        if (session_) {
            kvstore_cf_close(cf_);
        }
    }

#if KVSTORE_EXCEPTIONS
    /// Returns the name of the family.
    [[nodiscard]] std::string name() const { return try_name().value(); }

    /// Returns an iterator at the first live entry. It makes a family a range: `for (auto [key,
    /// value] : users)`.
    [[nodiscard]] basic_iterator<entry> begin() const { return items().begin(); }
#endif

    /// Like name(), but returns the failure instead of throwing it.
    result<std::string> try_name() const {
        detail::c_call c = start();
        return c.outcome(c.ok() ? std::string(kvstore_cf_name(cf_)) : std::string());
    }

    /// Returns the handle to pass to functions of the C API; null if this object was moved from.
    /// This object still owns the handle.
    KVColumnFamily* native_handle() const noexcept { return session_ ? cf_ : nullptr; }

private:
    friend class store;
    family(std::shared_ptr<detail::session> session, KVColumnFamily* handle) noexcept
        : keyspace(std::move(session), handle) {}
};

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// An iterator shares ownership of its cursor.
template <>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::family> = true;
/// @endcond
#endif

#endif
