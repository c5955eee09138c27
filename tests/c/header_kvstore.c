/* Includes kvstore.h first and twice: it needs no other header. Compiled as C and as C++. */
#include "kvstore.h"
#include "kvstore.h"

int main(void)
{
    KVStoreConfig config;
    KVStoreStats stats;
    int64_t none = KVSTORE_NO_TTL;
    config.journalMode = KVSTORE_JOURNAL_WAL;
    stats.nPuts = 0;
    return none == -1 && config.journalMode == 1 && stats.nPuts == 0 ? KVSTORE_OK : KVSTORE_ERROR;
}
