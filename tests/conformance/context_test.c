/* Executions in two parts, several of them in flight at a time: train graphs of models and graphs drawn by
   chance. Whatever runs between the parts of an execution, it gives the bits of a whole one, and calls out
   in the same order. By default on the built-in backends. usage: context_test [BACKEND] [PRECISION]
   [few]: of the orders, and of the numbers of contexts that replay, and small models, for devices that are
   simulated. */
#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "tests/conformance/harness.h"
#include "tests/support/model/train_subject.h"

enum {
  MICROBATCHES = 6,
  CONTEXTS = 3,
  SEEDS = 40,
  WEIGHT_SETS = 3,
  ORDERS = 3,
  FEW_ORDERS = 2,
  FEW_NODES = 100
};

/* Of the weights that microbatches two by two are computed with; 0: unknown. */
static const uint64_t versions[WEIGHT_SETS] = {1, 2, 0};

/* What an execution gave, and what it called in order: values by their index in watched, weights by theirs
   below zero. */
struct heard {
  struct outcome outcome;
  int *calls, n, capacity;
  bool is_of_device; /* whose values come when they are copied: in order, but beside weights in any */
  int nodes_left;    /* before it is cancelled; negative: it is not */
};

struct trial {
  const struct backend_def *backend;
  const struct subject *subject;
  struct backend_request request;
  void *const *inputs[MICROBATCHES];
  float **weights[WEIGHT_SETS];     /* [n_values] each */
  struct heard whole[MICROBATCHES]; /* as programs of one context give it */
  bool tries_few;
};

struct suite {
  const struct backend_def *backend;
  enum precision precision;
  bool tries_few;
};

/* A program whose microbatches are under way. */
struct flight {
  const struct trial *trial;
  struct backend_program *program;
  uint64_t key, drawn; /* of the order; key 0: 1F1B */
  struct heard heard[MICROBATCHES];
  int microbatch_of[CONTEXTS]; /* -1: none */
  int n_contexts, n_begun, n_in_flight;
};

static void heard_init(struct heard *heard, const struct subject *subject) {
  *heard = (struct heard){.nodes_left = -1};
  outcome_init(&heard->outcome, subject->graph, subject->watched, subject->n_watched);
}

static void heard_fini(struct heard *heard) {
  outcome_fini(&heard->outcome);
  free(heard->calls);
}

static void hear(struct heard *heard, int call) {
  array_reserve((void **)&heard->calls, &heard->capacity, heard->n, sizeof *heard->calls);
  heard->calls[heard->n++] = call;
}

static void hear_value(void *user, int watch, const float *data) {
  struct heard *heard = user;
  hear(heard, watch);
  outcome_on_value(&heard->outcome, watch, data);
}

static void hear_weight(void *user, int value) {
  hear(user, -1 - value);
}

static bool count_node(void *user) {
  struct heard *heard = user;
  return heard->nodes_left >= 0 && heard->nodes_left-- == 0;
}

/* The next call of the kind from there on; n: none. */
static int call_find(const struct heard *heard, int at, bool is_value) {
  while (at < heard->n && (heard->calls[at] >= 0) != is_value)
    at++;
  return at;
}

static bool calls_agree(const struct heard *got, const struct heard *want, bool is_value) {
  int g = call_find(got, 0, is_value), w = call_find(want, 0, is_value);
  while (g < got->n && w < want->n && got->calls[g] == want->calls[w]) {
    g = call_find(got, g + 1, is_value);
    w = call_find(want, w + 1, is_value);
  }
  return g == got->n && w == want->n;
}

