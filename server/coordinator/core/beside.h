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

/* How many runs may compute on the worker at a time: SEATS_MAX, but no more than it has executors; on GPUs
   one. */
uint32_t beside_room(const struct member *worker);

/* Whether the run may have a seat on the worker, beside those that there are. */
bool beside_may_join(const struct run *run, const struct member *worker);

/* What deal_executors is to know of the run on this worker. */
struct deal_seat beside_demand(const struct run *run, const struct member *worker);

/* Gives seats beside others to each run that has, and is about to get, no worker of its own: as many as it
   needs at the least, on workers with executors that no run of higher priority has use for. Seats that it has
   come first, then workers with the fewest seats. Seats that runs have beyond that end. Called once workers
   are reserved; raises claim.share to the seats found. */
void seat_beside(struct coordinator *coordinator, const struct beside *beside);

/* Deals the executors of workers with several seats (server/coordinator/shares/deal.h), where their seats
   have changed, or nothing was dealt for 2 s. Runs whose numbers of executors change are due a view. */
void coordinator_deal_executors(struct coordinator *coordinator);

#endif
