/* snkv.h alone, and twice; and with SQLite's own names there already, which it must leave alone. */
#ifdef WITH_SQLITE_NAMES
#define SQLITE_OK 0
#define SQLITE_FULL 13
#endif
#include "snkv.h"
#include "snkv.h"

int main(void)
{
#ifdef WITH_SQLITE_NAMES
    if (SQLITE_FULL != 13) {
        return 1;
    }
#endif
    snkv_free(sqliteStrDup("text"));
    return SQLITE_OK;
}
