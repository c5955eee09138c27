/// @file
/// Configuration of a store.
#ifndef KVSTORE_CONFIG_HPP
#define KVSTORE_CONFIG_HPP

#include <kvstore.h>

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>

// rpcndr.h of Windows, which windows.h may include, defines `small` as a macro. It is restored below.
#pragma push_macro("small")
#undef small

namespace kvstore {

/// Journal mode of the SQLite file.
enum class journal_mode : int {
    wal = KVSTORE_JOURNAL_WAL, ///< Write-ahead log. Readers and a writer do not block each other.
    /// Rollback journal: a single file. Readers and a writer exclude each other.
    rollback = KVSTORE_JOURNAL_DELETE
};

/// Durability of commits: what a power failure can destroy.
enum class sync_level : int {
    normal = KVSTORE_SYNC_NORMAL, ///< The last commits may be lost, but the file stays intact.
    full = KVSTORE_SYNC_FULL, ///< A commit is on stable storage when its call returns.
    off = KVSTORE_SYNC_OFF ///< A power failure may destroy the file.
};

/// Configuration of a store. A default-constructed object is the default configuration, which is
/// safe. In C++20: `kvstore::store db("app.db", {.busy_timeout = 5s})`.
struct config {
    /// Journal mode. An existing file is converted to it.
    journal_mode journal = journal_mode::wal;
    /// Durability of commits at a power failure.
    sync_level sync = sync_level::normal;
    /// Size of the page cache, in pages. 0 means 2000.
    int cache_pages = 0;
    /// Page size of a new file, in bytes: a power of two from 512 to 65536. 0 means 4096.
    int page_size = 0;
    /// Whether to open the store read-only. The file must exist. A store that was closed cleanly
    /// can be read from a read-only file system.
    bool read_only = false;
    /// Time to wait for a lock of another handle, up to INT_MAX ms. nullopt means 5 seconds. 0 means
    /// no waiting: the call fails at once with errc::busy.
    std::optional<std::chrono::milliseconds> busy_timeout = std::nullopt;
    /// Number of write commits between two automatic checkpoints (passive ones). 0: wal_pages
    /// decides when a checkpoint runs.
    ///
    /// In a store with a size limit, a number above 0 and wal_pages both apply.
    int checkpoint_every = 0;
    /// Maximum length of a value, in bytes, up to 512 MiB. 0 means 10 MiB.
    std::size_t max_value_size = 0;
    /// Number of bytes of the file that are read through a memory map. 0 means no memory map;
    /// nullopt means 256 MiB on 64-bit systems and no memory map on 32-bit systems.
    std::optional<std::int64_t> mmap_size = std::nullopt;
    /// Whether this handle is the only one that may have the file open. This is the fastest mode.
    /// Every other open fails with errc::busy. Cannot be combined with read_only.
    bool exclusive = false;
    /// Whether the store keeps a read snapshot between calls, which makes reads faster. nullopt
    /// means: only while no other process has the file open, and never with `small`.
    std::optional<bool> hold_reads = std::nullopt;
    /// Target length of the WAL, in pages, from 16 to 1000000. 0 means 4000, or one eighth of the
    /// size limit of the store. With one writer the WAL never exceeds twice this length plus the pages
    /// of one transaction.
    int wal_pages = 0;
    /// Whether the store overwrites deleted, replaced, purged and evicted data with zeros in its
    /// files.
    ///
    /// The -wal file is overwritten at the next checkpoint. The setting is not stored in the file:
    /// every store object that writes must set it.
    bool secure_delete = false;
    /// Number of expired keys that this store object removes for each key that it writes, from 0
    /// (none) to 1000. With 2 or more, a store whose keys expire as fast as they are written does not
    /// grow, without a cleaner and without purges. Details: KVStoreConfig in kvstore.h.
    int purge_per_write = 0;
    /// Whether store::open_encrypted fails with errc::auth_failed if the store exists and is not
    /// encrypted. Otherwise it encrypts such a store.
    bool only_encrypted = false;
    /// Permissions of a new file on Unix, such as 0660 for a store that a group shares, whatever the
    /// umask is. 0: 0644 without the bits of the umask. The -wal, -shm and -journal files and backups
    /// get the same. An existing file keeps its permissions.
    int mode = 0;
    /// Selects defaults for devices with little memory and little flash: 32 cache_pages, no memory
    /// map, 64 wal_pages, and no read snapshot between calls.
    ///
    /// Windows' rpcndr.h defines a macro `small`; a program that names this member must undefine it
    /// first.
    bool small = false;
};

/// @cond
namespace detail {

inline int saturated(std::int64_t n) noexcept {
    return n > INT_MAX ? INT_MAX : n < INT_MIN ? INT_MIN : static_cast<int>(n);
}

inline KVStoreConfig c_config(const config& from) noexcept {
    KVStoreConfig to{};
    to.journalMode = static_cast<int>(from.journal);
    to.syncLevel = static_cast<int>(from.sync);
    to.cacheSize = from.cache_pages;
    to.pageSize = from.page_size;
    to.readOnly = from.read_only ? 1 : 0;
    to.walSizeLimit = from.checkpoint_every;
    constexpr std::size_t most = INT_MAX;
    to.maxValueSize = static_cast<int>(from.max_value_size > most ? most : from.max_value_size);
    // In C, 0 is the default and a negative number means none.
    to.busyTimeout = !from.busy_timeout ? 0 : from.busy_timeout->count() <= 0 ? -1 : saturated(from.busy_timeout->count());
    to.mmapSize = !from.mmap_size ? 0 : *from.mmap_size == 0 ? -1 : *from.mmap_size;
    to.exclusive = from.exclusive ? 1 : 0;
    to.holdReads = from.hold_reads ? (*from.hold_reads ? 1 : -1) : 0;
    to.walPages = from.wal_pages;
    to.secureDelete = from.secure_delete ? 1 : 0;
    to.purgePerWrite = from.purge_per_write;
    to.onlyEncrypted = from.only_encrypted ? 1 : 0;
    to.mode = from.mode;
    to.profile = from.small ? KVSTORE_SMALL : 0;
    return to;
}

} // namespace detail
/// @endcond

} // namespace kvstore

#pragma pop_macro("small")

#endif
