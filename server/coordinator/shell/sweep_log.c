/* The logs of sweeps in the store. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/modes/mode.h"
#include "common/sweep/sweep_spec.h"
#include "server/coordinator/shell/sweeps.h"

enum { RETRY_MS = 1000 };

/* What the jobs are to write. What it points to is the sweep's, which is there for as long as the jobs are.
 */
struct sweep_save {
  struct task task;
  struct coordinator_service *shell;
  struct shell_sweep *sweep;
  bool writes_head;
  bool deletes;              /* the head, instead */
  struct run_model **models; /* [n_models] to go with the head, as far as they are in memory */
  uint32_t n_models;
  Weir__SweepRecord **records;
  int first, n;
  Weir__SweepKind *kind;          /* to be written; NULL: the store has it */
  uint32_t emptied, kind_changes; /* the sweep's, as it began */
  struct err err;
};

static void save_run(struct task *task);
static int write_head(struct sweep_save *save);
static int delete_head(struct sweep_save *save);
static int write_kind(struct sweep_save *save);
static int delete_records(struct sweep_save *save);
static int write_records(struct sweep_save *save, int begin, int end);
static void save_done(struct task *task);
static bool is_head(const char *name);
static int delete_headless(struct coordinator_service *shell, const struct store_names *names,
                           struct err *err);
static int read_sweep(struct store *store, const char *name, struct shell_sweep **out, struct err *err);
static int read_log(struct store *store, struct shell_sweep *sweep, struct err *err);

Weir__SweepModel sweep_head_model(const Weir__SweepHead *head, uint32_t model) {
  Weir__SweepModel own = WEIR__SWEEP_MODEL__INIT;
  if (model > 0)
    return *head->files[model - 1];
  own.model_bytes = head->model_bytes;
  own.model_sha256 = head->model_sha256;
  own.outline_bytes = head->outline_bytes;
  own.outline_sha256 = head->outline_sha256;
  own.parameters = head->parameters;
  own.block_elems = head->block_elems;
  own.n_block_elems = head->n_block_elems;
  own.multiply_adds = head->multiply_adds;
  return own;
}

static int open_models(const Weir__SweepHead *head, struct sweep *sweep, struct err *err) {
  const int at = space_files(sweep->space);
  const uint32_t n = at >= 0 ? sweep->space->dimensions[at].n_values : 0;
  struct sweep_model *models;
  if (head->n_files != n)
    return err_set(err, ERR_INVALID, "it has %zu model files, and its space names %u", head->n_files, n);
  models = mem_new((1 + n) * sizeof *models);
  for (uint32_t i = 0; i <= n; i++) {
    const Weir__SweepModel model = sweep_head_model(head, i);
    models[i] = (struct sweep_model){(double)model.multiply_adds, model.model_sha256};
  }
  sweep_set_models(sweep, models);
  free(models);
  return 0;
}

int sweep_open(Weir__SweepHead *head, struct shell_sweep **out, struct err *err) {
  struct sweep *sweep;
  *out = NULL;
  if (sweep_new(head->spec, head->run_spec, &sweep, err))
    return err->code;
  if (open_models(head, sweep, err)) {
    sweep_free(sweep);
    return err->code;
  }
  *out = mem_new(sizeof **out);
  **out = (struct shell_sweep){.id = mem_strdup(head->sweep), .head = head, .sweep = sweep, .is_due = true};
  return 0;
}

void sweep_add(struct shell_sweep *sweep, Weir__SweepRecord *record) {
  array_reserve((void **)&sweep->log, &sweep->log_capacity, sweep->n_log, sizeof *sweep->log);
  sweep->log[sweep->n_log++] = record;
  for (; sweep->n_runs < sweep->sweep->n_trials * (int)sweep->sweep->spec->repeats; sweep->n_runs++) {
    array_reserve((void **)&sweep->runs, &sweep->runs_capacity, sweep->n_runs, sizeof *sweep->runs);
    sweep->runs[sweep->n_runs] = (struct trial_run){0};
  }
}

void sweeps_free(struct shell_sweep *sweep) {
  while (sweep) {
    struct shell_sweep *next = sweep->next;
    for (int i = 0; i < sweep->n_log; i++)
      message_free(sweep->log[i]);
    free(sweep->log);
    free(sweep->runs);
    message_free(sweep->extension);
    message_free(sweep->kind);
    sweep_free(sweep->sweep);
    message_free(sweep->head);
    free(sweep->id);
    free(sweep);
    sweep = next;
  }
}

static void take_models(struct sweep_save *save) {
  const struct shell_sweep *sweep = save->sweep;
  save->models = mem_new((1 + sweep->head->n_files) * sizeof(struct run_model *));
  for (uint32_t i = 0; i <= sweep->head->n_files; i++) {
    const struct live_model *live = sweep_find_model(save->shell, sweep, i);
    if (live)
      save->models[save->n_models++] = run_model_get(live->model);
  }
}

