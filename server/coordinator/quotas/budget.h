/* Executors of those tenants that have a quota of them, while the coordinator settles who computes what. */
#ifndef WEIR_SERVER_COORDINATOR_QUOTAS_BUDGET_H
#define WEIR_SERVER_COORDINATOR_QUOTAS_BUDGET_H

#include "common/base/memory.h"
#include "server/coordinator/state/seat.h"

struct coordinator;

struct budget {
  const char *tenant;
  uint64_t limit;
  uint64_t used; /* by the seats of its runs */
};

struct budgets {
  struct budget *list;
  int n;
};

/* In the arena. */
struct budgets budgets_of(const struct coordinator *coordinator, struct arena *arena);
/* 1 + its index; 0: the tenant has none. */
int budgets_find(const struct budgets *budgets, const char *tenant);

/* How many of its worker's executors the seat may have, 1 or more; 0: any number. A worker that has some
   stages of a model has all of its executors at them. */
uint32_t budget_of_seat(const struct budgets *budgets, const struct seat *seat);
/* It has so many from now on. */
void budget_spend(const struct budgets *budgets, const struct seat *seat, uint32_t executors);

#endif
