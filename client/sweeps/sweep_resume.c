/* Going on with the sweep that a folder holds, by a spec that may have a larger budget. */
#include "client/sweeps/sweep_resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "common/base/sha256.h"
#include "common/base/text.h"
#include "common/specs/spec_diff.h"
#include "common/sweep/sweep_spec.h"
#include "storage/checkpoint/checkpoint.h"

enum { DIFFERENCE_MAX = 600 };

/* Takes the budget's larger bounds in place of what the head's spec says. */
static void budget_take(Weir__SweepBudget *budget, const Weir__SweepBudget *larger) {
  if (larger->has_trials)
    budget->trials = larger->trials;
  if (larger->has_steps)
    budget->steps = larger->steps;
  if (larger->has_seconds)
    budget->seconds = larger->seconds;
}

/* The log's extensions are what the sweep has now, beside the head. */
static int read_extensions(struct store *store, const Weir__SweepHead *head, struct err *err) {
  for (uint64_t number = 0;; number++) {
    char *name = mem_printf("sweeps/%s/log/%020llu", head->sweep, (unsigned long long)number);
    Weir__SweepRecord *record = NULL;
    checkpoint_read_record(store, name, &weir__sweep_record__descriptor, (void **)&record, err);
    free(name);
    if (err->code) {
      *err = err->code == ERR_NOT_FOUND ? ERR_NONE : *err;
      return err->code;
    }
    if (record->extension && record->extension->budget)
      budget_take(head->spec->budget, record->extension->budget);
    message_free(record);
  }
}

/* The sweep as the store has it, its spec with the budget that it has now. *out: freed with message_free. */
static int read_head(const struct sweep_folder *folder, Weir__SweepHead **out, struct err *err) {
  const char *id = folder->file->run;
  char *name = mem_printf("sweeps/%s/sweep", id);
  struct store *store = NULL;
  *out = NULL;
  if (store_open(folder->store, &store, err) == 0 &&
      checkpoint_read_record(store, name, &weir__sweep_head__descriptor, (void **)out, err) == ERR_NOT_FOUND)
    err_set(err, ERR_NOT_FOUND,
            "the store does not hold sweep '%s' of '%s' any more: begin anew with --force", id, folder->path);
  else if (!err->code && (!(*out)->spec || !(*out)->run_spec))
    err_set(err, ERR_CORRUPT, "store: record %s is damaged", name);
  if (!err->code && spec_check((*out)->run_spec, err) == 0 && sweep_spec_check((*out)->spec, err) == 0)
    read_extensions(store, *out, err);
  store_close(store);
  free(name);
  return err->code;
}

static int check_specs(const struct sweep_submission *sweep, const Weir__SweepHead *head, struct err *err) {
  static const char why[] = "a sweep goes on with the spec that it began with, but for a larger budget";
  const struct spec_source run_spec = {.file = sweep->submission.path};
  char difference[DIFFERENCE_MAX];
  if (sweep_spec_differs(sweep->spec, head->spec, difference, sizeof difference)) {
    err_set(err, ERR_INVALID, "%s: %s", difference, why);
    return spec_blame(sweep->source, err);
  }
  if (spec_differs(sweep->submission.spec, head->run_spec, NULL, difference, sizeof difference)) {
    err_set(err, ERR_INVALID, "%s: %s", difference, why);
    return spec_blame(&run_spec, err);
  }
  return 0;
}

static int check_model(const char *path, const void *onnx, size_t size_bytes, const char *was,
                       struct err *err) {
  char sha256[SHA256_HEX_SIZE];
  sha256_hex(onnx, size_bytes, sha256);
  return strcmp(sha256, was) == 0
             ? 0
             : err_set(err, ERR_INVALID, "%s: the model is another one than when the sweep began", path);
}

static int check_models(const struct sweep_submission *sweep, const Weir__SweepHead *head, struct err *err) {
  const struct submission *base = &sweep->submission;
  check_model(base->model_path, base->onnx, base->onnx_size, head->model_sha256, err);
  for (size_t i = 0; i < sweep->n_files && i < head->n_files && !err->code; i++) {
    const struct submission_model *file = &sweep->files[i];
    check_model(file->path, file->onnx ? file->onnx : base->onnx, file->size_bytes,
                head->files[i]->model_sha256, err);
  }
  return err->code;
}

/* A bound of a budget, before and now. */
struct bound {
  const char *key;
  bool has_now, has_was;
  double now, was;
};

static const char *bound_text(bool has, double value, char text[TEXT_NUMBER_SIZE]) {
  return has ? text_number(value, text) : "not given";
}

static int check_bound(const struct bound *bound, struct err *err) {
  char now[TEXT_NUMBER_SIZE], was[TEXT_NUMBER_SIZE];
  if (bound->has_now == bound->has_was && (!bound->has_now || bound->now >= bound->was))
    return 0;
  return err_set(err, ERR_INVALID, "budget.%s is %s and was %s: a budget can only be raised", bound->key,
                 bound_text(bound->has_now, bound->now, now), bound_text(bound->has_was, bound->was, was));
}

/* What has grown. Errors: INVALID, naming the key. */
static int find_growth(const Weir__SweepBudget *now, const Weir__SweepBudget *was, Weir__SweepBudget *growth,
                       struct err *err) {
  const struct bound bounds[] = {
      {"trials", now->has_trials, was->has_trials, now->trials, was->trials},
      {"steps", now->has_steps, was->has_steps, (double)now->steps, (double)was->steps},
      {"seconds", now->has_seconds, was->has_seconds, now->seconds, was->seconds}};
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
    if (check_bound(&bounds[i], err))
      return err->code;
  weir__sweep_budget__init(growth);
  growth->has_trials = now->has_trials && now->trials > was->trials;
  growth->has_steps = now->has_steps && now->steps > was->steps;
  growth->has_seconds = now->has_seconds && now->seconds > was->seconds;
  budget_take(growth, now);
  return 0;
}

static bool is_growth(const Weir__SweepBudget *growth) {
  return growth->has_trials || growth->has_steps || growth->has_seconds;
}

/* Whether the schedule lets it grow. */
static int check_growth(const Weir__SweepHead *head, const Weir__SweepBudget *growth, struct err *err) {
  struct sweep *was;
  if (!is_growth(growth) || sweep_new(head->spec, head->run_spec, &was, err))
    return err->code;
  sweep_check_extension(was, growth, err);
  sweep_free(was);
  return err->code;
}

int sweep_resume_check(const struct sweep_submission *sweep, const struct sweep_folder *folder,
                       Weir__SweepBudget *growth, struct err *err) {
  Weir__SweepHead *head;
  if (read_head(folder, &head, err) == 0 && check_specs(sweep, head, err) == 0 &&
      check_models(sweep, head, err) == 0 &&
      (find_growth(sweep->spec->budget, head->spec->budget, growth, err) || check_growth(head, growth, err)))
    spec_blame(sweep->source, err);
  message_free(head);
  return err->code;
}

int sweep_resume_extend(struct connection *connection, const char *id, const Weir__SweepBudget *growth,
                        struct err *err) {
  Weir__ExtendSweepRequest request = WEIR__EXTEND_SWEEP_REQUEST__INIT;
  Weir__SweepBudget budget = *growth;
  Weir__SweepInfo *info = NULL;
  if (!is_growth(growth))
    return 0;
  request.sweep = (char *)id;
  request.budget = &budget;
  request.counts_used = true;
  connection_call(connection, RPC_EXTEND_SWEEP, &request, (void **)&info, err);
  message_free(info);
  return err->code;
}
