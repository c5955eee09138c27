/// @file
/// kvstore for C++: header-only, C++17 or later, on top of the C API. Include this file and
/// link the library (-lkvstore).
///
/// Conventions
/// - **Families.** A store consists of families: separate ordered sets of keys. (In C they are
///   called KVColumnFamily and kvstore_cf_*, see kvstore.h.) kvstore::store works on the
///   default family, kvstore::family on any.
/// - **Names.** They follow the C and Rust APIs, with two exceptions from the standard containers:
///   deletion is called `erase`, because `delete` is a keyword, and `exists` is called `contains`.
/// - **Times.** A TTL is a `std::chrono` duration; an expiry time is a `system_clock` time
///   point. A parameter of type kvstore::expiry takes either, or kvstore::never.
/// - **Errors.** Every failure is an exception of type kvstore::error, or `std::bad_alloc` if there
///   is no memory for a string or container of C++. A missing key is not a failure: the result is
///   `nullopt` or `false`. A failed call changes nothing.
/// - **Without exceptions.** For each function that throws there is one whose name begins with
///   `try_`: `try_put`, `try_get`, store::try_open instead of the constructor. It returns a
///   kvstore::result: the value, or a kvstore::failure with the content of the exception. With
///   -fno-exceptions only these are declared. They also work with -fno-rtti.
/// - **Bytes.** Keys and values are passed as kvstore::bytes_view, which any string or
///   contiguous range of bytes converts to. They are returned as `std::string`, as another
///   container of bytes (`get<std::vector<std::byte>>`), or as a `std::string_view` into memory
///   of a cursor.
/// - **Ranges.** `items`, `keys`, `values` and the other range functions return ranges with
///   input iterators, for C++17 and C++20: `for (auto [key, value] : db.items("user:"))`,
///   `std::ranges::count_if(db.keys(), ...)`. A family is a range too. A store is not, because
///   its begin() begins a transaction. What an iterator shows is valid until the next step; see
///   kvstore::cursor.
/// - **Ownership.** Every class owns its handle. It can be moved but not copied, and its
///   destructor does not throw. Iterators are copied, and their copies share one cursor. A call
///   on a moved-from object fails with errc::misuse. Families, cursors, batches and transactions
///   may outlive their store; their calls then fail with errc::misuse.
/// - **Threads.** Threads may share a store and its families; their calls run one after
///   another. A cursor, a batch or a transaction is used by one thread at a time. No object may
///   be moved, assigned or destroyed while another thread uses it.
/// - **Forks.** In the child process, calls on objects created before fork() fail with errc::misuse.
///   The child opens the store itself.
#ifndef KVSTORE_HPP
#define KVSTORE_HPP

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201703L
#error "kvstore.hpp needs C++17: -std=c++17 or later (MSVC: /std:c++17)"
#endif

#include "kvstore/batch.hpp"
#include "kvstore/bytes.hpp"
#include "kvstore/config.hpp"
#include "kvstore/entry.hpp"
#include "kvstore/error.hpp"
#include "kvstore/cursor.hpp"
#include "kvstore/family.hpp"
#include "kvstore/iterator.hpp"
#include "kvstore/keys.hpp"
#include "kvstore/keyspace.hpp"
#include "kvstore/maintenance.hpp"
#include "kvstore/options.hpp"
#include "kvstore/recover.hpp"
#include "kvstore/result.hpp"
#include "kvstore/session.hpp"
#include "kvstore/store.hpp"
#include "kvstore/time.hpp"
#include "kvstore/transaction.hpp"

#endif
