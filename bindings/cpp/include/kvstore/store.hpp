/// @file
/// Class store: opening a store, its families, transactions, expiry, maintenance and encryption.
#ifndef KVSTORE_STORE_HPP
#define KVSTORE_STORE_HPP

#include <kvstore.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "bytes.hpp"
#include "config.hpp"
#include "error.hpp"
#include "family.hpp"
#include "keyspace.hpp"
#include "iterator.hpp"
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
/// Returns the current time of the system clock, which never decreases within a process.
///
/// A store can have another clock: store::now returns its time.
inline time_point now() noexcept { return detail::from_ms(kvstore_now_ms()); }

/// Mode of store::checkpoint: how much it copies, and which connections it waits for.
enum class checkpoint_mode : int {
    passive = KVSTORE_CHECKPOINT_PASSIVE, ///< Copies as many frames as possible without waiting.
    full = KVSTORE_CHECKPOINT_FULL, ///< Waits for writers, then copies all frames.
    /// Like full, and waits for readers, so that the next writer overwrites the WAL from its start.
    restart = KVSTORE_CHECKPOINT_RESTART,
    truncate = KVSTORE_CHECKPOINT_TRUNCATE ///< Like restart, and truncates the WAL to zero bytes.
};

/// Eviction policy: selects the keys that a store removes to stay below its size limit.
enum class eviction : int {
    none = KVSTORE_EVICT_NONE, ///< Evicts nothing: a write beyond the limit fails with errc::full.
    /// Removes expired keys, then the keys with the earliest expiry time; never a key without one.
    soonest = KVSTORE_EVICT_SOONEST,
    /// Removes expired keys, then the keys that were written longest ago.
    oldest = KVSTORE_EVICT_OLDEST
};

/// Size limit (quota) of a store, and its eviction policy.
struct limit {
    std::int64_t max_bytes = 0; ///< Maximum size of the data in the file, in bytes; 0: no limit.
    eviction policy = eviction::none; ///< Eviction policy.
};

/// Counters of a store object, since it was opened or store::reset_stats was called.
///
/// Only successful calls count, except in `errors`. Members marked "current" are not reset.
struct stats {
    std::uint64_t puts; ///< Keys written.
    std::uint64_t gets; ///< Values read.
    std::uint64_t erases; ///< Keys deleted.
    std::uint64_t iterations; ///< Cursors created.
    std::uint64_t errors; ///< Calls that failed. A missing key is not a failure.
    std::uint64_t bytes_read; ///< Bytes of values read.
    std::uint64_t bytes_written; ///< Bytes of keys and values written.
    std::uint64_t wal_commits; ///< Write transactions committed.
    std::uint64_t checkpoints; ///< Checkpoints run, including automatic ones.
    std::uint64_t ttl_expired; ///< Calls of get, exists and ttl that found an expired row.
    std::uint64_t ttl_purged; ///< Expired keys removed by purges, or to enforce the size limit.
    std::uint64_t db_pages; ///< Current number of pages of the database.
    /// Current number of frames in the WAL, as of the last commit or checkpoint.
    std::uint64_t wal_frames;
    /// Lookups by get, get_many and exists that found no live key. Each key of a get_many call
    /// counts.
    std::uint64_t misses;
    std::uint64_t evicted; ///< Live keys removed to enforce the size limit.
    /// Current size of the data in the file, in bytes: its pages without the free ones.
    std::uint64_t size_bytes;
};

/// Result of store::purge_step: the number of removed keys, and whether expired keys are left.
struct purge_result {
    std::uint64_t removed; ///< Number of keys removed.
    bool more; ///< Whether expired keys are left.
};

/// Result of store::checkpoint, in frames of the WAL. Both numbers are 0 if the store is not in WAL
/// mode.
struct checkpoint_result {
    int wal_frames; ///< Number of frames in the WAL.
    int checkpointed_frames; ///< Number of frames that were copied into the file.
};

/// An open store: one connection to a file, or to a schema on a PostgreSQL server. Its functions on
/// keys work on the default family.
///
/// Threads may share it; their calls run one after another. Open several store objects for parallel
/// reads.
class store : public keyspace<KVStore> {
public:
    /// @name Opening and closing
    /// @{

