/* kvstore_recover: saves the readable entries of a damaged file. */
#include "api_places.h"

struct watching {
    int lines, progress, stop;
    char first[200];
};

static int watch(void *context, const char *text, int64_t done, int64_t total)
{
    struct watching *w = context;
    CHECK(done >= 0 && done <= total);
    if (text == NULL) {
        w->progress++;
    } else if (w->lines++ == 0) {
        snprintf(w->first, sizeof w->first, "%s", text);
    }
    return w->stop;
}

enum { KEYS = 5000, PAGE = 4096 };

static void fill(void)
{
    (void)remove("store.db"), (void)remove("new.db");
    KVStore *kv = open_at("store.db", NULL);
    static char large[30000];
    memset(large, 'L', sizeof large);
    OK(kvstore_begin(kv, 1));
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %05d", i);
        OK(kvstore_put(kv, key, n, large, i % 100 ? 60 : (int)sizeof large));
    }
    OK(kvstore_commit(kv));
    OK(kvstore_close(kv));
}

static void overwrite(long page)
{
    static char zeros[PAGE];
    FILE *file = fopen("store.db", "r+b");
    CHECK(fseek(file, page * PAGE, SEEK_SET) == 0 && fwrite(zeros, PAGE, 1, file) == 1 && fclose(file) == 0);
}

static void check_new(int64_t rows)
{
    KVStore *kv = open_at("new.db", NULL);
    KVColumnFamily *cf = family(kv, "default");
    OK(kvstore_integrity_check(kv, NULL));
    CHECK(rows_of(cf) == rows);
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
}

static void sound(void)
{
    struct watching w = {0};
    int64_t saved = -1, lost = -1;
    fill();
    OK(kvstore_recover("store.db", "new.db", watch, &w, &saved, &lost));
    CHECK(saved == KEYS && lost == 0 && w.lines == 0 && w.progress > 0);
    check_new(KEYS);
}

static void damaged(void)
{
    struct watching w = {0};
    int64_t saved = -1, lost = -1;
    fill();
    overwrite(0);
    overwrite(30);
    OK(kvstore_recover("store.db", "new.db", watch, &w, &saved, &lost));
    CHECK(saved > KEYS - 200 && saved <= KEYS && lost > 0 && w.lines == lost && w.first[0]);
    check_new(saved);
}

static void without_outputs(void)
{
    fill();
    OK(kvstore_recover("store.db", "new.db", NULL, NULL, NULL, NULL));
    check_new(KEYS);
}

static void stopped(void)
{
    struct watching w = {.stop = 1};
    int64_t saved = -1;
    fill();
    GIVES(KVSTORE_ERROR, kvstore_recover("store.db", "new.db", watch, &w, &saved, NULL));
    CHECK(w.lines + w.progress == 1 && saved == -1 && !is_there("new.db"));
    CHECK(strstr(kvstore_errmsg(NULL), "stopped") != NULL);
}

static void refuses(void)
{
    (void)remove("new.db");
    FILE *file = fopen("text", "w");
    CHECK(fputs("no store", file) >= 0 && fclose(file) == 0);
    GIVES(KVSTORE_ERROR, kvstore_recover(NULL, "new.db", NULL, NULL, NULL, NULL));
    GIVES(KVSTORE_ERROR, kvstore_recover("text", NULL, NULL, NULL, NULL, NULL));
    GIVES(KVSTORE_ERROR, kvstore_recover("text", "", NULL, NULL, NULL, NULL));
    GIVES(KVSTORE_ERROR, kvstore_recover("text", "text", NULL, NULL, NULL, NULL));
    GIVES(KVSTORE_NOTADB, kvstore_recover("text", "new.db", NULL, NULL, NULL, NULL));
    GIVES(KVSTORE_CANTOPEN, kvstore_recover("none", "new.db", NULL, NULL, NULL, NULL));
    fill();
    GIVES(KVSTORE_CANTOPEN, kvstore_recover("store.db", "no/such/new.db", NULL, NULL, NULL, NULL));
    CHECK(!is_there("new.db") && !is_there("none"));
}

SCENARIOS({"sound", sound}, {"damaged", damaged}, {"without_outputs", without_outputs}, {"stopped", stopped},
          {"refuses", refuses})
