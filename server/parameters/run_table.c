/* The runs on this server. */
#include "server/parameters/run_table.h"

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

int run_table_add(struct run_table *table, struct hosted_run *run, struct err *err) {
  struct hosted_run *older = NULL;
  int code = 0, i;
  pthread_mutex_lock(&table->lock);
  i = run_table_index_locked(table, run->id);
  if (i < 0) {
    array_reserve((void **)&table->runs, &table->capacity, table->n_runs, sizeof(struct hosted_run *));
    table->runs[table->n_runs++] = run;
  } else if (table->runs[i]->incarnation < run->incarnation) {
    older = table->runs[i];
    table->runs[i] = run;
  } else
    code = err_set(err, table->runs[i]->incarnation == run->incarnation ? ERR_EXISTS : ERR_STALE,
                   "run '%s' is loaded already, in incarnation %llu", run->id,
                   (unsigned long long)table->runs[i]->incarnation);
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
