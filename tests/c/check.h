/* Helpers of every C test program: CHECK, and the selection of a scenario by name. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kvstore.h"

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* Asserts that the call returns exactly this code. Otherwise prints both codes. */
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

/* Content of an output before a call that must not write to it. */
#define UNTOUCHED_POINTER ((void *)(uintptr_t)0x5a5a5a5a)

/* Asserts that the call returns the code and writes to no output. The program defines its outputs by
 * set_outputs and outputs_are_untouched. */
#define REFUSED(code, call)                                                                              \
    do {                                                                                                 \
        set_outputs();                                                                                   \
        GIVES(code, call);                                                                               \
        CHECK(outputs_are_untouched());                                                                  \
    } while (0)

/* Asserts that the call returns the code and sets its handle output to NULL. */
#define REFUSED_HANDLE(code, handle, call)                                                               \
    do {                                                                                                 \
        (handle) = UNTOUCHED_POINTER;                                                                    \
        GIVES(code, call);                                                                               \
        CHECK((handle) == NULL);                                                                         \
    } while (0)

static inline void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Milliseconds of a clock that nobody sets. */
static inline int64_t monotonic_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct scenario {
    const char *name;
    void (*run)(void);
};

/* Set-up of a program before each scenario. */
#ifndef BEFORE_EACH
#define BEFORE_EACH
#endif

/* Runs the scenarios that the arguments name. A single one runs in the current folder; several
 * run one after the other, each in a folder of its name. Without arguments, prints the names of
 * all scenarios. */
static inline int run_named(const struct scenario *scenarios, size_t count, void (*before_each)(void), int argc,
                            char **argv)
{
    if (argc == 1) {
        for (size_t i = 0; i < count; i++) puts(scenarios[i].name);
    }
    for (int named = 1; named < argc; named++) {
        size_t i = 0;
        while (i < count && strcmp(argv[named], scenarios[i].name) != 0) i++;
        if (i == count) {
            fprintf(stderr, "no such scenario: %s\n", argv[named]);
            return 2;
        }
        if (argc > 2) {
            fprintf(stderr, "%s\n", scenarios[i].name);
            CHECK(mkdir(scenarios[i].name, 0777) == 0 && chdir(scenarios[i].name) == 0);
        }
        before_each();
        scenarios[i].run();
        if (argc > 2) CHECK(chdir("..") == 0);
    }
    return 0;
}

#define SCENARIOS(...)                                                                                   \
    static void before_each(void)                                                                        \
    {                                                                                                    \
        BEFORE_EACH;                                                                                     \
    }                                                                                                    \
    int main(int argc, char **argv)                                                                      \
    {                                                                                                    \
        static const struct scenario scenarios[] = {__VA_ARGS__};                                        \
        return run_named(scenarios, sizeof scenarios / sizeof *scenarios, before_each, argc, argv);      \
    }

#endif
