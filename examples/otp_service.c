/* One-time passwords: a user has at most one valid code, which expires soon and can be used once.
 *
 * - kvstore_cf_put_if_absent prevents a second code while the first one is valid.
 * - A counter that expires with the code limits the number of guesses.
 * - kvstore_cf_compare_and_delete checks and consumes a code atomically: of two requests with the same code,
 *   also in different processes, one succeeds.
 *
 * Compile in the source tree, after "cargo rustc --release --lib --crate-type cdylib", and run:
 *
 *     cc -std=c11 examples/otp_service.c -Iinclude -Ltarget/release -lkvstore -Wl,-rpath,target/release -o otp_service
 *     ./otp_service [otp.db]
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvstore.h"

enum { LIFE_MS = 1000, MAX_TRIES = 3 };

static KVStore *kv;
static KVColumnFamily *codes, *tries;

/* Exits with a message if a call failed. */
static void must(int rc)
{
    if (rc == KVSTORE_OK) return;
    fprintf(stderr, "%s: %s\n", kvstore_strerror(rc), kvstore_errmsg(kv));
    exit(1);
}

/* Creates a code for a user. Returns 0 if the previous one is still valid. */
static int ask(const char *user, char code[7])
{
    int given, n = (int)strlen(user);
    for (int i = 0; i < 6; i++) code[i] = (char)('0' + rand() % 10); /* use getrandom() in a real service */
    code[6] = '\0';
    must(kvstore_cf_put_if_absent(codes, user, n, code, 6, kvstore_now_ms() + LIFE_MS, &given));
    return given;
}

/* Checks and consumes a code. After MAX_TRIES attempts every code is rejected until the counter expires. */
static const char *answer(const char *user, const char *code)
{
    int right, n = (int)strlen(user);
    int64_t count;
    must(kvstore_cf_increment(tries, user, n, 1, kvstore_now_ms() + LIFE_MS, &count));
    if (count > MAX_TRIES) return "too many tries";
    must(kvstore_cf_compare_and_delete(codes, user, n, code, (int)strlen(code), &right));
    if (!right) return "wrong, or too late";
    int rc = kvstore_cf_delete(tries, user, n);
    if (rc != KVSTORE_NOTFOUND) must(rc);
    return "welcome";
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

int main(int argc, char **argv)
{
    char code[7], other[7];
    int64_t live;

    must(kvstore_open(argc > 1 ? argv[1] : NULL, &kv, KVSTORE_JOURNAL_WAL)); /* NULL: in memory */
    int rc = kvstore_cf_open(kv, "codes", &codes);
    must(rc == KVSTORE_NOTFOUND ? kvstore_cf_create(kv, "codes", &codes) : rc);
    rc = kvstore_cf_open(kv, "tries", &tries);
    must(rc == KVSTORE_NOTFOUND ? kvstore_cf_create(kv, "tries", &tries) : rc);
    srand((unsigned)kvstore_now_ms());

    printf("ada asks:           %s\n", ask("ada", code) ? "a code is sent" : "wait");
    printf("ada asks again:     %s\n", ask("ada", other) ? "a code is sent" : "wait");
    printf("ada mistypes:       %s\n", answer("ada", "no code"));
    printf("ada gets it right:  %s\n", answer("ada", code));
    printf("the code, again:    %s\n", answer("ada", code));

    printf("bob asks:           %s\n", ask("bob", code) ? "a code is sent" : "wait");
    sleep_ms(LIFE_MS + 10);
    printf("bob is late:        %s\n", answer("bob", code));

    printf("eve asks:           %s\n", ask("eve", code) ? "a code is sent" : "wait");
    for (int i = 0; i < MAX_TRIES; i++) printf("eve guesses:        %s\n", answer("eve", "guess"));
    printf("eve has it now:     %s\n", answer("eve", code));

    sleep_ms(LIFE_MS + 10);
    must(kvstore_cf_count_live(codes, &live));
    printf("codes left:         %lld\n", (long long)live);
    kvstore_cf_close(codes);
    kvstore_cf_close(tries);
    must(kvstore_close(kv));
    return 0;
}