/* Says what differs. */
static bool heard_is_same(const struct heard *got, const struct heard *want, const char *what) {
  const struct outcome *a = &got->outcome, *b = &want->outcome;
  for (int i = 0; i < a->n; i++)
    if (memcmp(a->data[i], b->data[i], value_size(a->graph, a->values[i])) != 0) {
      printf("# %s: other bits of '%s'\n", what, a->graph->values[a->values[i]].name);
      return false;
    }
  if (want->is_of_device && calls_agree(got, want, true) && calls_agree(got, want, false))
    return true;
  if (!want->is_of_device && got->n == want->n &&
      memcmp(got->calls, want->calls, (size_t)got->n * sizeof *got->calls) == 0)
    return true;
  printf("# %s: %d calls, or in another order than the %d of whole executions\n", what, got->n, want->n);
  return false;
}

static int part_run(const struct trial *trial, struct backend_program *program, int microbatch,
                    struct backend_run run, struct err *err) {
  int set = microbatch / 2;
  struct heard *heard = run.user;
  run.inputs = (const void *const *)trial->inputs[microbatch];
  run.weights = (const float *const *)trial->weights[set];
  run.weights_version = versions[set];
  run.context = (struct op_context){.seed = USUAL_SEED, .step = 3, .microbatch = (uint64_t)microbatch};
  run.on_value = hear_value;
  run.before_weight = hear_weight;
  run.is_cancelled = count_node;
  outcome_copy_known(&heard->outcome, run.inputs);
  return trial->backend->run(program, &run, err);
}

/* What whole executions give, each of a program of its own, which remembers nothing. */
static int trial_begin(struct trial *trial, struct err *err) {
  const struct subject *subject = trial->subject;
  struct backend_program *program = NULL;
  trial->request.graph = subject->graph;
  trial->request.watched = subject->watched;
  trial->request.n_watched = subject->n_watched;
  for (int w = 0; w < WEIGHT_SETS; w++)
    trial->weights[w] = subject_weights_new(subject, 1.0f + 0.25f * (float)w);
  for (int m = 0; m < MICROBATCHES; m++) {
    trial->inputs[m] = subject_inputs_new(subject->graph, (uint64_t)m + 1);
    heard_init(&trial->whole[m], subject);
    trial->whole[m].is_of_device = trial->backend->memory != NULL;
  }
  for (int m = 0; m < MICROBATCHES && !err->code; m++) {
    if (!trial->backend->prepare(&trial->request, &program, err))
      part_run(trial, program, m, (struct backend_run){.user = &trial->whole[m]}, err);
    trial->backend->release(program);
  }
  return err->code;
}

static void trial_end(struct trial *trial) {
  for (int w = 0; w < WEIGHT_SETS; w++)
    subject_weights_free(trial->subject, trial->weights[w]);
  for (int m = 0; m < MICROBATCHES; m++) {
    subject_inputs_free(trial->subject->graph, trial->inputs[m]);
    heard_fini(&trial->whole[m]);
  }
}

static uint64_t flight_draw(struct flight *flight, uint64_t below) {
  return random_bits(flight->key, flight->drawn++) % below;
}

/* A context that something is in flight in, or nothing: the oldest, or any. */
static int find_context(struct flight *flight, bool is_in_flight) {
  int found[CONTEXTS], n = 0, oldest = -1;
  for (int c = 0; c < flight->n_contexts; c++) {
    if ((flight->microbatch_of[c] >= 0) != is_in_flight)
      continue;
    found[n++] = c;
    if (oldest < 0 || flight->microbatch_of[c] < flight->microbatch_of[oldest])
      oldest = c;
  }
  CHECK(n > 0);
  return flight->key ? found[flight_draw(flight, (uint64_t)n)] : oldest;
}

/* One that ends early, and a whole one of a microbatch of before, in a context in which nothing is in flight.
 */
static int disturb(struct flight *flight, int in, struct err *err) {
  const struct trial *trial = flight->trial;
  int microbatch = (int)flight_draw(flight, MICROBATCHES);
  struct heard early, whole;
  heard_init(&early, trial->subject);
  heard_init(&whole, trial->subject);
  early.nodes_left = (int)flight_draw(flight, 8);
  struct backend_run run = {.part = BACKEND_FORWARD, .in = in, .user = &early};
  int code = part_run(trial, flight->program, microbatch, run, err);
  if (code == ERR_CANCELLED)
    code = ERR_OK, *err = ERR_NONE;
  run = (struct backend_run){.in = in, .user = &whole};
  if (!code)
    code = part_run(trial, flight->program, microbatch, run, err);
  if (!code && !heard_is_same(&whole, &trial->whole[microbatch], "a whole execution between parts"))
    code = err_set(err, ERR_INTERNAL, "see above");
  heard_fini(&early);
  heard_fini(&whole);
  return code;
}

