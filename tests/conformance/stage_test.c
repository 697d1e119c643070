/* Train graphs cut into the stages of a pipeline, which are run in turn in one thread by 1F1B: whatever the
   cut and however many stages, loss, statistics and gradients have the bits of the uncut program, also where
   activations are computed again. A stage is given no input that it says it does not read, and waits for just
   the weights that it says it reads: the others are not to be read. By default on the built-in backends.
   usage: stage_test [BACKEND] [PRECISION] [few]: of the places that are tried, and small models, for
   devices that are simulated. */
#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "tests/conformance/harness.h"
#include "tests/support/model/train_subject.h"

enum { MICROBATCHES = 5, STAGES_MAX = 4, SEEDS = 40, DRAWS = 3, FULL_EVERY = 4, FEW = 5, FEW_NODES = 100 };

/* What crosses an edge for one microbatch in one direction, as its sender's `send` copied it. */
struct parcel {
  void **pieces;
  int n;
};

/* A graph, and what its uncut program gives. */
struct trial {
  const struct backend_def *backend;
  const struct subject *subject;
  struct backend_request request;
  void *const *inputs[MICROBATCHES];
  float **weights[MICROBATCHES]; /* of each another version */
  struct outcome whole[MICROBATCHES];
  size_t whole_bytes;
  float *poison;         /* no numbers, as many as the largest weight has */
  int *places, n_places; /* where it can be cut */
  bool tries_few;        /* of them */
};

struct pipeline;

struct member {
  struct pipeline *pipeline;
  int stage, n_contexts;
  struct backend_program *program;
  int n_forward, n_backward; /* microbatches that are so far */
  int microbatch;            /* that it computes */
  const void **inputs;       /* [n_inputs] those that it reads, of that microbatch */
  const float **weights;     /* [n_values] the same; what it does not read is `poison` */
  bool *has_waited;          /* [n_values] for the weight */
};

struct pipeline {
  const struct trial *trial;
  struct member members[STAGES_MAX];
  int n_stages;
  struct parcel parcels[STAGES_MAX][MICROBATCHES][3]; /* by the stage below the edge, and by part */
  struct outcome outcomes[MICROBATCHES];
  int *delivered[MICROBATCHES]; /* [n_watched] how often */
};

static struct parcel *parcel_of(struct member *member, enum backend_part part, bool is_sent, int microbatch) {
  bool is_above = (part == BACKEND_FORWARD) == is_sent;
  return &member->pipeline->parcels[is_above ? member->stage : member->stage - 1][microbatch][part];
}

static bool receive(void *user, enum backend_part part, const void **bytes) {
  struct member *member = user;
  const struct parcel *parcel = parcel_of(member, part, false, member->microbatch);
  CHECK(parcel->pieces);
  for (int i = 0; i < parcel->n; i++)
    bytes[i] = parcel->pieces[i];
  return true;
}

static void send(void *user, enum backend_part part, const void *const *bytes) {
  struct member *member = user;
  struct backend_message message;
  struct parcel *parcel = parcel_of(member, part, true, member->microbatch);
  CHECK(member->pipeline->trial->backend->message(member->program, part, true, &message));
  *parcel = (struct parcel){.pieces = mem_new(((size_t)message.n + 1) * sizeof(void *)), .n = message.n};
  for (int i = 0; i < message.n; i++) {
    parcel->pieces[i] = mem_new(message.sizes_bytes[i] + 1);
    memcpy(parcel->pieces[i], bytes[i], message.sizes_bytes[i]);
  }
}

static void parcel_free(struct parcel *parcel) {
  for (int i = 0; i < parcel->n; i++)
    free(parcel->pieces[i]);
  free(parcel->pieces);
}

static void deliver(void *user, int watch, const float *data) {
  struct member *member = user;
  member->pipeline->delivered[member->microbatch][watch]++;
  outcome_on_value(&member->pipeline->outcomes[member->microbatch], watch, data);
}

static void wait_for_weight(void *user, int value) {
  struct member *member = user;
  member->has_waited[value] = true;
}