    /// Opens the store at `path` with the default configuration, and creates it if it does not
    /// exist.
    /// @param path File name; "" or ":memory:" for a new store in memory; in a build with support
    ///   for servers also a URL.
    /// @throws error errc::cantopen, errc::notadb (not a store; the file is left unchanged),
    ///   errc::auth_failed (encrypted), errc::busy (another handle has it open exclusively, or in
    ///   the other journal mode), errc::readonly, errc::corrupt, errc::ioerr, errc::full,
    ///   errc::nomem, errc::protocol. kvstore_open_v2 has the details.
    explicit store(const std::string& path)
        : store(opened([&](KVStore** kv) {
              return kvstore_open(detail::c_string(path, "path"), kv, KVSTORE_JOURNAL_WAL);
          })) {}

    /// Opens the store at `path` with a configuration, and creates it if it does not exist.
    /// @throws error As store(path); also errc::error (a setting is out of bounds).
    store(const std::string& path, const config& with)
        : store(opened([&](KVStore** kv) {
              const KVStoreConfig settings = detail::c_config(with);
              return kvstore_open_v2(detail::c_string(path, "path"), kv, &settings);
          })) {}

    /// Opens an encrypted store, and creates it if it does not exist.
    ///
    /// An existing store that is not encrypted is encrypted in place first. kvstore_open_encrypted
    /// has the details.
    /// @param path File name.
    /// @param password At least one byte, any content; used during the call only. With raw_key(key)
    ///   of a 32-byte key, opening is faster.
    /// @param with Configuration.
    /// @throws error As store(path, with); also errc::auth_failed (the password is wrong; nothing
    ///   is changed), errc::error (the password is empty, the store would be in memory, or this
    ///   build does not support encryption), errc::busy (an unencrypted store is open elsewhere).
    [[nodiscard]] static store open_encrypted(const std::string& path, bytes_view password,
                                              const config& with = {}) {
        const int length = detail::c_length(password.size(), "password");
        return store(opened([&](KVStore** kv) {
            const KVStoreConfig settings = detail::c_config(with);
            return kvstore_open_encrypted(detail::c_string(path, "path"), password.data(), length, kv, &settings);
        }));
    }

    /// Move constructor. Calls on `other` throw errc::misuse afterwards.
    store(store&& other) noexcept = default;
    /// Closes the current store and takes over `other`, whose calls throw errc::misuse afterwards.
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

    /// Closes the store. An open transaction is rolled back.
    ///
    /// Calls on this object, its families, cursors, batches and transactions throw errc::misuse
    /// afterwards; closing it again does nothing.
    /// @throws error errc::misuse (the object was moved from, or a callback of this store called
    ///   it, which then stays open); otherwise the failure of the close: the store is closed
    ///   nevertheless.
    void close() {
        if (!session_) {
            detail::moved_from();
        }
        const int code = session_->close();
        if (code != KVSTORE_OK) {
            throw detail::last_error(code);
        }
    }

    /// Returns the handle to pass to functions of the C API; null if the store was moved from or
    /// closed. This object still owns the handle.
    KVStore* native_handle() const noexcept {
        return session_ && session_->is_open() ? session_->kv : nullptr;
    }

    /// @}
    /// @name Families
    /// Names are 1 to 255 bytes of UTF-8; those that begin with "__", "_snkv_" or "kvstore" are reserved.
    /// @{

    /// Opens an existing family.
    /// @throws error errc::notfound (there is no family of that name), errc::error (the name is
    ///   invalid), and the read errors.
    [[nodiscard]] kvstore::family family(std::string_view name) const {
        return make_family(&kvstore_cf_open, name);
    }

    /// Creates a family and returns a handle on it.
    /// @throws error errc::error (the family exists, or the name is invalid), and the write errors.
    kvstore::family create_family(std::string_view name) { return make_family(&kvstore_cf_create, name); }

