/* What every C test program uses: CHECK and the choice of a scenario by name. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvstore.h"

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* The call must give exactly this code; if not, both are shown. */
#define GIVES(code, call)                                                                                \
    do {                                                                                                 \
        int gives_code = (call);                                                                         \
        if (gives_code != (code)) {                                                                      \
            fprintf(stderr, "%s:%d: %s gave %d (%s), not %s\n", __FILE__, __LINE__, #call, gives_code,    \
                    kvstore_strerror(gives_code), #code);                                                \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define OK(call) GIVES(KVSTORE_OK, call)

/* What is in an output before a call that must not touch it. */
#define UNTOUCHED_POINTER ((void *)(uintptr_t)0x5a5a5a5a)

/* The call is refused with the code and writes to no output. The program says what its outputs are, by its
 * set_outputs and outputs_are_untouched. */
#define REFUSED(code, call)                                                                              \
    do {                                                                                                 \
        set_outputs();                                                                                   \
        GIVES(code, call);                                                                               \
        CHECK(outputs_are_untouched());                                                                  \
    } while (0)

/* The call is refused with the code, and its handle output is NULL. */
#define REFUSED_HANDLE(code, handle, call)                                                               \
    do {                                                                                                 \
        (handle) = UNTOUCHED_POINTER;                                                                    \
        GIVES(code, call);                                                                               \
        CHECK((handle) == NULL);                                                                         \
    } while (0)

struct scenario {
    const char *name;
    void (*run)(void);
};

/* Runs the scenario named by the first argument. */
static inline int run_named(const struct scenario *scenarios, size_t count, int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < count; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no such scenario\n");
    return 2;
}

#define SCENARIOS(...)                                                                                   \
    int main(int argc, char **argv)                                                                      \
    {                                                                                                    \
        static const struct scenario scenarios[] = {__VA_ARGS__};                                        \
        return run_named(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);                   \
    }

#endif