/* What the member says that it reads, of the microbatch. */
static void member_feed(struct member *member, int microbatch) {
  const struct trial *trial = member->pipeline->trial;
  const struct graph *graph = trial->subject->graph;
  for (int i = 0; i < graph->n_inputs; i++)
    member->inputs[i] =
        trial->backend->reads(member->program, graph->inputs[i]) ? trial->inputs[microbatch][i] : NULL;
  for (int v = 0; v < graph->n_values; v++) {
    const float *weight = trial->weights[microbatch][v];
    member->weights[v] = weight && !trial->backend->reads(member->program, v) ? trial->poison : weight;
  }
}

/* It has waited for the weights that it says it reads, and for no others. */
static bool weights_agree(const struct member *member) {
  const struct trial *trial = member->pipeline->trial;
  const struct graph *graph = trial->subject->graph;
  for (int v = 0; v < graph->n_values; v++)
    if (trial->weights[0][v] && trial->backend->reads(member->program, v) != member->has_waited[v]) {
      printf("# stage %d %s for '%s'\n", member->stage, member->has_waited[v] ? "waits" : "does not wait",
             graph->values[v].name);
      return false;
    }
  return true;
}

static int part_run(struct member *member, enum backend_part part, int microbatch, struct err *err) {
  const struct trial *trial = member->pipeline->trial;
  struct backend_run run = {.part = part,
                            .in = microbatch % member->n_contexts,
                            .inputs = member->inputs,
                            .weights = member->weights,
                            .weights_version = 1 + (uint64_t)microbatch,
                            .context = {.seed = USUAL_SEED, .step = 3, .microbatch = (uint64_t)microbatch},
                            .on_value = deliver,
                            .before_weight = wait_for_weight,
                            .receive = receive,
                            .send = send,
                            .user = member};
  member->microbatch = microbatch;
  member_feed(member, microbatch);
  return trial->backend->run(member->program, &run, err);
}

static bool has_come(struct member *member, enum backend_part part, int microbatch) {
  bool is_end =
      part == BACKEND_FORWARD ? member->stage == 0 : member->stage + 1 == member->pipeline->n_stages;
  return is_end || parcel_of(member, part, false, microbatch)->pieces;
}

/* Backward if that is ready, else forward if there is room; of two stages the last runs both at once.
 *is_idle: none is ready. */
static int member_step(struct member *member, bool *is_idle, struct err *err) {
  const struct pipeline *pipeline = member->pipeline;
  int in_flight = member->n_forward - member->n_backward;
  bool is_last = member->stage + 1 == pipeline->n_stages;
  *is_idle = false;
  if (pipeline->n_stages == 2 && is_last && member->n_forward < MICROBATCHES &&
      has_come(member, BACKEND_FORWARD, member->n_forward)) {
    member->n_backward++;
    return part_run(member, BACKEND_WHOLE, member->n_forward++, err);
  }
  if (in_flight > 0 && has_come(member, BACKEND_BACKWARD, member->n_backward))
    return part_run(member, BACKEND_BACKWARD, member->n_backward++, err);
  if (member->n_forward < MICROBATCHES && in_flight < member->n_contexts &&
      has_come(member, BACKEND_FORWARD, member->n_forward))
    return part_run(member, BACKEND_FORWARD, member->n_forward++, err);
  *is_idle = true;
  return ERR_OK;
}

static int pipeline_run(struct pipeline *pipeline, struct err *err) {
  bool is_idle = false;
  while (!is_idle) {
    is_idle = true;
    for (int s = 0; s < pipeline->n_stages; s++) {
      bool is_member_idle;
      if (member_step(&pipeline->members[s], &is_member_idle, err))
        return err->code;
      is_idle &= is_member_idle;
    }
  }
  return ERR_OK;
}

/* Each value was handed over by one stage, with the bits of the uncut program, from no more than it reads. */
static bool outcomes_agree(const struct pipeline *pipeline) {
  const struct subject *subject = pipeline->trial->subject;
  for (int s = 0; s < pipeline->n_stages; s++)
    if (!weights_agree(&pipeline->members[s]))
      return false;
  for (int m = 0; m < MICROBATCHES; m++)
    for (int w = 0; w < subject->n_watched; w++) {
      const char *name = subject->graph->values[subject->watched[w]].name;
      if (pipeline->delivered[m][w] != 1) {
        printf("# microbatch %d: '%s' came %d times\n", m, name, pipeline->delivered[m][w]);
        return false;
      }
      if (memcmp(pipeline->outcomes[m].data[w], pipeline->trial->whole[m].data[w],
                 value_size(subject->graph, subject->watched[w])) != 0) {
        printf("# microbatch %d: other bits of '%s'\n", m, name);
        return false;
      }
    }
  return true;
}

