/* Train graphs of models and graphs drawn by chance, whose forward nodes are computed again so that a program
   takes less memory: loss, statistics and gradients keep their bits, and no program takes more than without
   it. By default on the built-in backends. usage: recompute_test [BACKEND] [PRECISION] */
#include "common/agree/float_setting.h"
#include "tests/conformance/harness.h"
#include "tests/support/model/train_subject.h"

enum { RUNS = 3, SEEDS = 40, INPUTS_SEED = 11 };

/* What a program gave: once enqueued, once captured and once replayed, where a device does so; each execution
   draws others. */
struct result {
  struct outcome outcomes[RUNS];
  size_t size_bytes;
};

static void result_init(struct result *result, const struct subject *subject) {
  for (int r = 0; r < RUNS; r++)
    outcome_init(&result->outcomes[r], subject->graph, subject->watched, subject->n_watched);
}

static void result_fini(struct result *result) {
  for (int r = 0; r < RUNS; r++)
    outcome_fini(&result->outcomes[r]);
}

static int execute(const struct backend_def *backend, const struct backend_options *options,
                   const struct subject *subject, struct result *result, struct err *err) {
  struct backend_request request = {.graph = subject->graph,
                                    .watched = subject->watched,
                                    .n_watched = subject->n_watched,
                                    .options = *options};
  struct backend_program *program = NULL;
  void *const *inputs = subject_inputs_new(subject->graph, INPUTS_SEED);
  int code = backend->prepare(&request, &program, err);
  for (int r = 0; r < RUNS && !code; r++) {
    struct feed feed = {.inputs = (const void *const *)inputs, .seed = USUAL_SEED + (uint64_t)r};
    code = program_run(backend, program, &feed, &result->outcomes[r], err);
  }
  result->size_bytes = code ? 0 : backend->memory_bytes(program);
  backend->release(program);
  subject_inputs_free(subject->graph, inputs);
  return code;
}

/* A way to recompute, beside the program that keeps everything. */
struct trial {
  const struct backend_def *backend;
  const struct subject *subject;
  struct backend_options options;
  const struct result *plain;
};

/* *size_bytes: what the program took. Says what differs. */
static bool trial_agrees(const struct trial *trial, const char *name, size_t *size_bytes) {
  struct result got;
  struct err err = ERR_NONE;
  result_init(&got, trial->subject);
  bool is_ok = !execute(trial->backend, &trial->options, trial->subject, &got, &err);
  if (!is_ok)
    printf("# %s: %s\n", name, err.text);
  for (int r = 0; r < RUNS && is_ok; r++)
    for (int i = 0; i < trial->subject->n_watched && is_ok; i++) {
      int value = trial->subject->watched[i];
      is_ok = memcmp(got.outcomes[r].data[i], trial->plain->outcomes[r].data[i],
                     value_size(trial->subject->graph, value)) == 0;
      if (!is_ok)
        printf("# %s: execution %d has other bits of '%s'\n", name, r,
               trial->subject->graph->values[value].name);
    }
  *size_bytes = got.size_bytes;
  result_fini(&got);
  return is_ok;
}

/* Within budgets from all that there is down to the least. */
static bool budgets_hold(struct trial *trial, size_t least_bytes, size_t most_bytes) {
  enum { BUDGETS = 4 };
  trial->options.replay = REPLAY_AUTO;
  for (int b = 0; b < BUDGETS; b++) {
    size_t budget = most_bytes - (most_bytes - least_bytes) / (BUDGETS - 1) * (size_t)b, taken;
    budget = b == BUDGETS - 1 ? least_bytes : budget;
    trial->options.most_bytes = budget;
    if (!trial_agrees(trial, "auto", &taken))
      return false;
    if (taken <= budget && (b > 0 || taken == most_bytes))
      continue;
    printf("# auto takes %zu bytes of %zu, where none takes %zu\n", taken, budget, most_bytes);
    return false;
  }
  return true;
}

/* is_smaller: something is known to be saved, in f32: elsewhere what a library works in may outweigh these
   small activations. */
static bool subject_agrees(const struct backend_def *backend, const struct subject *subject,
                           enum precision precision, bool is_smaller) {
  struct result plain;
  struct trial trial = {
      .backend = backend, .subject = subject, .options = {.precision = precision}, .plain = &plain};
  struct err err = ERR_NONE;
  size_t always_bytes, full_bytes;
  result_init(&plain, subject);
  bool is_ok = !execute(backend, &trial.options, subject, &plain, &err);
  if (!is_ok)
    printf("# none: %s\n", err.text);
  trial.options.replay = REPLAY_ALWAYS;
  is_ok = is_ok && trial_agrees(&trial, "always", &always_bytes);
  trial.options.replay = REPLAY_FULL;
  is_ok = is_ok && trial_agrees(&trial, "full", &full_bytes);
  if (is_ok && full_bytes > plain.size_bytes - (is_smaller && precision == PRECISION_F32)) {
    printf("# full takes %zu bytes, none %zu\n", full_bytes, plain.size_bytes);
    is_ok = false;
  }
  is_ok = is_ok && budgets_hold(&trial, full_bytes, plain.size_bytes);
  if (is_ok)
    printf("# %zu bytes, %zu at the least\n", plain.size_bytes, full_bytes);
  result_fini(&plain);
  return is_ok;
}

static void suite_run(const struct backend_def *backend, enum precision precision) {
  struct subject subject;
  for (const struct subject_model *model = subject_models; model->name; model++) {
    subject_of_model(&subject, model);
    tap_result(subject_agrees(backend, &subject, precision, !model->is_small), "%s: %s", backend->name,
               model->name);
    subject_fini(&subject);
  }
  subject_of_lstm(&subject);
  tap_result(subject_agrees(backend, &subject, precision, true), "%s: recurrent layers", backend->name);
  subject_fini(&subject);
  subject_of_unet(&subject);
  tap_result(subject_agrees(backend, &subject, precision, true), "%s: encoder and decoder with skips",
             backend->name);
  subject_fini(&subject);
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    subject_of_seed(&subject, seed);
    tap_result(subject_agrees(backend, &subject, precision, false), "%s: seed %llu", backend->name,
               (unsigned long long)seed);
    subject_fini(&subject);
  }
}

int main(int argc, char **argv) {
  float_setting_apply();
  enum precision precision = PRECISION_F32;
  const char *only = NULL;
  struct backends backends;
  struct err err = ERR_NONE;
  for (int i = 1; i < argc; i++)
    if (!precision_find(argv[i], &precision))
      only = argv[i];
  tap_init();
  if (!backends_init(&backends, only, precision, &err))
    return suite_skip(only, &err);
  for (int b = 0; backends.at[b]; b++)
    if (backends.at[b]->replayed)
      suite_run(backends.at[b], precision);
  return tap_finish();
}
