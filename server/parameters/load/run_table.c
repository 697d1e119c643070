/* The runs on this server. */
#include "server/parameters/load/run_table.h"

#include <stdlib.h>
#include <string.h>

void run_table_init(struct run_table *table) {
  *table = (struct run_table){0};
  pthread_mutex_init(&table->lock, NULL);
}

void run_table_fini(struct run_table *table) {
  CHECK(table->n_runs == 0);
  free(table->runs);
  pthread_mutex_destroy(&table->lock);
}

static int run_table_index_locked(const struct run_table *table, const char *id) {
  for (int i = 0; i < table->n_runs; i++)
    if (strcmp(table->runs[i]->id, id) == 0)
      return i;
  return -1;
}

/* Whether a run may be loaded in the place of number i of the table, if that is one. */
static int run_table_check_locked(const struct run_table *table, int i, uint64_t incarnation,
                                  struct err *err) {
  if (i < 0 || table->runs[i]->incarnation < incarnation)
    return 0;
  return err_set(err, table->runs[i]->incarnation == incarnation ? ERR_EXISTS : ERR_STALE,
                 "run '%s' is loaded already, in incarnation %llu", table->runs[i]->id,
                 (unsigned long long)table->runs[i]->incarnation);
}

int run_table_add(struct run_table *table, struct hosted_run *run, struct err *err) {
  struct hosted_run *older = NULL;
  int code, i;
  pthread_mutex_lock(&table->lock);
  i = run_table_index_locked(table, run->id);
  code = run_table_check_locked(table, i, run->incarnation, err);
  if (!code && i < 0) {
    array_reserve((void **)&table->runs, &table->capacity, table->n_runs, sizeof(struct hosted_run *));
    table->runs[table->n_runs++] = run;
  } else if (!code) {
    older = table->runs[i];
    table->runs[i] = run;
  }
  pthread_mutex_unlock(&table->lock);
  if (older)
    hosted_run_unload(older, "a newer incarnation was loaded");
  hosted_run_put(older);
  return code;
}

struct hosted_run *run_table_find(struct run_table *table, const char *id, uint64_t incarnation,
                                  struct err *err) {
  struct hosted_run *run = NULL;
  int i;
  pthread_mutex_lock(&table->lock);
  i = run_table_index_locked(table, id);
  if (i < 0)
    err_set(err, ERR_NOT_FOUND, "there is no run '%.60s' on this server", id);
  else if (table->runs[i]->incarnation != incarnation)
    err_set(err, ERR_STALE, "run '%s' is in incarnation %llu here, not in %llu", id,
            (unsigned long long)table->runs[i]->incarnation, (unsigned long long)incarnation);
  else
    run = hosted_run_get(table->runs[i]);
  pthread_mutex_unlock(&table->lock);
  return run;
}

int run_table_list(struct run_table *table, struct hosted_run ***runs) {
  int n;
  pthread_mutex_lock(&table->lock);
  n = table->n_runs;
  *runs = mem_new((size_t)n * sizeof(struct hosted_run *));
  for (int i = 0; i < n; i++)
    (*runs)[i] = hosted_run_get(table->runs[i]);
  pthread_mutex_unlock(&table->lock);
  return n;
}

int run_table_remove_older(struct run_table *table, const char *id, uint64_t incarnation, const char *reason,
                           struct err *err) {
  int code;
  pthread_mutex_lock(&table->lock);
  code = run_table_check_locked(table, run_table_index_locked(table, id), incarnation, err);
  pthread_mutex_unlock(&table->lock);
  if (!code)
    run_table_remove(table, id, reason);
  return code;
}

void run_table_remove(struct run_table *table, const char *id, const char *reason) {
  struct hosted_run *run;
  int i;
  do {
    run = NULL;
    pthread_mutex_lock(&table->lock);
    i = id ? run_table_index_locked(table, id) : table->n_runs - 1;
    if (i >= 0) {
      run = table->runs[i];
      table->runs[i] = table->runs[--table->n_runs];
    }
    pthread_mutex_unlock(&table->lock);
    if (run)
      hosted_run_unload(run, reason);
    hosted_run_put(run);
  } while (run && !id);
}
