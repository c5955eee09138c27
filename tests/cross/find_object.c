/* Functions that GCC's runtime library, when compiled for glibc, needs from the C library, for
 * use with musl: _dl_find_object finds the module of an address and its unwind tables, and
 * __getauxval returns processor features for the atomics of 64-bit ARM. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

/* As in glibc's dlfcn.h, on machines with neither DLFO_STRUCT_HAS_EH_DBASE nor DLFO_STRUCT_HAS_EH_COUNT. */
struct found {
    unsigned long long flags;
    void *begin, *end, *link_map, *frames, *reserved[7];
};

struct search {
    uintptr_t address;
    struct found *found;
};

static int look(struct dl_phdr_info *module, size_t size, void *context)
{
    struct search *search = context;
    uintptr_t begin = UINTPTR_MAX, end = 0, frames = 0;
    int is_inside = 0;

    (void)size;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        uintptr_t start = module->dlpi_addr + module->dlpi_phdr[i].p_vaddr;
        if (module->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) frames = start;
        if (module->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t stop = start + module->dlpi_phdr[i].p_memsz;
        is_inside |= search->address >= start && search->address < stop;
        if (start < begin) begin = start;
        if (stop > end) end = stop;
    }
    if (!is_inside || frames == 0) return 0;
    *search->found = (struct found){.begin = (void *)begin, .end = (void *)end, .frames = (void *)frames};
    return 1;
}

/* GCC's library refers to these functions weakly, and assumes that all of them exist if one
 * does. In static programs, this table makes the linker include all of them. */
void (*const _dl_find_object_needs[])(void);
void (*const _dl_find_object_needs[])(void) = {
    (void (*)(void))pthread_once,        (void (*)(void))pthread_key_create,   (void (*)(void))pthread_getspecific,
    (void (*)(void))pthread_setspecific, (void (*)(void))pthread_mutex_lock,   (void (*)(void))pthread_mutex_unlock,
};

int _dl_find_object(void *address, struct found *found);
int _dl_find_object(void *address, struct found *found)
{
    struct search search = {(uintptr_t)address, found};
    return dl_iterate_phdr(look, &search) ? 0 : -1;
}

/* Weak, because a static musl defines it too. */
__attribute__((weak)) unsigned long __getauxval(unsigned long type);
unsigned long __getauxval(unsigned long type)
{
    return getauxval(type);
}
