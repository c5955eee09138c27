/*
 * To be preloaded: a kernel or a file system that has no open file description locks. It answers their commands as
 * one that does not know them, with EINVAL, and passes everything else on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

typedef int (*function)(int, int, ...);

static int call(function *real, const char *name, int fd, int command, void *argument)
{
    if (command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW) {
        errno = EINVAL;
        return -1;
    }
    if (!*real) {
        void *found = dlsym(RTLD_NEXT, name);
        memcpy(real, &found, sizeof found);
    }
    return (*real)(fd, command, argument);
}

#define REPLACE(name)                                                                                         \
    int name(int fd, int command, ...)                                                                        \
    {                                                                                                         \
        static function real;                                                                                 \
        va_list arguments;                                                                                    \
        void *argument;                                                                                       \
        va_start(arguments, command);                                                                         \
        argument = va_arg(arguments, void *);                                                                 \
        va_end(arguments);                                                                                    \
        return call(&real, #name, fd, command, argument);                                                     \
    }

int fcntl(int fd, int command, ...);
int fcntl64(int fd, int command, ...);
REPLACE(fcntl)
REPLACE(fcntl64)
