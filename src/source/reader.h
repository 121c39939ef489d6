/* Reads a replication connection ahead of who works on its messages: a thread of its own receives
 * them into a queue bounded by bytes. What the source sends is taken from the socket while the
 * messages before it are looked at. */
#pragma once
#include "source/replication.h"

struct source_reader;

/* After source_repl_start; from then on receiving is the reader's alone, status and wake stay
 * anyone's. repl must outlive the reader. */
enum status source_reader_start(struct source_repl *repl, struct source_reader **ret,
                                struct error *err) CHECKED;
/* Wakes repl, joins the thread, frees what was not taken. NULL is fine. */
void source_reader_stop(struct source_reader *r);

/* As source_repl_receive: the messages in their order, then how the stream ended or failed, again
 * and again. ERR_CANCELLED as soon as repl is woken. One thread. */
enum status source_reader_receive(struct source_reader *r, uint64_t deadline_ns,
                                  struct source_chunk *ret, struct error *err) CHECKED;
