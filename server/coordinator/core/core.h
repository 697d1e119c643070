/* The coordinator's decisions: a state machine without threads, clock or I/O, so that a simulator can drive
   it. The shell (server/coordinator/shell/service.h) turns what happens into events, passes them to
   coordinator_step one at a time, and carries out the actions that come back, in order. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_CORE_H
#define WEIR_SERVER_COORDINATOR_CORE_CORE_H

#include <stdint.h>

#include "server/coordinator/state/action.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/options.h"

struct coordinator;

struct coordinator *coordinator_new(const struct coordinator_options *options);
void coordinator_free(struct coordinator *coordinator); /* NULL is ignored */

/* Takes one event. now_ms is monotonic. The actions of the step before are dropped first. */
void coordinator_step(struct coordinator *coordinator, const struct coordinator_event *event, uint64_t now_ms,
                      struct coordinator_actions *actions);

#endif
