/* Names of resource managers and of their operations, as pg_waldump and pg_walinspect print them.
 * Source: access/rmgrlist.h and the *_identify functions of access/rmgrdesc/. */
#pragma once
#include "pg/wal_record.h"

/* "Heap", "Btree", …; "custom###" from 128 on; "unknown" for the ids between. The text lives in a
 * static table (one string per id). */
const char *rmgr_name(uint8_t rmid);
/* "INSERT", "HOT_UPDATE+INIT", …; NULL where PostgreSQL of that major knows none. */
const char *rmgr_op_name(uint8_t rmid, uint8_t info, unsigned major);
/* 0 to 21 or 128 to 255. */
bool rmgr_id_valid(uint8_t rmid);
