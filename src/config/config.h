/* The configuration, typed. Keys, defaults and ranges are in options.def; precedence is
 * command line > environment > file > default. A snapshot is immutable once loaded: a reload builds
 * another one. */
#pragma once
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "config/options.h"

#include <stdbool.h>
#include <stdint.h>

enum config_origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENV, ORIGIN_FLAG };

struct string_list {
    char **items;
    size_t len;
};

/* Order of the enumerators = order in options.def's value lists. */
enum config_source_tables { SOURCE_TABLES_ALL, SOURCE_TABLES_LISTED };
enum config_drop_strategy { DROP_RETAIN, DROP_WARN, DROP_DROP };
enum config_compression { COMPRESSION_NONE, COMPRESSION_LZ4, COMPRESSION_ZSTD };
enum config_fsync { FSYNC_FLOOR, FSYNC_INSERT };
enum config_initial_load { LOAD_NONE, LOAD_COPY, LOAD_BASE_BACKUP, LOAD_OBJECT_STORE };
enum config_partitions { PARTITIONS_ROOT, PARTITIONS_LEAF };
enum config_bad_value { CONFIG_BAD_VALUE_NULL, CONFIG_BAD_VALUE_CLAMP, CONFIG_BAD_VALUE_ERROR };
enum config_toast_mode { TOAST_DISABLED, TOAST_LOCAL, TOAST_CLICKHOUSE };
enum destination_kind { DESTINATION_CHDB, DESTINATION_CLICKHOUSE, DESTINATION_NULL };

struct config_destination {
    char *name; /* "default" … */
    char *url;  /* as given, "chdb:" by default */
    /* parts; from url or from the keys of these names */
    enum destination_kind kind;
    char *path; /* chdb: data directory; default <state_dir>/chdb */
    char *host;
    int64_t port;
    char *user, *password;
    bool secure;
    char *database;       /* default: the source database's name */
    unsigned compression; /* enum config_compression */
    int64_t row_budget, byte_budget;
    int64_t flush_timeout_ms, insert_timeout_ms;
    unsigned drop_table_strategy; /* enum config_drop_strategy */
    bool soft_delete, views;
    unsigned fsync; /* enum config_fsync */
    int64_t memory_max;
    char *listen, *engine_bin, *libchdb;
    int64_t max_lag_bytes;
    struct string_list hosts;
    char *cluster, *engine, *order_by, *partition_by, *settings, *ca, *server_name, *quota_key;
    int64_t connect_timeout_ms, send_timeout_ms, receive_timeout_ms;
    uint8_t origin[OPTION_COUNT]; /* enum config_origin */
};

struct config_namespace {
    char *name; /* schema */
    bool auto_create;
    char *target_database;        /* NULL: see config_table_resolve */
    unsigned drop_table_strategy; /* enum config_drop_strategy */
    struct string_list destinations;
    uint8_t origin[OPTION_COUNT];
};

struct config_column {
    int16_t attnum;
    char *target; /* NULL: the source column's name */
    char *type;   /* NULL: by the type map */
};

struct config_columns {
    struct config_column *items;
    size_t len;
};

struct config_table {
    char *schema, *name;
    bool replicate;
    unsigned initial_load; /* enum config_initial_load */
    char *target_database, *target_table;
    struct string_list destinations;
    unsigned partitions;   /* enum config_partitions */
    unsigned on_bad_value; /* enum config_bad_value */
    struct config_columns columns;
    uint8_t origin[OPTION_COUNT];
};

struct config {
    char *state_dir; /* absolute */
    struct {
        char *conninfo; /* NULL if none was given: only `run` and `check` need it */
        char *database; /* of conninfo, by libpq's rules; NULL without conninfo */
        char *slot;
        unsigned tables; /* enum config_source_tables */
    } source;
    struct {
        char *bin_dir; /* NULL: find by major */
        char *os_user; /* NULL: owner of the state directory, else postgres */
    } shadow;
    struct config_destination *destinations;
    size_t ndestinations; /* ≥ 1 */
    struct config_namespace *namespaces;
    size_t nnamespaces;
    struct config_table *tables;
    size_t ntables;
    struct {
        int64_t decoder_pool_size, inserter_pool_size;
    } pipeline;
    struct {
        int64_t resident_payload_max, inline_value_max, xact_buffer_max; /* bytes */
    } memory;
    struct {
        unsigned mode; /* enum config_toast_mode */
    } toast;
    struct {
        char *bind; /* host:port */
        char *host; /* the two halves of bind, checked */
        uint16_t port;
        char *user, *password; /* "" = none */
    } http;
    struct {
        int64_t status_interval_ms, retention_bytes;
    } ops;
    struct {
        unsigned level; /* enum log_level */
    } log;
    unsigned initial_load; /* --initial-load: what tables without a value of their own take */
    uint8_t origin[OPTION_COUNT];
};

/* What the command line gives. All pointers are borrowed for the call. */
struct config_args {
    const char *file;         /* --config, NULL = none */
    const char *source_url;   /* positional, NULL = none */
    const char *state_dir;    /* --state-dir */
    const char *initial_load; /* --initial-load */
    struct config_set {
        const char *key; /* "section.key", TOML's dotted form: destination.default.url */
        const char *value;
    } const *sets; /* --set and the flags that are short for it */
    size_t nsets;
    char *const *env; /* environ; NULL = none */
    bool need_source; /* a missing source.conninfo is an error */
};

/* Reads, merges and checks everything. ERR_CONFIG names key and file:line (or the variable or
 * flag). *ret is freed by config_free. */
enum status config_load(const struct config_args *args, struct config **ret,
                        struct error *err) CHECKED;
void config_free(struct config *config); /* NULL is fine */

/* Effective values as TOML, each with where it comes from as a comment; secrets masked. */
void config_print(const struct config *config, struct buf *out);

#define CONFIG_KEY_MAX 160
/* The first APPLY_BOOT option that differs between two snapshots, as "section.key"; false: none
 * does, a reload may swap. */
bool config_boot_difference(const struct config *from, const struct config *to,
                            char ret_key[static CONFIG_KEY_MAX]);

/* What holds for one source relation at one destination, all defaults applied. Strings borrowed
 * from config or, if they had to be made, written to the two buffers. */
struct config_target {
    bool replicate;
    const char *reason; /* why not, when !replicate */
    bool auto_create;
    unsigned initial_load;
    unsigned drop_table_strategy;
    unsigned on_bad_value;
    bool on_bad_value_set; /* false: null where the column is Nullable, else clamp */
    const struct config_column *columns;
    size_t ncolumns;
    char database[256], table[256];
};
void config_table_resolve(const struct config *config, const struct config_destination *dest,
                          const char *schema, const char *table, struct config_target *ret);
/* True if each leaf of the partitioned table has a target of its own, under the leaf's name. */
bool config_splits(const struct config *c, const char *schema, const char *table);
/* The tables for which that is so: "schema.table", one a line, appended. */
void config_split_names(const struct config *c, struct buf *out);

/* A URL or conninfo with the password replaced by ***; malloc'd. */
char *config_mask_secret(const char *text);
