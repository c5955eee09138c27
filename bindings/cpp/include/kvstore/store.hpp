/// @file
/// Class store: opening a store, its families, transactions, backup and copy.
#ifndef KVSTORE_STORE_HPP
#define KVSTORE_STORE_HPP

#include <kvstore.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "bytes.hpp"
#include "call.hpp"
#include "callback.hpp"
#include "config.hpp"
#include "error.hpp"
#include "family.hpp"
#include "iterator.hpp"
#include "maintenance.hpp"
#include "result.hpp"
#include "session.hpp"
#include "time.hpp"
#include "transaction.hpp"

namespace kvstore {

/// Returns the version of the library, such as "0.1.0". The suffix "+sqlcipher" marks a build with
/// encryption, "+remote" one with support for servers.
inline std::string_view version() noexcept { return kvstore_version(); }
/// Returns the version of the SQLite in the library, such as "3.54.1".
inline std::string_view sqlite_version() noexcept { return kvstore_sqlite_version(); }
/// Returns the storage engine of the library: "sql" or "btree", with the suffix "+sqlcipher" in a
/// build with encryption.
inline std::string_view engine() noexcept { return kvstore_engine(); }
/// Returns the current time of the system clock. It stands still if that clock is set back by at most
/// a second.
///
/// A store can have another clock: store::now returns its time.
inline time_point now() noexcept { return detail::from_ms(kvstore_now_ms()); }
/// Sets a function that calls of this process ask while they wait for a lock; nullptr removes it.
///
/// If it returns true, the wait ends, and the call fails with errc::busy (on a server possibly
/// errc::ioerr). It is called in the waiting thread, about every 40 milliseconds, should keep
/// returning true until the call has returned, and must not use a store. It applies to stores that
/// are opened afterwards.
inline void set_wait_hook(bool (*ends)() noexcept) noexcept {
    if (ends == nullptr) return kvstore_set_wait_hook(nullptr, nullptr);
    kvstore_set_wait_hook(
        [](void *context) { return static_cast<int>(reinterpret_cast<bool (*)() noexcept>(context)()); },
        reinterpret_cast<void *>(ends));
}

/// @cond
namespace detail {

template <class T>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<result<T>> = true;

} // namespace detail
/// @endcond

/// An open store: one connection to a file, or to a schema on a PostgreSQL server. Its functions on
/// keys work on the default family.
///
/// Threads may share it; their calls run one after another. Open several store objects for parallel
/// reads.
class store : public maintenance_calls {
public:
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    store(store&& other) noexcept = default;
    /// Closes the current store and takes over `other`, whose calls fail with errc::misuse
    /// afterwards.
    store& operator=(store&& other) noexcept {
        store taken(std::move(other));
        swap(taken);
        return *this;
    }
    /// Closes the store. An open transaction is rolled back. Errors are discarded; close() reports
    /// them.
    ~store() {
        if (session_) {
            (void)session_->close();
        }
    }

    /// Returns the handle to pass to functions of the C API; null if the store was moved from or
    /// closed. This object still owns the handle.
    KVStore* native_handle() const noexcept {
        return session_ && session_->is_open() ? session_->kv : nullptr;
    }

#if KVSTORE_EXCEPTIONS
    /// @name Opening and closing
    /// @{

    /// Opens the store at `path` with the default configuration, and creates it if it does not
    /// exist.
    /// @param path File name, on Windows in UTF-8; "" or ":memory:" for a new store in memory; in a
    ///   build with support for servers also a URL.
    /// @throws error errc::cantopen, errc::notadb (not a store; the file is left unchanged),
    ///   errc::auth_failed (encrypted), errc::busy (another handle has it open exclusively, or in
    ///   the other journal mode), errc::readonly, errc::corrupt, errc::ioerr, errc::full,
    ///   errc::nomem, errc::protocol. kvstore_open_v2 has the details.
    explicit store(const std::string& path) : store(try_open(path).value()) {}

    /// Opens the store at `path` with a configuration, and creates it if it does not exist.
    /// @throws error As store(path); also errc::error (a setting is out of bounds).
    store(const std::string& path, const config& with) : store(try_open(path, with).value()) {}

