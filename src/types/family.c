#include "types/family.h"

/* Every type that is carried. A new type is a family in its own file and a line here. */
static const struct type_family *const families[] = {
    &family_bool,        &family_int2,     &family_int4,   &family_int8,   &family_oid,
    &family_char,        &family_name,     &family_float4, &family_float8, &family_numeric,
    &family_text,        &family_varchar,  &family_bpchar, &family_json,   &family_bytea,
    &family_uuid,        &family_date,     &family_time,   &family_timetz, &family_timestamp,
    &family_timestamptz, &family_interval,
};

const struct type_family *type_family_find(Oid typid, uint8_t *ret_index)
{
    for (unsigned i = 0; i < LENGTH(families); i++) {
        if (families[i]->typid == typid) {
            *ret_index = (uint8_t)i;
            return families[i];
        }
    }
    return NULL;
}

const struct type_family *type_family_at(uint8_t index)
{
    return families[index];
}
