/* One round of the figures in docs/how-to/encrypt.md: bench DIRECTORY plain|encrypted. Prints "NAME NANOSECONDS" lines.
 * 200 000 keys with values of 100 bytes, 2000 pages of cache, a raw key. */
#include "kvstore.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 200000, GETS = 300000, PUTS = 60000, HOT = 2000, OPENS = 200 };

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int code, const char *what)
{
    if (code != KVSTORE_OK) {
        fprintf(stderr, "%s: %s\n", what, kvstore_strerror(code));
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static KVStore *open_it(const char *path, int encrypted, const char *password)
{
    static const char raw_key[] = "x'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'";
    if (!password)
        password = raw_key;
    KVStoreConfig config = {0};
    config.cacheSize = 2000;
    KVStore *kv = NULL;
    if (!encrypted)
        must(kvstore_open_v2(path, &kv, &config), "open");
    else
        must(kvstore_open_encrypted(path, password, (int)strlen(password), &kv, &config), "open");
    return kv;
}

static int name_of(char *key, uint64_t number)
{
    return snprintf(key, 32, "key%09llu", (unsigned long long)number);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int encrypted = strcmp(argv[2], "encrypted") == 0;
    char path[4096], key[32], value[100];
    snprintf(path, sizeof path, "%s/%s.db", argv[1], argv[2]);
    memset(value, 'v', sizeof value);
    KVStore *kv = open_it(path, encrypted, NULL);
    must(kvstore_begin(kv, 1), "begin");
    for (uint64_t n = 0; n < KEYS; n++)
        must(kvstore_put(kv, key, name_of(key, n), value, sizeof value), "put");
    must(kvstore_commit(kv), "commit");
    must(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL), "checkpoint");

    const char *names[2] = {"get_hot", "get_anywhere"};
    for (int anywhere = 0; anywhere <= 1; anywhere++) {
        for (int timed = anywhere; timed <= 1; timed++) { /* the first round of the hot keys brings them in */
            double begun = now_ns();
            for (int n = 0; n < GETS; n++) {
                char got[128];
                int length;
                uint64_t number = next_random() % (anywhere ? KEYS : HOT);
                must(kvstore_get_into(kv, key, name_of(key, number), got, sizeof got, &length), "get");
            }
            if (timed)
                printf("%s %.1f\n", names[anywhere], (now_ns() - begun) / GETS);
        }
    }
    double *each = malloc(PUTS * sizeof *each), all = now_ns();
    for (int n = 0; n < PUTS; n++) {
        double begun = now_ns();
        must(kvstore_put(kv, key, name_of(key, next_random() % KEYS), value, sizeof value), "put");
        each[n] = now_ns() - begun;
    }
    printf("put_mean %.1f\n", (now_ns() - all) / PUTS);
    qsort(each, PUTS, sizeof *each, compare);
    printf("put_p50 %.1f\n", each[PUTS / 2]);
    free(each);

    KVIterator *it;
    must(kvstore_iterator_create(kv, &it), "iterator");
    double begun = now_ns();
    long rows = 0;
    for (must(kvstore_iterator_first(it), "first"); !kvstore_iterator_eof(it);
         must(kvstore_iterator_next(it), "next"))
        rows++;
    printf("scan_row %.1f\n", (now_ns() - begun) / (double)rows);
    kvstore_iterator_close(it);
    must(kvstore_close(kv), "close");

    begun = now_ns();
    for (int n = 0; n < OPENS; n++)
        must(kvstore_close(open_it(path, encrypted, NULL)), "close");
    printf("open_and_close %.1f\n", (now_ns() - begun) / OPENS);
    if (encrypted) {
        snprintf(path, sizeof path, "%s/password.db", argv[1]);
        must(kvstore_close(open_it(path, 1, "correct horse")), "close");
        begun = now_ns();
        must(kvstore_close(open_it(path, 1, "correct horse")), "close");
        printf("open_with_password %.1f\n", now_ns() - begun);
    }
    return 0;
}
