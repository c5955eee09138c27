/// @file
/// Functions of a store that are not on single keys: expiry over all families, clock, statistics,
/// checks, size limit, checkpoints, encryption.
#ifndef KVSTORE_MAINTENANCE_HPP
#define KVSTORE_MAINTENANCE_HPP

#include <kvstore.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <ratio>
#include <utility>

#include "bytes.hpp"
#include "call.hpp"
#include "callback.hpp"
#include "keyspace.hpp"
#include "result.hpp"
#include "session.hpp"
#include "time.hpp"

namespace kvstore {

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
    oldest = KVSTORE_EVICT_OLDEST,
    /// Removes expired keys, then the keys that were written or read longest ago.
    least_used = KVSTORE_EVICT_LEAST_USED
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
    std::uint64_t ttl_expired; ///< Calls of get, contains and ttl that found an expired row.
    std::uint64_t ttl_purged; ///< Expired keys removed by purges, or to enforce the size limit.
    std::uint64_t db_pages; ///< Current number of pages of the database.
    /// Current number of frames in the WAL, as of the last commit or checkpoint.
    std::uint64_t wal_frames;
    /// Lookups by get, get_many and contains that found no live key. Each key of a get_many call
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

/// Functions of a store that are not on single keys. Base class of kvstore::store.
class maintenance_calls : public keyspace<KVStore> {
public:
#if KVSTORE_EXCEPTIONS
    /// @name Expiry over all families
    /// @{

    /// Removes expired keys of all families, earliest expiry time first.
    ///
    /// It uses transactions of at most 4096 keys, or the open transaction if there is one.
    /// @param max_keys Maximum number of keys to remove; 0: no limit.
    /// @param max_time Time limit; 0: no limit.
    /// @throws error errc::error (a limit is negative), and the write errors.
    template <class Rep = std::int64_t, class Period = std::milli>
    purge_result purge_step(std::int64_t max_keys = 0,
                            const std::chrono::duration<Rep, Period>& max_time =
                                std::chrono::duration<Rep, Period>(0)) {
        return try_purge_step(max_keys, max_time).value();
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
        try_start_cleaner(interval, max_keys).value();
    }

    /// Stops the cleaner, and waits until its thread has ended. Does nothing if no cleaner is
    /// running.
    void stop_cleaner() { try_stop_cleaner().value(); }

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
        try_set_clock(std::move(now_of)).value();
    }

    /// Makes the store use the system clock again, after set_clock().
    void use_system_clock() { try_use_system_clock().value(); }

    /// Returns the current time of the store's clock, which decides whether a key has expired.
    /// @throws error errc::ioerr if a server must be asked and cannot be reached.
    [[nodiscard]] time_point now() const { return try_now().value(); }

    /// @}
    /// @name Maintenance
    /// @{

    /// Returns the counters of this store object.
    /// @throws error The read errors.
    [[nodiscard]] kvstore::stats stats() const { return try_stats().value(); }

    /// Sets the counters of this store object to zero, except those marked "current".
    void reset_stats() { try_reset_stats().value(); }

    /// Checks the whole file for damage, in one snapshot.
    ///
    /// It runs the integrity check of SQLite, looks for foreign objects, and checks the consistency
    /// of the tables of every family.
    /// @throws error errc::corrupt, whose text names the first inconsistency, and the read errors.
    void integrity_check() const { try_integrity_check().value(); }

    /// Rebuilds indexes, large values, views and the catalogue of families from the data rows, in
    /// one transaction.
    ///
    /// Every readable row is kept; a row whose value is lost is removed. kvstore_repair has the
    /// details.
    /// @return Number of rows, index entries and tables that were added, removed or changed.
    /// @throws error errc::corrupt (the integrity check of SQLite fails), errc::busy (a transaction
    ///   is open on this store), and the write errors. Nothing is changed then.
    std::uint64_t repair() { return try_repair().value(); }

    /// Sets the size limit (quota) of the store, and the policy that selects the keys to remove.
    ///
    /// Both are stored in the file, and apply to every handle and process. kvstore_set_limit has
    /// the details.
    /// @param max_bytes Maximum size of the data, in bytes, at least 32 pages; 0: no limit.
    /// @param policy Eviction policy.
    /// @throws error errc::full (the data exceeds the limit and may not be removed), errc::error
    ///   (less than 32 pages), and the write errors. Nothing is changed then.
    void set_limit(std::int64_t max_bytes, eviction policy = eviction::none) {
        try_set_limit(max_bytes, policy).value();
    }

    /// Sets the size limit and the policy from a limit object, such as that of another store:
    /// `to.set_limit(from.limit())`.
    void set_limit(const kvstore::limit& to) { try_set_limit(to).value(); }