void shell_sweep_save(struct coordinator_service *shell, struct shell_sweep *sweep) {
  struct sweep_save *save;
  int n = sweep->n_log - sweep->n_written;
  bool is_kind_due = sweep->kind && sweep->kind_written != sweep->kind_changes;
  if (sweep->is_saving || (sweep->is_head_written && n == 0 && !is_kind_due && !sweep->is_refused) ||
      shell_now_ms() < sweep->retry_ms || sweep->is_deleting)
    return;
  save = mem_new(sizeof *save);
  *save = (struct sweep_save){.task.run = save_run,
                              .shell = shell,
                              .sweep = sweep,
                              .writes_head = !sweep->is_head_written,
                              .deletes = sweep->is_refused,
                              .records = mem_new((size_t)n * sizeof *save->records + 1),
                              .first = sweep->n_written,
                              .kind = is_kind_due ? message_copy(sweep->kind) : NULL,
                              .kind_changes = sweep->kind_changes,
                              .emptied = sweep->emptied,
                              .n = n};
  for (int i = 0; i < n; i++)
    save->records[i] = sweep->log[sweep->n_written + i];
  if (save->writes_head)
    take_models(save);
  sweep->is_saving = true;
  task_post(shell->jobs, &save->task); /* one a sweep */
}

/* A sweep that is there has what it learned of others, its first record: the head comes behind that. */
static int write_all(struct sweep_save *save) {
  int n_learned = save->writes_head && save->sweep->head->spec->n_from > 0 && save->n > 0;
  return write_records(save, 0, n_learned) || (save->writes_head && write_head(save)) || write_kind(save) ||
         write_records(save, n_learned, save->n);
}

static void save_run(struct task *task) {
  struct sweep_save *save = TASK_OWNER(task, struct sweep_save, task);
  if (shell_may_write(save->shell, &save->err) &&
      (save->deletes ? delete_records(save) || delete_head(save) : write_all(save)))
    shell_note_failure(save->shell, &save->err);
  save->task.run = save_done;
  task_post(save->shell->event_loop, &save->task);
}

static int put_models(struct sweep_save *save) {
  struct store *store = save->shell->store;
  char again[STORE_KEY_SIZE];
  for (uint32_t i = 0; i < save->n_models && !save->err.code; i++) {
    const struct buffer *file = save->models[i]->file, *outline = save->models[i]->outline;
    if (store_put(store, file->data, file->size_bytes, again, &save->err) == 0 && outline != file)
      store_put(store, outline->data, outline->size_bytes, again, &save->err);
  }
  return save->err.code;
}

/* Behind the models, which a collection may have taken away since they were checked. */
static int write_head(struct sweep_save *save) {
  struct coordinator_service *shell = save->shell;
  const Weir__SweepHead *head = save->sweep->head;
  char term[LEASE_TERM_SIZE];
  char *name = mem_printf("sweeps/%s/sweep", save->sweep->id);
  struct store_record guard = lease_guard(shell->term, term);
  int rc = put_models(save) || checkpoint_write_record(shell->store, name, head, &guard, &save->err);
  if (!rc && shell->refs)
    block_refs_add_sweep(shell->refs, head);
  free(name);
  return rc;
}

static int delete_head(struct sweep_save *save) {
  struct coordinator_service *shell = save->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  return sweep_delete_head(shell->store, save->sweep->id, &guard, &save->err);
}

int sweep_delete_head(struct store *store, const char *sweep, const struct store_record *guard,
                      struct err *err) {
  static const char *const records[] = {"sweep", "kind"};
  for (size_t i = 0; i < sizeof records / sizeof *records && !err->code; i++) {
    char *name = mem_printf("sweeps/%s/%s", sweep, records[i]);
    store_delete_record(store, name, guard, err);
    free(name);
  }
  return err->code;
}

/* Before the records, which trials of that kind will have led to. */
static int write_kind(struct sweep_save *save) {
  struct coordinator_service *shell = save->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  return save->kind ? sweep_kind_write(shell->store, save->sweep->id, save->kind, &guard, &save->err) : 0;
}

static int delete_records(struct sweep_save *save) {
  struct coordinator_service *shell = save->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  for (int i = 0; i < save->n && !save->err.code; i++) {
    char *name = mem_printf("sweeps/%s/log/%020d", save->sweep->id, save->first + i);
    store_delete_record(shell->store, name, &guard, &save->err);
    free(name);
  }
  return save->err.code;
}

static int write_records(struct sweep_save *save, int begin, int end) {
  struct coordinator_service *shell = save->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  for (int i = begin; i < end && !save->err.code; i++) {
    char *name = mem_printf("sweeps/%s/log/%020d", save->sweep->id, save->first + i);
    checkpoint_write_record(shell->store, name, save->records[i], &guard, &save->err);
    free(name);
  }
  return save->err.code;
}

