/* The shadow's configuration files. Private to this folder. */
#pragma once
#include "pg/control_file.h"
#include "shadow/cluster.h"

/* Writes them into the data directory: each whole, aside and renamed. */
enum status shadow_config_write(const struct shadow_cluster_options *options,
                                const char *socket_dir, const struct control_file *control,
                                struct error *err) CHECKED;