static void member_init(struct member *member, struct pipeline *pipeline, int stage) {
  const struct graph *graph = pipeline->trial->subject->graph;
  *member = (struct member){.pipeline = pipeline, .stage = stage, .n_contexts = pipeline->n_stages - stage};
  member->inputs = mem_new(((size_t)graph->n_inputs + 1) * sizeof *member->inputs);
  member->weights = mem_new(((size_t)graph->n_values + 1) * sizeof *member->weights);
  member->has_waited = mem_new((size_t)graph->n_values + 1);
}

static void member_fini(struct member *member) {
  member->pipeline->trial->backend->release(member->program);
  free(member->inputs);
  free(member->weights);
  free(member->has_waited);
}

static int pipeline_init(struct pipeline *pipeline, const struct trial *trial, const int *cuts, int n_cuts,
                         enum replay_mode replay) {
  struct err err = ERR_NONE;
  *pipeline = (struct pipeline){.trial = trial, .n_stages = n_cuts + 1};
  for (int m = 0; m < MICROBATCHES; m++) {
    outcome_init(&pipeline->outcomes[m], trial->subject->graph, trial->subject->watched,
                 trial->subject->n_watched);
    pipeline->delivered[m] = mem_new(((size_t)trial->subject->n_watched + 1) * sizeof(int));
  }
  for (int s = 0; s < pipeline->n_stages && !err.code; s++) {
    struct member *member = &pipeline->members[s];
    struct backend_request request = trial->request;
    member_init(member, pipeline, s);
    request.options = (struct backend_options){.precision = trial->request.options.precision,
                                               .replay = replay,
                                               .n_contexts = member->n_contexts,
                                               .cuts = cuts,
                                               .n_cuts = n_cuts,
                                               .stage = s};
    size_t measured = 0;
    if (!trial->backend->measure(&request, &measured, &err) &&
        !trial->backend->prepare(&request, &member->program, &err) &&
        measured != trial->backend->memory_bytes(member->program))
      err_set(&err, ERR_INTERNAL, "stage %d of %zu bytes was measured to take %zu", s,
              trial->backend->memory_bytes(member->program), measured);
  }
  if (err.code)
    printf("# %s\n", err.text);
  return err.code;
}

static void pipeline_fini(struct pipeline *pipeline) {
  for (int m = 0; m < MICROBATCHES; m++) {
    outcome_fini(&pipeline->outcomes[m]);
    free(pipeline->delivered[m]);
    for (int s = 0; s < pipeline->n_stages; s++)
      for (int p = 0; p < 3; p++)
        parcel_free(&pipeline->parcels[s][m][p]);
  }
  for (int s = 0; s < pipeline->n_stages && pipeline->members[s].pipeline; s++)
    member_fini(&pipeline->members[s]);
}

/* What each stage takes, and what crosses for a microbatch. */
static void pipeline_tell(const struct pipeline *pipeline, const char *what) {
  const struct backend_def *backend = pipeline->trial->backend;
  size_t together = 0;
  printf("# %s:", what);
  for (int s = 0; s < pipeline->n_stages; s++) {
    size_t crossing = 0;
    for (enum backend_part part = BACKEND_FORWARD; part <= BACKEND_BACKWARD; part++) {
      struct backend_message message;
      for (int i = 0; backend->message(pipeline->members[s].program, part, true, &message) && i < message.n;
           i++)
        crossing += message.sizes_bytes[i];
    }
    size_t taken = backend->memory_bytes(pipeline->members[s].program);
    printf(" %zu bytes in %d contexts, sends %zu;", taken, pipeline->members[s].n_contexts, crossing);
    together += taken;
  }
  printf(" together %zu, uncut in one context %zu\n", together, pipeline->trial->whole_bytes);
}

static bool cuts_agree(const struct trial *trial, const int *cuts, int n_cuts, enum replay_mode replay) {
  static struct pipeline pipeline;
  struct err err = ERR_NONE;
  char what[120] = "cut before";
  for (int c = 0; c < n_cuts; c++)
    snprintf(what + strlen(what), sizeof what - strlen(what), " %d", cuts[c]);
  bool is_ok = !pipeline_init(&pipeline, trial, cuts, n_cuts, replay) && !pipeline_run(&pipeline, &err);
  if (err.code)
    printf("# %s\n", err.text);
  is_ok = is_ok && outcomes_agree(&pipeline);
  if (is_ok && n_cuts == STAGES_MAX - 1)
    pipeline_tell(&pipeline, what);
  if (!is_ok)
    printf("# %s, recompute %d\n", what, (int)replay);
  pipeline_fini(&pipeline);
  return is_ok;
}

