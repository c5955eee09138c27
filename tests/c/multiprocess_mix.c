/*
 * Processes that use this library ("ours"), stock SQLite, or both, and processes that fork, share
 * one store. Each has several threads and is killed at random. No acknowledged commit may be lost,
 * and nothing may stay locked.
 *
 *     mix MODE KILLS SECONDS SEED [alone]
 *
 * MODE is wal or delete. Ends after SECONDS, or after KILLS if SECONDS is 0. "alone": no process
 * has both copies of SQLite, and none forks (for kernels without open file description locks).
 */
#include "multiprocess.h"

enum { PROCESSES = 4, THREADS = 3, FORKED = 40 /* writers of forked children; below are those of threads */ };

static const char *mode;

/* ---- a worker ----------------------------------------------------------------------------------------- */

struct thread {
    int writer, stock;
    uint64_t seed;
};

static void *writes_by_ours(struct thread *t)
{
    struct chance chance = seeded(t->seed);
    KVStore *kv = open_ours(mode), *second;
    int rc;

    resume_ours(kv, t->writer);
    while (!atomic_load(&ledger->stop)) {
        commit_ours(kv, t->writer);
        switch (below(&chance, 50)) {
        case 0:
            close_ours(kv);
            kv = open_ours(mode);
            break;
        case 1:
            second = open_ours(mode);
            verify_ours(second, 0);
            close_ours(second);
            break;
        case 2: verify_ours(kv, 0); break;
        case 3:
            rc = kvstore_checkpoint(kv, (int)below(&chance, 4), NULL, NULL);
            if (rc != KVSTORE_BUSY) WORKS(kv, rc);
            break;
        default: break;
        }
    }
    close_ours(kv);
    return NULL;
}

static void *writes_by_stock(struct thread *t)
{
    struct chance chance = seeded(t->seed);
    struct stock s = open_stock(), second;

    resume_stock(&s, t->writer);
    while (!atomic_load(&ledger->stop)) {
        commit_stock(&s, t->writer);
        switch (below(&chance, 50)) {
        case 0:
            close_stock(&s);
            s = open_stock();
            break;
        case 1: /* as pandas does, or a debugger */
            second = open_stock();
            verify_stock(&second, 0);
            close_stock(&second);
            break;
        case 2: verify_stock(&s, 0); break;
        default: break;
        }
    }
    close_stock(&s);
    return NULL;
}

static void *writes(void *thread)
{
    struct thread *t = thread;
    return t->stock ? writes_by_stock(t) : writes_by_ours(t);
}

/* Its children open the store, write and exit; some outlive it. */
static void forks(int process, struct chance *chance)
{
    KVStore *kv = open_ours(mode);
    int children = 0, status;

    for (int n = 0; !atomic_load(&ledger->stop); n++) {
        pid_t pid;
        counter_of_ours(kv, process * THREADS);
        fflush(NULL);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            /* No two children that run at once, including those of a killed process, have the same number. */
            int writer = FORKED + process * 6 + n % 6;
            char name[40];
            int turn;
            KVStore *mine;

            limit_time(60);
            MUST(KVSTORE_MISUSE, kv, kvstore_put(kv, "k", 1, "v", 1));
            snprintf(name, sizeof name, "turn %d", writer);
            turn = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            CHECK(turn >= 0 && fcntl(turn, F_SETLKW, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}) == 0);
            mine = open_ours(mode);
            resume_ours(mine, writer);
            for (unsigned i = 1 + below(chance, 30); i && !atomic_load(&ledger->stop); i--) commit_ours(mine, writer);
            verify_ours(mine, 0);
            if (below(chance, 2)) close_ours(mine);
            if (below(chance, 4) == 0) raise(SIGKILL);
            if (below(chance, 2)) exit(0);
            _exit(0);
        }
        below(chance, 2);
        for (children++; children > (atomic_load(&ledger->stop) ? 0 : 2); children--) {
            while ((pid = wait(&status)) < 0) CHECK(errno == EINTR);
            if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
                fail("a forked child ended with %d", status);
            }
        }
    }
    close_ours(kv);
}

