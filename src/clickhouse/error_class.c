#include "clickhouse/error_class.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define TOO_MANY_PARTS 252 /* and, with another text, too many partitions in one INSERT */

static const struct {
    int code;
    enum ch_error_class class;
} codes[] = {
    {6, CH_ERROR_DATA},             /* CANNOT_PARSE_TEXT */
    {10, CH_ERROR_SCHEMA},          /* NOT_FOUND_COLUMN_IN_BLOCK */
    {16, CH_ERROR_SCHEMA},          /* NO_SUCH_COLUMN_IN_TABLE */
    {20, CH_ERROR_SCHEMA},          /* NUMBER_OF_COLUMNS_DOESNT_MATCH */
    {27, CH_ERROR_DATA},            /* CANNOT_PARSE_INPUT_ASSERTION_FAILED */
    {32, CH_ERROR_RETRY},           /* ATTEMPT_TO_READ_AFTER_EOF */
    {33, CH_ERROR_RECONNECT_ONCE},  /* CANNOT_READ_ALL_DATA */
    {39, CH_ERROR_RECONNECT_ONCE},  /* CANNOT_DECOMPRESS */
    {40, CH_ERROR_RECONNECT_ONCE},  /* CHECKSUM_DOESNT_MATCH */
    {41, CH_ERROR_DATA},            /* CANNOT_PARSE_DATETIME */
    {47, CH_ERROR_SCHEMA},          /* UNKNOWN_IDENTIFIER */
    {53, CH_ERROR_SCHEMA},          /* TYPE_MISMATCH */
    {60, CH_ERROR_SCHEMA},          /* UNKNOWN_TABLE */
    {69, CH_ERROR_DATA},            /* ARGUMENT_OUT_OF_BOUND */
    {70, CH_ERROR_DATA},            /* CANNOT_CONVERT_TYPE */
    {81, CH_ERROR_SCHEMA},          /* UNKNOWN_DATABASE */
    {101, CH_ERROR_RECONNECT_ONCE}, /* UNEXPECTED_PACKET_FROM_CLIENT */
    {115, CH_ERROR_CONFIGURATION},  /* UNKNOWN_SETTING */
    {117, CH_ERROR_DATA},           /* INCORRECT_DATA */
    {131, CH_ERROR_DATA},           /* TOO_LARGE_STRING_SIZE */
    {159, CH_ERROR_RETRY},          /* TIMEOUT_EXCEEDED */
    {164, CH_ERROR_CONFIGURATION},  /* READONLY */
    {192, CH_ERROR_CONFIGURATION},  /* UNKNOWN_USER */
    {193, CH_ERROR_CONFIGURATION},  /* WRONG_PASSWORD */
    {194, CH_ERROR_CONFIGURATION},  /* REQUIRED_PASSWORD */
    {202, CH_ERROR_RETRY},          /* TOO_MANY_SIMULTANEOUS_QUERIES */
    {203, CH_ERROR_RETRY},          /* NO_FREE_CONNECTION */
    {209, CH_ERROR_RETRY},          /* SOCKET_TIMEOUT */
    {210, CH_ERROR_RETRY},          /* NETWORK_ERROR */
    {218, CH_ERROR_SCHEMA},         /* TABLE_IS_DROPPED */
    {225, CH_ERROR_RETRY},          /* NO_ZOOKEEPER */
    {236, CH_ERROR_RETRY},          /* ABORTED */
    {241, CH_ERROR_RETRY},          /* MEMORY_LIMIT_EXCEEDED */
    {242, CH_ERROR_RETRY},          /* TABLE_IS_READ_ONLY */
    {243, CH_ERROR_RETRY},          /* NOT_ENOUGH_SPACE */
    {285, CH_ERROR_RETRY},          /* TOO_FEW_LIVE_REPLICAS */
    {286, CH_ERROR_RETRY},          /* UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE */
    {289, CH_ERROR_RETRY},          /* REPLICA_IS_NOT_IN_QUORUM */
    {319, CH_ERROR_RETRY},          /* UNKNOWN_STATUS_OF_INSERT */
    {349, CH_ERROR_DATA},           /* CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN */
    {394, CH_ERROR_RETRY},          /* QUERY_WAS_CANCELLED */
    {407, CH_ERROR_DATA},           /* DECIMAL_OVERFLOW */
    {439, CH_ERROR_RETRY},          /* CANNOT_SCHEDULE_TASK */
    {452, CH_ERROR_CONFIGURATION},  /* SETTING_CONSTRAINT_VIOLATION */
    {469, CH_ERROR_DATA},           /* VIOLATED_CONSTRAINT */
    {473, CH_ERROR_RETRY},          /* DEADLOCK_AVOIDED */
    {497, CH_ERROR_CONFIGURATION},  /* ACCESS_DENIED */
    {499, CH_ERROR_RETRY},          /* S3_ERROR */
    {516, CH_ERROR_CONFIGURATION},  /* AUTHENTICATION_FAILED */
    {517, CH_ERROR_RETRY},          /* CANNOT_ASSIGN_ALTER */
    {574, CH_ERROR_RETRY},          /* DISTRIBUTED_TOO_MANY_PENDING_BYTES */
    {691, CH_ERROR_DATA},           /* UNKNOWN_ELEMENT_OF_ENUM */
    {733, CH_ERROR_RETRY},          /* TABLE_IS_BEING_RESTARTED */
    {999, CH_ERROR_RETRY},          /* KEEPER_EXCEPTION */
};

enum ch_error_class ch_error_classify(int code, const char *message)
{
    if (code == TOO_MANY_PARTS) {
        /* "Too many partitions for single INSERT block" is the operator's partition_by */
        bool partitions = message != NULL && strcasestr(message, "too many partitions") != NULL;
        return partitions ? CH_ERROR_CONFIGURATION : CH_ERROR_RETRY;
    }
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == code)
            return codes[i].class;
    return CH_ERROR_UNKNOWN;
}

const char *ch_error_class_name(enum ch_error_class class)
{
    switch (class) {
    case CH_ERROR_RETRY:
        return "retry";
    case CH_ERROR_RECONNECT_ONCE:
        return "reconnect once";
    case CH_ERROR_SCHEMA:
        return "schema";
    case CH_ERROR_DATA:
        return "data";
    case CH_ERROR_CONFIGURATION:
        return "configuration";
    case CH_ERROR_UNKNOWN:
        break;
    }
    return "unknown";
}