static int flight_forward(struct flight *flight, struct err *err) {
  int in = find_context(flight, false), microbatch = flight->n_begun++;
  if (flight->key && flight_draw(flight, 2) && disturb(flight, in, err))
    return err->code;
  flight->microbatch_of[in] = microbatch;
  flight->n_in_flight++;
  return part_run(flight->trial, flight->program, microbatch,
                  (struct backend_run){BACKEND_FORWARD, in, .user = &flight->heard[microbatch]}, err);
}

static int flight_backward(struct flight *flight, struct err *err) {
  int in = find_context(flight, true), microbatch = flight->microbatch_of[in];
  flight->microbatch_of[in] = -1;
  flight->n_in_flight--;
  return part_run(flight->trial, flight->program, microbatch,
                  (struct backend_run){BACKEND_BACKWARD, in, .user = &flight->heard[microbatch]}, err);
}

static int flight_run(struct flight *flight, struct err *err) {
  while (flight->n_begun < MICROBATCHES || flight->n_in_flight > 0) {
    bool can_begin = flight->n_begun < MICROBATCHES && flight->n_in_flight < flight->n_contexts;
    bool begins = flight->n_in_flight == 0 || (can_begin && (!flight->key || flight_draw(flight, 2)));
    if (begins ? flight_forward(flight, err) : flight_backward(flight, err))
      return err->code;
  }
  return ERR_OK;
}

/* With as many contexts as the options say, in an order that the seed draws; 0: 1F1B. */
static bool order_agrees(const struct trial *trial, struct backend_program *program, int n_contexts,
                         uint64_t seed) {
  struct flight flight = {.trial = trial, .program = program, .n_contexts = n_contexts};
  struct err err = ERR_NONE;
  char what[80];
  flight.key = seed ? random_key(seed, 0, 0, 0) : 0;
  memset(flight.microbatch_of, -1, sizeof flight.microbatch_of);
  for (int m = 0; m < MICROBATCHES; m++)
    heard_init(&flight.heard[m], trial->subject);
  bool is_ok = !flight_run(&flight, &err);
  if (!is_ok)
    printf("# order %d: %s\n", (int)seed, err.text);
  for (int m = 0; m < MICROBATCHES && is_ok; m++) {
    snprintf(what, sizeof what, "%d contexts, order %d, microbatch %d", n_contexts, (int)seed, m);
    is_ok = heard_is_same(&flight.heard[m], &trial->whole[m], what);
  }
  for (int m = 0; m < MICROBATCHES; m++)
    heard_fini(&flight.heard[m]);
  return is_ok;
}

/* Several contexts take what `bytes` says; one takes no more than what it needs, all told. */
static bool bytes_agree(const struct trial *trial, struct backend_program *program, int n_contexts) {
  size_t taken = trial->backend->memory_bytes(program), sum;
  struct backend_bytes bytes;
  trial->backend->bytes(program, &bytes);
  sum = bytes.kept + bytes.scratch + bytes.saved * (size_t)n_contexts;
  if (n_contexts > 1 ? taken == sum : taken <= sum)
    return true;
  printf("# %d contexts take %zu bytes, and not %zu + %zu + n * %zu\n", n_contexts, taken, bytes.kept,
         bytes.scratch, bytes.saved);
  return false;
}