    /// Opens an encrypted store, and creates it if it does not exist.
    ///
    /// An existing store that is not encrypted is encrypted in place first, unless
    /// config::only_encrypted is set. kvstore_open_encrypted has the details.
    /// @param path File name.
    /// @param password At least one byte, any content; used during the call only. With raw_key(key)
    ///   of a 32-byte key, opening is faster.
    /// @param with Configuration.
    /// @throws error As store(path, with); also errc::auth_failed (the password is wrong, or
    ///   only_encrypted is set and the store is not encrypted; nothing is changed),
    ///   errc::error (the password is empty, the store would be in memory, or this build does not
    ///   support encryption), errc::busy (an unencrypted store is open elsewhere).
    [[nodiscard]] static store open_encrypted(const std::string& path, bytes_view password,
                                              const config& with = {}) {
        return try_open_encrypted(path, password, with).value();
    }

    /// Closes the store. An open transaction is rolled back.
    ///
    /// Calls on this object, its families, cursors, batches and transactions throw errc::misuse
    /// afterwards; closing it again does nothing.
    /// @throws error errc::misuse (the object was moved from, or a callback of this store called
    ///   it, which then stays open); otherwise the failure of the close: the store is closed
    ///   nevertheless.
    void close() { try_close().value(); }

    /// @}
    /// @name Families
    /// Names are 1 to 255 bytes of UTF-8; those that begin with "__", "_snkv_" or "kvstore" are reserved.
    /// @{

    /// Opens an existing family.
    /// @throws error errc::notfound (there is no family of that name), errc::error (the name is
    ///   invalid), and the read errors.
    [[nodiscard]] kvstore::family family(std::string_view name) const { return try_family(name).value(); }

    /// Creates a family and returns a handle on it.
    /// @throws error errc::error (the family exists, or the name is invalid), and the write errors.
    kvstore::family create_family(std::string_view name) { return try_create_family(name).value(); }

    /// Opens a family, and creates it if it does not exist.
    /// @throws error errc::error (the name is invalid), and the write errors.
    [[nodiscard]] kvstore::family family_or_create(std::string_view name) { return try_family_or_create(name).value(); }

    /// Returns a handle on the default family, on which the store's own functions on keys work.
    [[nodiscard]] kvstore::family default_family() const { return try_default_family().value(); }

    /// Removes a family with all its keys and settings.
    /// @throws error errc::notfound (there is no family of that name), errc::busy (this store has
    ///   an open handle on it), errc::error ("default"), and the write errors.
    void drop_family(std::string_view name) { try_drop_family(name).value(); }

    /// Returns the names of all families except the default one, in byte order.
    /// @throws error The read errors.
    [[nodiscard]] std::vector<std::string> families() const { return try_families().value(); }

    /// @}
    /// @name Transactions
    /// @{

    /// Begins a write transaction. The returned object rolls it back at the end of its scope,
    /// unless it was committed:
    /// @code
    /// auto tx = db.begin();
    /// db.put("from", "90");
    /// db.put("to", "110");
    /// tx.commit();
    /// @endcode
    /// @throws error errc::error (a transaction is open, which continues), errc::busy (another
    ///   handle is writing), errc::readonly, and the read errors.
    [[nodiscard]] kvstore::transaction begin() { return try_begin().value(); }

    /// Begins a read transaction, in which all reads see the same state. The returned object ends
    /// it at the end of its scope.
    /// @throws error errc::error (a transaction is open, which continues), and the read errors.
    [[nodiscard]] kvstore::snapshot snapshot() const { return try_snapshot().value(); }

    /// Calls `work` in a write transaction. Commits when it returns. If it throws, rolls back and
    /// rethrows the exception.
    /// @return The result of `work`.
    /// @throws error As begin() and transaction::commit.
    template <class Work>
    std::invoke_result_t<Work> transaction(Work&& work) {
        using value = std::invoke_result_t<Work>;
        kvstore::transaction open = begin();
        if constexpr (std::is_void_v<value>) {
            std::forward<Work>(work)();
            open.commit();
        } else if constexpr (std::is_reference_v<value>) {
            value returned = std::forward<Work>(work)();
            open.commit();
            return static_cast<value>(returned);
        } else {
            value returned = std::forward<Work>(work)();
            open.commit();
            return returned;
        }
    }

    /// Returns a new, empty batch: a list of writes that are committed together.
    [[nodiscard]] kvstore::batch batch() { return try_batch().value(); }