    /// Returns the size limit and the eviction policy of the store.
    /// @throws error The read errors.
    [[nodiscard]] kvstore::limit limit() const { return try_limit().value(); }

    /// Makes all earlier commits durable: they survive a power failure afterwards.
    ///
    /// It does not commit or end an open transaction.
    /// @throws error errc::ioerr, also if the directory of the store cannot be read.
    void sync() { try_sync().value(); }

    /// Returns free pages of the file to the file system.
    ///
    /// In WAL mode the file shrinks at the next checkpoint.
    /// @param pages Maximum number of pages; 0: all.
    /// @throws error The write errors.
    void incremental_vacuum(int pages = 0) { try_incremental_vacuum(pages).value(); }

    /// Copies the frames of the WAL into the database file.
    /// @throws error errc::busy (a transaction is open on this store; or, except for passive, other
    ///   connections block it), errc::ioerr, errc::full, errc::readonly, errc::nomem, errc::misuse.
    checkpoint_result checkpoint(checkpoint_mode mode = checkpoint_mode::passive) {
        return try_checkpoint(mode).value();
    }

    /// @}
    /// @name Encryption
    /// @{

    /// Returns whether the store is encrypted.
    /// @throws error As stats().
    [[nodiscard]] bool is_encrypted() const { return try_is_encrypted().value(); }

    /// Changes the password of an encrypted store, in place.
    ///
    /// The old password no longer opens the store. This object, its families and cursors remain
    /// usable. kvstore_reencrypt has the details.
    /// @throws error errc::error (the store is not encrypted, the password is empty, or this build
    ///   does not support encryption), errc::busy (the file is open elsewhere, or a transaction is
    ///   open on this store), errc::cantopen, and the write errors. The file is unchanged then.
    void reencrypt(bytes_view password) { try_reencrypt(password).value(); }

    /// Removes the encryption of an encrypted store, in place.
    /// @throws error As reencrypt().
    void remove_encryption() { try_remove_encryption().value(); }

    /// @}
#endif
    /// @name Expiry over all families and clock, without exceptions
    /// @{

    /// Like purge_step(), but returns the failure instead of throwing it.
    template <class Rep = std::int64_t, class Period = std::milli>
    result<purge_result> try_purge_step(std::int64_t max_keys = 0,
                                        const std::chrono::duration<Rep, Period>& max_time =
                                            std::chrono::duration<Rep, Period>(0)) {
        detail::c_call c = start();
        const std::int64_t max_ms = c.ms(detail::to_ms(max_time));
        std::int64_t removed = 0;
        int more = 0;
        c.run([&] { return kvstore_purge_step(c.kv(), max_keys, max_ms, &removed, &more); });
        return c.outcome(purge_result{static_cast<std::uint64_t>(removed), more != 0});
    }

    /// Like start_cleaner(), but returns the failure instead of throwing it.
    template <class Rep, class Period>
    result<void> try_start_cleaner(const std::chrono::duration<Rep, Period>& interval, std::int64_t max_keys = 0) {
        detail::c_call c = start();
        const std::int64_t interval_ms = c.ms(detail::to_ms(interval));
        c.run([&] { return kvstore_cleaner_start(c.kv(), interval_ms, max_keys); });
        return c.outcome();
    }

    /// Like stop_cleaner(), but returns the failure instead of throwing it.
    result<void> try_stop_cleaner() {
        detail::c_call c = start();
        c.run([&] { return kvstore_cleaner_stop(c.kv()); });
        return c.outcome();
    }

    /// Like set_clock(), but returns the failure instead of throwing it.
    template <class Clock, class Guard = detail::callback_guard>
    result<void> try_set_clock(Clock now_of) {
        detail::c_call c = start();
        if (c.ok()) {
            auto clock = std::make_unique<detail::clock>(
                [now_of = std::move(now_of)] { return std::chrono::floor<std::chrono::milliseconds>(now_of()); },
                &detail::clock::read<Guard>);
            c.run([&] { return session_->set_clock(std::move(clock)); });
        }
        return c.outcome();
    }

    /// Like use_system_clock(), but returns the failure instead of throwing it.
    result<void> try_use_system_clock() {
        detail::c_call c = start();
        c.run([&] { return session_->set_clock(nullptr); });
        return c.outcome();
    }

    /// Like now(), but returns the failure instead of throwing it.
    result<time_point> try_now() const {
        detail::c_call c = start();
        std::int64_t ms = 0;
        c.run([&] { return session_->now_ms(ms); });
        return c.outcome(detail::from_ms(ms));
    }

    /// @}
    /// @name Maintenance without exceptions
    /// @{