    /// Opens a family, and creates it if it does not exist.
    /// @throws error errc::error (the name is invalid), and the write errors.
    [[nodiscard]] kvstore::family family_or_create(std::string_view name) {
        const auto made = [&](int (*how)(KVStore*, const char*, KVColumnFamily**), int but) {
            detail::session& session = usable();
            KVColumnFamily* cf = nullptr;
            const int code = how(session.kv, detail::c_string(std::string(name), "family name"), &cf);
            if (code != but) {
                session.throw_on_error(code);
            }
            return cf;
        };
        KVColumnFamily* cf = made(&kvstore_cf_open, KVSTORE_NOTFOUND);
        if (!cf) {
            cf = made(&kvstore_cf_create, KVSTORE_ERROR);
        }
        if (!cf) { // another process created it meanwhile, or the name is invalid
            cf = made(&kvstore_cf_open, KVSTORE_OK);
        }
        return kvstore::family(session_, cf);
    }

    /// Returns a handle on the default family, on which the store's own functions on keys work.
    [[nodiscard]] kvstore::family default_family() const {
        const detail::session& session = usable();
        KVColumnFamily* cf = nullptr;
        session.throw_on_error(kvstore_cf_get_default(session.kv, &cf));
        return kvstore::family(session_, cf);
    }

