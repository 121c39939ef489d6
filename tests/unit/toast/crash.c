/* kill -9 at any instant: the next open finds a sound file with everything that a sync promised,
 * and putting again what followed gives the state of an uninterrupted run. */
#include "toast_dir.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ROUNDS 50
#define VALUES_PER_ROUND 300u /* at most, before the kill */
#define LIVES 300u            /* values; then it is deleted */

/* Value i has three chunks at LSN 100 i + 0, 1, 2, TIDs from (3 i) mod 3000 on; value i - LIVES
 * goes at 100 i + 50. */
static struct error err;

static enum status put_value(struct toast_store *s, uint32_t i)
{
    uint8_t data[3][1500];
    struct toast_event e[6];
    size_t n = 0;
    for (uint32_t seq = 0; seq < 3; seq++) {
        toast_fill(data[seq], i, seq, sizeof data[seq]);
        e[n++] = (struct toast_event){.kind = TOAST_BIRTH,
                                      .owner = 1,
                                      .lsn = 100ull * i + seq,
                                      .tid = (3 * i + seq) % 3000 + 1,
                                      .value_id = i % 5000,
                                      .seq = seq,
                                      .len = sizeof data[seq],
                                      .data = data[seq]};
    }
    for (uint32_t seq = 0; i >= LIVES && seq < 3; seq++)
        e[n++] = (struct toast_event){.kind = TOAST_DEATH,
                                      .owner = 1,
                                      .lsn = 100ull * i + 50 + seq,
                                      .tid = (3 * (i - LIVES) + seq) % 3000 + 1};
    return toast_store_put(s, e, n, &err);
}

static enum toast_found look(struct toast_store *s, uint32_t i, XLogRecPtr lsn)
{
    static uint8_t got[4500], want[4500];
    enum toast_found found;
    assert_ok(toast_fetch(s, 1, i % 5000, sizeof got, lsn, got, &found, &err));
    for (uint32_t seq = 0; seq < 3; seq++)
        toast_fill(want + seq * 1500, i, seq, 1500);
    if (found == TOAST_FOUND)
        assert_memory_equal(got, want, sizeof want);
    return found;
}

/* Values below `synced` were promised, those below `put` given to the store. */
struct progress {
    volatile uint32_t synced, put;
};

/* Writes until it is killed. */
static void child(struct progress *progress)
{
    struct toast_store *s = toast_open(64 << 10, 50);
    for (uint32_t i = progress->synced;; i++) {
        if (put_value(s, i) != OK)
            _exit(1);
        if (i % 37 == 36) {
            if (toast_store_sync(s, 100ull * (i + 1), &err) != OK)
                _exit(2);
            progress->synced = i + 1;
        }
        if (i % 101 == 100 && toast_store_reclaim(s, 100ull * progress->synced, &err) != OK)
            _exit(3);
        progress->put = i + 1;
    }
}

static void check(uint32_t synced)
{
    struct toast_store *s = toast_open(0, 0);
    struct toast_stats stats;
    XLogRecPtr lsn = 100ull * synced;
    uint32_t oldest = synced > LIVES ? synced - LIVES : 0;
    for (uint32_t i = oldest; i < synced; i++)
        assert_int_equal(look(s, i, lsn), TOAST_FOUND);
    if (oldest > 0)
        assert_int_equal(look(s, oldest - 1, lsn), TOAST_MISSING);
    /* as the daemon would: everything from the floor again, and a bit further */
    for (uint32_t i = synced; i < synced + 5; i++)
        assert_ok(put_value(s, i));
    assert_ok(toast_store_sync(s, UINT64_MAX, &err));
    for (uint32_t i = oldest + 5; i < synced + 5; i++)
        assert_int_equal(look(s, i, lsn + 500), TOAST_FOUND);
    assert_ok(toast_store_reclaim(s, lsn, &err));
    assert_ok(toast_store_stats(s, &stats, &err));
    assert_true(stats.chunks >= 3ull * (synced - oldest));
    toast_store_close(s);
}

static void test_kill(void **state)
{
    struct progress *p =
        mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t rng = 12345;
    (void)state;
    toast_dir_make();
    for (unsigned round = 0; round < ROUNDS; round++) {
        int status;
        p->put = p->synced;
        rng = rng * 1664525u + 1013904223u;
        uint32_t target = p->synced + (rng >> 8) % VALUES_PER_ROUND;
        pid_t pid = fork();
        if (pid == 0)
            child(p);
        while (p->put < target && kill(pid, 0) == 0)
            usleep(100);
        usleep((rng >> 16) % 3000);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        check(p->synced);
    }
    assert_true(p->synced > ROUNDS * VALUES_PER_ROUND / 4);
    toast_dir_remove();
    munmap(p, sizeof *p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