/* *size_bytes: what the program took. */
static bool contexts_agree(const struct trial *trial, const struct backend_options *options,
                           size_t *size_bytes) {
  struct backend_request request = trial->request;
  struct backend_program *program = NULL;
  struct err err = ERR_NONE;
  int n_contexts = options->n_contexts > 1 ? options->n_contexts : 1;
  request.options = *options;
  request.options.precision = trial->request.options.precision;
  bool is_ok = !trial->backend->prepare(&request, &program, &err);
  if (!is_ok)
    printf("# %d contexts, recompute %d: %s\n", n_contexts, (int)options->replay, err.text);
  *size_bytes = is_ok ? trial->backend->memory_bytes(program) : 0;
  is_ok = is_ok && bytes_agree(trial, program, n_contexts);
  for (uint64_t order = 0; order < (trial->tries_few ? FEW_ORDERS : ORDERS) && is_ok; order++)
    is_ok = order_agrees(trial, program, n_contexts, order);
  trial->backend->release(program);
  return is_ok;
}

/* With activations that are computed again: no more memory than without, or than a budget. */
static bool replays_agree(const struct trial *trial, int n_contexts, size_t none_bytes) {
  struct backend_options options = {.n_contexts = n_contexts, .replay = REPLAY_FULL};
  size_t full_bytes, taken;
  if (!contexts_agree(trial, &options, &full_bytes))
    return false;
  options.replay = REPLAY_AUTO;
  options.most_bytes = full_bytes + (none_bytes - full_bytes) / 2;
  if (full_bytes > none_bytes || !contexts_agree(trial, &options, &taken) || taken > options.most_bytes) {
    printf("# %d contexts: full takes %zu bytes, none %zu\n", n_contexts, full_bytes, none_bytes);
    return false;
  }
  options.replay = REPLAY_ALWAYS;
  printf("# %d contexts: %zu bytes, %zu at the least\n", n_contexts, none_bytes, full_bytes);
  return contexts_agree(trial, &options, &taken);
}

static bool subject_agrees(const struct suite *suite, const struct subject *subject) {
  const struct backend_def *backend = suite->backend;
  struct trial trial = {.backend = backend, .subject = subject, .tries_few = suite->tries_few};
  trial.request.options.precision = suite->precision;
  struct err err = ERR_NONE;
  size_t bytes[CONTEXTS + 1];
  bool is_ok = !trial_begin(&trial, &err);
  if (!is_ok)
    printf("# whole: %s\n", err.text);
  for (int n = 0; n <= CONTEXTS && is_ok; n += n ? 2 : 1) {
    is_ok = contexts_agree(&trial, &(struct backend_options){.n_contexts = n}, &bytes[n]);
    if (is_ok && n > (trial.tries_few ? 1 : 0) && backend->replayed)
      is_ok = replays_agree(&trial, n, bytes[n]);
  }
  if (is_ok && bytes[0] != bytes[1]) {
    printf("# one context takes %zu bytes, none that is named %zu\n", bytes[1], bytes[0]);
    is_ok = false;
  }
  trial_end(&trial);
  return is_ok;
}

static void suite_run(const struct suite *suite) {
  const struct backend_def *backend = suite->backend;
  struct subject subject;
  for (const struct subject_model *model = subject_models; model->name; model++) {
    subject_of_model(&subject, model);
    if (!suite->tries_few || subject.graph->n_nodes <= FEW_NODES)
      tap_result(subject_agrees(suite, &subject), "%s: %s", backend->name, model->name);
    subject_fini(&subject);
  }
  subject_of_lstm(&subject);
  tap_result(subject_agrees(suite, &subject), "%s: recurrent layers", backend->name);
  subject_fini(&subject);
  subject_of_unet(&subject);
  tap_result(subject_agrees(suite, &subject), "%s: encoder and decoder with skips", backend->name);
  subject_fini(&subject);
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    subject_of_seed(&subject, seed);
    tap_result(subject_agrees(suite, &subject), "%s: seed %llu", backend->name, (unsigned long long)seed);
    subject_fini(&subject);
  }
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
    if (backends.at[b]->bytes)
      suite_run(&(struct suite){backends.at[b], precision, tries_few});
  return tap_finish();
}
