#include "ops/control_request.h"

#include <stdlib.h>
#include <string.h>

#define VERB_MAX 32

static const struct kind_name {
    enum status kind;
    const char *name;
} kinds[] = {
    {ERR_RETRY, "retry"}, {ERR_DATA, "data"},           {ERR_CONFIG, "config"},
    {ERR_BUG, "bug"},     {ERR_CANCELLED, "cancelled"},
};

enum status control_request_parse(const char *line, size_t len, json_t **ret_body,
                                  const char **ret_verb, struct error *err)
{
    json_error_t why;
    json_t *body = json_loadb(line, len, JSON_REJECT_DUPLICATES, &why);
    if (body == NULL)
        return error_set(err, ERR_DATA, "the request is not JSON: %s", why.text);
    const char *verb = json_string_value(json_object_get(body, "verb"));
    if (verb == NULL || verb[0] == '\0' || strlen(verb) > VERB_MAX) {
        json_decref(body);
        return error_set(err, ERR_DATA, "the request is not an object with a \"verb\"");
    }
    *ret_body = body;
    *ret_verb = verb;
    return OK;
}

enum status control_reply_parse(const char *line, size_t len, json_t **ret_result,
                                struct error *err)
{
    json_error_t why;
    json_t *reply = json_loadb(line, len, 0, &why);
    if (!json_is_object(reply) || !json_is_boolean(json_object_get(reply, "ok"))) {
        json_decref(reply);
        return error_set(err, ERR_DATA, "the daemon's reply is malformed");
    }
    if (json_is_true(json_object_get(reply, "ok"))) {
        json_t *result = json_object_get(reply, "result");
        *ret_result = result != NULL ? json_incref(result) : json_object();
        json_decref(reply);
        return OK;
    }
    const char *kind = json_string_value(json_object_get(reply, "kind"));
    const char *text = json_string_value(json_object_get(reply, "error"));
    enum status st = ERR_BUG;
    for (size_t i = 0; kind != NULL && i < LENGTH(kinds); i++) {
        if (strcmp(kinds[i].name, kind) == 0)
            st = kinds[i].kind;
    }
    st = error_set(err, st, "%s", text != NULL ? text : "the daemon gave no reason");
    json_decref(reply);
    return st;
}

/* Error texts may quote bytes that are not UTF-8. */
static json_t *error_text(const char *message)
{
    json_t *s = json_string(message);
    if (s != NULL)
        return s;
    CLEANUP_FREE char *ascii = xstrdup(message);
    for (char *c = ascii; *c != '\0'; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    return json_string(ascii);
}

char *control_reply_render(enum status st, json_t *result, const struct error *err)
{
    json_t *reply = json_pack("{s:b}", "ok", st == OK);
    if (st == OK) {
        json_object_set_new(reply, "result", result != NULL ? result : json_object());
    } else {
        const char *kind = "bug";
        for (size_t i = 0; i < LENGTH(kinds); i++) {
            if (kinds[i].kind == st)
                kind = kinds[i].name;
        }
        json_decref(result);
        json_object_set_new(reply, "kind", json_string(kind));
        json_object_set_new(reply, "error", error_text(err->message));
    }
    char *text = json_dumps(reply, JSON_COMPACT);
    json_decref(reply);
    if (text == NULL)
        text = xstrdup("{\"ok\":false,\"kind\":\"bug\",\"error\":\"the reply cannot be written\"}");
    char *line = xasprintf("%s\n", text);
    free(text);
    return line;
}
