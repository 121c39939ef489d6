#include "types/family.h"

/* Every type that is carried. A new type is a family in its own file and a line here. */
static const struct type_family *const families[] = {
    &family_bool,          &family_int2,         &family_int4,          &family_int8,
    &family_oid,           &family_char,         &family_name,          &family_float4,
    &family_float8,        &family_numeric,      &family_text,          &family_varchar,
    &family_bpchar,        &family_json,         &family_bytea,         &family_uuid,
    &family_date,          &family_time,         &family_timetz,        &family_timestamp,
    &family_timestamptz,   &family_interval,     &family_refcursor,     &family_bit,
    &family_varbit,        &family_inet,         &family_cidr,          &family_macaddr,
    &family_macaddr8,      &family_point,        &family_lseg,          &family_path,
    &family_box,           &family_polygon,      &family_line,          &family_circle,
    &family_jsonb,         &family_jsonpath,     &family_xml,           &family_tsvector,
    &family_tsquery,       &family_money,        &family_pg_lsn,        &family_pg_snapshot,
    &family_txid_snapshot, &family_tid,          &family_xid,           &family_cid,
    &family_xid8,          &family_int2vector,   &family_oidvector,     &family_regproc,
    &family_regprocedure,  &family_regoper,      &family_regoperator,   &family_regclass,
    &family_regtype,       &family_regconfig,    &family_regdictionary, &family_regnamespace,
    &family_regrole,       &family_regcollation,
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
