/* Only needed for stores on a server (tests/c/stores.h), which are not tested on Windows. Each
 * mapping fails. */
#ifndef SYS_MMAN_H
#define SYS_MMAN_H

#include <errno.h>
#include <stddef.h>
#include <sys/types.h>

#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_FAILED ((void *)-1)

static inline void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    (void)address;
    (void)length;
    (void)protection;
    (void)flags;
    (void)file;
    (void)offset;
    errno = ENOSYS;
    return MAP_FAILED;
}

#endif
