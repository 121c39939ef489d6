/* A slice: a run of changes of committed transactions, handed to a decode worker at once; the unit
 * of acknowledgement. Many small transactions share one, a large one has many. */
#pragma once
#include "pipeline/route.h"
#include "xact/frame.h"

/* Work for the workers. run consumes the job. */
struct worker;
struct job {
    void (*run)(struct worker *w, struct job *job);
    void (*discard)(struct job *job, struct budget *budget); /* at shutdown, instead of run */
    size_t bytes;                                            /* for the queue's bound */
};

struct slice {
    struct job job;
    struct buf frames;     /* change frames, each followed by its aux frames */
    struct route **routes; /* references; frames name them by index */
    uint32_t nroutes, routes_cap;
    uint32_t nrows;
    size_t value_bytes; /* plain bytes of external values that the rows refer to */
    struct budget_permit permit;
    uint64_t *seqs; /* per destination */
    size_t ndestinations;
    struct budget *budget;
};

struct slice *slice_new(size_t ndestinations, struct budget *budget);
void slice_free(struct slice *s); /* returns what its permit holds */
/* Index of the route in this slice; takes a reference on first use. */
uint32_t slice_route(struct slice *s, struct route *route);
