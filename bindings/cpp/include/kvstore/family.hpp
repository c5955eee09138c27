/// @file
/// A family of keys.
#ifndef KVSTORE_FAMILY_HPP
#define KVSTORE_FAMILY_HPP

#include <kvstore.h>

#include <memory>
#if __cplusplus >= 202002L
#include <ranges>
#endif
#include <string>
#include <utility>

#include "keyspace.hpp"
#include "iterator.hpp"
#include "session.hpp"

namespace kvstore {

/// A handle on a family of keys: made by store::family and its kind. May be shared by threads, and outlive
/// its store: every call throws errc::misuse then.
class family : public keyspace<KVColumnFamily> {
public:
    /// The other one throws errc::misuse from now on.
    family(family&& other) noexcept = default;
    /// Closes the handle this had. The other one throws errc::misuse from now on.
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

    /// The name of the family.
    [[nodiscard]] std::string name() const {
        usable();
        return kvstore_cf_name(cf_);
    }

    /// The first of all live entries, as of items(): a family is a range, `for (auto [key, value] : users)`.
    [[nodiscard]] basic_iterator<entry> begin() const { return items().begin(); }

    /// The handle, for calls of the C API. It stays this object's; null if this was moved from.
    KVColumnFamily* native_handle() const noexcept { return session_ ? cf_ : nullptr; }

private:
    friend class store;
    family(std::shared_ptr<detail::session> session, KVColumnFamily* made) noexcept
        : keyspace(std::move(session), made) {}
};

} // namespace kvstore

#if __cplusplus >= 202002L
/// @cond
// A position keeps its walk alive.
template <>
inline constexpr bool std::ranges::enable_borrowed_range<kvstore::family> = true;
/// @endcond
#endif

#endif
