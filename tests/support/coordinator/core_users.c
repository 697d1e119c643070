/* What users and the store say in core_fixture.h. */
#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/spec_live.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_fixture.h"
#include "tests/support/forks/fork_terms.h"

static void set_workers(const struct core_fixture *f, Weir__WorkersSpec *workers, uint32_t min,
                        uint32_t max) {
  workers->has_min = true;
  workers->min = min;
  workers->has_max = max != 0;
  workers->max = max;
  workers->has_stages = f->stages > 0;
  workers->stages = f->stages > 0 ? f->stages : 1;
  workers->require = f->required.list;
  workers->n_require = f->required.n;
}

static void set_mode(const struct core_fixture *f, Weir__TrainSpec *train) {
  train->mode = f->local ? "local" : f->staleness > 0 ? "ssp" : "sync";
  train->local = f->local;
  train->has_staleness = f->staleness > 0;
  train->staleness = f->staleness;
}

static void set_ends(struct core_fixture *f, Weir__TrainSpec *train) {
  train->has_hold = f->hold > 0;
  train->hold = f->hold;
  train->has_hold_epochs = f->hold_epochs > 0;
  train->hold_epochs = f->hold_epochs;
  train->early_stopping = f->early_stopping;
}

void user_submits(struct core_fixture *f, const char *id, uint32_t min, uint32_t max) {
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__ModelSpec model = WEIR__MODEL_SPEC__INIT;
  Weir__DataSpec data = WEIR__DATA_SPEC__INIT;
  Weir__DataSource source = WEIR__DATA_SOURCE__INIT;
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__OptimizerSpec optimizer = WEIR__OPTIMIZER_SPEC__INIT;
  Weir__WorkersSpec workers = WEIR__WORKERS_SPEC__INIT;
  Weir__CheckpointSpec checkpoint = WEIR__CHECKPOINT_SPEC__INIT;
  Weir__ScheduleSpec schedule = WEIR__SCHEDULE_SPEC__INIT;
  struct run_submission submission = {.id = id,
                                      .tenant = f->tenant,
                                      .spec = &spec,
                                      .model_bytes = 1000,
                                      .model_sha256 = "feed",
                                      .parameters = 650,
                                      .block_elems = f->block_elems ? f->block_elems : fixture_block_elems,
                                      .n_blocks = BLOCKS,
                                      .submitted_unix_ms = 1700000000000,
                                      .sweep = f->sweep,
                                      .origin = f->origin,
                                      .inheritance = f->inheritance};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  spec.name = "mlp";
  spec.model = &model;
  spec.data = &data;
  spec.train = &train;
  spec.workers = &workers;
  checkpoint.has_every_seconds = true;
  checkpoint.every_seconds = 1e9;
  spec.checkpoint = f->checkpoint ? f->checkpoint : &checkpoint;
  spec.eval = f->eval;
  spec.has_priority = f->priority != 0;
  spec.priority = f->priority;
  train.schedule = &schedule;
  model.onnx = "mlp.onnx";
  source.format = "idx";
  source.images = "images";
  source.labels = "labels";
  data.train = &source;
  data.eval = f->evaluates ? &source : NULL;
  train.has_steps = train.has_batch = train.has_microbatches = optimizer.has_lr = true;
  train.steps = f->trains_nothing ? 0 : f->steps ? f->steps : STEPS;
  set_ends(f, &train);
  submission.weights_sha256 = f->trains_nothing ? FIXTURE_SHA256 : NULL;
  train.compression = f->compression;
  train.has_deterministic = f->admits_any;
  train.deterministic = !f->admits_any;
  set_mode(f, &train);
  if (f->collective)
    train.collective = (char *)f->collective;
  train.batch = BATCH;
  train.microbatches = f->microbatches ? f->microbatches : MICROBATCHES;
  optimizer.name = "sgd";
  optimizer.lr = 0.1;
  train.optimizer = &optimizer;
  model.loss = "cross_entropy";
  set_workers(f, &workers, min, max);
  core_step(f, &event);
}

struct quotas quotas_from(const char *const *texts, int n) {
  struct quotas quotas = {0};
  struct err err = ERR_NONE;
  for (int i = 0; i < n; i++)
    if (quotas_add(&quotas, texts[i], &err))
      fail_msg("%s", err.text);
  return quotas;
}

void tenant_submits(struct core_fixture *f, const char *id, const char *tenant) {
  f->tenant = tenant;
  user_submits(f, id, 1, 1);
}

void user_forks_at(struct core_fixture *f, const char *id, const struct run_origin *origin, uint32_t min,
                   uint32_t max) {
  struct fork_terms terms;
  fork_terms_init(&terms, SAMPLES, STEPS, origin);
  f->origin = *origin;
  f->inheritance = &terms.inheritance;
  user_submits(f, id, min, max);
  f->origin = (struct run_origin){0};
  f->inheritance = NULL;
}

void user_cancels(struct core_fixture *f, const char *run) {
  struct coordinator_event event = {.kind = EVENT_RUN_CANCELLED, .run = run};
  core_step(f, &event);
}

void user_sets(struct core_fixture *f, const char *run, const char *setting) {
  Weir__RunSpec *spec = spec_copy(coordinator_run_spec(f->coordinator, run));
  struct coordinator_event event = {.kind = EVENT_RUN_SET, .set = {run, spec}};
  struct err err = ERR_NONE;
  assert_int_equal(spec_set_live(spec, &setting, 1, &err), 0);
  core_step(f, &event);
  spec_free(spec);
}

void user_raises(struct core_fixture *f, const char *run, uint64_t hold) {
  struct coordinator_event event = {.kind = EVENT_RUN_HOLD, .hold = {run, hold}};
  core_step(f, &event);
}

void user_stops(struct core_fixture *f, const char *run) {
  struct coordinator_event event = {.kind = EVENT_RUN_STOP, .run = run};
  core_step(f, &event);
}

void user_drains(struct core_fixture *f, const char *worker) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_DRAINED, .drained = worker};
  core_step(f, &event);
}

void user_pauses(struct core_fixture *f, const char *run) {
  struct coordinator_event event = {.kind = EVENT_RUN_PAUSED, .run = run};
  core_step(f, &event);
}

void user_resumes(struct core_fixture *f, const char *run, uint64_t at) {
  struct coordinator_event event = {.kind = EVENT_RUN_RESUMED, .resumed = {run, at}};
  core_step(f, &event);
}

void store_commits(struct core_fixture *f, const char *run, const char *error) {
  Weir__CheckpointInfo result = WEIR__CHECKPOINT_INFO__INIT;
  struct coordinator_event event = {.kind = EVENT_CHECKPOINT,
                                    .checkpoint = {.run = run,
                                                   .incarnation = f->incarnation,
                                                   .step = f->commit_step,
                                                   .info = error ? NULL : &result,
                                                   .error = error}};
  result.step = f->commit_step;
  result.incarnation = f->incarnation;
  result.accuracy = result.eval_loss = NAN;
  result.committed_unix_ms = 1700000000000 + (int64_t)f->now_ms;
  result.weights_sha256 = f->commit_step == STEPS || f->commit_is_last ? (char *)sha256_of_weights : "";
  core_step(f, &event);
}