static void save_done(struct task *task) {
  struct sweep_save *save = TASK_OWNER(task, struct sweep_save, task);
  struct shell_sweep *sweep = save->sweep;
  struct err err = save->err;
  sweep->is_saving = false;
  if (err.code) {
    sweep->retry_ms = shell_now_ms() + RETRY_MS;
  } else if (sweep->emptied == save->emptied) {
    sweep->is_head_written |= save->writes_head;
    sweep->n_written = save->first + save->n;
    sweep->kind_written = save->kind_changes;
  }
  message_free(save->kind);
  for (uint32_t i = 0; i < save->n_models; i++)
    run_model_put(save->models[i]);
  free(save->models);
  free(save->records);
  if (!save->shell->is_stopping)
    shell_sweep_saved(save->shell, sweep, &err);
  free(save);
}

int sweeps_read(struct coordinator_service *shell, struct shell_sweep **sweeps, struct err *err) {
  struct store_names names = {0};
  int rc = store_list_records(shell->store, "sweeps/", &names, err);
  *sweeps = NULL;
  if (!rc)
    rc = delete_headless(shell, &names, err);
  for (int i = 0; i < names.count && !rc; i++) {
    struct shell_sweep *sweep = NULL;
    if (!is_head(names.items[i]))
      continue;
    rc = read_sweep(shell->store, names.items[i], &sweep, err);
    if (rc == ERR_CORRUPT || rc == ERR_INVALID || rc == ERR_NOT_FOUND) {
      log_event(LOG_ERROR, "coordinator", "sweep_unreadable", "name=%s reason=\"%s\"", names.items[i],
                err->text);
      *err = ERR_NONE;
      rc = 0;
    } else if (!rc) {
      sweep->next = *sweeps;
      *sweeps = sweep;
    }
  }
  store_names_fini(&names);
  if (rc) {
    sweeps_free(*sweeps);
    *sweeps = NULL;
  }
  return rc;
}

static bool is_head(const char *name) {
  static const char end[] = "/sweep";
  size_t length = strlen(name), tail = sizeof end - 1;
  return length > tail && strcmp(name + length - tail, end) == 0;
}

/* How long the part of a record's name is that names its sweep: "sweeps/ID/". */
static size_t sweep_length(const char *name) {
  const char *id = strchr(name, '/'), *end = id ? strchr(id + 1, '/') : NULL;
  return end ? (size_t)(end + 1 - name) : strlen(name);
}

/* Records of sweeps that have no head are left from a coordinator that died before it wrote the head, or
   while it deleted the sweep. Names are sorted, so those of a sweep are neighbours. */
static int delete_headless(struct coordinator_service *shell, const struct store_names *names,
                           struct err *err) {
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  for (int first = 0, end; first < names->count && !err->code; first = end) {
    size_t length = sweep_length(names->items[first]);
    bool has_head = false;
    for (end = first; end < names->count && strncmp(names->items[end], names->items[first], length) == 0;
         end++)
      has_head |= is_head(names->items[end]);
    for (int i = first; i < end && !has_head && !err->code; i++)
      store_delete_record(shell->store, names->items[i], &guard, err);
    if (!has_head)
      log_event(LOG_INFO, "coordinator", "sweep_left_deleted", "name=%.*s records=%d", (int)length - 1,
                names->items[first], end - first);
  }
  return err->code;
}

static int read_sweep(struct store *store, const char *name, struct shell_sweep **out, struct err *err) {
  Weir__SweepKind *kind;
  Weir__SweepHead *head;
  char *own;
  *out = NULL;
  if (checkpoint_read_record(store, name, &weir__sweep_head__descriptor, (void **)&head, err))
    return err->code;
  own = mem_printf("sweeps/%s/sweep", head->sweep);
  if (strcmp(own, name) != 0 || !head->spec || !head->run_spec)
    err_set(err, ERR_CORRUPT, "store: record %s is damaged", name);
  free(own);
  if (err->code || spec_check(head->run_spec, err) || mode_check(head->run_spec, err) ||
      sweep_spec_check(head->spec, err) || sweep_open(head, out, err)) {
    message_free(head);
    return err->code;
  }
  (*out)->is_head_written = true;
  if (read_log(store, *out, err) == 0 && sweep_kind_read(store, (*out)->id, &kind, err) == 0) {
    sweep_kind_open(*out, kind);
    if (head->spec->n_from == 0 || (*out)->n_log > 0)
      return 0;
    err_set(err, ERR_CORRUPT, "store: the log of sweep %s lacks what it began with", (*out)->id);
  }
  sweeps_free(*out);
  *out = NULL;
  return err->code;
}

/* Records up to the first that is missing. */
static int read_log(struct store *store, struct shell_sweep *sweep, struct err *err) {
  for (;;) {
    char *name = mem_printf("sweeps/%s/log/%020d", sweep->id, sweep->n_log);
    Weir__SweepRecord *record;
    int rc = checkpoint_read_record(store, name, &weir__sweep_record__descriptor, (void **)&record, err);
    free(name);
    if (rc == ERR_NOT_FOUND) {
      *err = ERR_NONE;
      sweep->n_written = sweep->n_log;
      for (int i = 0; i < sweep->n_runs; i++)
        sweep->runs[i].may_be_stored = true;
      return 0;
    }
    if (rc)
      return rc;
    if (sweep_apply(sweep->sweep, record, err)) {
      message_free(record);
      return err->code;
    }
    sweep_add(sweep, record);
  }
}
