/* Values into the configuration's fields. Not for other folders. */
#pragma once
#include "config/config.h"
#include "config/toml.h"

/* Where a value comes from: for its origin mark and for messages. */
struct config_place {
    enum config_origin origin;
    const char *name; /* file, variable or flag */
    unsigned line;    /* of a file, else 0 */
};

enum status config_fail(const struct config_place *place, struct error *err, const char *fmt, ...)
    PRINTF(3, 4);

/* base is the struct of the option's scope, origins its array. */
enum status option_assign_text(const struct option *o, void *base, uint8_t *origins,
                               const char *text, const struct config_place *place,
                               struct error *err) CHECKED;
enum status option_assign_toml(const struct option *o, void *base, uint8_t *origins,
                               const struct toml_value *value, const struct config_place *place,
                               struct error *err) CHECKED;
/* Every option of a scope that has a default. */
void options_assign_defaults(enum option_scope scope, void *base);
/* Frees what the options of a scope hold. */
void options_release(enum option_scope scope, void *base);

/* The section's struct, made with its defaults when missing. */
struct config_destination *config_destination_get(struct config *c, const char *name);
struct config_namespace *config_namespace_get(struct config *c, const char *name);
struct config_table *config_table_get(struct config *c, const char *schema, const char *name);

/* Whole sources, in config_source.c. */
enum status config_read_file(struct config *c, const char *path, struct error *err) CHECKED;
enum status config_read_env(struct config *c, char *const *env, struct error *err) CHECKED;
enum status config_read_set(struct config *c, const char *key, const char *value,
                            struct error *err) CHECKED;

/* Computed defaults and checks over several keys, in config_check.c. */
enum status config_finish(struct config *c, const struct config_args *args,
                          struct error *err) CHECKED;
enum status destination_finish(struct config *c, struct config_destination *d,
                               struct error *err) CHECKED;
/* Whether a key of [destination.*] means something for this kind. */
bool destination_option_applies(enum destination_kind kind, enum option_id id);
