/// @file
/// Base class of stores and families. Its functions are in reads.hpp, writes.hpp, expiry.hpp and
/// ranges.hpp.
#ifndef KVSTORE_KEYSPACE_HPP
#define KVSTORE_KEYSPACE_HPP

#include "access.hpp"
#include "expiry.hpp"
#include "options.hpp"
#include "ranges.hpp"
#include "reads.hpp"
#include "writes.hpp"

namespace kvstore {

/// Base class of stores and families with all their functions on keys. Those of a store work on its
/// default family.
///
/// A key has 1 to 65536 bytes, a value 0 to config::max_value_size bytes, any content; both are
/// copied. Every call is atomic: a transaction of its own, or part of the open one. Threads may
/// share the object.
///
/// **Read errors** of every read: errc::busy (a lock, in rollback journal mode or on a
/// server), errc::locked, errc::nomem, errc::ioerr, errc::corrupt, errc::protocol, errc::misuse;
/// errc::error for a key or value whose length is out of bounds.
///
/// **Write errors** of every write: the read errors, errc::busy also if another handle is
/// writing (outside a transaction), errc::readonly and errc::full. A failed write changes nothing.
template <class Handle>
class keyspace : public range_calls<Handle> {
protected:
    using range_calls<Handle>::range_calls;
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    keyspace(keyspace&& other) noexcept = default;
    keyspace& operator=(keyspace&& other) = delete;
    ~keyspace() = default;
};

} // namespace kvstore

#endif
