#include "shadow/config_files.h"

#include "base/buf.h"
#include "base/file.h"
#include "shadow/paths.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum status write_file(const struct shadow_cluster_options *o, const char *name,
                              const struct buf *content, struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/%s", o->data_dir, name);
    return file_write_atomic(path, content->data, content->len, 0600, err);
}

/* A value in single quotes: quotes and backslashes doubled (guc-file.l). */
static void put_text(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, "%s = '", name);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\'' || *p == '\\')
            buf_put_u8(b, (uint8_t)*p);
        buf_put_u8(b, (uint8_t)*p);
    }
    buf_printf(b, "'\n");
}

static void put_number(struct buf *b, const char *name, long value)
{
    buf_printf(b, "%s = %ld\n", name, value);
}

/* A standby refuses to start, or pauses, with less than the primary has
 * (CheckRequiredParameterValues of xlogrecovery.c). The room above lets most raises at the source
 * pass without a restart here. */
static void put_limits(struct buf *b, const struct control_file *control)
{
    put_number(b, "max_connections", MAX(control->max_connections, 200));
    put_number(b, "max_worker_processes", MAX(control->max_worker_processes, 32));
    put_number(b, "max_wal_senders", MAX(control->max_wal_senders, 32));
    put_number(b, "max_prepared_transactions", MAX(control->max_prepared_xacts, 64));
    put_number(b, "max_locks_per_transaction", MAX(control->max_locks_per_xact, 128));
}

static void put_wal_sizes(struct buf *b, const struct control_file *control)
{
    long segment_mb = (long)(control->wal_segment_bytes >> 20);
    /* restartpoints follow the source's checkpoints; these only bound what they are kept for */
    buf_printf(b, "min_wal_size = %ldMB\nmax_wal_size = %ldMB\n", MAX(2 * segment_mb, 32L),
               MAX(4 * segment_mb, 256L));
}

static enum status write_postgresql_conf(const struct shadow_cluster_options *o,
                                         const char *socket_dir, const struct control_file *control,
                                         struct error *err)
{
    CLEANUP_BUF struct buf b = {0};
    buf_printf(&b, "# Written by walshadow at every start; changes are lost.\n");
    put_text(&b, "listen_addresses", "");
    put_text(&b, "unix_socket_directories", socket_dir);
    buf_printf(&b, "unix_socket_permissions = 0700\n");
    put_number(&b, "port", SHADOW_POSTGRES_PORT);
    CLEANUP_FREE char *conninfo =
        xasprintf("host=%s port=%d user=walshadow application_name=walshadow_shadow "
                  "sslmode=disable gssencmode=disable",
                  socket_dir, SHADOW_WALSENDER_PORT);
    put_text(&b, "primary_conninfo", conninfo);
    put_limits(&b, control);
    put_wal_sizes(&b, control);
    buf_printf(&b, "%s",
               /* recovery: nothing holds replay up, nothing waits longer than it must */
               "primary_slot_name = ''\n"
               "restore_command = ''\n"
               "archive_mode = off\n"
               "recovery_target_timeline = 'latest'\n"
               "hot_standby = on\n"
               "hot_standby_feedback = off\n"
               "max_standby_streaming_delay = -1\n"
               "max_standby_archive_delay = -1\n"
               "recovery_min_apply_delay = 0\n"
               "recovery_prefetch = off\n"
               "wal_retrieve_retry_interval = 100ms\n"
               "wal_receiver_status_interval = 10s\n"
               "wal_receiver_timeout = 60s\n"
               "wal_receiver_create_temp_slot = off\n"
               "wal_level = replica\n"
               "allow_in_place_tablespaces = on\n"
               /* its WAL is a copy of the archive's: no segment need be written twice */
               "wal_init_zero = off\n"
               /* restartpoints often: the archive keeps WAL until one has passed it */
               "checkpoint_timeout = 1min\n"
               /* nothing of the source's own may run here */
               "shared_preload_libraries = ''\n"
               "session_preload_libraries = ''\n"
               "local_preload_libraries = ''\n"
               "ssl = off\n"
               "jit = off\n"
               "autovacuum = off\n"
               /* small: a catalog and one session */
               "shared_buffers = 64MB\n"
               "huge_pages = off\n"
               "max_parallel_workers_per_gather = 0\n"
               "logging_collector = off\n"
               "log_destination = 'stderr'\n"
               "log_line_prefix = ''\n"
               "log_min_messages = fatal\n"
               "log_error_verbosity = terse\n"
               "lc_messages = 'C'\n"
               "timezone = 'UTC'\n"
               "log_timezone = 'UTC'\n");
    if (o->major >= 17)
        buf_printf(&b, "event_triggers = off\nsummarize_wal = off\n");
    if (o->major >= 18) /* a thread-free start: no worker processes for reads of a few pages */
        buf_printf(&b, "io_method = 'sync'\nidle_replication_slot_timeout = 0\n");
    return write_file(o, "postgresql.conf", &b, err);
}

/* In pg_hba.conf and pg_ident.conf a quote inside quotes is doubled (hba.c next_token). */
static void put_quoted(struct buf *b, const char *name)
{
    buf_put_u8(b, '"');
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '"')
            buf_put_u8(b, '"');
        buf_put_u8(b, (uint8_t)*p);
    }
    buf_put_u8(b, '"');
}

static enum status write_access(const struct shadow_cluster_options *o, struct error *err)
{
    CLEANUP_BUF struct buf hba = {0};
    CLEANUP_BUF struct buf ident = {0};
    char storage[1024];
    struct passwd entry, *found = NULL;
    if (strchr(o->login_role, '\n') != NULL)
        return error_set(err, ERR_CONFIG, "the role name \"%s\" cannot be used", o->login_role);
    int rc = getpwuid_r(geteuid(), &entry, storage, sizeof storage, &found);
    if (rc != 0 || found == NULL)
        return error_set(
            err, ERR_CONFIG,
            "user id %u has no name: the shadow lets in by name (add it to /etc/passwd)",
            (unsigned)geteuid());
    buf_printf(&hba, "# Written by walshadow: our own process, nobody else.\n"
                     "local all all peer map=walshadow\n");
    buf_printf(&ident, "# Written by walshadow.\nwalshadow ");
    put_quoted(&ident, found->pw_name);
    buf_put_u8(&ident, ' ');
    put_quoted(&ident, o->login_role);
    buf_put_u8(&ident, '\n');
    TRY(write_file(o, "pg_hba.conf", &hba, err));
    return write_file(o, "pg_ident.conf", &ident, err);
}

enum status shadow_config_write(const struct shadow_cluster_options *options,
                                const char *socket_dir, const struct control_file *control,
                                struct error *err)
{
    const struct buf empty = {0};
    TRY(write_postgresql_conf(options, socket_dir, control, err));
    TRY(write_access(options, err));
    /* ALTER SYSTEM of the source has no say here, and this file is read last */
    TRY(write_file(options, "postgresql.auto.conf", &empty, err));
    return write_file(options, "standby.signal", &empty, err);
}