    /// @}
    /// @name Backup and copy
    /// @{

    /// Copies all committed data, with all expiry times, into a new file, as a consistent snapshot.
    ///
    /// Other connections can read and write meanwhile.
    /// @param path Path of the copy. It must not exist; the file appears when the copy is complete
    ///   and synced.
    /// @throws error errc::error (the path exists), errc::busy (a transaction is open on this
    ///   store, which is in memory or exclusive), errc::cantopen, errc::full, and the read errors.
    void backup(const std::string& path) const { try_backup(path).value(); }

    /// Like backup(path), but reports the progress to a function, which can also cancel the backup.
    /// @param path Path of the copy.
    /// @param progress Called at intervals as `progress(remaining, total)`, in pages. If it returns
    ///   a bool, `false` cancels the backup. If it throws, the backup is cancelled and the
    ///   exception passed on. No file is left in both cases.
    /// @return `false` if `progress` cancelled the backup.
    template <class Progress>
    bool backup(const std::string& path, Progress&& progress) const {
        return try_backup(path, progress).value();
    }

    /// Copies all live keys of all families into another store, with expiry times, write times and
    /// the settings of the families.
    ///
    /// The copy is a consistent snapshot, written in one transaction of `to`. Families that `to`
    /// lacks are created; an existing one must have no live key. After a failure nothing was
    /// copied. kvstore_copy has the details.
    /// @throws error errc::error (a family of `to` has live keys, or both are the same store),
    ///   errc::busy (another handle is writing to `to`, or a transaction is open on it),
    ///   errc::full, and the read and write errors.
    void copy_to(store& to) const { try_copy_to(to).value(); }

    /// Like copy_to(to), but reports the progress to a function, which can also cancel the copy.
    /// @param to Destination.
    /// @param progress Called at intervals as `progress(done, total)`, in keys (`std::int64_t`). If
    ///   it returns a bool, `false` cancels the copy. If it throws, the copy is cancelled and the
    ///   exception passed on. Nothing was copied in both cases. It may use both stores (writes to
    ///   `to` fail with errc::busy), but not a store in memory or an exclusive one.
    /// @return `false` if `progress` cancelled the copy.
    template <class Progress>
    bool copy_to(store& to, Progress&& progress) const {
        return try_copy_to(to, progress).value();
    }

    /// @}
#endif
    /// @name Opening and closing without exceptions
    /// @{

    /// Opens the store at `path` with the default configuration, and creates it if it does not
    /// exist. Like the constructor store(path), but returns the failure instead of throwing it.
    static result<store> try_open(const std::string& path) {
        detail::c_call c;
        const char* const c_path = c.text(path, "path");
        return opened(c, [&](KVStore** kv) { return kvstore_open(c_path, kv, KVSTORE_JOURNAL_WAL); });
    }

    /// Opens the store at `path` with a configuration, and creates it if it does not exist. Like
    /// the constructor store(path, with), but returns the failure instead of throwing it.
    static result<store> try_open(const std::string& path, const config& with) {
        detail::c_call c;
        const char* const c_path = c.text(path, "path");
        const KVStoreConfig settings = detail::c_config(with);
        return opened(c, [&](KVStore** kv) { return kvstore_open_v2(c_path, kv, &settings); });
    }

    /// Like open_encrypted(), but returns the failure instead of throwing it.
    static result<store> try_open_encrypted(const std::string& path, bytes_view password, const config& with = {}) {
        detail::c_call c;
        const auto p = c.bytes(password, "password");
        const char* const c_path = c.text(path, "path");
        const KVStoreConfig settings = detail::c_config(with);
        return opened(c, [&](KVStore** kv) {
            return kvstore_open_encrypted(c_path, p.data, p.size, kv, &settings);
        });
    }

    /// Like close(), but returns the failure instead of throwing it.
    result<void> try_close() {
        if (!session_) {
            return start().outcome();
        }
        const int code = session_->close();
        return code == KVSTORE_OK ? result<void>() : detail::last_failure(code);
    }

    /// @}
    /// @name Families without exceptions
    /// @{

    /// Like family(), but returns the failure instead of throwing it.
    result<kvstore::family> try_family(std::string_view name) const { return make_family(&kvstore_cf_open, name); }

