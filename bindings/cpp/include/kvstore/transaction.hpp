/// @file
/// Transactions and snapshots.
#ifndef KVSTORE_TRANSACTION_HPP
#define KVSTORE_TRANSACTION_HPP

#include <kvstore.h>

#include <memory>
#include <utility>

#include "error.hpp"
#include "session.hpp"

namespace kvstore {

/// @cond
namespace detail {

/// An open transaction of either sort; rolls back.
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

    /// Ends it by a call of C; if that fails it is as open as it was.
    void end(int (*how)(KVStore*)) {
        if (!session_) {
            throw error(errc::misuse, "this transaction has ended, or was moved from");
        }
        const session& open = usable(session_);
        open.throw_on_error(how(open.kv));
        session_.reset();
    }

    bool is_open() const noexcept { return session_ && session_->is_open(); }

private:
    // What fails here is of no use to anybody: nothing was committed either way.
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

/// A write transaction: made by store::begin. Rolls back at the end of its scope, if it was not committed.
///
/// It belongs to the store object: every call on the store and its families, from whatever thread, is part of
/// it, and sees what it wrote. One is open at a time.
class [[nodiscard]] transaction {
public:
    /// Commits, over all families; the object is of no use afterwards.
    /// @throws error errc::busy (others are reading; only in DELETE journal mode: still open, try again);
    /// errc::full, errc::ioerr, errc::nomem and others, also if a write inside failed with them before:
    /// nothing was committed, and only a rollback is possible; errc::misuse if it has ended.
    void commit() { open_.end(&kvstore_commit); }

    /// Rolls back: nothing in it has happened; the object is of no use afterwards.
    /// @throws error errc::ioerr; errc::misuse if it has ended.
    void rollback() { open_.end(&kvstore_rollback); }

    /// Whether it has not ended yet.
    [[nodiscard]] bool is_open() const noexcept { return open_.is_open(); }

private:
    friend class store;
    explicit transaction(std::shared_ptr<detail::session> begun) noexcept : open_(std::move(begun)) {}

    detail::open_transaction open_;
};

/// A read transaction: made by store::snapshot. Until the end of its scope every read of the store and its
/// families, from whatever thread, sees the state of one moment; writes throw errc::readonly.
class [[nodiscard]] snapshot {
public:
    /// Ends it before the end of the scope; the object is of no use afterwards.
    /// @throws error errc::ioerr; errc::misuse if it has ended.
    void end() { open_.end(&kvstore_rollback); }

    /// Whether it has not ended yet.
    [[nodiscard]] bool is_open() const noexcept { return open_.is_open(); }

private:
    friend class store;
    explicit snapshot(std::shared_ptr<detail::session> begun) noexcept : open_(std::move(begun)) {}

    detail::open_transaction open_;
};

} // namespace kvstore

#endif
