/*
 * A program that links its own SQLite (libsqlite3) as well as kvstore, which contains another one:
 * each must call only its own functions. argv[1] is the path for the store, argv[2] for the
 * database.
 */
#include <kvstore.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

int main(int argc, char **argv)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    KVStore *kv = NULL;
    char *message = NULL;
    void *value = NULL;
    int length = 0;

    CHECK(argc == 3);
    /* The program's SQLite is the one of its header, not the one inside kvstore. */
    CHECK(strcmp(sqlite3_libversion(), SQLITE_VERSION) == 0);
    CHECK(strcmp(sqlite3_sourceid(), SQLITE_SOURCE_ID) == 0);
    CHECK(strcmp(sqlite3_libversion(), kvstore_sqlite_version()) != 0);

    CHECK(kvstore_open(argv[1], &kv, KVSTORE_JOURNAL_WAL) == KVSTORE_OK);
    CHECK(sqlite3_open(argv[2], &db) == SQLITE_OK);
    CHECK(kvstore_put(kv, "key", 3, "of the store", 12) == KVSTORE_OK);
    /* Functions that the SQLite inside kvstore is compiled without. */
    CHECK(sqlite3_exec(db, "CREATE TABLE t(v); INSERT INTO t VALUES(json_extract('{\"a\":7}', '$.a'));", NULL,
                       NULL, NULL) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db, "SELECT v, sqlite_version() FROM t", -1, &statement, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(statement) == SQLITE_ROW);
    CHECK(sqlite3_column_int(statement, 0) == 7);
    CHECK(strcmp((const char *)sqlite3_column_text(statement, 1), SQLITE_VERSION) == 0);
    CHECK(sqlite3_finalize(statement) == SQLITE_OK);
    CHECK(kvstore_get(kv, "key", 3, &value, &length) == KVSTORE_OK);
    CHECK(length == 12 && memcmp(value, "of the store", 12) == 0);
    kvstore_free(value);
    CHECK(kvstore_integrity_check(kv, &message) == KVSTORE_OK && message == NULL);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    CHECK(kvstore_close(kv) == KVSTORE_OK);
    printf("%s beside %s\n", sqlite3_libversion(), kvstore_sqlite_version());
    return 0;
}