    /// Like create_family(), but returns the failure instead of throwing it.
    result<kvstore::family> try_create_family(std::string_view name) {
        return make_family(&kvstore_cf_create, name);
    }

    /// Like family_or_create(), but returns the failure instead of throwing it.
    result<kvstore::family> try_family_or_create(std::string_view name) {
        result<kvstore::family> family = try_family(name);
        if (!family.ok() && family.error().code() == errc::notfound) {
            family = try_create_family(name);
            if (!family.ok() && family.error().code() == errc::error) {
                family = try_family(name); // another process created it meanwhile, or the name is invalid
            }
        }
        return family;
    }

    /// Like default_family(), but returns the failure instead of throwing it.
    result<kvstore::family> try_default_family() const {
        detail::c_call c = start();
        KVColumnFamily* cf = nullptr;
        if (!c.run([&] { return kvstore_cf_get_default(c.kv(), &cf); })) {
            return c.error();
        }
        return kvstore::family(session_, cf);
    }

    /// Like drop_family(), but returns the failure instead of throwing it.
    result<void> try_drop_family(std::string_view name) {
        detail::c_call c = start();
        const std::string copy(name);
        const char* const c_name = c.text(copy, "family name");
        c.run([&] { return kvstore_cf_drop(c.kv(), c_name); });
        return c.outcome();
    }

    /// Like families(), but returns the failure instead of throwing it.
    result<std::vector<std::string>> try_families() const {
        detail::c_call c = start();
        char** names = nullptr;
        int count = 0;
        c.run([&] { return kvstore_cf_list(c.kv(), &names, &count); });
        const std::unique_ptr<char*, free_names> owner(names);
        return c.outcome(std::vector<std::string>(names, names + count));
    }

    /// @}
    /// @name Transactions without exceptions
    /// @{

    /// Like begin(), but returns the failure instead of throwing it.
    result<kvstore::transaction> try_begin() {
        detail::c_call c = start();
        if (!c.run([&] { return kvstore_begin(c.kv(), 1); })) {
            return c.error();
        }
        return kvstore::transaction(session_);
    }

    /// Like snapshot(), but returns the failure instead of throwing it.
    result<kvstore::snapshot> try_snapshot() const {
        detail::c_call c = start();
        if (!c.run([&] { return kvstore_begin(c.kv(), 0); })) {
            return c.error();
        }
        return kvstore::snapshot(session_);
    }

    /// Calls `work` in a write transaction. `work` returns a kvstore::result. If that is a success,
    /// commits; otherwise rolls back.
    /// @code
    /// auto left = db.try_transaction([&]() -> kvstore::result<std::int64_t> {
    ///     auto sum = db.try_increment("balance", -amount);
    ///     if (sum.ok() && *sum < 0) return kvstore::failure(kvstore::errc::error, "not enough");
    ///     return sum;
    /// });
    /// @endcode
    /// @return The result of `work`, or the failure to begin or to commit the transaction.
    template <class Work>
    std::invoke_result_t<Work> try_transaction(Work&& work) {
        static_assert(detail::is_result<std::invoke_result_t<Work>>, "the function must return a kvstore::result");
        result<kvstore::transaction> open = try_begin();
        if (!open.ok()) {
            return std::move(open).error();
        }
        std::invoke_result_t<Work> returned = std::forward<Work>(work)();
        if (returned.ok()) {
            if (result<void> committed = open->try_commit(); !committed.ok()) {
                return std::move(committed).error();
            }
        }
        return returned;
    }

    /// Like batch(), but returns the failure instead of throwing it.
    result<kvstore::batch> try_batch() {
        detail::c_call c = start();
        KVBatch* created = nullptr;
        if (!c.run([&] { return kvstore_batch_new(c.kv(), &created); })) {
            return c.error();
        }
        return kvstore::batch(session_, created);
    }

    /// @}
    /// @name Backup and copy without exceptions
    /// @{

    /// Like backup(), but returns the failure instead of throwing it.
    result<void> try_backup(const std::string& path) const {
        detail::c_call c = start();
        const char* const c_path = c.text(path, "path");
        c.run([&] { return kvstore_backup(c.kv(), c_path, nullptr, nullptr); });
        return c.outcome();
    }

