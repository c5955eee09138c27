/// @file
/// Transactions and snapshots.
#ifndef KVSTORE_TRANSACTION_HPP
#define KVSTORE_TRANSACTION_HPP

#include <kvstore.h>

#include <memory>
#include <utility>

#include "call.hpp"
#include "error.hpp"
#include "result.hpp"
#include "session.hpp"

namespace kvstore {

/// @cond
namespace detail {

/// Open transaction or snapshot of a store. Its destructor rolls back.
class open_transaction {
public:
    explicit open_transaction(std::shared_ptr<session> begun) noexcept : session_(std::move(begun)) {}
    open_transaction(open_transaction&& other) noexcept = default;
    open_transaction& operator=(open_transaction&& other) noexcept {
        if (this != &other) {
            roll_back();
            session_ = std::move(other.session_);
        }
        return *this;
    }
    ~open_transaction() { roll_back(); }

    /// Ends the transaction by calling a C function, for commit or rollback. The transaction stays
    /// open if the call fails.
    result<void> end(int (*function)(KVStore*)) {
        if (!session_) {
            return failure(errc::misuse, "this transaction has ended, or was moved from");
        }
        c_call c(session_.get());
        if (c.run([&] { return function(session_->kv); })) {
            session_.reset();
        }
        return c.outcome();
    }

    bool is_open() const noexcept { return session_ && session_->is_open(); }

private:
    // An error is ignored: nothing was committed either way.
    void roll_back() noexcept {
        if (is_open()) {
            (void)kvstore_rollback(session_->kv);
        }
        session_.reset();
    }

    std::shared_ptr<session> session_;
};

} // namespace detail
/// @endcond

/// Open write transaction of a store, returned by store::begin. The destructor rolls it back unless
/// it was committed.
///
/// The transaction belongs to the store object: every call on the store and its families, from any
/// thread, is part of it and sees its writes. A store has at most one open transaction.
class [[nodiscard]] transaction {
public:
#if KVSTORE_EXCEPTIONS
    /// Commits the writes to all families. The transaction object cannot be used afterwards.
    /// @throws error errc::busy (other handles are reading; rollback journal mode only): the
    ///   transaction is still open, call commit() again. errc::full, errc::ioerr, errc::nomem,
    ///   errc::corrupt, errc::locked, errc::readonly, also if a write inside the transaction failed
    ///   with it: nothing was committed, and only a rollback is possible. errc::misuse if the
    ///   transaction has ended.
    void commit() { try_commit().value(); }

    /// Rolls back the transaction: none of its writes takes effect. The object cannot be used
    /// afterwards.
    /// @throws error errc::ioerr; errc::misuse if the transaction has ended.
    void rollback() { try_rollback().value(); }
#endif

    /// Like commit(), but returns the failure instead of throwing it.
    result<void> try_commit() { return open_.end(&kvstore_commit); }

    /// Like rollback(), but returns the failure instead of throwing it.
    result<void> try_rollback() { return open_.end(&kvstore_rollback); }

    /// Returns whether the transaction is open.
    [[nodiscard]] bool is_open() const noexcept { return open_.is_open(); }

private:
    friend class store;
    explicit transaction(std::shared_ptr<detail::session> begun) noexcept : open_(std::move(begun)) {}

    detail::open_transaction open_;
};

/// Read transaction, returned by store::snapshot. Until it ends, every read of the store and its
/// families, from any thread, sees the same state; writes fail with errc::readonly.
class [[nodiscard]] snapshot {
public:
#if KVSTORE_EXCEPTIONS
    /// Ends the snapshot now, not only at its destruction. The object cannot be used afterwards.
    /// @throws error errc::ioerr; errc::misuse if it has ended.
    void end() { try_end().value(); }
#endif

    /// Like end(), but returns the failure instead of throwing it.
    result<void> try_end() { return open_.end(&kvstore_rollback); }

    /// Returns whether the snapshot is open.
    [[nodiscard]] bool is_open() const noexcept { return open_.is_open(); }

private:
    friend class store;
    explicit snapshot(std::shared_ptr<detail::session> begun) noexcept : open_(std::move(begun)) {}

    detail::open_transaction open_;
};

} // namespace kvstore

#endif
