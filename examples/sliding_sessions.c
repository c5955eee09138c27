/* A session cache with sliding expiry: each use of a session puts its end off; who is idle is logged out.
 *
 * kvstore_cf_get_and_expire reads a session and moves its end in one step. The loop that removes dead
 * sessions sleeps until the next one is due (kvstore_next_expiry) instead of looking every second.
 *
 *     cc -std=c11 examples/sliding_sessions.c -Iinclude -lkvstore && ./a.out [sessions.db]
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvstore.h"

enum { IDLE_MS = 1000 };

static KVStore *kv;
static KVColumnFamily *sessions;
static int64_t started;

/* Ends the program if a call has failed. */
static void must(int rc)
{
    if (rc == KVSTORE_OK) return;
    fprintf(stderr, "%s: %s\n", kvstore_strerror(rc), kvstore_errmsg(kv));
    exit(1);
}

static void log_in(const char *id, const char *user)
{
    must(kvstore_cf_put(sessions, id, (int)strlen(id), user, (int)strlen(user))); /* with the default TTL */
    printf("%4lld ms  %s logs in as %s\n", (long long)(kvstore_now_ms() - started), id, user);
}

/* A request of a session: its user, and another IDLE_MS of life; or nothing, if it is over. */
static void request(const char *id)
{
    void *user;
    int64_t now = kvstore_now_ms();
    int n, rc = kvstore_cf_get_and_expire(sessions, id, (int)strlen(id), now + IDLE_MS, &user, &n);
    if (rc != KVSTORE_NOTFOUND) must(rc);
    printf("%4lld ms  %s: %s\n", (long long)(now - started), id,
           rc == KVSTORE_OK ? (const char *)user : "please log in");
    kvstore_free(user);
}

static void sleep_until(int64_t moment)
{
    int64_t left = moment - kvstore_now_ms();
    if (left > 0) nanosleep(&(struct timespec){left / 1000, left % 1000 * 1000000}, NULL);
}

/* Sleeps until sessions are due and removes them, until none is left. In a server this is a thread of its
 * own, and sleeps no longer than IDLE_MS: a session that is new is due after that at the earliest. */
static int purge_until_empty(void)
{
    int64_t due, deleted;
    int wakeups = 0, rc;
    while ((rc = kvstore_next_expiry(kv, &due)) == KVSTORE_OK) {
        sleep_until(due);
        must(kvstore_purge_step(kv, 1000, 0, &deleted, NULL)); /* a thousand at a time: others wait for it */
        if (deleted == 0) continue;                            /* the end was put off meanwhile */
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
    int rc = kvstore_cf_open(kv, "sessions", &sessions);
    must(rc == KVSTORE_NOTFOUND ? kvstore_cf_create(kv, "sessions", &sessions) : rc);
    must(kvstore_cf_set_default_ttl(sessions, IDLE_MS)); /* kept in the file */

    started = kvstore_now_ms();
    log_in("s1", "ada");
    log_in("s2", "bob");
    for (int i = 1; i <= 3; i++) { /* ada is busy, bob has gone for lunch */
        sleep_until(started + i * 400);
        request("s1");
    }
    request("s2");
    must(kvstore_cf_count(sessions, &rows));
    printf("          %lld sessions are kept\n", (long long)rows);
    printf("          woke up %d time(s) to purge\n", purge_until_empty());
    request("s1");
    must(kvstore_cf_count(sessions, &rows));
    printf("          %lld sessions are kept\n", (long long)rows);

    kvstore_cf_close(sessions);
    must(kvstore_close(kv));
    return 0;
}
