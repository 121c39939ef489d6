/* Sets of oids kept in a buffer, sizeof(Oid) each. */
#pragma once
#include "base/buf.h"
#include "pg/pg.h"

/* Sorts them and keeps one of each; returns how many are left. */
size_t oids_unique(struct buf *oids);
