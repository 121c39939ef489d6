/* The shadow with the walsender that feeds it and the session that reads it. */
#include "daemon/state.h"
#include "shadow/paths.h"

static void shadow_failed(void *ctx, const struct error *why)
{
    struct daemon *d = ctx;
    fatal_raise(&d->fatal, why);
}

enum status daemon_shadow_start(struct daemon *d, struct error *err)
{
    const struct shadow_walsender_options wo = {
        .socket_dir = d->paths.socket_dir,
        .port = SHADOW_WALSENDER_PORT,
        .system_id = d->source.system_id,
        .timeline = d->source.timeline,
        .major = d->source.major,
        .segment_bytes = d->source.segment_bytes,
        .archive = d->archive,
    };
    const struct shadow_cluster_options co = {
        .state_dir = d->config->state_dir,
        .data_dir = d->paths.shadow,
        .bin_dir = d->source.bin_dir,
        .major = d->source.major,
        .login_role = d->source.login.name,
        .own_tablespace = d->source.database.spc_oid != DEFAULTTABLESPACE_OID,
        .tablespace_oid = d->source.database.spc_oid,
        .failed = shadow_failed,
        .failed_ctx = d,
    };
    const struct shadow_reader_options ro = {
        .socket_dir = d->paths.socket_dir,
        .database = d->source.database.name,
        .login_role = d->source.login.name,
        .login_superuser = d->source.login.superuser,
        .major = d->source.major,
        .split = daemon_split(d),
    };
    struct shadow_walsender *ws = NULL;
    struct shadow_cluster *cluster = NULL;
    TRY(shadow_walsender_start(&wo, &ws, err));
    pthread_mutex_lock(&d->lock);
    d->walsender = ws;
    pthread_mutex_unlock(&d->lock);
    TRY(shadow_cluster_start(&co, &cluster, err));
    pthread_mutex_lock(&d->lock);
    d->cluster = cluster;
    pthread_mutex_unlock(&d->lock);
    d->reader = shadow_reader_new(&ro);
    d->boundary.history = d->history;
    d->boundary.walsender = d->walsender;
    d->boundary.cluster = d->cluster;
    d->boundary.reader = d->reader;
    d->boundary.stopping = &d->stopping;
    return daemon_check(d, err); /* a stop that came before they were known did not wake them */
}

void daemon_shadow_stop(struct daemon *d)
{
    pthread_mutex_lock(&d->lock);
    struct shadow_cluster *cluster = d->cluster;
    struct shadow_walsender *ws = d->walsender;
    d->cluster = NULL;
    d->walsender = NULL;
    pthread_mutex_unlock(&d->lock);
    shadow_reader_free(d->reader);
    d->reader = NULL;
    shadow_cluster_stop(cluster, 10000);
    shadow_walsender_stop(ws);
}