    /// Like stats(), but returns the failure instead of throwing it.
    result<kvstore::stats> try_stats() const {
        detail::c_call c = start();
        KVStoreStats s{};
        c.run([&] { return kvstore_stats(c.kv(), &s); });
        return c.outcome(kvstore::stats{s.nPuts, s.nGets, s.nDeletes, s.nIterations, s.nErrors, s.nBytesRead,
                                        s.nBytesWritten, s.nWalCommits, s.nCheckpoints, s.nTtlExpired, s.nTtlPurged,
                                        s.nDbPages, s.nWalFrames, s.nMisses, s.nEvicted, s.nSizeBytes});
    }

    /// Like reset_stats(), but returns the failure instead of throwing it.
    result<void> try_reset_stats() {
        detail::c_call c = start();
        c.run([&] { return kvstore_stats_reset(c.kv()); });
        return c.outcome();
    }

    /// Like integrity_check(), but returns the failure instead of throwing it.
    result<void> try_integrity_check() const {
        detail::c_call c = start();
        c.run([&] { return kvstore_integrity_check(c.kv(), nullptr); });
        return c.outcome();
    }

    /// Like repair(), but returns the failure instead of throwing it.
    result<std::uint64_t> try_repair() {
        detail::c_call c = start();
        std::int64_t repaired = 0;
        c.run([&] { return kvstore_repair(c.kv(), &repaired); });
        return c.outcome(static_cast<std::uint64_t>(repaired));
    }

    /// Like set_limit(), but returns the failure instead of throwing it.
    result<void> try_set_limit(std::int64_t max_bytes, eviction policy = eviction::none) {
        detail::c_call c = start();
        c.run([&] { return kvstore_set_limit(c.kv(), max_bytes, static_cast<int>(policy)); });
        return c.outcome();
    }

    /// Like set_limit(), but returns the failure instead of throwing it.
    result<void> try_set_limit(const kvstore::limit& to) { return try_set_limit(to.max_bytes, to.policy); }

    /// Like limit(), but returns the failure instead of throwing it.
    result<kvstore::limit> try_limit() const {
        detail::c_call c = start();
        std::int64_t max_bytes = 0;
        int policy = KVSTORE_EVICT_NONE;
        c.run([&] { return kvstore_get_limit(c.kv(), &max_bytes, &policy); });
        return c.outcome(kvstore::limit{max_bytes, static_cast<eviction>(policy)});
    }

    /// Like sync(), but returns the failure instead of throwing it.
    result<void> try_sync() {
        detail::c_call c = start();
        c.run([&] { return kvstore_sync(c.kv()); });
        return c.outcome();
    }

    /// Like incremental_vacuum(), but returns the failure instead of throwing it.
    result<void> try_incremental_vacuum(int pages = 0) {
        detail::c_call c = start();
        c.run([&] { return kvstore_incremental_vacuum(c.kv(), pages); });
        return c.outcome();
    }

    /// Like checkpoint(), but returns the failure instead of throwing it.
    result<checkpoint_result> try_checkpoint(checkpoint_mode mode = checkpoint_mode::passive) {
        detail::c_call c = start();
        checkpoint_result done{0, 0};
        c.run([&] {
            return kvstore_checkpoint(c.kv(), static_cast<int>(mode), &done.wal_frames, &done.checkpointed_frames);
        });
        return c.outcome(done);
    }

    /// @}
    /// @name Encryption without exceptions
    /// @{

    /// Like is_encrypted(), but returns the failure instead of throwing it.
    result<bool> try_is_encrypted() const {
        detail::c_call c = start();
        const bool encrypted = c.ok() && kvstore_is_encrypted(c.kv()) != 0;
        if (!encrypted) { // or the call failed; the next call returns the failure
            KVStoreStats unused{};
            c.run([&] { return kvstore_stats(c.kv(), &unused); });
        }
        return c.outcome(encrypted);
    }

    /// Like reencrypt(), but returns the failure instead of throwing it.
    result<void> try_reencrypt(bytes_view password) {
        detail::c_call c = start();
        const auto p = c.bytes(password, "password");
        c.run([&] { return kvstore_reencrypt(c.kv(), p.data, p.size); });
        return c.outcome();
    }

    /// Like remove_encryption(), but returns the failure instead of throwing it.
    result<void> try_remove_encryption() {
        detail::c_call c = start();
        c.run([&] { return kvstore_remove_encryption(c.kv()); });
        return c.outcome();
    }

    /// @}

protected:
    using keyspace<KVStore>::keyspace;
    /// Move constructor. Calls on `other` fail with errc::misuse afterwards.
    maintenance_calls(maintenance_calls&& other) noexcept = default;
    maintenance_calls& operator=(maintenance_calls&& other) = delete;
    ~maintenance_calls() = default;
};

} // namespace kvstore

#endif