    /// Removes a family with all its keys and settings.
    /// @throws error errc::notfound (there is no family of that name), errc::busy (this store has
    ///   an open handle on it), errc::error ("default"), and the write errors.
    void drop_family(std::string_view name) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_cf_drop(session.kv, detail::c_string(std::string(name), "family name")));
    }

    /// Returns the names of all families except the default one, in byte order.
    /// @throws error The read errors.
    [[nodiscard]] std::vector<std::string> families() const {
        const detail::session& session = usable();
        char** names = nullptr;
        int count = 0;
        session.throw_on_error(kvstore_cf_list(session.kv, &names, &count));
        const std::unique_ptr<char*, free_names> owner(names);
        return std::vector<std::string>(names, names + count);
    }

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
    [[nodiscard]] kvstore::transaction begin() {
        begin(1);
        return kvstore::transaction(session_);
    }

    /// Begins a read transaction, in which all reads see the same state. The returned object ends
    /// it at the end of its scope.
    /// @throws error errc::error (a transaction is open, which continues), and the read errors.
    [[nodiscard]] kvstore::snapshot snapshot() const {
        begin(0);
        return kvstore::snapshot(session_);
    }

    /// Calls `work` in a write transaction. Commits when it returns. If it throws, rolls back and
    /// rethrows the exception.
    /// @return The result of `work`.
    /// @throws error As begin() and transaction::commit.
    template <class Work>
    std::invoke_result_t<Work> transaction(Work&& work) {
        using result = std::invoke_result_t<Work>;
        kvstore::transaction open = begin();
        if constexpr (std::is_void_v<result>) {
            std::forward<Work>(work)();
            open.commit();
        } else if constexpr (std::is_reference_v<result>) {
            result answer = std::forward<Work>(work)();
            open.commit();
            return static_cast<result>(answer);
        } else {
            result answer = std::forward<Work>(work)();
            open.commit();
            return answer;
        }
    }

    /// Returns a new, empty batch: a list of writes that are committed together.
    [[nodiscard]] kvstore::batch batch() {
        const detail::session& session = usable();
        KVBatch* made = nullptr;
        session.throw_on_error(kvstore_batch_new(session.kv, &made));
        return kvstore::batch(session_, made);
    }

    /// @}
    /// @name Expiry over all families
    /// @{

    /// Removes expired keys of all families, earliest expiry time first.
    ///
    /// It uses transactions of at most 256 keys, or the open transaction if there is one.
    /// @param max_keys Maximum number of keys to remove; 0: no limit.
    /// @param max_time Time limit; 0: no limit.
    /// @throws error errc::error (a limit is negative), and the write errors.
    template <class Rep = std::int64_t, class Period = std::milli>
    purge_result purge_step(std::int64_t max_keys = 0,
                            const std::chrono::duration<Rep, Period>& max_time =
                                std::chrono::duration<Rep, Period>(0)) {
        const detail::session& session = usable();
        std::int64_t deleted = 0;
        int more = 0;
        session.throw_on_error(kvstore_purge_step(session.kv, max_keys, detail::to_ms(max_time), &deleted, &more));
        return {static_cast<std::uint64_t>(deleted), more != 0};
    }

    /// Starts the cleaner: a background thread of the library that removes expired keys of all
    /// families at intervals.
    ///
    /// The thread has a connection of its own. It does nothing while a transaction is open on this
    /// store. Closing the store stops it.
    /// @param interval Interval, more than 0.
    /// @param max_keys Maximum number of keys to remove each time; 0: no limit.
    /// @throws error errc::error (the cleaner is running, the interval is not above 0, or the store
    ///   is in memory), errc::busy (the store is exclusive), errc::readonly, errc::cantopen,
    ///   errc::ioerr, errc::nomem.
    template <class Rep, class Period>
    void start_cleaner(const std::chrono::duration<Rep, Period>& interval, std::int64_t max_keys = 0) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_cleaner_start(session.kv, detail::to_ms(interval), max_keys));
    }

    /// Stops the cleaner, and waits until its thread has ended. Does nothing if no cleaner is
    /// running.
    void stop_cleaner() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_cleaner_stop(session.kv));
    }

    /// Replaces the system clock of this store by a function, for tests and for devices without a
    /// clock.
    /// @param now_of Function without parameters that returns a time point of system_clock, which
    ///   is rounded down to a millisecond. Any thread that uses the store may call it. It must not
    ///   call this store. A result smaller than an earlier one counts as the earlier one.
    ///
    /// The function is called once immediately; an exception it throws then is passed on, and
    /// nothing is changed. If it throws later, the time of the store stands still, so nothing
    /// expires early. The function is kept until the store and all objects that belong to it are
    /// destroyed, also after another one has replaced it.
    template <class Clock>
    void set_clock(Clock now_of) {
        usable().set_clock(std::make_unique<detail::clock>([now_of = std::move(now_of)] {
            return std::chrono::floor<std::chrono::milliseconds>(now_of());
        }));
    }

    /// Makes the store use the system clock again, after set_clock().
    void use_system_clock() { usable().set_clock(nullptr); }

    /// Returns the current time of the store's clock, which decides whether a key has expired.
    /// @throws error errc::ioerr if a server must be asked and cannot be reached.
    [[nodiscard]] time_point now() const { return detail::from_ms(usable().now_ms()); }

    /// @}
    /// @name Maintenance
    /// @{

    /// Returns the counters of this store object.
    /// @throws error The read errors.
    [[nodiscard]] kvstore::stats stats() const {
        const detail::session& session = usable();
        KVStoreStats s{};
        session.throw_on_error(kvstore_stats(session.kv, &s));
        return {s.nPuts,         s.nGets,       s.nDeletes,     s.nIterations, s.nErrors,
                s.nBytesRead,    s.nBytesWritten, s.nWalCommits, s.nCheckpoints, s.nTtlExpired,
                s.nTtlPurged,    s.nDbPages,    s.nWalFrames,   s.nMisses,     s.nEvicted,
                s.nSizeBytes};
    }

    /// Sets the counters of this store object to zero, except those marked "current".
    void reset_stats() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_stats_reset(session.kv));
    }

    /// Checks the whole file for damage, in one snapshot.
    ///
    /// It runs the integrity check of SQLite, looks for foreign objects, and checks the consistency
    /// of the tables of every family.
    /// @throws error errc::corrupt, whose text names the first inconsistency, and the read errors.
    void integrity_check() const {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_integrity_check(session.kv, nullptr));
    }

    /// Rebuilds indexes, large values, views and the catalogue of families from the data rows, in
    /// one transaction.
    ///
    /// Every readable row is kept; a row whose value is lost is removed. kvstore_repair has the
    /// details.
    /// @return Number of rows, index entries and tables that were added, removed or changed.
    /// @throws error errc::corrupt (the integrity check of SQLite fails), errc::busy (a transaction
    ///   is open on this store), and the write errors. Nothing is changed then.
    std::uint64_t repair() {
        const detail::session& session = usable();
        std::int64_t fixed = 0;
        session.throw_on_error(kvstore_repair(session.kv, &fixed));
        return static_cast<std::uint64_t>(fixed);
    }

    /// Sets the size limit (quota) of the store, and the policy that selects the keys to remove.
    ///
    /// Both are stored in the file, and apply to every handle and process. kvstore_set_limit has
    /// the details.
    /// @param max_bytes Maximum size of the data, in bytes, at least 32 pages; 0: no limit.
    /// @param policy Eviction policy.
    /// @throws error errc::full (the data exceeds the limit and may not be removed), errc::error
    ///   (less than 32 pages), and the write errors. Nothing is changed then.
    void set_limit(std::int64_t max_bytes, eviction policy = eviction::none) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_set_limit(session.kv, max_bytes, static_cast<int>(policy)));
    }

    /// Sets the size limit and the policy from a limit object, such as that of another store:
    /// `to.set_limit(from.limit())`.
    void set_limit(const kvstore::limit& to) { set_limit(to.max_bytes, to.policy); }

    /// Returns the size limit and the eviction policy of the store.
    /// @throws error The read errors.
    [[nodiscard]] kvstore::limit limit() const {
        const detail::session& session = usable();
        std::int64_t max_bytes = 0;
        int policy = KVSTORE_EVICT_NONE;
        session.throw_on_error(kvstore_get_limit(session.kv, &max_bytes, &policy));
        return {max_bytes, static_cast<eviction>(policy)};
    }

    /// Makes all earlier commits durable: they survive a power failure afterwards.
    ///
    /// It does not commit or end an open transaction.
    /// @throws error errc::ioerr, also if the directory of the store cannot be read.
    void sync() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_sync(session.kv));
    }

    /// Returns free pages of the file to the file system.
    ///
    /// In WAL mode the file shrinks at the next checkpoint.
    /// @param pages Maximum number of pages; 0: all.
    /// @throws error The write errors.
    void incremental_vacuum(int pages = 0) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_incremental_vacuum(session.kv, pages));
    }

    /// Copies the frames of the WAL into the database file.
    /// @throws error errc::busy (a transaction is open on this store; or, except for passive, other
    ///   connections block it), errc::ioerr, errc::full, errc::readonly, errc::nomem, errc::misuse.
    checkpoint_result checkpoint(checkpoint_mode mode = checkpoint_mode::passive) {
        const detail::session& session = usable();
        checkpoint_result done{0, 0};
        session.throw_on_error(kvstore_checkpoint(session.kv, static_cast<int>(mode), &done.wal_frames,
                                         &done.checkpointed_frames));
        return done;
    }

    /// Copies all committed data, with all expiry times, into a new file, as a consistent snapshot.
    ///
    /// Other connections can read and write meanwhile.
    /// @param path Path of the copy. It must not exist; the file appears when the copy is complete
    ///   and synced.
    /// @throws error errc::error (the path exists), errc::busy (a transaction is open on this
    ///   store, which is in memory or exclusive), errc::cantopen, errc::full, and the read errors.
    void backup(const std::string& path) const {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_backup(session.kv, detail::c_string(path, "path"), nullptr, nullptr));
    }

    /// Like backup(path), but reports the progress to a function, which can also cancel the backup.
    /// @param path Path of the copy.
    /// @param progress Called at intervals as `progress(remaining, total)`, in pages. If it returns
    ///   a bool, `false` cancels the backup. If it throws, the backup is cancelled and the
    ///   exception passed on. No file is left in both cases.
    /// @return `false` if `progress` cancelled the backup.
    template <class Progress>
    bool backup(const std::string& path, Progress&& progress) const {
        using watch = watched<std::remove_reference_t<Progress>, int>;
        const detail::session& session = usable();
        watch watching{progress, nullptr, false};
        const int code = kvstore_backup(session.kv, detail::c_string(path, "path"), &watch::call,
                                        static_cast<void*>(&watching));
        return watching.finish(session, code);
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
    void copy_to(store& to) const {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_copy(session.kv, to.usable().kv, nullptr, nullptr));
    }

    /// Like copy_to(to), but reports the progress to a function, which can also cancel the copy.
    /// @param to Destination.
    /// @param progress Called at intervals as `progress(done, total)`, in keys (`std::int64_t`). If
    ///   it returns a bool, `false` cancels the copy. If it throws, the copy is cancelled and the
    ///   exception passed on. Nothing was copied in both cases. It may use both stores (writes to
    ///   `to` fail with errc::busy), but not a store in memory or an exclusive one.
    /// @return `false` if `progress` cancelled the copy.
    template <class Progress>
    bool copy_to(store& to, Progress&& progress) const {
        using watch = watched<std::remove_reference_t<Progress>, std::int64_t>;
        const detail::session& session = usable();
        KVStore* const other = to.usable().kv;
        watch watching{progress, nullptr, false};
        const int code =
            kvstore_copy(session.kv, other, &watch::call, static_cast<void*>(&watching));
        return watching.finish(session, code);
    }

    /// @}
    /// @name Encryption
    /// @{

    /// Returns whether the store is encrypted.
    /// @throws error As stats().
    [[nodiscard]] bool is_encrypted() const {
        const detail::session& session = usable();
        if (kvstore_is_encrypted(session.kv) != 0) {
            return true;
        }
        KVStoreStats unused{}; // 0 may also mean that the call failed; this call reports it
        session.throw_on_error(kvstore_stats(session.kv, &unused));
        return false;
    }

    /// Changes the password of an encrypted store, in place.
    ///
    /// The old password no longer opens the store. This object, its families and cursors remain
    /// usable. kvstore_reencrypt has the details.
    /// @throws error errc::error (the store is not encrypted, the password is empty, or this build
    ///   does not support encryption), errc::busy (the file is open elsewhere, or a transaction is
    ///   open on this store), errc::cantopen, and the write errors. The file is unchanged then.
    void reencrypt(bytes_view password) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_reencrypt(session.kv, password.data(), detail::c_length(password.size(), "password")));
    }

    /// Removes the encryption of an encrypted store, in place.
    /// @throws error As reencrypt().
    void remove_encryption() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_remove_encryption(session.kv));
    }

    /// @}

