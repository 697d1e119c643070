/* Runs for which there are too few workers get seats beside other runs. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_BESIDE_H
#define WEIR_SERVER_COORDINATOR_CORE_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"

/* The workers that are shared, and the runs that claim, by their rank. */
struct beside {
  struct member *const *workers;
  int n_workers;
  struct run *const *runs;
  int n_runs;
};

/* So many runs may compute on the worker at a time: it has an executor for each. One on GPUs. */
uint32_t beside_room(const struct member *worker);

/* Whether the run may have a seat on the worker, beside those that there are. */
bool beside_may_join(const struct run *run, const struct member *worker);

/* What it is given on the worker: its priority and weight, and what it has use for. */
struct deal_seat beside_demand(const struct run *run, const struct member *worker);

/* Runs that have, and are about to get, no worker of their own are given as many seats as they need at the
   least, where workers have executors that no run of higher priority has use for: those that they have, then
   on workers with few seats. What others have there beyond their shares ends. Called once workers are
   reserved; says what each run is to have (claim.share). */
void seat_beside(struct coordinator *coordinator, const struct beside *beside);

/* Deals the executors of workers with several seats (server/coordinator/shares/deal.h), where their seats
   have changed, or nothing was dealt for 2 s. Runs that have others then are due a view. */
void coordinator_deal_executors(struct coordinator *coordinator);

#endif
