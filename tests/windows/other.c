/* Another program with an unmodified SQLite. It reads lines of SQL to run on the database of its
 * argument. Each answer is a line: the first column of the last row, or the error. */
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <string.h>

#include "sqlite3.h"

static char last[1000];

static int note(void *context, int columns, char **texts, char **names)
{
    (void)context;
    (void)names;
    if (columns > 0) snprintf(last, sizeof last, "%s", texts[0] == NULL ? "NULL" : texts[0]);
    return 0;
}

int main(int argc, char **argv)
{
    sqlite3 *db = NULL;
    char line[1000];
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
    if (argc != 2 || sqlite3_open(argv[1], &db) != SQLITE_OK) return 1;
    sqlite3_busy_timeout(db, 20000);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        last[0] = '\0';
        int code = sqlite3_exec(db, line, note, NULL, NULL);
        puts(code == SQLITE_OK ? last : sqlite3_errmsg(db));
        fflush(stdout);
    }
    return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
