/* Endpoints of the destinations; the embedded engine where one is configured. */
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/state.h"

#include <stdlib.h>

#define ENGINE_ATTEMPTS 5
#define SELF "/proc/self/exe"

static enum ch_compression compression_of(unsigned c)
{
    switch ((enum config_compression)c) {
    case COMPRESSION_NONE:
        return CH_COMPRESSION_NONE;
    case COMPRESSION_LZ4:
        return CH_COMPRESSION_LZ4;
    case COMPRESSION_ZSTD:
        return CH_COMPRESSION_ZSTD;
    }
    return CH_COMPRESSION_NONE;
}

static enum status engine_start(struct daemon *d, size_t i, struct error *err)
{
    const struct config_destination *cd = &d->config->destinations[i];
    CLEANUP_FREE char *path = cd->path != NULL && cd->path[0] != '\0'
                                  ? xstrdup(cd->path)
                                  : xasprintf("%s/chdb", d->config->state_dir);
    const struct ch_supervisor_options options = {
        .engine_bin = cd->engine_bin != NULL && cd->engine_bin[0] != '\0' ? cd->engine_bin : SELF,
        .path = path,
        .listen = d->paths.engine_sock,
        .read_only_listen = cd->listen,
        .http = d->paths.http_sock,
        .libchdb = cd->libchdb,
        .memory_max = (uint64_t)cd->memory_max,
    };
    struct ch_supervisor *s = NULL;
    TRY(ch_supervisor_start(&options, &s, err));
    pthread_mutex_lock(&d->lock);
    d->supervisors[i] = s;
    pthread_mutex_unlock(&d->lock);
    TRY(daemon_check(d, err)); /* a stop that came before it was known did not wake it */
    daemon_set_waiting(d, "destination %s: the engine starts", cd->name);
    TRY(ch_supervisor_wait(s, ENGINE_ATTEMPTS, err));
    daemon_set_waiting(d, "%s", "");
    return OK;
}

void daemon_endpoint(const struct config_destination *cd, struct ch_endpoint *ret)
{
    *ret = (struct ch_endpoint){
        .host = cd->host,
        .port = (uint16_t)cd->port,
        .user = cd->user,
        .password = cd->password,
        .compression = compression_of(cd->compression),
        .connect_ms = (unsigned)cd->connect_timeout_ms,
        .send_ms = (unsigned)cd->send_timeout_ms,
        .receive_ms = (unsigned)cd->insert_timeout_ms,
    };
}

enum status daemon_engines_start(struct daemon *d, struct error *err)
{
    size_t n = d->config->ndestinations;
    d->endpoints = xcalloc(n, sizeof *d->endpoints);
    pthread_mutex_lock(&d->lock);
    d->supervisors = xcalloc(n, sizeof(struct ch_supervisor *));
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < n; i++) {
        const struct config_destination *cd = &d->config->destinations[i];
        struct ch_endpoint *ep = &d->endpoints[i].ch;
        daemon_endpoint(cd, ep);
        if (cd->kind != DESTINATION_CHDB)
            continue;
        ep->host = NULL;
        ep->unix_path = d->paths.engine_sock;
        ep->user = ep->password = NULL;
        TRY(engine_start(d, i, err));
    }
    return OK;
}

void daemon_engines_stop(struct daemon *d)
{
    for (size_t i = 0; d->supervisors != NULL && i < d->config->ndestinations; i++)
        ch_supervisor_stop(d->supervisors[i]);
    free(d->supervisors);
    free(d->endpoints);
    d->supervisors = NULL;
    d->endpoints = NULL;
}
