/*
 * Forked children: a child may open its parent's store and work with it, whatever the parent was doing at the
 * fork. It may not use inherited handles, wait for them, or keep a lock of the parent.
 *
 *     rounds STATE MODE ROUNDS SECONDS SEED   forks, in a state of the parent
 *     killed MODE ROUNDS SECONDS SEED         the parent is killed in a write transaction while its child runs
 *     exec MODE                               fork + exec, vfork, posix_spawn, system
 *     waiting MODE FORKS                      forks while threads wait for a lock and call the wait hook
 *
 * MODE is wal or delete. The rounds end after SECONDS, or after ROUNDS if SECONDS is 0. Without open file description
 * locks, a child may also be refused with KVSTORE_MISUSE.
 */
#include "abuse_sample.h"
#include "multiprocess.h"

enum {
    PARENT = 0, /* writers */
    THREAD = 1, /* to 7 */
    CHILD = 8,  /* to 31: by the number of the round */
    GRANDCHILD = 32, /* to 55 */
    LIMIT_S = 20,
};

enum state {
    IDLE, READING, WRITING, CLOSED, MANY, THREADS, OPENING, CLEANER, BACKUP, CHECKPOINT, CALLBACK, EXCLUSIVE, STATES
};

static const char *const state_names[STATES] = {
    "idle", "reading", "writing", "closed", "many", "threads", "opening", "cleaner", "backup", "checkpoint",
    "callback", "exclusive",
};

static enum state state; /* what the parent is doing */
static const char *mode;
static int may_be_refused;
static int the_round;
static struct chance chance;

