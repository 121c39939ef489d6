/* Members of multixacts, read from the files of the backup. What lies below the next multixact of
 * the backup's checkpoint was in them when it was written; later entries may be there in part. */
#include "base/file.h"
#include "load/load_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* More than any multixact has: the transactions that can be open at a time bound it. */
#define MEMBERS_MAX (1u << 20)

/* One directory, with the page that was read last. */
struct slru {
    char *dir;
    int fd; /* of `segment`; -1: none */
    uint32_t segment;
    uint32_t page;
    bool has_page;
    uint8_t bytes[PG_BLCKSZ];
};

struct members {
    MultiXactId next_multi;
    MultiXactOffset next_offset;
    struct slru offsets, members;
};

struct members *members_new(const char *data_dir, MultiXactId next_multi,
                            MultiXactOffset next_offset)
{
    struct members *m = xcalloc(1, sizeof *m);
    m->next_multi = next_multi;
    m->next_offset = next_offset;
    m->offsets.dir = xasprintf("%s/pg_multixact/offsets", data_dir);
    m->members.dir = xasprintf("%s/pg_multixact/members", data_dir);
    m->offsets.fd = m->members.fd = -1;
    return m;
}

static void slru_close(struct slru *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->has_page = false;
}

void members_free(struct members *m)
{
    if (m == NULL)
        return;
    slru_close(&m->offsets);
    slru_close(&m->members);
    free(m->offsets.dir);
    free(m->members.dir);
    free(m);
}

/* *ret NULL: there is no such segment, or it ends before the page. */
static enum status slru_page(struct slru *s, struct slru_place at, const uint8_t **ret,
                             struct error *err)
{
    char name[SLRU_SEGMENT_NAME_MAX];
    slru_segment_name(at.segment, name);
    CLEANUP_FREE char *path = xasprintf("%s/%s", s->dir, name);
    *ret = s->bytes;
    if (s->has_page && s->segment == at.segment && s->page == at.page)
        return OK;
    if (s->fd < 0 || s->segment != at.segment) {
        slru_close(s);
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
        s->segment = at.segment;
        if (s->fd < 0 && errno != ENOENT)
            return error_sys(err, ERR_CONFIG, "cannot open %s", path);
    }
    s->has_page = false;
    *ret = NULL;
    if (s->fd < 0)
        return OK;
    ssize_t n = pread(s->fd, s->bytes, PG_BLCKSZ, (off_t)at.page * PG_BLCKSZ);
    if (n < 0)
        return error_sys(err, ERR_CONFIG, "cannot read %s", path);
    if (n < (ssize_t)PG_BLCKSZ)
        return OK;
    s->page = at.page;
    s->has_page = true;
    *ret = s->bytes;
    return OK;
}

/* 0: it is not there. */
static enum status first_member(struct members *m, MultiXactId multi, MultiXactOffset *ret,
                                struct error *err)
{
    const uint8_t *page;
    struct slru_place at = multixact_offset_place(multi);
    TRY(slru_page(&m->offsets, at, &page, err));
    *ret = page == NULL ? 0 : multixact_offset_get(page, at);
    return OK;
}

static enum status updater_find(struct members *m, MultiXactOffset first, MultiXactOffset end,
                                enum updater_fact *ret, TransactionId *ret_xid, struct error *err)
{
    *ret = UPDATER_NONE;
    for (MultiXactOffset i = first; i != end; i++) { /* over the wrap around too */
        const uint8_t *page;
        struct multixact_member member;
        struct slru_place at = multixact_member_place(i);
        TRY(slru_page(&m->members, at, &page, err));
        if (page == NULL) {
            *ret = UPDATER_LOST;
            return OK;
        }
        TRY(multixact_member_get(page, at, &member, err));
        if (multixact_member_updates(member)) {
            *ret = UPDATER_XID;
            *ret_xid = member.xid;
            return OK;
        }
    }
    return OK;
}

enum status members_updater(struct members *m, MultiXactId multi, enum updater_fact *ret,
                            TransactionId *ret_xid, struct error *err)
{
    MultiXactOffset first, end = m->next_offset;
    MultiXactId next = multixact_next(multi);
    *ret = UPDATER_LOST;
    if (load_members_lost() || multi < FirstMultiXactId || (int32_t)(multi - m->next_multi) >= 0)
        return OK;
    TRY(first_member(m, multi, &first, err));
    if (next != m->next_multi)
        TRY(first_member(m, next, &end, err));
    if (first == 0 || end == 0 || end - first > MEMBERS_MAX)
        return OK;
    if (updater_find(m, first, end, ret, ret_xid, err) != OK)
        return error_prefix(err, "multixact %u", multi);
    return OK;
}
