/* Includes snkv.h first and twice. In one build, some of SQLite's names are already defined;
 * snkv.h must not redefine them. */
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
