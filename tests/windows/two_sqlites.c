/* A program with its own unmodified SQLite, linked with the static library, which contains
 * another SQLite. Each must work independently, also on the same file, one at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvstore.h"
#include "sqlite3.h"

#define CHECK(is_so) \
    do { \
        if (!(is_so)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is_so); \
            exit(1); \
        } \
    } while (0)

static char seen[64];

/* The first column of the first row. */
static const char *ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement;
    CHECK(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(statement) == SQLITE_ROW);
    snprintf(seen, sizeof seen, "%s", (const char *)sqlite3_column_text(statement, 0));
    CHECK(sqlite3_finalize(statement) == SQLITE_OK);
    return seen;
}

int main(void)
{
    KVStore *kv = NULL;
    sqlite3 *db = NULL;
    CHECK(kvstore_open("store.db", &kv, KVSTORE_JOURNAL_WAL) == KVSTORE_OK);
    CHECK(kvstore_put(kv, "a", 1, "1", 1) == KVSTORE_OK);
    CHECK(sqlite3_open("other.db", &db) == SQLITE_OK);
    /* Features that the library's SQLite is compiled without. */
    CHECK(strcmp(ask(db, "SELECT json_extract('{\"a\":7}', '$.a')"), "7") == 0);
    CHECK(strcmp(ask(db, "PRAGMA journal_mode = WAL"), "wal") == 0);
    CHECK(sqlite3_exec(db, "CREATE TABLE t(a); INSERT INTO t VALUES (1)", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(kvstore_put(kv, "b", 1, "2", 1) == KVSTORE_OK);
    CHECK(strcmp(ask(db, "SELECT count(*) FROM t"), "1") == 0);
    /* An error in one is not visible in the other. */
    CHECK(sqlite3_exec(db, "nonsense", NULL, NULL, NULL) == SQLITE_ERROR);
    CHECK(strstr(kvstore_errmsg(kv), "nonsense") == NULL);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    CHECK(kvstore_close(kv) == KVSTORE_OK);
    /* The file of a store is an SQLite database. */
    CHECK(sqlite3_open("store.db", &db) == SQLITE_OK);
    CHECK(strcmp(ask(db, "SELECT count(*) FROM \"live:default\""), "2") == 0);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    puts("ok");
    return 0;
}
