/* A program that links kvstore and another static Rust library (other_rust.rs). argv[1] is the
 * store. */
#include <kvstore.h>
#include <stdio.h>

int other_rust_catches_a_panic(void);

int main(int argc, char **argv)
{
    KVStore *kv = NULL;

    if (argc != 2) return 2;
    if (kvstore_open(argv[1], &kv, KVSTORE_JOURNAL_WAL) != KVSTORE_OK) return 3;
    if (other_rust_catches_a_panic() != 1) return 4;
    if (kvstore_put(kv, "key", 3, "value", 5) != KVSTORE_OK) return 5;
    if (kvstore_close(kv) != KVSTORE_OK) return 6;
    printf("both\n");
    return 0;
}
