/* A queue of pointers between threads, bounded by bytes. A full queue blocks its producer.
 * After queue_push the object belongs to the consumer: the sender must not touch it again. */
#pragma once
#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct queue {
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t not_empty, not_full;
    struct queue_slot {
        void *item;
        size_t bytes;
    } * slots; /* ring, grows */
    size_t cap, head, count;
    size_t bytes, max_bytes;
    bool closed;
};

void queue_init(struct queue *q, size_t max_bytes);
void queue_fini(struct queue *q); /* must be empty or its items freed by the caller */
/* One item is always let in, whatever its size. ERR_CANCELLED once closed: the item stays the
 * caller's. */
enum status queue_push(struct queue *q, void *item, size_t bytes, struct error *err) CHECKED;
/* As queue_push but never waits and ignores the bound: control messages that must get through. */
enum status queue_push_urgent(struct queue *q, void *item, struct error *err) CHECKED;
/* Waits; NULL once closed and drained. */
void *queue_pop(struct queue *q);
/* Waits until an item is there, the queue is closed, or the CLOCK_MONOTONIC deadline (ns;
 * UINT64_MAX = none) passes. *ret_closed tells closed-and-drained from a timeout. */
void *queue_pop_until(struct queue *q, uint64_t deadline_ns, bool *ret_closed);
/* Producers get ERR_CANCELLED, consumers drain what is there. */
void queue_close(struct queue *q);
size_t queue_bytes(struct queue *q);
bool queue_is_empty(struct queue *q);

uint64_t clock_now_ns(void); /* CLOCK_MONOTONIC */
