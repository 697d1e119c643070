/* The reason to stop early: a signal, or a lost child. A process has one. It wakes the thread that waits here
   and cancels the stream that is being read, so that no blocking wait of the client has to poll. */
#ifndef WEIR_CLIENT_CLUSTER_STOP_H
#define WEIR_CLIENT_CLUSTER_STOP_H

#include <stdbool.h>

#include "common/rpc/client.h"

enum stop_cause { STOP_NONE, STOP_SIGNAL, STOP_CHILD };

/* From now on SIGINT, SIGTERM and SIGHUP no longer end the process but request a stop; SIGHUP unless it is
   ignored, as nohup(1) has it. Called before any other thread is made (they inherit the blocked signals; a
   forked child must unblock them). */
void stop_on_signals(void);

void stop_request(enum stop_cause cause); /* any thread; the first cause stays */
enum stop_cause stop_cause(void);         /* any thread */

/* Forgets a signal, so that waiting works again and a second one is noticed; a lost child stays. */
void stop_forget_signal(void);

/* Waits for ms or for a stop; true when stopped. */
bool stop_wait(int ms);

/* The stream to cancel on a stop (at once, if that was already requested); NULL: none. Set to NULL before the
   reader is closed. */
void stop_cancels(struct rpc_reader *reader);

#endif
