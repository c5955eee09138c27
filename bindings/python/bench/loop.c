/* Loops over the C functions that Python's get and put call, without Python. The functions are passed as pointers into
 * the loaded library, and the handle is the same. Return the time in nanoseconds, or -1 if a call failed. */

#include <stdint.h>
#include <string.h>
#include <time.h>

typedef int get_into(void *cf, const void *key, int n_key, void *buf, int cap, int *n);
typedef int put(void *cf, const void *key, int n_key, const void *value, int n_value);

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t time_gets(get_into *get, void *cf, const char *keys, int n_key, int count, char *values, int n_value)
{
    int64_t begin = now_ns();
    int i, n;
    for (i = 0; i < count; i++) {
        if (get(cf, keys + (int64_t)i * n_key, n_key, values + (int64_t)i * n_value, n_value, &n) != 0) return -1;
        if (n != n_value) return -1;
    }
    return now_ns() - begin;
}

int64_t time_puts(put *write, void *cf, const char *keys, int n_key, int count, const char *values, int n_value)
{
    int64_t begin = now_ns();
    int i;
    for (i = 0; i < count; i++) {
        if (write(cf, keys + (int64_t)i * n_key, n_key, values + (int64_t)i * n_value, n_value) != 0) return -1;
    }
    return now_ns() - begin;
}
