/* Who may have how many executors. */
#include "server/coordinator/quotas/budget.h"

#include <string.h>

#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* One that may compute is dealt one at the least. */
static uint32_t held_by(const struct seat *seat) {
  return seat->executors == 0 && seat->state != SEAT_LOADING ? 1 : seat->executors;
}

struct budgets budgets_of(const struct coordinator *coordinator, struct arena *arena) {
  const struct quotas *quotas = coordinator->options.quotas;
  struct budgets budgets = {NULL, 0};
  if (!quotas)
    return budgets;
  budgets.list = arena_new(arena, (size_t)coordinator->n_runs * sizeof *budgets.list + 1);
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    uint64_t limit = quota_limit(quotas, run->tenant, QUOTA_EXECUTORS);
    int at = budgets_find(&budgets, run->tenant);
    if (limit == QUOTA_NONE)
      continue;
    if (!at) {
      budgets.list[budgets.n++] = (struct budget){run->tenant, limit, 0};
      at = budgets.n;
    }
    for (int s = 0; s < run->n_seats; s++)
      budgets.list[at - 1].used += held_by(run->seats[s]);
  }
  return budgets;
}

int budgets_find(const struct budgets *budgets, const char *tenant) {
  for (int i = 0; i < budgets->n; i++)
    if (strcmp(budgets->list[i].tenant, tenant) == 0)
      return i + 1;
  return 0;
}

/* What it has, it keeps while its tenant has no more than its quota. */
uint32_t budget_of_seat(const struct budgets *budgets, const struct seat *seat) {
  int at = budgets_find(budgets, seat->run->tenant);
  const struct budget *budget = at ? &budgets->list[at - 1] : NULL;
  uint64_t most;
  if (!budget || seat->run->spec->workers->stages > 1)
    return 0;
  most = held_by(seat) + budget->limit;
  most = most > budget->used ? most - budget->used : 1;
  return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

void budget_spend(const struct budgets *budgets, const struct seat *seat, uint32_t executors) {
  int at = budgets_find(budgets, seat->run->tenant);
  if (at)
    budgets->list[at - 1].used += (uint64_t)executors - held_by(seat);
}
