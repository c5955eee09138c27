/// @file
/// How a store is opened: its configuration, and how C takes it.
#ifndef KVSTORE_CONFIG_HPP
#define KVSTORE_CONFIG_HPP

#include <kvstore.h>

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>

// Microsoft's rpcndr.h, which windows.h may include, has it as a macro for char; what it was, it is again below.
#pragma push_macro("small")
#undef small

namespace kvstore {

/// How commits are kept apart from reads.
enum class journal_mode : int {
    wal = KVSTORE_JOURNAL_WAL,      ///< A write-ahead log: readers and a writer do not block each other.
    rollback = KVSTORE_JOURNAL_DELETE ///< A rollback journal: one file; readers and writers take turns.
};

/// What a power cut may do.
enum class sync_level : int {
    normal = KVSTORE_SYNC_NORMAL, ///< It may lose the last commits, never the file.
    full = KVSTORE_SYNC_FULL,     ///< Nothing: a commit is on the disk when the call returns.
    off = KVSTORE_SYNC_OFF        ///< It may destroy the file.
};

/// How to open a store. As it is, it is the default configuration, and a safe one; in C++20:
/// `kvstore::store db("app.db", {.busy_timeout = 5s})`.
struct config {
    /// An existing file is converted.
    journal_mode journal = journal_mode::wal;
    /// What a power cut may do.
    sync_level sync = sync_level::normal;
    /// Page cache, in pages; 0: 2000.
    int cache_pages = 0;
    /// Page size of new files, in bytes: a power of two from 512 to 65536; 0: 4096.
    int page_size = 0;
    /// Read only: the file must exist. A store that was closed can also be read where nothing can be written.
    bool read_only = false;
    /// How long to wait for another handle's lock; 0: fail at once with errc::busy. At most INT_MAX ms.
    std::chrono::milliseconds busy_timeout{0};
    /// N > 0: a passive checkpoint after every N write commits (in a store that has a limit, also by wal_pages); 0: automatic,
    /// by wal_pages.
    int checkpoint_every = 0;
    /// The longest value, in bytes, up to 512 MiB; 0: 10 MiB.
    std::size_t max_value_size = 0;
    /// How much of the file is read through a memory map, in bytes; 0: none; nullopt: 256 MiB on 64-bit
    /// systems, none on 32-bit ones.
    std::optional<std::int64_t> mmap_size = std::nullopt;
    /// This store alone owns the file. Fastest; other opens fail with errc::busy. Not together with read_only.
    bool exclusive = false;
    /// Whether the store keeps a read snapshot between calls; nullopt: while no other process has the file open, and with
    /// `small` never.
    std::optional<bool> hold_reads = std::nullopt;
    /// How long the WAL gets, in pages, from 16 to 1000000; 0: 4000, or an eighth of the limit of the store. With one writer it never has more than twice as
    /// many and those of one transaction.
    int wal_pages = 0;
    /// Whether what is deleted, overwritten, expired and removed, or evicted is overwritten with zeros in the files of
    /// the store, in the -wal file by the next checkpoint. The file does not remember it: every store that writes to
    /// it must have it.
    bool secure_delete = false;
    /// Other defaults for what is 0 or nullopt, for little memory and little flash: 32 cache_pages, no memory map, 64 wal_pages,
    /// and no read snapshot between calls. (On Windows `small` may be a macro, of rpcndr.h: a program that names this undefines it first.)
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
    to.busyTimeout = saturated(from.busy_timeout.count());
    to.walSizeLimit = from.checkpoint_every;
    constexpr std::size_t most = INT_MAX;
    to.maxValueSize = static_cast<int>(from.max_value_size > most ? most : from.max_value_size);
    // In C 0 is the default, and what is negative is none.
    to.mmapSize = !from.mmap_size ? 0 : *from.mmap_size == 0 ? -1 : *from.mmap_size;
    to.exclusive = from.exclusive ? 1 : 0;
    to.holdReads = from.hold_reads ? (*from.hold_reads ? 1 : -1) : 0;
    to.walPages = from.wal_pages;
    to.secureDelete = from.secure_delete ? 1 : 0;
    to.profile = from.small ? KVSTORE_SMALL : 0;
    return to;
}

} // namespace detail
/// @endcond

} // namespace kvstore

#pragma pop_macro("small")

#endif
