/* Where the shadow's sockets are. A unix socket's path holds at most 107 bytes. */
#pragma once
#include "base/error.h"

#include <stdint.h>

/* Fixed: they only name files in a private directory ("<dir>/.s.PGSQL.<port>"). */
#define SHADOW_POSTGRES_PORT 5432
#define SHADOW_WALSENDER_PORT 5433

/* The directory for both sockets, created with mode 0700: "<state_dir>/sock", or where that is too
 * long a directory of our user below $XDG_RUNTIME_DIR or /tmp, whose name depends on state_dir
 * only. One that another user owns or may write to is refused. *ret is malloc'd, absolute. */
enum status shadow_socket_dir(const char *state_dir, char **ret, struct error *err) CHECKED;
