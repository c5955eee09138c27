/* dlopen and its companions by the functions of Windows. */
#ifndef DLFCN_H
#define DLFCN_H

#include <windows.h>

#define RTLD_NOW 0
#define RTLD_LOCAL 0
#define RTLD_GLOBAL 0

static inline void *dlopen(const char *name, int flags)
{
    (void)flags;
    return LoadLibraryA(name);
}

static inline void *dlsym(void *lib, const char *name)
{
    void *found;
    FARPROC function = GetProcAddress(lib, name);
    memcpy(&found, &function, sizeof found);
    return found;
}

static inline int dlclose(void *lib)
{
    return FreeLibrary(lib) ? 0 : -1;
}

#endif
