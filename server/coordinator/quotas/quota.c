/* What tenants may have, and what they have. */
#include "server/coordinator/quotas/quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/size.h"
#include "common/base/text.h"
#include "server/coordinator/state/options.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { ROWS_MAX = 1000, AMOUNT_SIZE = 32 };
#define COUNT_MAX UINT64_C(1000000000)

static const struct {
  const char *name;
  bool is_bytes;
  const char *advice;
} kinds[QUOTA_KINDS] = {
    {"runs", false, "wait until one is over, or end one with 'weir cancel'"},
    {"executors", false, "wait until others of the tenant are over"},
    {"memory", true, "wait until a run is over, or end one with 'weir cancel'"},
    {"store", true, "delete runs that are over with 'weir gc', or keep fewer checkpoints (checkpoint.keep)"},
    {"uploads", false, "submit again when one of them has come"},
    {"downloads", false, "ask again when one of them has come, or its client has gone"},
    {"verifications", false, "ask again when one of them is over"},
};

static int set_part(struct quota *quota, const char *text, struct err *err);

static struct quota *find_row(const struct quotas *quotas, const char *tenant) {
  for (int i = 0; i < quotas->n; i++)
    if (strcmp(quotas->rows[i].tenant, tenant) == 0)
      return &quotas->rows[i];
  return NULL;
}

int quotas_add(struct quotas *quotas, const char *text, struct err *err) {
  const char *colon = strchr(text, ':');
  char *copy, *rest, *part;
  struct quota row = {.data_root = NULL};
  if (!colon || colon == text || !colon[1])
    return err_set(err, ERR_INVALID,
                   "'%.100s' is no quota: TENANT:runs=N,executors=N,memory=SIZE,... is wanted", text);
  if (quotas->n == ROWS_MAX)
    return err_set(err, ERR_INVALID, "more than %d tenants have quotas", ROWS_MAX);
  for (int i = 0; i < QUOTA_KINDS; i++)
    row.limits[i] = QUOTA_NONE;
  copy = mem_strdup(text);
  copy[colon - text] = '\0';
  if (strcmp(copy, "*") == 0)
    strcpy(row.tenant, copy);
  else
    cert_word_set(row.tenant, copy, "the tenant", err);
  if (!err->code && find_row(quotas, row.tenant))
    err_set(err, ERR_INVALID, "the tenant '%s' has quotas already: give all of them at once", row.tenant);
  rest = copy + (colon - text) + 1;
  while (!err->code && (part = strsep(&rest, ",")))
    set_part(&row, part, err);
  free(copy);
  if (err->code) {
    free(row.data_root);
    return err->code;
  }
  array_reserve((void **)&quotas->rows, &quotas->capacity, quotas->n, sizeof *quotas->rows);
  quotas->rows[quotas->n++] = row;
  return 0;
}

/* What a worker would refuse later is refused here: "..". */
static int set_data_root(struct quota *quota, const char *path, struct err *err) {
  if (quota->data_root)
    return err_set(err, ERR_INVALID, "data_root is there twice");
  if (!*path || !text_is_clean(path) || path_climbs(path))
    return err_set(err, ERR_INVALID,
                   "data_root: '%.200s' is no folder below the workers' --data-root: a path without '..' is "
                   "wanted, from there or absolute",
                   path);
  quota->data_root = mem_strdup(path);
  return 0;
}

static int set_limit(struct quota *quota, const char *text, struct err *err) {
  const char *equals = strchr(text, '=');
  size_t length = equals ? (size_t)(equals - text) : strlen(text);
  int kind = 0;
  uint64_t value = 0;
  char *end;
  bool is_good;
  while (kind < QUOTA_KINDS &&
         (strlen(kinds[kind].name) != length || strncmp(kinds[kind].name, text, length) != 0))
    kind++;
  if (kind == QUOTA_KINDS || !equals)
    return err_set(err, ERR_INVALID,
                   "'%.60s': there are runs=N, executors=N, memory=SIZE, store=SIZE, uploads=N, downloads=N, "
                   "verifications=N and data_root=PATH",
                   text);
  if (quota->limits[kind] != QUOTA_NONE)
    return err_set(err, ERR_INVALID, "%s is there twice", kinds[kind].name);
  errno = 0;
  if (kinds[kind].is_bytes) {
    is_good = size_parse(equals + 1, &value);
  } else {
    value = strtoull(equals + 1, &end, 10);
    is_good = equals[1] >= '0' && equals[1] <= '9' && !*end && !errno && value <= COUNT_MAX;
  }
  if (!is_good)
    return err_set(err, ERR_INVALID, "%s: '%.60s' is not %s", kinds[kind].name, equals + 1,
                   kinds[kind].is_bytes ? "an amount, as 8GB or 1.5GiB" : "a number from 0 to 1000000000");
  quota->limits[kind] = value;
  return 0;
}

static int set_part(struct quota *quota, const char *text, struct err *err) {
  static const char key[] = "data_root=";
  if (strncmp(text, key, sizeof key - 1) == 0)
    return set_data_root(quota, text + sizeof key - 1, err);
  return set_limit(quota, text, err);
}

void quotas_fini(struct quotas *quotas) {
  for (int i = 0; i < quotas->n; i++)
    free(quotas->rows[i].data_root);
  free(quotas->rows);
  *quotas = (struct quotas){0};
}

void quotas_move(struct quotas *to, struct quotas *from) {
  *to = from ? *from : (struct quotas){0};
  if (from)
    *from = (struct quotas){0};
}

/* NULL: it has none. */
static const struct quota *row_of(const struct quotas *quotas, const char *tenant) {
  const struct quota *row = quotas ? find_row(quotas, tenant) : NULL;
  return quotas && !row ? find_row(quotas, "*") : row;
}

