/* Answers to the commands of a replication connection that do not stream. */
#include "shadow/walsender_conn.h"
#include "shadow/wire.h"
#include "wal/archive.h"

#include <strings.h>

/* catalog/pg_type.dat */
#define TEXTOID 25
#define INT8OID 20

void walsender_identify_system(struct walsender_conn *c, struct buf *b)
{
    static const struct wire_column columns[] = {{"systemid", TEXTOID, -1},
                                                 {"timeline", INT8OID, 8},
                                                 {"xlogpos", TEXTOID, -1},
                                                 {"dbname", TEXTOID, -1}};
    char id[24], timeline[16], lsn[LSN_TEXT_MAX];
    XLogRecPtr end = wal_archive_visible_lsn(c->ws->options.archive);
    snprintf(id, sizeof id, "%llu", (unsigned long long)c->ws->options.system_id);
    snprintf(timeline, sizeof timeline, "%u", c->ws->options.timeline);
    snprintf(lsn, sizeof lsn, LSN_FMT, LSN_ARGS(end));
    wire_row_description(b, columns, LENGTH(columns));
    wire_data_row(b, (const char *const[]){id, timeline, lsn, NULL}, 4);
    wire_complete(b, "IDENTIFY_SYSTEM");
}

void walsender_show(struct walsender_conn *c, const char *name, struct buf *b)
{
    char value[32];
    uint64_t bytes = c->ws->options.segment_bytes;
    if (strcasecmp(name, "wal_segment_size") == 0)
        snprintf(value, sizeof value, "%u%s", (unsigned)(bytes >> (bytes >= (1u << 30) ? 30 : 20)),
                 bytes >= (1u << 30) ? "GB" : "MB");
    else if (strcasecmp(name, "data_directory_mode") == 0)
        snprintf(value, sizeof value, "0700");
    else if (strcasecmp(name, "server_version") == 0)
        snprintf(value, sizeof value, "%u.0", c->ws->options.major);
    else {
        char text[128];
        snprintf(text, sizeof text, "parameter \"%s\" is not known here", name);
        wire_error(b, "ERROR", "42704", text);
        return;
    }
    const struct wire_column column = {name, TEXTOID, -1};
    wire_row_description(b, &column, 1);
    wire_data_row(b, (const char *const[]){value}, 1);
    wire_complete(b, "SHOW");
}

/* A timeline above 1 has a history file that tells where it left its parent. The shadow begins on
 * our timeline, from a backup taken on it: an empty history, which knows that timeline only, is all
 * it needs. */
void walsender_timeline_history(struct walsender_conn *c, uint32_t timeline, struct buf *b)
{
    static const struct wire_column columns[] = {{"filename", TEXTOID, -1},
                                                 {"content", TEXTOID, -1}};
    char name[32], text[80];
    if (timeline != c->ws->options.timeline || timeline == 1) {
        snprintf(text, sizeof text, "there is no history of timeline %u here", timeline);
        wire_error(b, "ERROR", "58P01", text);
        return;
    }
    snprintf(name, sizeof name, "%08X.history", timeline);
    wire_row_description(b, columns, LENGTH(columns));
    wire_data_row(b, (const char *const[]){name, ""}, 2);
    wire_complete(b, "TIMELINE_HISTORY");
}

void walsender_read_slot(struct buf *b)
{
    static const struct wire_column columns[] = {
        {"slot_type", TEXTOID, -1}, {"restart_lsn", TEXTOID, -1}, {"restart_tli", INT8OID, 8}};
    wire_row_description(b, columns, LENGTH(columns));
    wire_data_row(b, (const char *const[]){NULL, NULL, NULL}, 3); /* "no such slot" */
    wire_complete(b, "READ_REPLICATION_SLOT");
}
