/* What to do about an exception of the server (clickhouse-notes B5). */
#pragma once

enum ch_error_class {
    CH_ERROR_RETRY,          /* same or new connection, backoff, the same blocks */
    CH_ERROR_RECONNECT_ONCE, /* once more on a new connection */
    CH_ERROR_SCHEMA,         /* read the table again, rebuild the batch, once */
    CH_ERROR_DATA,           /* halve the batch until the row is found */
    CH_ERROR_CONFIGURATION,  /* stop this destination and name it */
    CH_ERROR_UNKNOWN,        /* three times, then stop with the server's text */
};

/* message (may be NULL) tells the two meanings of code 252 apart: too many parts, too many
 * partitions. */
enum ch_error_class ch_error_classify(int code, const char *message);
const char *ch_error_class_name(enum ch_error_class class);
