#include "engine/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAULT_CODE_DEFAULT 241 /* MEMORY_LIMIT_EXCEEDED: a client must retry */
#define RANDOM_PERCENT_DEFAULT 10
#define RANDOM_DELAY_MAX_MS 500

static bool number_parse(const char *text, char **ret_end, uint64_t *ret)
{
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long v = strtoull(text, ret_end, 10);
    if (errno != 0)
        return false;
    *ret = v;
    return true;
}

static bool item_parse(struct engine_fault *f, const char *name, const char *value)
{
    uint64_t n;
    char *end;
    if (!number_parse(value, &end, &n))
        return false;
    if (strcmp(name, "fail-insert") == 0 || strcmp(name, "fail-every") == 0) {
        uint64_t code = FAULT_CODE_DEFAULT;
        if (*end == ':' && (!number_parse(end + 1, &end, &code) || code == 0 || code > 99999))
            return false;
        *(name[5] == 'i' ? &f->fail_insert : &f->fail_every) = n;
        f->fail_code = (int)code;
    } else if (strcmp(name, "delay-eos") == 0) {
        f->delay_eos_ms = n;
    } else if (strcmp(name, "drop-after") == 0 || strcmp(name, "drop-every") == 0) {
        f->drop_after = n;
        f->drop_repeats = name[5] == 'e';
    } else if (strcmp(name, "kill-insert") == 0) {
        f->kill_insert = n;
    } else if (strcmp(name, "kill-eos") == 0) {
        f->kill_eos = n;
    } else if (strcmp(name, "random") == 0) {
        uint64_t percent = RANDOM_PERCENT_DEFAULT;
        if (*end == ':' && (!number_parse(end + 1, &end, &percent) || percent > 25))
            return false;
        f->random_seed = n;
        f->random_percent = percent;
        f->fail_code = FAULT_CODE_DEFAULT;
    } else {
        return false;
    }
    return *end == 0;
}

enum status engine_fault_parse(struct engine_fault *f, const char *spec, struct error *err)
{
    if (spec == NULL || spec[0] == 0)
        return OK;
    CLEANUP_FREE char *copy = xstrdup(spec);
    char *save = NULL;
    for (char *item = strtok_r(copy, ",", &save); item != NULL; item = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(item, '=');
        if (equals != NULL)
            *equals = 0;
        if (equals == NULL || !item_parse(f, item, equals + 1))
            return error_set(err, ERR_CONFIG, "fault \"%s\" is not known or has a bad value", item);
    }
    return OK;
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

enum lot { LOT_FINE, LOT_FAIL, LOT_LATE_COMMIT, LOT_LATE_ANSWER, LOT_CUT };

/* What befalls the INSERT of that number: the same in every run with the seed. */
static enum lot lot_of(const struct engine_fault *f, uint64_t insert)
{
    uint64_t drawn = mix(f->random_seed ^ mix(insert)) % 100;
    if (f->random_percent == 0 || drawn >= 4 * f->random_percent)
        return LOT_FINE;
    return (enum lot)(LOT_FAIL + drawn / f->random_percent);
}

static void pause_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static void pause_at_random(const struct engine_fault *f, uint64_t insert)
{
    pause_ms(mix(f->random_seed + insert) % RANDOM_DELAY_MAX_MS);
}

uint64_t engine_fault_insert(struct engine_fault *f, int *ret_code)
{
    uint64_t n = atomic_fetch_add(&f->inserts, 1) + 1;
    bool fail = n == f->fail_insert || (f->fail_every > 0 && n % f->fail_every == 0) ||
                lot_of(f, n) == LOT_FAIL;
    *ret_code = fail ? f->fail_code : 0;
    return n;
}

void engine_fault_before_commit(const struct engine_fault *f, uint64_t insert)
{
    if (f->kill_insert == insert)
        kill(getpid(), SIGKILL);
    if (lot_of(f, insert) == LOT_LATE_COMMIT)
        pause_at_random(f, insert);
}

bool engine_fault_before_eos(const struct engine_fault *f, uint64_t insert)
{
    if (f->kill_eos == insert)
        kill(getpid(), SIGKILL);
    if (f->delay_eos_ms > 0)
        pause_ms(f->delay_eos_ms);
    if (lot_of(f, insert) == LOT_LATE_ANSWER)
        pause_at_random(f, insert);
    return lot_of(f, insert) == LOT_CUT;
}

bool engine_fault_received(struct engine_fault *f, uint64_t bytes)
{
    if (f->drop_after == 0)
        return false;
    uint64_t before = atomic_fetch_add(&f->bytes, bytes);
    uint64_t after = before + bytes;
    if (f->drop_repeats)
        return before / f->drop_after != after / f->drop_after;
    return before < f->drop_after && after >= f->drop_after;
}