    /// Like backup(), but returns the failure instead of throwing it. Exceptions of `progress` are
    /// passed on.
    template <class Progress, class Guard = detail::callback_guard>
    result<bool> try_backup(const std::string& path, Progress&& progress) const {
        detail::c_call c = start();
        const char* const c_path = c.text(path, "path");
        return observed<int, Progress, Guard>(c, progress, [&](auto callback, void* context) {
            return kvstore_backup(c.kv(), c_path, callback, context);
        });
    }

    /// Like copy_to(), but returns the failure instead of throwing it.
    result<void> try_copy_to(store& to) const {
        detail::c_call destination = to.start();
        detail::c_call c = start();
        add_failure(c, destination);
        c.run([&] { return kvstore_copy(c.kv(), destination.kv(), nullptr, nullptr); });
        return c.outcome();
    }

    /// Like copy_to(), but returns the failure instead of throwing it. Exceptions of `progress` are
    /// passed on.
    template <class Progress, class Guard = detail::callback_guard>
    result<bool> try_copy_to(store& to, Progress&& progress) const {
        detail::c_call destination = to.start();
        detail::c_call c = start();
        add_failure(c, destination);
        return observed<std::int64_t, Progress, Guard>(c, progress, [&](auto callback, void* context) {
            return kvstore_copy(c.kv(), destination.kv(), callback, context);
        });
    }

    /// @}

private:
    struct free_names {
        void operator()(char** names) const noexcept {
            for (char** name = names; *name; name++) {
                kvstore_free(*name);
            }
            kvstore_free(static_cast<void*>(names));
        }
    };

    struct close_handle {
        void operator()(KVStore* kv) const noexcept { (void)kvstore_close(kv); }
        void operator()(KVColumnFamily* cf) const noexcept { kvstore_cf_close(cf); }
    };

    explicit store(std::shared_ptr<detail::session> session) noexcept : maintenance_calls(session, session->cf) {}

    template <class Open>
    static result<store> opened(detail::c_call& c, const Open& open) {
        KVStore* kv = nullptr;
        if (!c.run([&] { return open(&kv); })) {
            return c.error();
        }
        std::unique_ptr<KVStore, close_handle> store_owner(kv);
        KVColumnFamily* cf = nullptr;
        if (const int code = kvstore_cf_get_default(kv, &cf); code != KVSTORE_OK) {
            return detail::last_failure(code, kv);
        }
        std::unique_ptr<KVColumnFamily, close_handle> family_owner(cf);
        auto session = std::make_shared<detail::session>(kv, cf);
        (void)store_owner.release();
        (void)family_owner.release();
        return store(std::move(session));
    }

    result<kvstore::family> make_family(int (*function)(KVStore*, const char*, KVColumnFamily**),
                                        std::string_view name) const {
        detail::c_call c = start();
        const std::string copy(name);
        const char* const c_name = c.text(copy, "family name");
        KVColumnFamily* cf = nullptr;
        if (!c.run([&] { return function(c.kv(), c_name, &cf); })) {
            return c.error();
        }
        return kvstore::family(session_, cf);
    }

    static void add_failure(detail::c_call& c, detail::c_call& other) {
        if (!other.ok()) {
            c.fail(other.error());
        }
    }

    /// Calls a C function with a progress function of the user, which takes two numbers. The result
    /// is `false` if the progress function cancelled the operation.
    template <class Number, class Progress, class Guard, class Function>
    static result<bool> observed(detail::c_call& c, std::remove_reference_t<Progress>& progress,
                                 const Function& function) {
        using callback = detail::progress_callback<std::remove_reference_t<Progress>, Guard>;
        callback observer(progress);
        const int code = c.ok() ? function(&callback::template call<Number, Number>, observer.context()) : KVSTORE_OK;
        if (observer.cancelled() && code == KVSTORE_ERROR) {
            return false;
        }
        c.done(code);
        return c.outcome(true);
    }
};

#if KVSTORE_EXCEPTIONS
/// @cond
/// Makes a range-for over a store fail to compile with a readable error.
template <class View>
bool operator!=(const transaction&, const basic_iterator<View>&) {
    static_assert(!sizeof(View), "a kvstore::store is not a range: its begin() begins a transaction. Iterate over "
                                 "db.items(), db.keys(), db.values() or db.default_family()");
    return false;
}
/// @endcond
#endif

} // namespace kvstore

#endif