static bool all_pairs_agree(const struct trial *trial) {
  int step = trial->tries_few && trial->n_places > FEW ? trial->n_places / FEW : 1;
  for (int p = 0; p < trial->n_places; p += step)
    if (!cuts_agree(trial, &trial->places[p], 1, REPLAY_NONE) ||
        (p / step % FULL_EVERY == 0 && !cuts_agree(trial, &trial->places[p], 1, REPLAY_FULL)))
      return false;
  return true;
}

/* So many of the places, in order. */
static void cuts_draw(const struct trial *trial, uint64_t key, int *cuts, int n_cuts) {
  int n = 0;
  for (int p = 0; p < trial->n_places && n < n_cuts; p++)
    if (random_bits(key, (uint64_t)p) % (uint64_t)(trial->n_places - p) < (uint64_t)(n_cuts - n))
      cuts[n++] = trial->places[p];
}

static bool drawn_cuts_agree(const struct trial *trial) {
  for (int n_cuts = 2; n_cuts < STAGES_MAX && n_cuts <= trial->n_places; n_cuts++)
    for (uint64_t draw = 0; draw < (trial->tries_few ? 1 : DRAWS); draw++) {
      int cuts[STAGES_MAX];
      cuts_draw(trial, random_key(draw + 1, (uint64_t)n_cuts, 0, 0), cuts, n_cuts);
      if (!cuts_agree(trial, cuts, n_cuts, draw == 0 ? REPLAY_FULL : REPLAY_NONE))
        return false;
    }
  return true;
}

static void places_find(struct trial *trial, struct err *err) {
  int n_nodes = trial->subject->graph->n_nodes;
  bool *is_valid = mem_new((size_t)n_nodes + 1);
  trial->places = mem_new(((size_t)n_nodes + 1) * sizeof *trial->places);
  if (!trial->backend->find_places(&trial->request, is_valid, err))
    for (int n = 0; n <= n_nodes; n++)
      if (is_valid[n])
        trial->places[trial->n_places++] = n;
  free(is_valid);
}

static float *poison_new(const struct graph *graph) {
  int64_t most = 0;
  for (int v = 0; v < graph->n_values; v++)
    if (graph->values[v].kind == VALUE_INITIALIZER && shape_elems(&graph->values[v].shape) > most)
      most = shape_elems(&graph->values[v].shape);
  float *poison = mem_new(((size_t)most + 1) * sizeof *poison);
  for (int64_t e = 0; e < most; e++)
    poison[e] = NAN;
  return poison;
}

static int trial_begin(struct trial *trial, struct err *err) {
  const struct subject *subject = trial->subject;
  struct backend_program *program;
  trial->poison = poison_new(subject->graph);
  trial->request.graph = subject->graph;
  trial->request.watched = subject->watched;
  trial->request.n_watched = subject->n_watched;
  for (int m = 0; m < MICROBATCHES; m++) {
    trial->inputs[m] = subject_inputs_new(subject->graph, (uint64_t)m + 1);
    trial->weights[m] = subject_weights_new(subject, 1.0f + 0.1f * (float)(m + 1));
    outcome_init(&trial->whole[m], subject->graph, subject->watched, subject->n_watched);
  }
  int code = trial->backend->prepare(&trial->request, &program, err);
  trial->whole_bytes = code ? 0 : trial->backend->memory_bytes(program);
  for (int m = 0; m < MICROBATCHES && !code; m++) {
    struct backend_run run = {.inputs = (const void *const *)trial->inputs[m],
                              .weights = (const float *const *)trial->weights[m],
                              .weights_version = 1 + (uint64_t)m,
                              .context = {.seed = USUAL_SEED, .step = 3, .microbatch = (uint64_t)m},
                              .on_value = outcome_on_value,
                              .user = &trial->whole[m]};
    code = trial->backend->run(program, &run, err);
  }
  trial->backend->release(program);
  if (!code)
    places_find(trial, err);
  return err->code;
}

