/// @file
/// kvstore for C++: header-only, C++17 and later, on top of the C API. Include this file and link the
/// library (-lkvstore).
///
/// Conventions
/// - Names are those of the Rust API and the C API. What they call delete is `erase` here, because
///   `delete` is a keyword: `erase`, `erase_range`, `compare_and_erase`.
/// - Errors are exceptions of one type, kvstore::error. A missing key is none: the answer is `nullopt` or
///   `false`. A call that fails changes nothing.
/// - Keys and values that go in are kvstore::bytes_view (any string, or a range of bytes); those that come
///   out are `std::string`, or another container of bytes by `get<std::vector<std::byte>>`, or `std::string_view`
///   where an iterator owns the memory.
/// - Walks are ranges of the standard library, with input iterators of C++17 and of C++20: of `items`, `keys` and
///   `values`, as `for (auto [key, value] : db.items("user:"))`, `std::count_if(db.items().begin(), db.end(), ...)`,
///   `std::ranges::count_if(db.keys(), ...)`. A family is one, too; a store is none, because its begin() begins a
///   transaction. What they show belongs to the walk, until its next step; what algorithms keep of it are copies.
///   kvstore::iterator has the rules.
/// - Every class owns its handle, is moved and not copied, and its destructor throws nothing. A call on an
///   object that was moved from throws errc::misuse. Families, iterators, batches and transactions may
///   outlive their store: they throw errc::misuse then.
///   Positions of a walk are copied, and share the walk.
/// - A store and its families may be shared by threads, which take turns. An iterator, a batch and a
///   transaction object are used by one thread at a time. No object may be moved, assigned or destroyed
///   while another thread uses it.
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
#include "kvstore/family.hpp"
#include "kvstore/cursor.hpp"
#include "kvstore/keyspace.hpp"
#include "kvstore/options.hpp"
#include "kvstore/iterator.hpp"
#include "kvstore/recover.hpp"
#include "kvstore/session.hpp"
#include "kvstore/store.hpp"
#include "kvstore/time.hpp"
#include "kvstore/transaction.hpp"

#endif
