/// @file
/// The store: opening, families, transactions, maintenance.
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

/// The version of the library, such as "0.1.0"; "+sqlcipher" is after it where stores can be encrypted, and
/// "+remote" where they can be on a server.
inline std::string_view version() noexcept { return kvstore_version(); }
/// The version of the SQLite inside, such as "3.54.1".
inline std::string_view sqlite_version() noexcept { return kvstore_sqlite_version(); }
/// The engine of the library: "sql" or "btree"; "+sqlcipher" is after it where stores can be encrypted.
inline std::string_view engine() noexcept { return kvstore_engine(); }
/// The time of the system's clock, never less than before in this process. store::now is a store's.
inline time_point now() noexcept { return detail::from_ms(kvstore_now_ms()); }

/// What a checkpoint waits for.
enum class checkpoint_mode : int {
    passive = KVSTORE_CHECKPOINT_PASSIVE,   ///< For nothing: as much as is possible.
    full = KVSTORE_CHECKPOINT_FULL,         ///< For writers, then everything.
    restart = KVSTORE_CHECKPOINT_RESTART,   ///< For readers, too: the next writer starts the WAL anew.
    truncate = KVSTORE_CHECKPOINT_TRUNCATE  ///< Like restart, and cuts the WAL to zero bytes.
};

/// Which keys a store with a limit removes to make room.
enum class eviction : int {
    none = KVSTORE_EVICT_NONE,       ///< None: a write that would pass the limit fails with errc::full.
    soonest = KVSTORE_EVICT_SOONEST, ///< Expired ones, then those that would expire soonest; never one without a TTL.
    oldest = KVSTORE_EVICT_OLDEST    ///< Expired ones, then those that were written longest ago.
};

/// How much a store may take.
struct limit {
    std::int64_t max_bytes = 0;               ///< What the data may take in the file; 0: there is no limit.
    eviction policy = eviction::none; ///< What makes room.
};

/// What a store has done since it was opened or store::reset_stats was called. Only calls that succeeded
/// count, except in `errors`.
struct stats {
    std::uint64_t puts;          ///< Keys written.
    std::uint64_t gets;          ///< Values read.
    std::uint64_t erases;       ///< Keys deleted.
    std::uint64_t iterations;    ///< Iterators made.
    std::uint64_t errors;        ///< Calls that failed. A missing key is not a failure.
    std::uint64_t bytes_read;    ///< Bytes of values read.
    std::uint64_t bytes_written; ///< Bytes of keys and values written.
    std::uint64_t wal_commits;   ///< Write transactions committed.
    std::uint64_t checkpoints;   ///< Checkpoints run, automatic ones included.
    std::uint64_t ttl_expired;   ///< Gets, exists and ttl calls that met an expired key.
    std::uint64_t ttl_purged;    ///< Keys removed by purges.
    std::uint64_t db_pages;      ///< Pages of the database now; not reset.
    std::uint64_t wal_frames;    ///< Frames in the WAL after the last commit or checkpoint; not reset.
    std::uint64_t misses;        ///< Gets (of several keys, each) and exists that found no live key.
    std::uint64_t evicted;       ///< Keys that were removed alive to make room (store::set_limit).
    std::uint64_t size_bytes;    ///< What the data takes in the file now: its pages less the free ones; not reset.
};

/// What store::purge_step did.
struct purge_result {
    std::uint64_t removed; ///< Keys removed.
    bool more;             ///< Whether expired keys are left.
};

/// What store::checkpoint did. Both are 0 when not in WAL mode.
struct checkpoint_result {
    int wal_frames;          ///< Frames in the WAL.
    int checkpointed_frames; ///< How many of them are in the file now.
};

/// A store: one connection to one file, and by itself its default family. May be shared by threads, which
/// take turns; open several for parallel reads.
///
/// Forks: in the child of a fork its parent's stores answer errc::misuse; it opens the file anew.
class store : public keyspace<KVStore> {
public:
    /// @name Opening and closing
    /// @{

