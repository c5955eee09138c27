/*
 * Checks that the unwinder can pass kvstore's frames, from a callback to main, as the guard that
 * catches panics requires. argv[1] is the store, argv[2] the path for the copy.
 */
#include <kvstore.h>
#include <stdio.h>
#include <unwind.h>

static int frames, arrived;
static void *outermost; /* the start of the function that called kvstore_backup */

static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *unused)
{
    (void)unused;
    frames++;
    /* On ARM the lowest bit of a function's address may denote its instruction set. */
    if ((size_t)_Unwind_GetRegionStart(context) >> 1 == (size_t)outermost >> 1) arrived = 1;
    return _URC_NO_REASON;
}

static int progress(void *context, int remaining, int total)
{
    (void)context;
    (void)remaining;
    (void)total;
    _Unwind_Backtrace(look, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    KVStore *kv = NULL;

    if (argc != 3) return 2;
    outermost = (void *)(size_t)&main;
    if (kvstore_open(argv[1], &kv, KVSTORE_JOURNAL_WAL) != KVSTORE_OK) return 3;
    if (kvstore_backup(kv, argv[2], progress, NULL) != KVSTORE_OK) return 4;
    if (kvstore_close(kv) != KVSTORE_OK) return 5;
    if (!arrived) {
        fprintf(stderr, "the unwinder got lost after %d frames\n", frames);
        return 6;
    }
    printf("unwound\n");
    return 0;
}
