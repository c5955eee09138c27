/* Sessions with sliding expiry: each use of a session extends it, and an idle session expires.
 *
 * kvstore_get_and_expire reads a session and extends it atomically. The loop that purges expired sessions
 * sleeps until the next one expires (kvstore_next_expiry), instead of polling.
 *
 * Compile in the source tree, after "cargo rustc --release --lib --crate-type cdylib", and run:
 *
 *     cc -std=c11 examples/sliding_sessions.c -Iinclude -Ltarget/release -lkvstore -Wl,-rpath,target/release -o sliding_sessions
 *     ./sliding_sessions [sessions.db]
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvstore.h"

enum { IDLE_MS = 1000 };

static KVStore *kv;
static int64_t started;

/* Exits with a message if a call failed. */
static void must(int rc)
{
    if (rc == KVSTORE_OK) return;
    fprintf(stderr, "%s: %s\n", kvstore_strerror(rc), kvstore_errmsg(kv));
    exit(1);
}

static void log_in(const char *id, const char *user)
{
    must(kvstore_put(kv, id, (int)strlen(id), user, (int)strlen(user))); /* with the default TTL */
    printf("%4lld ms  %s logs in as %s\n", (long long)(kvstore_now_ms() - started), id, user);
}

/* Handles a request: prints the user and extends the session by IDLE_MS, or asks to log in if it expired. */
static void request(const char *id)
{
    void *user;
    int64_t now = kvstore_now_ms();
    int n, rc = kvstore_get_and_expire(kv, id, (int)strlen(id), now + IDLE_MS, &user, &n);
    if (rc != KVSTORE_NOTFOUND) must(rc);
    printf("%4lld ms  %s: %s\n", (long long)(now - started), id,
           rc == KVSTORE_OK ? (const char *)user : "please log in");
    kvstore_free(user);
}

static void sleep_until(int64_t time_ms)
{
    int64_t left = time_ms - kvstore_now_ms();
    if (left > 0) nanosleep(&(struct timespec){left / 1000, left % 1000 * 1000000}, NULL);
}

/* Sleeps until sessions expire and purges them, until none is left. Returns the number of purges. In a server
 * this is a separate thread. It sleeps at most IDLE_MS, because a new session expires after that time. */
static int purge_until_empty(void)
{
    int64_t due, deleted;
    int wakeups = 0, rc;
    while ((rc = kvstore_next_expiry(kv, &due)) == KVSTORE_OK) {
        sleep_until(due);
        must(kvstore_purge_step(kv, 1000, 0, &deleted, NULL)); /* in steps, so that other writers can run */
        if (deleted == 0) continue; /* the session was extended meanwhile */
        printf("%4lld ms  purged: %lld\n", (long long)(kvstore_now_ms() - started), (long long)deleted);
        wakeups++;
    }
    if (rc != KVSTORE_NOTFOUND) must(rc);
    return wakeups;
}

int main(int argc, char **argv)
{
    int64_t rows;

    must(kvstore_open(argc > 1 ? argv[1] : NULL, &kv, KVSTORE_JOURNAL_WAL)); /* NULL: in memory */
    must(kvstore_set_default_ttl(kv, IDLE_MS)); /* stored in the file */

    started = kvstore_now_ms();
    log_in("s1", "ada");
    log_in("s2", "bob");
    for (int i = 1; i <= 3; i++) { /* ada uses her session, bob is idle */
        sleep_until(kvstore_now_ms() + 400);
        request("s1");
    }
    request("s2");
    must(kvstore_count(kv, &rows));
    printf("          %lld sessions are kept\n", (long long)rows);
    printf("          woke up %d time(s) to purge\n", purge_until_empty());
    request("s1");
    must(kvstore_count(kv, &rows));
    printf("          %lld sessions are kept\n", (long long)rows);

    must(kvstore_close(kv));
    return 0;
}
