/* Layout of the public structs and values of the public constants, as compiled programs contain them. If this
 * file does not compile, the ABI has changed. Only the `reserved` fields may be replaced here, and constants
 * added; see docs/reference/abi.md. The values hold on every platform with 4-byte int and int64_t aligned to
 * 8: all 64-bit Unixes. */
#include <stddef.h>

#include "kvstore.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has another size")
#define FIELD(type, field, offset, as)                                                                   \
    _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == sizeof(as),          \
                   #type "." #field " has moved, or has another size")
#define CODE(name, value) _Static_assert((name) == (value), #name " has another value")

SIZE(KVStoreConfig, 88);
FIELD(KVStoreConfig, journalMode, 0, int);
FIELD(KVStoreConfig, syncLevel, 4, int);
FIELD(KVStoreConfig, cacheSize, 8, int);
FIELD(KVStoreConfig, pageSize, 12, int);
FIELD(KVStoreConfig, readOnly, 16, int);
FIELD(KVStoreConfig, busyTimeout, 20, int);
FIELD(KVStoreConfig, walSizeLimit, 24, int);
FIELD(KVStoreConfig, allowEncrypted, 28, int);
FIELD(KVStoreConfig, fullMutex, 32, int);
FIELD(KVStoreConfig, maxValueSize, 36, int);
FIELD(KVStoreConfig, mmapSize, 40, int64_t);
FIELD(KVStoreConfig, exclusive, 48, int);
FIELD(KVStoreConfig, holdReads, 52, int);
FIELD(KVStoreConfig, walPages, 56, int);
FIELD(KVStoreConfig, secureDelete, 60, int);
FIELD(KVStoreConfig, profile, 64, int);
FIELD(KVStoreConfig, mode, 68, int);
FIELD(KVStoreConfig, purgePerWrite, 72, int);
FIELD(KVStoreConfig, onlyEncrypted, 76, int);
FIELD(KVStoreConfig, reserved, 80, int[2]);

SIZE(KVWriteOptions, 16);
FIELD(KVWriteOptions, expireMs, 0, int64_t);
FIELD(KVWriteOptions, flags, 8, uint32_t);
FIELD(KVWriteOptions, reserved, 12, uint32_t);

SIZE(KVEntry, 32);
FIELD(KVEntry, pKey, 0, const void *);
FIELD(KVEntry, pValue, 8, const void *);
FIELD(KVEntry, nKey, 16, int);
FIELD(KVEntry, nValue, 20, int);
FIELD(KVEntry, expireMs, 24, int64_t);

SIZE(KVStoreStats, 160);
FIELD(KVStoreStats, nPuts, 0, uint64_t);
FIELD(KVStoreStats, nGets, 8, uint64_t);
FIELD(KVStoreStats, nDeletes, 16, uint64_t);
FIELD(KVStoreStats, nIterations, 24, uint64_t);
FIELD(KVStoreStats, nErrors, 32, uint64_t);
FIELD(KVStoreStats, nBytesRead, 40, uint64_t);
FIELD(KVStoreStats, nBytesWritten, 48, uint64_t);
FIELD(KVStoreStats, nWalCommits, 56, uint64_t);
FIELD(KVStoreStats, nCheckpoints, 64, uint64_t);
FIELD(KVStoreStats, nTtlExpired, 72, uint64_t);
FIELD(KVStoreStats, nTtlPurged, 80, uint64_t);
FIELD(KVStoreStats, nDbPages, 88, uint64_t);
FIELD(KVStoreStats, nWalFrames, 96, uint64_t);
FIELD(KVStoreStats, nMisses, 104, uint64_t);
FIELD(KVStoreStats, nEvicted, 112, uint64_t);
FIELD(KVStoreStats, nSizeBytes, 120, uint64_t);
FIELD(KVStoreStats, reserved, 128, uint64_t[4]);

CODE(KVSTORE_OK, 0);
CODE(KVSTORE_ERROR, 1);
CODE(KVSTORE_BUSY, 5);
CODE(KVSTORE_LOCKED, 6);
CODE(KVSTORE_NOMEM, 7);
CODE(KVSTORE_READONLY, 8);
CODE(KVSTORE_IOERR, 10);
CODE(KVSTORE_CORRUPT, 11);
CODE(KVSTORE_NOTFOUND, 12);
CODE(KVSTORE_AUTH_FAILED, 13);
CODE(KVSTORE_CANTOPEN, 14);
CODE(KVSTORE_PROTOCOL, 15);
CODE(KVSTORE_MISUSE, 21);
CODE(KVSTORE_NOTADB, 26);
CODE(KVSTORE_FULL, 113);
CODE(KVSTORE_JOURNAL_WAL, 1);
CODE(KVSTORE_JOURNAL_DELETE, 2);
CODE(KVSTORE_SYNC_NORMAL, 1);
CODE(KVSTORE_SYNC_FULL, 2);
CODE(KVSTORE_SYNC_OFF, 3);
CODE(KVSTORE_CHECKPOINT_PASSIVE, 0);
CODE(KVSTORE_CHECKPOINT_FULL, 1);
CODE(KVSTORE_CHECKPOINT_RESTART, 2);
CODE(KVSTORE_CHECKPOINT_TRUNCATE, 3);
CODE(KVSTORE_PUT_IF_ABSENT, 1);
CODE(KVSTORE_PUT_IF_PRESENT, 2);
CODE(KVSTORE_PUT_KEEP_TTL, 4);
CODE(KVSTORE_PUT_TTL, 8);
CODE(KVSTORE_EXPIRE_NX, 1);
CODE(KVSTORE_EXPIRE_XX, 2);
CODE(KVSTORE_EXPIRE_GT, 4);
CODE(KVSTORE_EXPIRE_LT, 8);
CODE(KVSTORE_RANGE_REVERSE, 1);
CODE(KVSTORE_RANGE_CLOSED, 2);
CODE(KVSTORE_RANGE_OPEN, 4);
CODE(KVSTORE_RANGE_KEYS_ONLY, 8);
CODE(KVSTORE_EVICT_NONE, 0);
CODE(KVSTORE_EVICT_SOONEST, 1);
CODE(KVSTORE_EVICT_OLDEST, 2);
CODE(KVSTORE_EVICT_LEAST_USED, 3);
CODE(KVSTORE_MAX_COLUMN_FAMILIES, 64);
CODE(KVSTORE_NO_TTL, -1);

int main(void)
{
    return 0;
}
