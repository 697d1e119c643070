/* What tenants read at a time. */
#include "server/coordinator/shell/reading/reads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/memory.h"

struct read {
  struct reads *reads;
  char tenant[CERT_WORD_SIZE];
  enum read_kind kind;
  char *run;       /* whose checkpoints it holds; NULL: none */
  uint64_t *steps; /* [n_steps] */
  int n_steps;
  struct read *next;
};

static const struct {
  const char *name;
  enum quota_kind quota; /* QUOTA_KINDS: there is none */
  int most;              /* without a quota */
} kinds[READ_KINDS] = {
    {"downloads", QUOTA_DOWNLOADS, LIMIT_TENANT_DOWNLOADS},
    {"verifications", QUOTA_VERIFICATIONS, LIMIT_TENANT_VERIFICATIONS},
    {"downloads of workers and servers", QUOTA_KINDS, LIMIT_MEMBER_DOWNLOADS},
};

void reads_init(struct reads *reads) {
  *reads = (struct reads){.list = NULL};
  pthread_mutex_init(&reads->lock, NULL);
}

void reads_fini(struct reads *reads) {
  CHECK(!reads->list);
  pthread_mutex_destroy(&reads->lock);
}

static uint64_t count_locked(const struct reads *reads, const char *tenant, enum read_kind kind) {
  uint64_t count = 0;
  for (const struct read *read = reads->list; read; read = read->next)
    count += read->kind == kind && strcmp(read->tenant, tenant) == 0;
  return count;
}

static int check(const struct quotas *quotas, const char *tenant, enum read_kind kind, uint64_t used,
                 struct err *err) {
  if (kinds[kind].quota != QUOTA_KINDS && quota_limit(quotas, tenant, kinds[kind].quota) != QUOTA_NONE)
    return quota_check(quotas, tenant, kinds[kind].quota, &(struct quota_use){used, 1}, err);
  if (used < (uint64_t)kinds[kind].most)
    return 0;
  return err_set(err, ERR_BUSY, "%s%s%s %d %s under way, as many as %s may have: ask again when one is over",
                 *tenant ? "the tenant '" : "the cluster", tenant, *tenant ? "' has" : " has",
                 kinds[kind].most, kinds[kind].name, *tenant ? "a tenant" : "it");
}

struct read *read_begin(struct reads *reads, const struct quotas *quotas, const char *tenant,
                        enum read_kind kind, struct err *err) {
  struct read *read = NULL;
  pthread_mutex_lock(&reads->lock);
  if (check(quotas, tenant, kind, count_locked(reads, tenant, kind), err) == 0) {
    read = mem_new(sizeof *read);
    *read = (struct read){.reads = reads, .kind = kind, .next = reads->list};
    snprintf(read->tenant, sizeof read->tenant, "%s", tenant);
    reads->list = read;
  }
  pthread_mutex_unlock(&reads->lock);
  return read;
}

static void hold_nothing(struct read *read) {
  free(read->run);
  free(read->steps);
}

void read_end(struct read *read) {
  struct read **at;
  if (!read)
    return;
  pthread_mutex_lock(&read->reads->lock);
  for (at = &read->reads->list; *at != read; at = &(*at)->next)
    ;
  *at = read->next;
  pthread_mutex_unlock(&read->reads->lock);
  hold_nothing(read);
  free(read);
}

void read_hold(struct read *read, const char *run, const uint64_t *steps, int n) {
  size_t size_bytes = (size_t)n * sizeof *steps;
  pthread_mutex_lock(&read->reads->lock);
  hold_nothing(read);
  read->run = mem_strdup(run);
  read->steps = memcpy(mem_new(size_bytes), steps, size_bytes);
  read->n_steps = n;
  pthread_mutex_unlock(&read->reads->lock);
}

/* step NULL: any. */
static bool holds(const struct read *read, const char *run, const uint64_t *step) {
  if (!read->run || strcmp(read->run, run))
    return false;
  for (int i = 0; i < read->n_steps; i++)
    if (!step || read->steps[i] == *step)
      return true;
  return false;
}

static bool find_holder(struct reads *reads, const char *run, const uint64_t *step) {
  const struct read *read;
  pthread_mutex_lock(&reads->lock);
  for (read = reads->list; read && !holds(read, run, step); read = read->next)
    ;
  pthread_mutex_unlock(&reads->lock);
  return read != NULL;
}

bool reads_hold(struct reads *reads, const char *run, uint64_t step) {
  return find_holder(reads, run, &step);
}

bool reads_hold_any(struct reads *reads, const char *run) {
  return find_holder(reads, run, NULL);
}