/* "work MODE PROCESS/SEED KIND": in the foreground, until it is killed or asked to stop. */
static void work(int process, uint64_t seed, const char *kind)
{
    struct thread t[THREADS];
    pthread_t threads[THREADS];
    struct chance chance = seeded(seed);
    int forking = !strcmp(kind, "forking");

    for (int i = 0; i < THREADS; i++) {
        t[i].writer = process * THREADS + i;
        t[i].stock = !strcmp(kind, "stock") || (!strcmp(kind, "both") && i > 0);
        t[i].seed = seed + (uint64_t)i;
        if (!forking || i > 0) CHECK(pthread_create(&threads[i], NULL, writes, &t[i]) == 0);
    }
    if (forking) forks(process, &chance);
    for (int i = forking; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- the one that kills ------------------------------------------------------------------------------- */

static pid_t start_worker(int process, struct chance *chance, int alone)
{
    static const char *const kinds[] = {"ours", "stock", "both", "forking"};
    char which[60];
    const char *kind = kinds[below(chance, alone ? 2 : 4)];
    sprintf(which, "%d/%u", process, below(chance, 1000000000));
    return start("work", mode, which, kind);
}

/* Fails if the worker has ended, because then it has failed. */
static void must_still_run(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) == pid) fail("a worker has ended by itself, with %d", status);
}

static void mix(int kills, int seconds, uint64_t seed, int alone)
{
    struct chance chance = seeded(seed);
    pid_t workers[PROCESSES];
    int64_t since = now_ms();
    int killed = 0, status;
    pid_t left;

    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* what a killed one has forked becomes ours */
    open_ledger();
    close_ours(open_ours(mode));
    for (int i = 0; i < PROCESSES; i++) workers[i] = start_worker(i, &chance, alone);
    while (seconds ? now_ms() - since < seconds * 1000 : killed < kills) {
        int victim = (int)below(&chance, PROCESSES);
        uint64_t goal = all_acknowledged() + below(&chance, 300);

        limit_time(120);
        for (int64_t begin = now_ms(); all_acknowledged() < goal;) { /* this amount of work, then the next process */
            for (int i = 0; i < PROCESSES; i++) must_still_run(workers[i]);
            if (now_ms() - begin > 60000) {
                for (int i = 0; i < PROCESSES; i++) show_threads(workers[i]);
                fail("nobody gets on: %llu commits", (unsigned long long)all_acknowledged());
            }
            poll(NULL, 0, 1);
        }
        must_still_run(workers[victim]);
        CHECK(kill(workers[victim], SIGKILL) == 0 && waitpid(workers[victim], &status, 0) == workers[victim]);
        killed++;
        must_end_well(start(killed % 5 ? "glance" : "verify", mode, NULL, NULL), 90, "verify");
        workers[victim] = start_worker(victim, &chance, alone);
    }
    atomic_store(&ledger->stop, 1);
    for (int i = 0; i < PROCESSES; i++) must_end_well(workers[i], 90, "a worker");
    while ((left = waitpid(-1, &status, 0)) > 0 || errno == EINTR) {
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail("a child that was left ended with %d", WEXITSTATUS(status));
    }
    must_end_well(start("unlocked", NULL, NULL, NULL), 20, "unlocked");
    must_end_well(start("verify", mode, NULL, NULL), 90, "verify");
    printf("%s: %d kills, %llu commits\n", mode, killed, (unsigned long long)all_acknowledged());
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    can_say_where();
    load_stock();
    if (argc > 2) mode = argv[2];
    if (!strcmp(role, "mix") && argc > 5) {
        mix(atoi(argv[3]), atoi(argv[4]), strtoull(argv[5], NULL, 10), argc > 6);
    } else if (!strcmp(role, "work") && argc == 5) {
        char *slash;
        int process = (int)strtol(argv[3], &slash, 10);
        CHECK(process < PROCESSES && *slash == '/');
        open_ledger();
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* should the one that kills fail */
        work(process, strtoull(slash + 1, NULL, 10), argv[4]);
    } else if (!strcmp(role, "verify") || !strcmp(role, "glance")) {
        open_ledger();
        verify_role(mode, !strcmp(role, "verify"));
    } else if (!strcmp(role, "unlocked")) {
        must_be_unlocked("after the last close");
    } else {
        fprintf(stderr, "no such role\n");
        return 2;
    }
    return 0;
}
