/* Values and rows of COPY … (FORMAT binary): from a type's send format to the bytes that a heap
 * tuple has, so that one set of encoders serves both. Source: the *_send functions of
 * src/backend/utils/adt and CopyOneRowTo in commands/copyto.c (15 to 18): 16-bit field count (-1
 * ends), each field a 32-bit length (-1 NULL) and its bytes, all big-endian. */
#pragma once
#include "base/buf.h"
#include "base/cursor.h"
#include "base/error.h"
#include "pg/pg.h"

/* True if values of the type (a domain's base type) can be turned. */
bool copy_value_known(Oid typid);
/* The heap's bytes: in place, or made in room (emptied first). ERR_DATA: not the type's format. */
enum status copy_value_get(Oid typid, const uint8_t *data, uint32_t len, struct buf *room,
                           const uint8_t **ret, uint32_t *ret_len, struct error *err) CHECKED;

/* Header: signature, flags, extension. ERR_DATA if it is none, or asks for what is not known. */
enum status copy_header_skip(struct cursor *c, struct error *err) CHECKED;
/* Begins a row. *ret_end: the trailer was read instead. ERR_DATA if it has not nfields fields. */
enum status copy_row_begin(struct cursor *c, unsigned nfields, bool *ret_end,
                           struct error *err) CHECKED;
/* The next field in place; *ret NULL = SQL NULL. */
enum status copy_field_next(struct cursor *c, const uint8_t **ret, uint32_t *ret_len,
                            struct error *err) CHECKED;
