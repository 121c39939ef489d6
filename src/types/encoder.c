#include "types/encoder.h"

#include "types/family.h"
#include "types/nested.h"

#include <stdio.h>
#include <stdlib.h>

/* String column of a type whose text form is rendered: the text goes behind a one-byte length,
 * which is widened where the text turns out to be 128 bytes or more. */
static enum encode_result encode_text(const struct encoder *e, const uint8_t *data, uint32_t len,
                                      struct column_buf *out, const char **ret_reason)
{
    struct buf *b = &out->data;
    size_t start = b->len;
    buf_put_u8(b, 0);
    bool ok = e->text != NULL ? text_plan_put(e->text, data, len, b)
                              : type_family_at(e->variant)->text(data, len, b);
    if (!ok) {
        b->len = start;
        return encode_bad(ret_reason, "the bytes are no value of the column's type");
    }
    size_t text_len = b->len - start - 1;
    if (text_len < 0x80) {
        b->data[start] = (uint8_t)text_len;
    } else {
        uint8_t prefix[10];
        size_t n = 0;
        for (size_t rest = text_len; rest > 0; rest >>= 7)
            prefix[n++] = (uint8_t)((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
        buf_reserve(b, n - 1);
        memmove(b->data + start + n, b->data + start + 1, text_len);
        memcpy(b->data + start, prefix, n);
        b->len += n - 1;
    }
    put_not_null(e, out);
    return ENCODE_OK;
}

/* How many bytes append copies, if that is all it does. */
static uint8_t copied_bytes(encode_fn append)
{
    if (append == encode_copy2)
        return 2;
    if (append == encode_copy4)
        return 4;
    return append == encode_copy8 ? 8 : 0;
}

static const char *type_label(const struct att_desc *att, char *space, size_t size)
{
    if (att->type_name != NULL)
        return att->type_name;
    snprintf(space, size, "with oid %u", att->typid);
    return space;
}

/* Whether the target is Nullable: it must be able to hold the NULLs that can come, and a key column
 * cannot be Nullable in ClickHouse. */
static enum status plan_nullable(const struct att_desc *att, bool key, const char *override,
                                 const struct type_node **target, struct encoder *e,
                                 struct error *err)
{
    bool can_be_null = !key && !att->not_null;
    if (override == NULL) {
        e->nullable = can_be_null;
        return OK;
    }
    e->nullable = (*target)->kind == TYPE_NULLABLE;
    if (e->nullable)
        *target = (*target)->children[0];
    if (e->nullable && key)
        return error_set(err, ERR_CONFIG, "column \"%s\" is in the key and cannot be %s", att->name,
                         override);
    if (!e->nullable && can_be_null)
        return error_set(err, ERR_CONFIG,
                         "column \"%s\" may hold NULL, which %s cannot: use Nullable(%s)",
                         att->name, override, override);
    return OK;
}

/* LowCardinality(T) takes what is sent as T. */
static void plan_low_cardinality(const struct type_node **target, struct encoder *e)
{
    if ((*target)->kind != TYPE_LOW_CARDINALITY)
        return;
    struct buf text CLEANUP_BUF = {0};
    type_name_print(*target, &text);
    e->column_type = xstrdup(buf_cstr(&text));
    *target = (*target)->children[0];
}

static enum status plan_target(const struct att_desc *att, const struct type_node *target,
                               const struct type_family *family, uint8_t index, struct encoder *e,
                               struct error *err)
{
    char space[32];
    struct buf text CLEANUP_BUF = {0};
    type_name_print(target, &text);
    if (target->kind == TYPE_STRING && (family == NULL || !family->raw_text)) {
        e->append = encode_text;
        e->variant = index;
    } else if (family == NULL || family->plan == NULL || !family->plan(target, e)) {
        return error_set(err, ERR_CONFIG,
                         "column \"%s\": type %s cannot be held exactly by %s, or this is not "
                         "supported yet by this version",
                         att->name, type_label(att, space, sizeof space), buf_cstr(&text));
    }
    if (e->column_type != NULL && target->kind != TYPE_STRING)
        return error_set(err, ERR_CONFIG, "column \"%s\": %s is supported for String only",
                         att->name, e->column_type);
    e->copy = copied_bytes(e->append);
    e->ch_type = xasprintf(e->nullable ? "Nullable(%s)" : "%s", buf_cstr(&text));
    return OK;
}

/* The family, or the plan of a type made of others. */
static enum status plan_source(const struct att_desc *att, struct encoder *e,
                               const struct type_family **ret, uint8_t *ret_index,
                               struct error *err)
{
    char space[32];
    *ret = type_family_find(att_typid(att), ret_index);
    if (*ret != NULL)
        return OK;
    if (att->types == NULL)
        return error_set(err, ERR_CONFIG,
                         "column \"%s\": type %s is not supported yet by this version", att->name,
                         type_label(att, space, sizeof space));
    if (text_plan_new(att->types, att_typid(att), &e->text, err) != OK)
        return error_prefix(err, "column \"%s\" of type %s", att->name,
                            type_label(att, space, sizeof space));
    return OK;
}

/* Enums have few values: LowCardinality, which goes around Nullable. */
static void default_target(const struct att_desc *att, const struct encoder *e, bool can_be_null,
                           const struct type_family *family, struct buf *text)
{
    if (family != NULL)
        family->default_type(att, &e->caps, text);
    else if (text_plan_is_enum(e->text))
        put_text(text, can_be_null ? "LowCardinality(Nullable(String))" : "LowCardinality(String)");
    else
        put_text(text, "String");
}

static enum status plan_all(const struct att_desc *att, bool key, const char *override,
                            struct arena *arena, struct encoder *e, struct error *err)
{
    struct buf text CLEANUP_BUF = {0};
    const struct type_node *target = NULL;
    const struct type_family *family = NULL;
    uint8_t index = 0;
    TRY(plan_source(att, e, &family, &index, err));
    if (override != NULL)
        put_text(&text, override);
    else
        default_target(att, e, !key && !att->not_null, family, &text);
    if (type_name_parse(arena, (const char *)text.data, text.len, &target, err) != OK) {
        if (err != NULL)
            err->kind = ERR_CONFIG; /* the text came from the configuration */
        return ERR_CONFIG;
    }
    plan_low_cardinality(&target, e);
    bool wrapped = override != NULL || e->column_type != NULL;
    TRY(plan_nullable(att, key, wrapped ? buf_cstr(&text) : NULL, &target, e, err));
    return plan_target(att, target, family, index, e, err);
}

enum status encoder_plan(const struct att_desc *att, bool key, const char *override,
                         const struct ch_caps *caps, struct encoder *ret, struct error *err)
{
    struct encoder e = {.caps = *caps, .typmod = att->typmod, .typid = att_typid(att)};
    struct arena arena = {0};
    enum status status = plan_all(att, key, override, &arena, &e, err);
    arena_free(&arena);
    if (status == OK)
        *ret = e;
    else
        encoder_fini(&e);
    return status;
}

void encoder_fini(struct encoder *e)
{
    free(e->ch_type);
    free(e->column_type);
    text_plan_free(e->text);
    e->ch_type = e->column_type = NULL;
    e->text = NULL;
}

void encoder_append_null_or_default(const struct encoder *e, struct column_buf *out)
{
    /* the default of every target type is zero bytes: 0, 1970-01-01, the empty string */
    if (e->nullable)
        buf_put_u8(&out->nulls, 1);
    buf_put_zeros(&out->data, e->width > 0 ? e->width : 1);
}

bool encoder_is_text(const struct encoder *e)
{
    return e->append == encode_text;
}

void encoder_append_text(const struct encoder *e, const uint8_t *text, uint32_t len,
                         struct column_buf *out)
{
    put_string(&out->data, text, len);
    put_not_null(e, out);
}

void encoder_append_bad(const struct encoder *e, enum bad_value_policy policy, const uint8_t *data,
                        uint32_t len, struct column_buf *out, const char **ret_action)
{
    uint8_t index;
    const struct type_family *family = type_family_find(e->typid, &index);
    if (policy == BAD_VALUE_ERROR) {
        *ret_action = "error";
        return;
    }
    bool clamp = policy == BAD_VALUE_CLAMP || !e->nullable;
    if (clamp && data != NULL && e->width > 0 && family != NULL && family->clamp != NULL &&
        family->clamp(e, data, len, &out->data)) {
        put_not_null(e, out);
        *ret_action = "clamp";
        return;
    }
    encoder_append_null_or_default(e, out);
    *ret_action = e->nullable ? "null" : "clamp";
}

/* False: the bytes are no value of the type. */
static bool whole_text(const struct att_desc *att, const struct type_family *family,
                       const uint8_t *data, uint32_t len, struct buf *out)
{
    struct text_plan *plan = NULL;
    if (family != NULL)
        return family->text(data, len, out);
    if (att->types == NULL || text_plan_new(att->types, att_typid(att), &plan, NULL) != OK)
        return false;
    bool ok = text_plan_put(plan, data, len, out);
    text_plan_free(plan);
    return ok;
}

void datum_text(const struct att_desc *att, const uint8_t *data, uint32_t len, size_t max_bytes,
                struct buf *out)
{
    uint8_t index;
    const struct type_family *family = type_family_find(att_typid(att), &index);
    size_t start = out->len;
    if (data == NULL)
        return;
    /* one byte more than fits tells whether, and where, to cut; hex is twice as long anyway */
    uint32_t shown = (uint32_t)MIN((uint64_t)len, (uint64_t)max_bytes + (max_bytes < SIZE_MAX));
    bool raw = family != NULL && family->raw_text;
    if (!whole_text(att, family, data, raw ? shown : len, out))
        (void)family_bytea.text(data, shown, out);
    if (out->len - start <= max_bytes)
        return;
    out->len = start + max_bytes;
    /* not inside a UTF-8 character */
    for (unsigned i = 0; i < 3 && out->len > start && (out->data[out->len] & 0xc0) == 0x80; i++)
        out->len--;
}
