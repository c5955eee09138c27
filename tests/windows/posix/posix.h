/* POSIX functions that the C tests use and that mingw-w64 lacks or defines differently. Included
 * before everything else. */
#ifndef POSIX_H
#define POSIX_H

#include <direct.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folders have no mode on Windows. */
#define mkdir(path, mode) _mkdir(path)

static inline int setenv(const char *name, const char *value, int overwrite)
{
    if (!overwrite && getenv(name) != NULL) return 0;
    return _putenv_s(name, value) == 0 ? 0 : -1;
}

static inline int unsetenv(const char *name)
{
    return _putenv_s(name, "") == 0 ? 0 : -1;
}

/* Links fail here. Scenarios that need them are left out. */
static inline int link(const char *from, const char *to)
{
    (void)from;
    (void)to;
    errno = ENOSYS;
    return -1;
}

static inline int symlink(const char *to, const char *name)
{
    return link(to, name);
}

static inline int mkfifo(const char *path, int mode)
{
    (void)mode;
    return link(path, path);
}

#endif
