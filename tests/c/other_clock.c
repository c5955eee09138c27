/* Shifts the process's clock: a library to preload, by KVSTORE_TEST_CLOCK_OFFSET seconds; in a program that includes this
 * and defines KVSTORE_TEST_CLOCK_IN_PROGRAM, by offset_s seconds. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifdef KVSTORE_TEST_CLOCK_IN_PROGRAM
static volatile time_t offset_s;
#endif

static time_t offset(void)
{
#ifdef KVSTORE_TEST_CLOCK_IN_PROGRAM
    return offset_s;
#else
    const char *said = getenv("KVSTORE_TEST_CLOCK_OFFSET");
    return said == NULL ? 0 : (time_t)atoll(said);
#endif
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (also != NULL) *also = now.tv_sec;
    return now.tv_sec;
}