static void trial_end(struct trial *trial) {
  for (int m = 0; m < MICROBATCHES; m++) {
    subject_inputs_free(trial->subject->graph, trial->inputs[m]);
    subject_weights_free(trial->subject, trial->weights[m]);
    outcome_fini(&trial->whole[m]);
  }
  free(trial->places);
  free(trial->poison);
}

struct suite {
  const struct backend_def *backend;
  enum precision precision;
  bool tries_few;
};

/* places_min: at least so many. */
static void subject_try(const struct suite *suite, const struct subject *subject, const char *name,
                        int places_min) {
  const struct backend_def *backend = suite->backend;
  struct trial trial = {.backend = backend, .subject = subject, .tries_few = suite->tries_few};
  trial.request.options.precision = suite->precision;
  struct err err = ERR_NONE;
  bool is_ok = !trial_begin(&trial, &err);
  if (!is_ok)
    printf("# %s\n", err.text);
  tap_result(is_ok && trial.n_places >= places_min && all_pairs_agree(&trial) && drawn_cuts_agree(&trial),
             "%s: %s: cut at %d places", backend->name, name, trial.n_places);
  trial_end(&trial);
}

/* Cuts before no node that there is, and behind those that follow. */
static void refusals_try(const struct backend_def *backend) {
  struct subject subject;
  struct backend_program *program;
  subject_of_seed(&subject, 1);
  static const int wrong[][2] = {{0, 0}, {-1, 0}, {100000, 0}, {2, 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct err err = ERR_NONE;
    struct backend_request request = {.graph = subject.graph,
                                      .options = {.cuts = wrong[i], .n_cuts = 1 + (wrong[i][1] != 0)}};
    tap_result(backend->prepare(&request, &program, &err) == ERR_INVALID && !program &&
                   strstr(err.text, "cannot be cut into stages before its node"),
               "%s: a cut before node %d is refused", backend->name, wrong[i][wrong[i][1] != 0]);
  }
  subject_fini(&subject);
}

static void stages_refuse(const struct backend_def *backend) {
  struct subject subject;
  struct backend_program *program;
  struct err err = ERR_NONE;
  subject_of_seed(&subject, 1);
  struct backend_request request = {.graph = subject.graph,
                                    .options = {.cuts = (const int[]){1}, .n_cuts = 1}};
  tap_result(backend->prepare(&request, &program, &err) == ERR_UNSUPPORTED && !program,
             "%s: stages are refused", backend->name);
  subject_fini(&subject);
}

static void suite_run(const struct suite *suite) {
  struct subject subject;
  char name[100];
  for (const struct subject_model *model = subject_models; model->name; model++) {
    subject_of_model(&subject, model);
    bool is_left_out = suite->tries_few && subject.graph->n_nodes > FEW_NODES;
    if (!is_left_out)
      subject_try(suite, &subject, model->name, 6);
    subject_fini(&subject);
    if (is_left_out)
      continue;
    subject_of_eval(&subject, model);
    snprintf(name, sizeof name, "evaluation of %s", model->name);
    subject_try(suite, &subject, name, 6);
    subject_fini(&subject);
  }
  subject_of_lstm(&subject);
  subject_try(suite, &subject, "recurrent layers", 1);
  subject_fini(&subject);
  subject_of_unet(&subject);
  subject_try(suite, &subject, "encoder and decoder with skips", 6);
  subject_fini(&subject);
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
    subject_of_seed(&subject, seed);
    subject_try(suite, &subject, name, 0);
    subject_fini(&subject);
  }
  refusals_try(suite->backend);
}

int main(int argc, char **argv) {
  enum precision precision = PRECISION_F32;
  const char *only = NULL;
  struct backends backends;
  struct err err = ERR_NONE;
  float_setting_apply();
  bool tries_few = argc > 1 && strcmp(argv[argc - 1], "few") == 0;
  for (int i = 1; i < argc - tries_few; i++)
    if (!precision_find(argv[i], &precision))
      only = argv[i];
  tap_init();
  if (!backends_init(&backends, only, precision, &err))
    return suite_skip(only, &err);
  for (int b = 0; backends.at[b]; b++)
    if (backends.at[b]->find_places)
      suite_run(&(struct suite){backends.at[b], precision, tries_few});
    else
      stages_refuse(backends.at[b]);
  return tap_finish();
}