/* Returns whether this kernel has open file description locks. */
static int kernel_has_ofd(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open(".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600), has;
    CHECK(fd >= 0);
    has = fcntl(fd, F_OFD_GETLK, &lock) == 0;
    close(fd);
    return has;
}

/* ---- the handles of the parent ------------------------------------------------------------------------ */

static KVStore *kv;
static KVColumnFamily *family;
static KVIterator *it, *back;
static KVBatch *batch;

static void open_handles(int fill)
{
    kv = open_ours(mode);
    if (fill) {
        sample_fill(kv);
        WORKS(kv, kvstore_set_clock(kv, NULL, NULL));
    }
    WORKS(kv, kvstore_cf_open(kv, "other", &family));
    WORKS(kv, kvstore_iterator_create(kv, &it));
    WORKS(kv, kvstore_iterator_first(it));
    WORKS(kv, kvstore_reverse_iterator_create(kv, &back));
    WORKS(kv, kvstore_iterator_last(back));
    WORKS(kv, kvstore_batch_new(kv, &batch));
    WORKS(kv, kvstore_batch_put(batch, family, "from a batch", 12, "v", 1, 0));
}

static void close_handles(void)
{
    kvstore_batch_free(batch);
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
    kvstore_cf_close(family);
    close_ours(kv);
}

/* The functions of the API that abuse_sample.h does not call. */
static void all_functions_are_refused(void)
{
    KVIterator *new_it;
    KVBatch *new_batch;
    KVWriteOptions options = {0};
    const void *keys[1] = {"plain"};
    int lengths[1] = {5}, written;
    void *values[1];
    char buffer[10];

    store_functions_give(KVSTORE_MISUSE, kv);
    if (state != CLOSED) CHECK(strstr(kvstore_errmsg(kv), "fork") != NULL);
    family_functions_give(KVSTORE_MISUSE, family);
    CHECK(kvstore_cf_name(family) != NULL);
    iterator_functions_give(KVSTORE_MISUSE, it, 0);
    iterator_functions_give(KVSTORE_MISUSE, back, 1);
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_expire_ms(it, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_put_with(family, "k", 1, "v", 1, &options, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_compare_and_swap(family, "k", 1, "v", 1, "w", 1, 0, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_compare_and_delete(family, "k", 1, "v", 1, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_increment(family, "n", 1, 1, 0, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_expire(family, "plain", 5, SAMPLE_NOW, 0, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_persist(family, "mortal", 6, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_expire_time(family, "mortal", 6, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_get_and_expire(family, "plain", 5, SAMPLE_NOW, &out.pointer, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_set_default_ttl(family, 5));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_get_default_ttl(family, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_next_expiry(kv, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_next_expiry(family, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_count_live(family, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_purge_step(kv, 0, 0, &out.big, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_purge_before(family, SAMPLE_NOW, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cleaner_start(kv, 1, 0));
    REFUSED(KVSTORE_MISUSE, kvstore_cleaner_stop(kv));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_set_write_tracking(family, 1));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_get_write_tracking(family, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_write_time(family, "plain", 5, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_sweep(family, 0, &out.big));
    REFUSED_HANDLE(KVSTORE_MISUSE, new_it, kvstore_cf_range_iterator_create(family, NULL, 0, NULL, 0, 0, &new_it));
    REFUSED_HANDLE(KVSTORE_MISUSE, new_it, kvstore_cf_row_iterator_create(family, "p", 1, NULL, 0, NULL, 0, 0, &new_it));
    REFUSED_HANDLE(KVSTORE_MISUSE, new_it, kvstore_cf_expiring_iterator_create(family, 0, SAMPLE_NOW, &new_it));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_get_into(family, "plain", 5, buffer, 10, &out.n));
    GIVES(KVSTORE_MISUSE, kvstore_cf_get_many(family, 1, keys, lengths, values, &written));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_delete_range(family, NULL, 0, NULL, 0, &out.big));
    REFUSED_HANDLE(KVSTORE_MISUSE, new_batch, kvstore_batch_new(kv, &new_batch));
    GIVES(KVSTORE_MISUSE, kvstore_batch_put(batch, family, "k", 1, "v", 1, 0));
    GIVES(KVSTORE_MISUSE, kvstore_batch_commit(batch));
    unlink("copy of a child");
    GIVES(KVSTORE_MISUSE, kvstore_backup(kv, "copy of a child", NULL, NULL));
    CHECK(!is_there("copy of a child"));
    GIVES(KVSTORE_MISUSE, kvstore_copy(kv, kv, NULL, NULL));
}

static void everything_is_closed(void)
{
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
    kvstore_batch_free(batch);
    kvstore_cf_close(family);
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
    if (state != CLOSED && state != CALLBACK) CHECK(strstr(kvstore_errmsg(NULL), "fork") != NULL);
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
    GIVES(KVSTORE_MISUSE, kvstore_put(kv, "plain", 5, "child", 5));
}

/* No descriptor and no mapping of the child refers to the files of the parent's open store. */
static void what_was_inherited_is_dead(const char *when)
{
    char folder[500], line[2000];
    size_t length;
    struct dirent *entry;
    DIR *descriptors = opendir("/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "re");

    CHECK(descriptors != NULL && maps != NULL && getcwd(folder, sizeof folder) != NULL);
    length = strlen(folder);
    while ((entry = readdir(descriptors)) != NULL) {
        ssize_t n = readlinkat(dirfd(descriptors), entry->d_name, line, sizeof line - 1);
        if (n < 0) continue;
        line[n] = 0;
        if (strncmp(line, folder, length) == 0 && strncmp(line + length, "/" STORE, strlen("/" STORE)) == 0) {
            fail("%s descriptor %s of the child still leads to %s", when, entry->d_name, line);
        }
    }
    closedir(descriptors);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, folder) && strstr(line, "/" STORE)) fail("%s the child still has this map: %s", when, line);
    }
    fclose(maps);
}

/* ---- states of the parent ----------------------------------------------------------------------------- */

static pthread_t threads[8];
static int running;
static atomic_int stop;

static void *commits_on_its_own(void *number)
{
    int writer = (int)(intptr_t)number;
    KVStore *mine = open_ours(mode);
    resume_ours(mine, writer);
    while (!stop) commit_ours(mine, writer);
    close_ours(mine);
    return NULL;
}

static void *reads_and_writes_on_the_shared(void *unused)
{
    (void)unused;
    for (unsigned n = 0; !stop; n++) {
        char key[20];
        void *value;
        int length, rc;
        PATIENTLY(rc, kvstore_cf_put(family, key, sprintf(key, "shared %u", n % 100), &n, sizeof n));
        WORKS(kv, rc);
        PATIENTLY(rc, kvstore_get(kv, "plain", 5, &value, &length));
        WORKS(kv, rc);
        kvstore_free(value);
    }
    return NULL;
}

static void *opens_and_closes(void *unused)
{
    (void)unused;
    while (!stop) {
        KVStore *mine = open_ours(mode);
        counter_of_ours(mine, PARENT);
        close_ours(mine);
        WORKS(NULL, kvstore_open(NULL, &mine, 0));
        close_ours(mine);
    }
    return NULL;
}

static void *makes_small_handles(void *unused)
{
    (void)unused;
    while (!stop) {
        KVColumnFamily *cf;
        KVIterator *iterator;
        KVBatch *writes;
        WORKS(kv, kvstore_cf_get_default(kv, &cf));
        WORKS(kv, kvstore_cf_iterator_create(cf, &iterator));
        kvstore_iterator_close(iterator);
        WORKS(kv, kvstore_batch_new(kv, &writes));
        kvstore_batch_free(writes);
        kvstore_cf_close(cf);
        MUST(KVSTORE_ERROR, kv, kvstore_put(kv, "k", 0, "v", 1)); /* an error text is made */
        MUST(KVSTORE_ERROR, NULL, kvstore_put(NULL, "k", 1, "v", 1));
    }
    return NULL;
}

static void *lets_keys_die(void *unused)
{
    (void)unused;
    for (unsigned n = 0; !stop; n++) {
        char key[20];
        int rc;
        PATIENTLY(rc, kvstore_put_ttl(kv, key, sprintf(key, "dying %u", n % 1000), "v", 1, kvstore_now_ms() + 1));
        WORKS(kv, rc);
    }
    return NULL;
}

/* Without a WAL, SQLite can mistake a journal that another writer is just removing in a rollback
 * for one left by a crash (ticket #3883). A read-only handle cannot roll it back. */
static int as_reader(int rc)
{
    return rc == KVSTORE_READONLY && !is_wal(mode) ? KVSTORE_BUSY : rc;
}

static void *backs_up(void *unused)
{
    (void)unused;
    while (!stop) {
        int rc;
        PATIENTLY(rc, as_reader(kvstore_backup(kv, "copy.db", NULL, NULL)));
        WORKS(kv, rc);
        unlink("copy.db");
    }
    return NULL;
}

static void *checkpoints(void *unused)
{
    (void)unused;
    while (!stop) {
        int rc = kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL);
        if (rc != KVSTORE_BUSY) WORKS(kv, rc);
    }
    return NULL;
}

static void run_thread(void *(*work)(void *), int argument)
{
    CHECK(pthread_create(&threads[running++], NULL, work, (void *)(intptr_t)argument) == 0);
}

static KVStore *many[50];

static void begin_state(void)
{
    switch (state) {
    case MANY:
        for (int i = 0; i < 50; i++) {
            many[i] = open_ours(mode);
            counter_of_ours(many[i], PARENT);
        }
        break;
    case THREADS:
        run_thread(commits_on_its_own, THREAD);
        run_thread(reads_and_writes_on_the_shared, 0);
        run_thread(reads_and_writes_on_the_shared, 0);
        break;
    case OPENING:
        run_thread(opens_and_closes, 0);
        run_thread(opens_and_closes, 0);
        run_thread(makes_small_handles, 0);
        break;
    case CLEANER:
        WORKS(kv, kvstore_cleaner_start(kv, 1, 0));
        run_thread(lets_keys_die, 0);
        break;
    case BACKUP:
        for (int i = 0; i < 300; i++) {
            static const char large[3000];
            char key[20];
            WORKS(kv, kvstore_put(kv, key, sprintf(key, "large %d", i), large, sizeof large));
        }
        run_thread(backs_up, 0);
        run_thread(commits_on_its_own, THREAD);
        break;
    case CHECKPOINT:
        run_thread(checkpoints, 0);
        run_thread(commits_on_its_own, THREAD);
        break;
    default: break;
    }
}

static void end_state(void)
{
    stop = 1;
    while (running) CHECK(pthread_join(threads[--running], NULL) == 0);
    if (state == CLEANER) WORKS(kv, kvstore_cleaner_stop(kv));
    for (int i = 0; state == MANY && i < 50; i++) close_ours(many[i]);
}

/* Whether other processes may be writing. In DELETE mode readers then get BUSY. */
static int others_write(void)
{
    return state >= THREADS && state <= CHECKPOINT;
}

/* ---- the child ---------------------------------------------------------------------------------------- */

/* Opens the store and works with it. NULL: the open was refused, which is allowed without OFD locks. */
static KVStore *open_anew(void)
{
    KVStoreConfig config = ours_config(mode);
    KVStore *mine;
    int rc;

    PATIENTLY(rc, kvstore_open_v2(STORE, &mine, &config));
    if (rc == KVSTORE_MISUSE && may_be_refused) {
        CHECK(mine == NULL && strstr(kvstore_errmsg(NULL), "fork") != NULL);
        return NULL;
    }
    if (rc != KVSTORE_OK) fail("a child cannot open the store: %s: %s", kvstore_strerror(rc), kvstore_errmsg(NULL));
    return mine;
}

static void works_anew(KVStore *mine, int writer)
{
    uint64_t before = acknowledged_of(PARENT);
    KVStoreConfig config = ours_config(mode);
    KVStore *second;
    int there, rc;

    judge("a child", PARENT, before, counter_of_ours(mine, PARENT));
    verify_ours(mine, 0);
    if (state == WRITING) {
        /* The parent's transaction is not visible, and blocks all other writers, including its own children. */
        PATIENTLY(rc, kvstore_exists(mine, "in the transaction", 18, &there));
        WORKS(mine, rc);
        CHECK(!there);
        MUST(KVSTORE_BUSY, mine, kvstore_put(mine, "k", 1, "v", 1));
        MUST(KVSTORE_BUSY, mine, kvstore_begin(mine, 1));
    } else if (state == READING && !is_wal(mode)) {
        WORKS(mine, kvstore_begin(mine, 1)); /* the parent's read lock keeps this from committing */
        WORKS(mine, kvstore_put(mine, "k", 1, "v", 1));
        MUST(KVSTORE_BUSY, mine, kvstore_commit(mine));
        WORKS(mine, kvstore_rollback(mine));
    } else {
        resume_ours(mine, writer);
        for (int i = 0; i < 3; i++) commit_ours(mine, writer);
    }
    /* A second handle comes and goes, and the first still has its locks. */
    config.readOnly = is_wal(mode);
    PATIENTLY(rc, kvstore_open_v2(STORE, &second, &config));
    WORKS(NULL, rc);
    verify_ours(second, 0);
    close_ours(second);
    verify_ours(mine, 0);
}

static void *opens_in_a_thread(void *writer)
{
    KVStore *mine = open_anew();
    if (mine) {
        works_anew(mine, (int)(intptr_t)writer);
        close_ours(mine);
    }
    return NULL;
}

static void leave(KVStore *mine, unsigned how)
{
    KVStore *own;

    fflush(NULL);
    switch (how) {
    case 0: _exit(0);
    case 1: /* nothing closed, all destructors run */ exit(0);
    case 2: /* as exit, but own handles closed */
        if (mine) close_ours(mine);
        exit(0);
    case 3:
        if (mine) close_ours(mine);
        everything_is_closed();
        for (int i = 0; i < (the_round % 8 ? 1 : 70); i++) { /* until the memory of the closed handle is used again */
            WORKS(NULL, kvstore_open(NULL, &own, 0));
            close_ours(own);
        }
        exit(0);
    default: fail("no such way to leave");
    }
}

/* Returns the handle that it has opened; NULL: the open was refused. */
static KVStore *live(int writer, struct chance *luck)
{
    unsigned order = below(luck, 4);
    KVStore *mine = NULL;

    limit_time(LIMIT_S);
    if (order == 0) { /* the first thing of all */
        mine = open_anew();
        if (mine) works_anew(mine, writer);
        all_functions_are_refused();
    } else {
        if (order == 1 && !may_be_refused) what_was_inherited_is_dead("right after the fork");
        MUST(KVSTORE_MISUSE, kv, kvstore_put(kv, "plain", 5, "child", 5));
        MUST(KVSTORE_MISUSE, kv, kvstore_commit(kv));
        if (state == MANY) MUST(KVSTORE_MISUSE, many[7], kvstore_put(many[7], "k", 1, "v", 1));
        if (!may_be_refused) what_was_inherited_is_dead("after a call");
        all_functions_are_refused();
        if (order == 3) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, opens_in_a_thread, (void *)(intptr_t)writer) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
        }
        mine = open_anew();
        if (mine) works_anew(mine, writer);
    }
    return mine;
}

static void child(struct chance luck)
{
    KVStore *mine = live(CHILD + the_round % 24, &luck);

    if (below(&luck, 3) == 0) { /* a child of the child, which has the store open */
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            limit_time(LIMIT_S);
            if (mine) MUST(KVSTORE_MISUSE, mine, kvstore_put(mine, "k", 1, "v", 1));
            leave(live(GRANDCHILD + the_round % 24, &luck), below(&luck, 4));
        }
        must_end_well(pid, LIMIT_S + 10, "a child of a child");
        if (mine) verify_ours(mine, 0);
    }
    leave(mine, below(&luck, 4));
}

/* ---- rounds ------------------------------------------------------------------------------------------- */

static pid_t fork_child(void)
{
    struct chance luck = {chance.state + (uint64_t)the_round * 2654435761u};
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) child(luck);
    return pid;
}

static pid_t forked_in_callback;

static int forks_once(void *unused, int remaining, int total)
{
    (void)unused, (void)remaining, (void)total;
    if (!forked_in_callback) forked_in_callback = fork_child();
    return 0;
}

static int64_t forks_as_a_clock(void *unused)
{
    forks_once(unused, 0, 0);
    return 1700000000000;
}

static void one_round(void)
{
    struct pollfd end = {.events = POLLIN};
    pid_t pid;

    switch (state) {
    case READING:
        WORKS(kv, kvstore_begin(kv, 0));
        counter_of_ours(kv, PARENT);
        break;
    case WRITING:
        WORKS(kv, kvstore_begin(kv, 1));
        WORKS(kv, kvstore_put(kv, "in the transaction", 18, "v", 1));
        break;
    case CLOSED: /* what was open leaves nothing that a child could stumble over */
        close_handles();
        break;
    case EXCLUSIVE: break;
    default: commit_ours(kv, PARENT);
    }

    if (state == CALLBACK) {
        forked_in_callback = 0;
        if (the_round % 2) {
            WORKS(kv, kvstore_backup(kv, "copy.db", forks_once, NULL));
            unlink("copy.db");
        } else {
            int64_t left;
            WORKS(kv, kvstore_put_ttl(kv, "clocked", 7, "v", 1, 4000000000000));
            WORKS(kv, kvstore_set_clock(kv, forks_as_a_clock, NULL));
            WORKS(kv, kvstore_ttl_remaining(kv, "clocked", 7, &left));
            WORKS(kv, kvstore_set_clock(kv, NULL, NULL));
        }
        pid = forked_in_callback;
        CHECK(pid > 0);
    } else {
        pid = fork_child();
    }

    /* The parent writes while the child opens and reads. */
    end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(end.fd >= 0);
    for (int64_t since = now_ms(); poll(&end, 1, 0) == 0 && now_ms() - since < (LIMIT_S + 15) * 1000;) {
        if (state == IDLE || state == MANY || state == CALLBACK) {
            commit_ours(kv, PARENT);
            counter_of_ours(kv, PARENT);
        } else {
            poll(&end, 1, 1000);
        }
    }
    close(end.fd);
    must_end_well(pid, 1, "a child");

    switch (state) {
    case READING:
    case WRITING:
        if (state == WRITING) WORKS(kv, kvstore_put(kv, "in the transaction", 18, "w", 1));
        WORKS(kv, kvstore_commit(kv));
        if (state == WRITING) WORKS(kv, kvstore_delete(kv, "in the transaction", 18));
        break;
    case CLOSED: open_handles(0); break;
    default: break;
    }
    if (!others_write()) { /* else its turns on the shared handle could be inside a transaction */
        verify_ours(kv, the_round % 10 == 0);
        WORKS(kv, kvstore_iterator_first(it));
        CHECK(!kvstore_iterator_eof(it));
    }
    if (is_wal(mode)) CHECK(is_there(STORE "-wal") && is_there(STORE "-shm"));
}

static int goes_on(int rounds, int seconds, int64_t since)
{
    return seconds ? now_ms() - since < seconds * 1000 : the_round < rounds;
}

static void rounds(int count, int seconds, uint64_t seed)
{
    int64_t since = now_ms();

    chance = seeded(seed);
    open_ledger();
    open_handles(1);
    begin_state();
    for (; goes_on(count, seconds, since); the_round++) {
        limit_time(60);
        one_round();
    }
    limit_time(60);
    end_state();
    verify_ours(kv, 1);
    close_handles();
    must_end_well(start("unlocked", NULL, NULL, NULL), 20, "unlocked");
    must_end_well(start("verify", mode, NULL, NULL), 60, "verify");
    printf("%s, %s: %d forks, %llu commits\n", state_names[state], mode, the_round, (unsigned long long)all_acknowledged());
}

/* The parent has the store open exclusively: a child gets BUSY and does no harm. */
static void exclusive(void)
{
    KVStoreConfig config = ours_config(mode);
    KVStore *mine;
    pid_t pid;
    int rc;

    config.exclusive = 1;
    WORKS(NULL, kvstore_open_v2(STORE, &kv, &config));
    WORKS(kv, kvstore_put(kv, "plain", 5, "value", 5));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        limit_time(LIMIT_S);
        MUST(KVSTORE_MISUSE, kv, kvstore_put(kv, "plain", 5, "child", 5));
        config.exclusive = 0;
        rc = kvstore_open_v2(STORE, &mine, &config);
        if (rc != KVSTORE_BUSY && !(may_be_refused && rc == KVSTORE_MISUSE)) {
            fail("beside an exclusive handle a child gets %d (%s)", rc, kvstore_errmsg(NULL));
        }
        MUST(KVSTORE_MISUSE, kv, kvstore_close(kv));
        exit(0);
    }
    must_end_well(pid, LIMIT_S + 10, "a child");
    WORKS(kv, kvstore_put(kv, "plain", 5, "again", 5));
    must_end_well(start("busy", mode, NULL, NULL), 20, "busy");
    WORKS(kv, kvstore_integrity_check(kv, NULL));
    close_ours(kv);
    must_end_well(start("unlocked", NULL, NULL, NULL), 20, "unlocked");
}

/* ---- the parent is killed ----------------------------------------------------------------------------- */

/* "doomed MODE SEED": opens, begins to write, forks a child, and waits to be killed. The child shares its
 * stdin and stdout: it reports that it has started, and is notified when the parent has ended. */
static void doomed(uint64_t seed)
{
    struct chance luck = seeded(seed);
    unsigned when = below(&luck, 3); /* the child opens the store: only after the parent's death; also before; and stays */
    unsigned larges = below(&luck, 3) * 30;
    int rc;
    static char large[200000];
    pid_t pid;

    open_ledger();
    kv = open_ours(mode);
    resume_ours(kv, PARENT);
    for (unsigned n = below(&luck, 20) + 1; n; n--) commit_ours(kv, PARENT);
    state = (enum state[]){IDLE, OPENING, CLEANER}[below(&luck, 3)];
    begin_state();
    PATIENTLY(rc, kvstore_begin(kv, 1));
    WORKS(kv, rc);
    WORKS(kv, kvstore_put(kv, "in the transaction", 18, "v", 1));
    for (unsigned n = larges; n; n--) { /* sometimes more than the cache holds; without a WAL no process can read then */
        char key[20];
        if (!is_wal(mode)) when = 0;
        memset(large, (int)n, sizeof large);
        WORKS(kv, kvstore_put(kv, key, sprintf(key, "large %u", n), large, sizeof large));
    }
    pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) {
        for (;;) pause();
    }
    limit_time(LIMIT_S * 2);
    if (when > 0) {
        KVStore *mine;
        MUST(KVSTORE_MISUSE, kv, kvstore_put(kv, "k", 1, "v", 1));
        mine = open_anew();
        if (mine) {
            verify_ours(mine, 0);
            if (when == 1) close_ours(mine);
        }
    }
    say(1);
    CHECK(hears(0));
    {
        KVStore *mine = open_anew();
        int there;
        if (mine) {
            verify_ours(mine, 1);
            WORKS(mine, kvstore_exists(mine, "in the transaction", 18, &there));
            CHECK(!there);
            resume_ours(mine, CHILD);
            for (int i = 0; i < 3; i++) commit_ours(mine, CHILD);
            if (below(&luck, 2)) close_ours(mine);
        }
    }
    say(1);
    _exit(0);
}

/* "at-once MODE": no lock conflicts, and nothing waits. */
static void at_once(unsigned by_stock)
{
    int64_t since = now_ms();
    int there;

    limit_time(LIMIT_S);
    load_stock();
    if (by_stock) {
        struct stock s;
        CHECK(STOCK(open_v2)(STORE, &s.db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
        if (run_stock(&s, "BEGIN IMMEDIATE; UPDATE \"data:default\" SET value = value WHERE key = CAST('c/00' AS BLOB); COMMIT") != SQLITE_OK) {
            fail("stock cannot write at once: %s", STOCK(errmsg)(s.db));
        }
        CHECK(STOCK(close)(s.db) == SQLITE_OK);
    } else {
        KVStoreConfig config = ours_config(mode);
        WORKS(NULL, kvstore_open_v2(STORE, &kv, &config));
        WORKS(kv, kvstore_exists(kv, "in the transaction", 18, &there));
        CHECK(!there);
        WORKS(kv, kvstore_put(kv, "at once", 7, "v", 1));
        close_ours(kv);
    }
    /* An open that finds a lock waits for 2 s: that is not at once. */
    if (now_ms() - since > 1500) fail("a write after the parent's death took %lld ms", (long long)(now_ms() - since));
}

static void killed(int count, int seconds, uint64_t seed)
{
    int64_t since = now_ms();
    char number[24];

    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* the children of the killed become ours */
    open_ledger();
    close_ours(open_ours(mode));
    for (; goes_on(count, seconds, since); the_round++) {
        struct other parent;
        int status;
        pid_t left;

        limit_time(120);
        sprintf(number, "%llu", (unsigned long long)(seed + (uint64_t)the_round));
        parent = start_other("doomed", mode, number, NULL);
        hear(parent.from, 60, "the child");
        CHECK(kill(parent.pid, SIGKILL) == 0 && waitpid(parent.pid, &status, 0) == parent.pid);
        must_end_well(start("at-once", mode, the_round % 2 ? "stock" : "ours", NULL), LIMIT_S + 5, "at-once");
        say(parent.to);
        hear(parent.from, 60, "the child");
        do { /* it was this process's grandchild */
            left = waitpid(-1, &status, 0);
        } while (left < 0 && errno == EINTR);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("the child of the killed ended with %d", status);
        close(parent.to);
        close(parent.from);
        if (the_round % 5 == 0) must_end_well(start("verify", mode, NULL, NULL), 60, "verify");
    }
    must_end_well(start("unlocked", NULL, NULL, NULL), 20, "unlocked");
    must_end_well(start("verify", mode, NULL, NULL), 60, "verify");
    printf("killed, %s: %d parents, %llu commits\n", mode, the_round, (unsigned long long)all_acknowledged());
}

/* ---- exec --------------------------------------------------------------------------------------------- */

/* "fds": this process has inherited nothing but its standard streams. */
static void only_three_descriptors(void)
{
    struct dirent *entry;
    DIR *descriptors = opendir("/proc/self/fd");
    CHECK(descriptors != NULL);
    while ((entry = readdir(descriptors)) != NULL) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(descriptors)) {
            char target[500];
            ssize_t n = readlinkat(dirfd(descriptors), entry->d_name, target, sizeof target);
            fail("descriptor %d has come through exec: %.*s", fd, (int)(n < 0 ? 0 : n), target);
        }
    }
    closedir(descriptors);
}

/* "held MODE": another process finds the parent's write transaction. */
static void is_held(void)
{
    KVStore *mine = open_ours(mode);
    MUST(KVSTORE_BUSY, mine, kvstore_put(mine, "k", 1, "v", 1));
    close_ours(mine);
}

static void exec_in_children(void)
{
    static char program[] = "/proc/self/exe";
    char *argv[] = {program, (char[]){"fds"}, NULL};
    char self[1000], command[1100];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    pid_t pid;

    CHECK(n > 0);
    self[n] = 0;
    limit_time(60);
    open_ledger();
    for (int i = 3; i < 4096; i++) { /* of the process that started this program */
        struct stat st;
        if (fstat(i, &st) == 0) CHECK(fcntl(i, F_SETFD, FD_CLOEXEC) == 0);
    }
    open_handles(1);
    close_ours(open_ours(mode)); /* one that was closed */
    WORKS(kv, kvstore_begin(kv, 1));
    WORKS(kv, kvstore_put(kv, "in the transaction", 18, "v", 1));
    for (int way = 0; way < 5; way++) {
        fflush(NULL);
        switch (way) {
        case 0: /* with what the library does at a fork */
            pid = fork();
            if (pid == 0) {
                execv(program, argv);
                _exit(9);
            }
            break;
        case 1:
            pid = fork();
            if (pid == 0) {
                KVStore *mine = open_anew();
                if (mine) MUST(KVSTORE_BUSY, mine, kvstore_put(mine, "k", 1, "v", 1));
                execv(program, argv);
                _exit(9);
            }
            break;
        case 2:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
            pid = vfork();
#pragma GCC diagnostic pop
            if (pid == 0) {
                execv(program, argv);
                _exit(9);
            }
            break;
        case 3: CHECK(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0); break;
        default:
            snprintf(command, sizeof command, "'%s' fds", self);
            CHECK(system(command) == 0);
            pid = 0;
        }
        CHECK(pid >= 0);
        if (pid) must_end_well(pid, LIMIT_S, "a program after exec");
        WORKS(kv, kvstore_put(kv, "in the transaction", 18, "w", 1));
        must_end_well(start("held", mode, NULL, NULL), LIMIT_S, "held");
    }
    WORKS(kv, kvstore_commit(kv));
    WORKS(kv, kvstore_batch_commit(batch));
    WORKS(kv, kvstore_integrity_check(kv, NULL));
    close_handles();
    must_end_well(start("unlocked", NULL, NULL, NULL), LIMIT_S, "unlocked");
}

/* ---- wait hook ---------------------------------------------------------------------------------------- */

static int ends_at_once(void *unused)
{
    (void)unused;
    return 1;
}

static void *waits_again_and_again(void *unused)
{
    KVStoreConfig config = ours_config(mode);
    KVStore *mine = NULL;
    config.busyTimeout = 1000;
    WORKS(NULL, kvstore_open_v2(STORE, &mine, &config));
    while (!atomic_load(&stop)) MUST(KVSTORE_BUSY, mine, kvstore_put(mine, "k", 1, "v", 1));
    close_ours(mine);
    return unused;
}

/* A child sets a wait hook of its own, whatever the parent's threads did with theirs at the fork. */
static void forks_while_waiting(int forks)
{
    open_handles(1);
    kvstore_set_wait_hook(ends_at_once, NULL);
    WORKS(kv, kvstore_begin(kv, 1));
    for (int i = 0; i < 6; i++) run_thread(waits_again_and_again, i);
    for (int i = 0; i < forks; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            kvstore_set_wait_hook(NULL, NULL);
            _exit(0);
        }
        must_end_well(pid, LIMIT_S, "a child that sets a wait hook");
    }
    atomic_store(&stop, 1);
    while (running > 0) CHECK(pthread_join(threads[--running], NULL) == 0);
    kvstore_set_wait_hook(NULL, NULL);
    WORKS(kv, kvstore_rollback(kv));
    close_handles();
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    can_say_where();
    may_be_refused = !kernel_has_ofd();
    if (argc > 2) mode = argv[2];
    if (!strcmp(role, "rounds") && argc == 7) {
        while (state < STATES && strcmp(argv[2], state_names[state]) != 0) state++;
        CHECK(state < STATES);
        mode = argv[3];
        if (state == EXCLUSIVE) exclusive();
        else rounds(atoi(argv[4]), atoi(argv[5]), strtoull(argv[6], NULL, 10));
    } else if (!strcmp(role, "killed") && argc == 6) {
        killed(atoi(argv[3]), atoi(argv[4]), strtoull(argv[5], NULL, 10));
    } else if (!strcmp(role, "exec")) {
        exec_in_children();
    } else if (!strcmp(role, "waiting") && argc == 4) {
        forks_while_waiting(atoi(argv[3]));
    } else if (!strcmp(role, "doomed") && argc == 4) {
        doomed(strtoull(argv[3], NULL, 10));
    } else if (!strcmp(role, "at-once") && argc == 4) {
        at_once(!strcmp(argv[3], "stock"));
    } else if (!strcmp(role, "held")) {
        limit_time(LIMIT_S);
        is_held();
    } else if (!strcmp(role, "busy")) {
        KVStoreConfig config = ours_config(mode);
        MUST(KVSTORE_BUSY, NULL, kvstore_open_v2(STORE, &kv, &config));
    } else if (!strcmp(role, "fds")) {
        only_three_descriptors();
    } else if (!strcmp(role, "unlocked")) {
        must_be_unlocked("after the last close");
    } else if (!strcmp(role, "verify")) {
        load_stock();
        open_ledger();
        verify_role(mode, 1);
    } else {
        fprintf(stderr, "no such role\n");
        return 2;
    }
    return 0;
}
