/*
 * For programs written for SNKV 0.8: include this instead of its snkv.h, and link with libkvstore.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Files of SNKV cannot be opened: copy the data through both libraries.
 */
#ifndef KVSTORE_SNKV_H
#define KVSTORE_SNKV_H

#include <stdlib.h>
#include <string.h>

#include "kvstore.h"

/* In SNKV, a busyTimeout of 0 means not to wait. */
static inline KVStoreConfig kvstore_snkv_config(const KVStoreConfig *config)
{
    KVStoreConfig c;
    memset(&c, 0, sizeof c);
    if (config) c = *config;
    if (c.busyTimeout == 0) c.busyTimeout = -1;
    return c;
}

static inline int kvstore_snkv_open(const char *path, KVStore **ppKV, int journalMode)
{
    KVStoreConfig c = kvstore_snkv_config(NULL);
    c.journalMode = journalMode;
    return kvstore_open_v2(path, ppKV, &c);
}

static inline int kvstore_snkv_open_v2(const char *path, KVStore **ppKV, const KVStoreConfig *config)
{
    KVStoreConfig c = kvstore_snkv_config(config);
    return kvstore_open_v2(path, ppKV, &c);
}

static inline int kvstore_snkv_open_encrypted(const char *path, const void *pPassword, int nPassword,
                                              KVStore **ppKV, const KVStoreConfig *config)
{
    KVStoreConfig c = kvstore_snkv_config(config);
    return kvstore_open_encrypted(path, pPassword, nPassword, ppKV, &c);
}

#define kvstore_open kvstore_snkv_open
#define kvstore_open_v2 kvstore_snkv_open_v2
#define kvstore_open_encrypted kvstore_snkv_open_encrypted

#define snkv_malloc(n) kvstore_malloc(n)
#define snkv_free(p) kvstore_free(p)
#define sqliteMalloc(n) kvstore_malloc(n)
#define sqliteFree(p) kvstore_free(p)
#define sqliteRealloc(p, n) realloc((p), (size_t)(n)) /* kvstore's memory is malloc's */
#define sqliteStrDup(s) kvstore_snkv_strdup(s)
#define sqlite3_free(p) kvstore_free(p)

static inline char *kvstore_snkv_strdup(const char *s)
{
    size_t n = s ? strlen(s) : 0;
    char *copy = s && n < 0x7fffffff ? (char *)kvstore_malloc((int)n + 1) : NULL;
    return copy ? (char *)memcpy(copy, s, n) : NULL;
}

#ifndef SQLITE_OK
#define SQLITE_OK KVSTORE_OK
#endif
#ifndef SQLITE_ERROR
#define SQLITE_ERROR KVSTORE_ERROR
#endif
#ifndef SQLITE_BUSY
#define SQLITE_BUSY KVSTORE_BUSY
#endif
#ifndef SQLITE_LOCKED
#define SQLITE_LOCKED KVSTORE_LOCKED
#endif
#ifndef SQLITE_NOMEM
#define SQLITE_NOMEM KVSTORE_NOMEM
#endif
#ifndef SQLITE_READONLY
#define SQLITE_READONLY KVSTORE_READONLY
#endif
#ifndef SQLITE_IOERR
#define SQLITE_IOERR KVSTORE_IOERR
#endif
#ifndef SQLITE_CORRUPT
#define SQLITE_CORRUPT KVSTORE_CORRUPT
#endif
#ifndef SQLITE_NOTFOUND
#define SQLITE_NOTFOUND KVSTORE_NOTFOUND
#endif
#ifndef SQLITE_FULL
#define SQLITE_FULL KVSTORE_FULL
#endif
#ifndef SQLITE_CANTOPEN
#define SQLITE_CANTOPEN KVSTORE_CANTOPEN
#endif
#ifndef SQLITE_PROTOCOL
#define SQLITE_PROTOCOL KVSTORE_PROTOCOL
#endif
#ifndef SQLITE_MISUSE
#define SQLITE_MISUSE KVSTORE_MISUSE
#endif
#ifndef SQLITE_NOTADB
#define SQLITE_NOTADB KVSTORE_NOTADB
#endif

#endif
