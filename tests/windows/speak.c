/* Opens stores and handles files on behalf of another program (neighbours.py). It reads lines
 * with a command and its arguments, separated by tabs. Each answer is a line: the code or the
 * system's error, and the result. All text is UTF-8. */
#include <fcntl.h>
#include <inttypes.h>
#include <io.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "kvstore.h"

enum { STORES = 4, PATH = 40000 };

static KVStore *stores[STORES];

static void answer(int code, const char *text)
{
    printf("%d\t%s\n", code, text);
    fflush(stdout);
}

/* Returns the full path in the form that Windows accepts at any length. */
static wchar_t *wide(const char *path)
{
    static wchar_t paths[2][PATH];
    static int next;
    wchar_t *to = paths[next++ % 2];
    wcscpy(to, L"\\\\?\\");
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, to + 4, PATH - 4)) exit(3);
    return to;
}

static void system_says(BOOL done)
{
    if (done) {
        puts("done\t");
    } else {
        printf("refused\t%lu\n", GetLastError());
    }
    fflush(stdout);
}

static int number(const char *text)
{
    return text == NULL ? 0 : atoi(text);
}

static int open_store(int at, const char *path, const char *hold, const char *read_only)
{
    KVStoreConfig config = {0};
    config.holdReads = number(hold);
    config.readOnly = number(read_only);
    config.busyTimeout = 20000;
    return kvstore_open_v2(path, &stores[at], &config);
}

/* Writes `count` keys, each in its own commit. */
static int write_keys(KVStore *kv, const char *prefix, int count)
{
    int code = KVSTORE_OK;
    for (int i = 0; i < count && code == KVSTORE_OK; i++) {
        char key[100];
        int n = snprintf(key, sizeof key, "%s%d", prefix, i);
        code = kvstore_put(kv, key, n, key, n);
    }
    return code;
}

static void store(KVStore *kv, const char *what, const char *first, const char *second)
{
    int code = KVSTORE_ERROR;
    char text[100] = "";
    if (strcmp(what, "put") == 0) {
        code = kvstore_put(kv, first, (int)strlen(first), second, (int)strlen(second));
    } else if (strcmp(what, "fill") == 0) {
        code = write_keys(kv, first, number(second));
    } else if (strcmp(what, "get") == 0) {
        void *value = NULL;
        int n = 0;
        code = kvstore_get(kv, first, (int)strlen(first), &value, &n);
        snprintf(text, sizeof text, "%.*s", n, value == NULL ? "" : (char *)value);
        kvstore_free(value);
    } else if (strcmp(what, "count") == 0) {
        int64_t count = -1;
        code = kvstore_count(kv, &count);
        snprintf(text, sizeof text, "%" PRId64, count);
    } else if (strcmp(what, "begin") == 0) {
        code = kvstore_begin(kv, number(first));
    } else if (strcmp(what, "commit") == 0) {
        code = kvstore_commit(kv);
    } else if (strcmp(what, "sync") == 0) {
        code = kvstore_sync(kv);
    } else if (strcmp(what, "check") == 0) {
        code = kvstore_integrity_check(kv, NULL);
    } else if (strcmp(what, "backup") == 0) {
        code = kvstore_backup(kv, first, NULL, NULL);
    } else if (strcmp(what, "checkpoint") == 0) {
        int log = -1, done = -1;
        code = kvstore_checkpoint(kv, number(first), &log, &done);
        snprintf(text, sizeof text, "%d of %d", done, log);
    } else {
        exit(2);
    }
    answer(code, code == KVSTORE_OK || code == KVSTORE_NOTFOUND ? text : kvstore_errmsg(kv));
}

int main(void)
{
    static char line[PATH];
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
    puts("ready\t");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[6] = {0};
        size_t n = 0;
        line[strcspn(line, "\n")] = '\0';
        for (char *at = line; at != NULL && n < 6; n++) {
            words[n] = at;
            at = strchr(at, '\t');
            if (at != NULL) *at++ = '\0';
        }
        int at = number(words[1]) % STORES;
        if (strcmp(words[0], "open") == 0) {
            int code = open_store(at, words[2], words[3], words[4]);
            answer(code, code == KVSTORE_OK ? "" : kvstore_errmsg(NULL));
        } else if (strcmp(words[0], "close") == 0) {
            answer(kvstore_close(stores[at]), "");
            stores[at] = NULL;
        } else if (strcmp(words[0], "delete") == 0) {
            system_says(DeleteFileW(wide(words[1])));
        } else if (strcmp(words[0], "rename") == 0) {
            wchar_t *from = wide(words[1]);
            system_says(MoveFileExW(from, wide(words[2]), MOVEFILE_REPLACE_EXISTING));
        } else {
            store(stores[at], words[0], words[2] == NULL ? "" : words[2], words[3] == NULL ? "" : words[3]);
        }
    }
    return 0;
}