uint64_t quota_limit(const struct quotas *quotas, const char *tenant, enum quota_kind kind) {
  const struct quota *row = row_of(quotas, tenant);
  return row ? row->limits[kind] : QUOTA_NONE;
}

char *quota_data_root(const struct quotas *quotas, const char *tenant, struct arena *arena) {
  const struct quota *row = row_of(quotas, tenant);
  char *path = NULL, *copy, *rest, *part;
  if (!row || !row->data_root)
    return NULL;
  rest = copy = mem_strdup(row->data_root);
  while ((part = strsep(&rest, "*")))
    path = path ? arena_printf(arena, "%s%s%s", path, tenant, part) : arena_strdup(arena, part);
  free(copy);
  return path;
}

void quota_confine(const struct coordinator *coordinator, struct run *run) {
  const struct quota *row = row_of(coordinator->options.quotas, run->tenant);
  run->is_confined = row && row->data_root;
}

/* "1234567890 bytes", "8" */
static const char *amount(enum quota_kind kind, uint64_t value, char text[AMOUNT_SIZE]) {
  snprintf(text, AMOUNT_SIZE, "%llu%s", (unsigned long long)value, kinds[kind].is_bytes ? " bytes" : "");
  return text;
}

int quota_check(const struct quotas *quotas, const char *tenant, enum quota_kind kind,
                const struct quota_use *use, struct err *err) {
  uint64_t limit = quota_limit(quotas, tenant, kind);
  char texts[3][AMOUNT_SIZE];
  if (limit == QUOTA_NONE || (use->used <= limit && use->more <= limit - use->used))
    return 0;
  return err_set(err, ERR_QUOTA, "the quota of the tenant '%s' is %s=%s: %s used, and this takes %s: %s",
                 tenant, kinds[kind].name, amount(kind, limit, texts[0]), amount(kind, use->used, texts[1]),
                 amount(kind, use->more, texts[2]), kinds[kind].advice);
}

static bool is_live(const struct run *run) {
  return !coordinator_is_over(run) && !(run->state == WEIR__RUN_STATE__HELD && *run->sweep);
}

/* As if no two checkpoints had blocks in common, which they may. */
static uint64_t bytes_of_checkpoints(const struct run *run) {
  uint64_t bytes = 0;
  for (int i = 0; i < run->n_checkpoints; i++)
    bytes += run->checkpoints[i]->bytes;
  return bytes;
}

/* The tenant's, of those of the first n runs. */
static bool has_model(const struct coordinator *coordinator, int n, const char *tenant, const char *model) {
  for (int i = 0; i < n; i++)
    if (strcmp(coordinator->runs[i]->model_sha256, model) == 0 &&
        strcmp(coordinator->runs[i]->tenant, tenant) == 0)
      return true;
  return false;
}

/* Runs of one model, as a sweep's, have one file. */
static uint64_t bytes_of_model(const struct coordinator *coordinator, int at) {
  const struct run *run = coordinator->runs[at];
  return has_model(coordinator, at, run->tenant, run->model_sha256) ? 0
                                                                    : run->model_bytes + run->outline_bytes;
}

static uint64_t used_by(const struct run *run, enum quota_kind kind) {
  uint64_t executors = 0;
  switch (kind) {
  case QUOTA_RUNS:
    return is_live(run);
  case QUOTA_MEMORY:
    return is_live(run) ? run->server_bytes : 0;
  case QUOTA_STORE:
    return bytes_of_checkpoints(run);
  case QUOTA_EXECUTORS:
    for (int i = 0; i < run->n_seats; i++)
      executors += run->seats[i]->executors;
    return executors;
  default:
    return 0;
  }
}

uint64_t quota_used(const struct coordinator *coordinator, const char *tenant, enum quota_kind kind) {
  uint64_t used = 0;
  for (int i = 0; i < coordinator->n_runs; i++)
    if (strcmp(coordinator->runs[i]->tenant, tenant) == 0) {
      used += used_by(coordinator->runs[i], kind);
      used += kind == QUOTA_STORE ? bytes_of_model(coordinator, i) : 0;
    }
  return used;
}

static int check_more(const struct coordinator *coordinator, const char *tenant, enum quota_kind kind,
                      uint64_t more, struct err *err) {
  const struct quotas *quotas = coordinator->options.quotas;
  struct quota_use use = {.more = more};
  if (quota_limit(quotas, tenant, kind) == QUOTA_NONE)
    return 0;
  use.used = quota_used(coordinator, tenant, kind);
  return quota_check(quotas, tenant, kind, &use, err);
}

int quota_admit(const struct coordinator *coordinator, const char *tenant, const struct quota_demand *demand,
                struct err *err) {
  bool has_file = demand->model && has_model(coordinator, coordinator->n_runs, tenant, demand->model);
  if (check_more(coordinator, tenant, QUOTA_RUNS, 1, err) ||
      check_more(coordinator, tenant, QUOTA_MEMORY, demand->memory_bytes, err))
    return err->code;
  return check_more(coordinator, tenant, QUOTA_STORE,
                    demand->checkpoint_bytes + (has_file ? 0 : demand->model_bytes), err);
}

int quota_admit_again(const struct coordinator *coordinator, const char *id, struct err *err) {
  const struct run *run = coordinator_run(coordinator, id);
  if (!run || is_live(run))
    return 0;
  return quota_admit(coordinator, run->tenant, &(struct quota_demand){.memory_bytes = run->server_bytes},
                     err);
}

int quota_admit_checkpoint(const struct coordinator *coordinator, const struct run *run, struct err *err) {
  return check_more(coordinator, run->tenant, QUOTA_STORE, 1, err);
}
