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

static int admit_without_locked(const struct run_table *table, struct err *err) {
  for (int i = 0; i < table->n_runs; i++)
    if (!table->runs[i]->tickets.has_key)
      return 0;
  return table->n_runs == 0 ? 0 : err_set(err, ERR_DENIED, "the call has no ticket for a run of this server");
}

int run_table_admit(struct run_table *table, const char *text, const char *holder, struct err *err) {
  struct ticket ticket;
  struct hosted_run *run = NULL;
  int i;
  if (text && ticket_read(text, &ticket, err))
    return err->code;
  pthread_mutex_lock(&table->lock);
  i = text ? run_table_index_locked(table, ticket.run) : -1;
  if (!text)
    admit_without_locked(table, err);
  else if (i < 0)
    err_set(err, ERR_NOT_FOUND, "there is no run '%.60s' on this server", ticket.run);
  else
    run = hosted_run_get(table->runs[i]);
  pthread_mutex_unlock(&table->lock);
  if (run)
    run_tickets_check(&run->tickets, run->incarnation, &ticket, holder, err);
  hosted_run_put(run);
  return err->code;
}

static int refuse(const char *id, uint64_t incarnation, struct err *err) {
  return err_set(err, ERR_DENIED, "the call is for run '%.60s' in incarnation %llu, its ticket is not", id,
                 (unsigned long long)incarnation);
}

/* Whether the run is there or not: with a ticket of one run nothing is learned of another. */
static bool is_of_another(const char *text, const char *id) {
  struct ticket ticket;
  struct err err;
  return text && ticket_read(text, &ticket, &err) == 0 && strcmp(ticket.run, id) != 0;
}

/* What it says was checked when the call was accepted, but the run may have another key by now. */
static bool is_ticket_for(const char *text, const struct hosted_run *run) {
  struct ticket ticket;
  struct err err;
  return text && ticket_read(text, &ticket, &err) == 0 && strcmp(ticket.run, run->id) == 0 &&
         ticket.incarnation == run->incarnation;
}

struct hosted_run *run_table_find_for(struct run_table *table, const char *ticket, const char *id,
                                      uint64_t incarnation, struct err *err) {
  struct hosted_run *run = NULL;
  if (is_of_another(ticket, id))
    refuse(id, incarnation, err);
  else
    run = run_table_find(table, id, incarnation, err);
  if (!run || !run->tickets.has_key || is_ticket_for(ticket, run))
    return run;
  refuse(run->id, incarnation, err);
  hosted_run_put(run);
  return NULL;
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
