/// @file
/// What a store (by its default family) and a family have in common: reads.hpp, writes.hpp, lifetimes.hpp, walks.hpp.
#ifndef KVSTORE_KEYSPACE_HPP
#define KVSTORE_KEYSPACE_HPP

#include "access.hpp"
#include "expiry.hpp"
#include "options.hpp"
#include "reads.hpp"
#include "ranges.hpp"
#include "writes.hpp"

namespace kvstore {

/// The calls that a store and a family share; those of a store work on its default family.
///
/// A key is 1 to 65536 bytes, a value 0 bytes to the configured maximum; both are copied. Every call is
/// atomic: one transaction of its own, or part of the open one. May be used by several threads.
///
/// Beside what a call names, reading throws errc::ioerr, errc::nomem, errc::corrupt, errc::misuse, and
/// errc::busy (only in DELETE journal mode); errc::error for a key or value of a bad length. Writing throws
/// all these, and errc::busy (another handle is writing; only outside a transaction), errc::readonly and
/// errc::full. Nothing is changed then.
template <class Handle>
class keyspace : public range_calls<Handle> {
protected:
    using range_calls<Handle>::range_calls;
    keyspace(keyspace&& other) noexcept = default; ///< The other one answers errc::misuse from now on.
    keyspace& operator=(keyspace&& other) = delete;
    ~keyspace() = default;
};

} // namespace kvstore

#endif