private:
    /// Context of a C progress callback: the user's function, the exception it threw, and whether
    /// it cancelled the operation.
    template <class Progress, class Number>
    struct watched {
        Progress& progress;
        std::exception_ptr thrown;
        bool stopped;

        // Called by C: no exception may leave it.
        static int call(void* context, Number part, Number total) noexcept {
            auto& self = *static_cast<watched*>(context);
            try {
                if constexpr (std::is_void_v<std::invoke_result_t<Progress&, Number, Number>>) {
                    self.progress(part, total);
                } else {
                    self.stopped = !self.progress(part, total);
                }
            } catch (...) {
                self.thrown = std::current_exception();
                self.stopped = true;
            }
            return self.stopped ? 1 : 0;
        }

        /// Returns `false` if the progress function cancelled the operation, and `true` if it
        /// completed.
        ///
        /// Rethrows an exception of the progress function, and throws for a failed call.
        bool finish(const detail::session& session, int code) const {
            if (thrown) {
                std::rethrow_exception(thrown);
            }
            if (stopped && code == KVSTORE_ERROR) {
                return false;
            }
            session.throw_on_error(code);
            return true;
        }
    };

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

    explicit store(std::shared_ptr<detail::session> session) noexcept
        : keyspace(session, session->cf) {}

    template <class Open>
    static std::shared_ptr<detail::session> opened(const Open& open) {
        KVStore* kv = nullptr;
        int code = open(&kv);
        if (code != KVSTORE_OK) {
            throw detail::last_error(code);
        }
        std::unique_ptr<KVStore, close_handle> store_owner(kv);
        KVColumnFamily* cf = nullptr;
        code = kvstore_cf_get_default(kv, &cf);
        if (code != KVSTORE_OK) {
            throw detail::last_error(code, kv);
        }
        std::unique_ptr<KVColumnFamily, close_handle> family_owner(cf);
        auto session = std::make_shared<detail::session>(kv, cf);
        (void)store_owner.release();
        (void)family_owner.release();
        return session;
    }

    void begin(int write) const {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_begin(session.kv, write));
    }

    kvstore::family make_family(int (*how)(KVStore*, const char*, KVColumnFamily**),
                                std::string_view name) const {
        const detail::session& session = usable();
        KVColumnFamily* cf = nullptr;
        session.throw_on_error(how(session.kv, detail::c_string(std::string(name), "family name"), &cf));
        return kvstore::family(session_, cf);
    }
};

/// @cond
/// Makes a range-for over a store fail to compile with a readable error.
template <class Shown>
bool operator!=(const transaction&, const basic_iterator<Shown>&) {
    static_assert(!sizeof(Shown), "a kvstore::store is not a range: its begin() begins a transaction. Iterate over "
                                  "db.items(), db.keys(), db.values() or db.default_family()");
    return false;
}
/// @endcond

} // namespace kvstore

#endif