    /// Opens the store at a path with the default configuration; makes it if it is not there. "" or
    /// ":memory:" is a new store in memory.
    /// @throws error errc::cantopen, errc::notadb (the file is left as it is), errc::busy (another handle
    /// has it open exclusively, or in the other journal mode), errc::corrupt, errc::ioerr, errc::full,
    /// errc::nomem.
    explicit store(const std::string& path)
        : store(opened([&](KVStore** kv) {
              return kvstore_open(detail::c_string(path, "path"), kv, KVSTORE_JOURNAL_WAL);
          })) {}

    /// Opens the store at a path with a configuration.
    /// @throws error Also errc::error: a setting is out of bounds.
    store(const std::string& path, const config& with)
        : store(opened([&](KVStore** kv) {
              const KVStoreConfig settings = detail::c_config(with);
              return kvstore_open_v2(detail::c_string(path, "path"), kv, &settings);
          })) {}

    /// Opens the store at a path that is encrypted with a password, or makes one; a store there that is not encrypted
    /// is encrypted in place first. The password is any bytes, at least one, which are only used during the call; a key
    /// of 32 bytes is given as raw_key(key), and an open is quicker with it. kvstore_open_encrypted says more.
    /// @throws error Also errc::auth_failed: another password, nothing is changed; errc::error: the password is empty,
    /// the store would be in memory, or this build of the library has no encryption (engine() ends in "+sqlcipher" if
    /// it has); errc::busy: a store that is not encrypted is open elsewhere.
    [[nodiscard]] static store open_encrypted(const std::string& path, bytes_view password,
                                              const config& with = {}) {
        const int length = detail::c_length(password.size(), "password");
        return store(opened([&](KVStore** kv) {
            const KVStoreConfig settings = detail::c_config(with);
            return kvstore_open_encrypted(detail::c_string(path, "path"), password.data(), length, kv, &settings);
        }));
    }

    /// The other one throws errc::misuse from now on.
    store(store&& other) noexcept = default;
    /// Closes the store this had. The other one throws errc::misuse from now on.
    store& operator=(store&& other) noexcept {
        store taken(std::move(other));
        swap(taken);
        return *this;
    }
    /// Rolls back an open transaction, and closes the file. What fails is not told: close() does.
    ~store() {
        if (session_) {
            (void)session_->close();
        }
    }

    /// Rolls back an open transaction, and closes the file. Families, iterators, batches and transactions
    /// that are left throw errc::misuse from now on, and so does this object; but to close it once more does nothing.
    /// @throws error errc::misuse if it was moved from, or called by a callback of this store; otherwise what failed
    /// while closing: it is closed all the same.
    void close() {
        if (!session_) {
            detail::moved_from();
        }
        const int code = session_->close();
        if (code != KVSTORE_OK) {
            throw error(static_cast<errc>(code), kvstore_errmsg(nullptr));
        }
    }

    /// The handle, for calls of the C API. It stays this object's; null if this was moved from or is closed.
    KVStore* native_handle() const noexcept {
        return session_ && session_->is_open() ? session_->kv : nullptr;
    }

    /// @}
    /// @name Families
    /// Names are 1 to 255 bytes of UTF-8; those that begin with "__", "_snkv_" or "kvstore" are reserved.
    /// Beside what is named here, the calls throw errc::error for a bad name and what reading and writing
    /// throws.
    /// @{

    /// Opens a family.
    /// @throws error errc::notfound if there is none of that name.
    [[nodiscard]] kvstore::family family(std::string_view name) const {
        return make_family(&kvstore_cf_open, name);
    }

    /// Makes a family.
    /// @throws error errc::error if it is there already.
    kvstore::family create_family(std::string_view name) { return make_family(&kvstore_cf_create, name); }

