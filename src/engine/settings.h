/* Settings of Query packets, brought onto a session's connection with SET.
 *
 * A server applies them to one query only. Here they stay in force until a packet comes that has
 * others, which is the same to the client: each packet's set replaces the one before, and what SET
 * statements of the client itself had put there comes back. A client that always sends the same
 * ones (the daemon does) costs nothing. */
#pragma once
#include "base/buf.h"
#include "engine/chdb.h"
#include "native/packet.h"

/* Names the engine knows, read once; immutable after that. */
struct engine_settings_known {
    char *text;         /* one name a line, NULs in place of the newlines */
    const char **names; /* sorted */
    size_t n;
};
enum status engine_settings_known_read(struct chdb_session *session,
                                       struct engine_settings_known *ret,
                                       struct error *err) CHECKED;
void engine_settings_known_free(struct engine_settings_known *known);
bool engine_settings_is_known(const struct engine_settings_known *known, struct str name);

/* What a packet has put on a connection. Zero-initialised is nothing. */
struct engine_settings {
    struct engine_setting {
        char *name, *value; /* value NULL: in an unknown state after a failed SET */
        char *before;       /* what to put back */
    } * items;
    size_t n;
};
void engine_settings_fini(struct engine_settings *s);

/* Makes the connection have the packet's settings. Unknown names are ignored unless marked
 * important (ERR_DATA, code 115); names that would change how results are encoded are ignored too.
 * A setting's bad value fails as the engine says. */
enum status engine_settings_apply(struct engine_settings *s, struct chdb_session *session,
                                  const struct engine_settings_known *known,
                                  const struct packet_settings *wanted, struct error *err) CHECKED;

/* Query parameters ({name:Type} in the text) as SET param_name. quoted: the values are literals, as
 * in a Query packet. */
enum status engine_parameters_apply(struct chdb_session *session,
                                    const struct packet_settings *parameters, bool quoted,
                                    struct error *err) CHECKED;

/* The value of a setting in a packet, or NULL. */
const struct packet_setting *engine_settings_find(const struct packet_settings *settings,
                                                  const char *name);
/* What a client may set on a read-only connection. */
bool engine_settings_is_reader_safe(struct str name);