    /// Opens a family, making it if it is not there.
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
        if (!cf) { // another process made it meanwhile, or the name is bad
            cf = made(&kvstore_cf_open, KVSTORE_OK);
        }
        return kvstore::family(session_, cf);
    }

    /// A handle on the default family, the one that the store itself stands for.
    [[nodiscard]] kvstore::family default_family() const {
        const detail::session& session = usable();
        KVColumnFamily* cf = nullptr;
        session.throw_on_error(kvstore_cf_get_default(session.kv, &cf));
        return kvstore::family(session_, cf);
    }

    /// Drops a family with everything in it.
    /// @throws error errc::notfound if there is none of that name; errc::busy while this store has a handle
    /// to it; errc::error for "default".
    void drop_family(std::string_view name) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_cf_drop(session.kv, detail::c_string(std::string(name), "family name")));
    }

    /// The names of all families but the default one, in byte order.
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

    /// Begins a write transaction, which is rolled back at the end of its scope unless it is committed:
    /// @code
    /// auto tx = db.begin();
    /// db.put("from", "90");
    /// db.put("to", "110");
    /// tx.commit();
    /// @endcode
    /// @throws error errc::error if one is open already (it goes on), errc::busy if another handle is
    /// writing, errc::readonly.
    [[nodiscard]] kvstore::transaction begin() {
        begin(1);
        return kvstore::transaction(session_);
    }

    /// Begins a stable snapshot that only reads, until the end of its scope.
    /// @throws error errc::error if a transaction is open already (it goes on).
    [[nodiscard]] kvstore::snapshot snapshot() const {
        begin(0);
        return kvstore::snapshot(session_);
    }

    /// Runs `work` in a write transaction and answers what it answers: commits when it returns, rolls back
    /// when it throws, and lets the exception on.
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

    /// An empty batch of writes.
    [[nodiscard]] kvstore::batch batch() {
        const detail::session& session = usable();
        KVBatch* made = nullptr;
        session.throw_on_error(kvstore_batch_new(session.kv, &made));
        return kvstore::batch(session_, made);
    }

    /// @}
    /// @name Expiry over all families
    /// @{

    /// Removes expired keys of all families, those first that expired first, until `max_keys` are removed or
    /// `max_time` is over (0: no limit). In transactions of at most 256 keys, or in the open one.
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

    /// Starts the cleaner: a thread of the library's that removes expired keys of all families at
    /// intervals, at most `max_keys` each time (0: all), through a connection of its own. While a
    /// transaction is open on this store it does nothing. Closing stops it.
    /// @throws error errc::error (it runs already, an interval not above 0, a store in memory),
    /// errc::readonly, errc::busy (an exclusive store), errc::cantopen, errc::nomem.
    template <class Rep, class Period>
    void start_cleaner(const std::chrono::duration<Rep, Period>& interval, std::int64_t max_keys = 0) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_cleaner_start(session.kv, detail::to_ms(interval), max_keys));
    }

    /// Stops the cleaner, and returns when its thread has ended. No error if none is running.
    void stop_cleaner() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_cleaner_stop(session.kv));
    }

    /// Uses a clock of the caller's instead of the system's for this store, for tests and for devices without
    /// one: a callable without arguments that answers a time point of system_clock, rounded down to a
    /// millisecond. It is called from whatever thread uses the store, and must not call this store. A time
    /// before one it has given counts as that one.
    ///
    /// It is called once at once; what it throws then is thrown here, and nothing is changed. Should it throw
    /// later, the store's time stands still: nothing expires early. The callable is kept until the store and
    /// all that belongs to it are gone, also after another has taken its place.
    template <class Clock>
    void set_clock(Clock now_of) {
        usable().set_clock(std::make_unique<detail::clock>([now_of = std::move(now_of)] {
            return std::chrono::floor<std::chrono::milliseconds>(now_of());
        }));
    }

    /// Goes back to the system's clock.
    void use_system_clock() { usable().set_clock(nullptr); }

    /// The time by which this store decides what has expired.
    /// @throws error errc::ioerr if the store is on a server that is to be asked, and cannot be.
    [[nodiscard]] time_point now() const { return detail::from_ms(usable().now_ms()); }

    /// @}
    /// @name Maintenance
    /// @{

    /// What this store has done.
    [[nodiscard]] kvstore::stats stats() const {
        const detail::session& session = usable();
        KVStoreStats s{};
        session.throw_on_error(kvstore_stats(session.kv, &s));
        return {s.nPuts,         s.nGets,       s.nDeletes,     s.nIterations, s.nErrors,
                s.nBytesRead,    s.nBytesWritten, s.nWalCommits, s.nCheckpoints, s.nTtlExpired,
                s.nTtlPurged,    s.nDbPages,    s.nWalFrames,   s.nMisses,     s.nEvicted,
                s.nSizeBytes};
    }

    /// Sets the counters to zero.
    void reset_stats() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_stats_reset(session.kv));
    }

    /// Checks the whole file: SQLite's own check, that nothing foreign is in it, and that the tables of every
    /// family agree. Reads everything, on one snapshot.
    /// @throws error errc::corrupt, whose text names the first disagreement.
    void integrity_check() const {
        const detail::session& session = usable();
        char* message = nullptr;
        const int code = kvstore_integrity_check(session.kv, &message);
        const detail::memory owner(message);
        if (message) {
            throw error(static_cast<errc>(code), message);
        }
        session.throw_on_error(code);
    }

    /// Makes the indexes, the large values, the views and the catalogue agree with the data rows again, in one
    /// transaction, after which integrity_check finds nothing. Every row that could be read is kept as it was; one
    /// whose value is lost is removed. kvstore_repair says more.
    /// @return how many rows, entries and tables were added, removed or changed.
    /// @throws error errc::corrupt if SQLite's own check fails; errc::busy while a transaction is open on this
    /// store; what writing throws. Nothing is changed then.
    std::uint64_t repair() {
        const detail::session& session = usable();
        std::int64_t fixed = 0;
        session.throw_on_error(kvstore_repair(session.kv, &fixed));
        return static_cast<std::uint64_t>(fixed);
    }

    /// Sets how much the data may take in the file, in bytes, and which keys make room; 0: no limit. It is kept in
    /// the file, and every store and process obeys it. kvstore_set_limit says more.
    /// @throws error errc::full if the data takes more and may not be removed; errc::error if it is less than 32
    /// pages; what writing throws. Nothing is changed then.
    void set_limit(std::int64_t max_bytes, eviction policy = eviction::none) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_set_limit(session.kv, max_bytes, static_cast<int>(policy)));
    }

    /// The limit of this store, set through whatever handle.
    [[nodiscard]] kvstore::limit limit() const {
        const detail::session& session = usable();
        std::int64_t max_bytes = 0;
        int policy = KVSTORE_EVICT_NONE;
        session.throw_on_error(kvstore_get_limit(session.kv, &max_bytes, &policy));
        return {max_bytes, static_cast<eviction>(policy)};
    }

    /// Makes every commit so far survive a power cut. Never commits or ends an open transaction.
    /// @throws error errc::ioerr, also if the store's directory may not be read.
    void sync() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_sync(session.kv));
    }

    /// Gives free pages back to the file system: at most `pages`, or all with 0. In WAL mode the file
    /// shrinks at the next checkpoint.
    void incremental_vacuum(int pages = 0) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_incremental_vacuum(session.kv, pages));
    }

    /// Writes the WAL into the database file.
    /// @throws error errc::busy if a transaction is open on this store, or other handles stand in the way.
    checkpoint_result checkpoint(checkpoint_mode mode = checkpoint_mode::passive) {
        const detail::session& session = usable();
        checkpoint_result done{0, 0};
        session.throw_on_error(kvstore_checkpoint(session.kv, static_cast<int>(mode), &done.wal_frames,
                                         &done.checkpointed_frames));
        return done;
    }

    /// Copies everything that is committed to a new file, with all TTLs, while others go on reading and
    /// writing: the state of one moment. `path` must not exist; it appears when the copy is whole and
    /// synced.
    /// @throws error errc::error if the path exists; errc::cantopen, errc::full, and what reading throws;
    /// errc::busy for a store in memory or an exclusive one while a transaction is open on it.
    void backup(const std::string& path) const {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_backup(session.kv, detail::c_string(path, "path"), nullptr, nullptr));
    }

    /// The same; calls `progress(remaining, total)` now and then, with numbers of pages. If it answers a
    /// bool, `false` stops the backup, no file is left, and the answer is false. If it throws, the backup
    /// is stopped likewise and the exception thrown on.
    template <class Progress>
    bool backup(const std::string& path, Progress&& progress) const {
        using watch = watched<std::remove_reference_t<Progress>, int>;
        const detail::session& session = usable();
        watch watching{progress, nullptr, false};
        const int code = kvstore_backup(session.kv, detail::c_string(path, "path"), &watch::call,
                                        static_cast<void*>(&watching));
        return watching.finish(session, code);
    }

    /// Copies all live keys of all families into `to`, with their TTLs and write times, and the families'
    /// settings: the state of one moment, in one transaction of `to`. After a failure nothing was copied.
    /// Families that `to` does not have are made; one that it has must have no live key. kvstore_copy says
    /// more.
    /// @throws error errc::error if a family of `to` has keys, or both are the same store; errc::busy if
    /// others write to `to`, or a transaction is open on it; errc::full, and what reading and writing throw.
    void copy_to(store& to) const {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_copy(session.kv, to.usable().kv, nullptr, nullptr));
    }

    /// The same; calls `progress(done, total)` now and then, with numbers of keys (`std::int64_t`). If it
    /// answers a bool, `false` stops the copy, nothing was copied, and the answer is false. If it throws,
    /// the copy is stopped likewise and the exception thrown on. It may use both stores (writes to `to`
    /// find it busy), but not one in memory or an exclusive one.
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

    /// Whether the store is encrypted.
    /// @throws error What stats throws.
    [[nodiscard]] bool is_encrypted() const {
        const detail::session& session = usable();
        if (kvstore_is_encrypted(session.kv) != 0) {
            return true;
        }
        KVStoreStats unused{}; // 0 is also the answer of a call that failed: this one says so
        session.throw_on_error(kvstore_stats(session.kv, &unused));
        return false;
    }

    /// Encrypts an encrypted store with another password, in place: with the old one it cannot be opened any more.
    /// This store, its families and iterators go on. kvstore_reencrypt says more.
    /// @throws error errc::error if the store is not encrypted, the password is empty, or this build has no
    /// encryption; errc::busy if the file is open elsewhere, or a transaction is open on this store; what writing
    /// throws. The file is the old one then.
    void reencrypt(bytes_view password) {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_reencrypt(session.kv, password.data(), detail::c_length(password.size(), "password")));
    }

    /// Takes the encryption off, in place, as reencrypt gives it another password: anybody reads the file then.
    /// @throws error As reencrypt.
    void remove_encryption() {
        const detail::session& session = usable();
        session.throw_on_error(kvstore_remove_encryption(session.kv));
    }

    /// @}

private:
    /// A function that is told how far something has come, in numbers of that type.
    template <class Progress, class Number>
    struct watched {
        Progress& progress;
        std::exception_ptr thrown;
        bool stopped;

        // Called by C, which no exception may cross.
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

        /// Whether all was done; throws what it threw, and what the call answered.
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
            throw error(static_cast<errc>(code), kvstore_errmsg(nullptr));
        }
        std::unique_ptr<KVStore, close_handle> store_owner(kv);
        KVColumnFamily* cf = nullptr;
        code = kvstore_cf_get_default(kv, &cf);
        if (code != KVSTORE_OK) {
            throw error(static_cast<errc>(code), kvstore_errmsg(kv));
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
/// What a range-for over a store compiles to, so that it says what is wrong.
template <class Shown>
bool operator!=(const transaction&, const basic_iterator<Shown>&) {
    static_assert(!sizeof(Shown), "a kvstore::store is no range: its begin() begins a transaction. Walk over "
                                  "db.items(), db.keys(), db.values() or db.default_family()");
    return false;
}
/// @endcond

} // namespace kvstore

#endif
