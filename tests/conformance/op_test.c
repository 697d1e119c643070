/* Every op of the table, in every case of its row: each backend agrees with the reference kernels in results
   and gradients, and the reference gradients agree with finite differences. A case with a draw is tried with
   several seeds. A new row needs no new test. With a precision other than fp32 backends alone are compared,
   with what its roundings may make of a tensor. With `inner` each node is between others, so that backends
   may keep its tensors in bf16. usage: op_test [BACKEND] [PRECISION] [inner] [OP] [SEED | FIRST..LAST]
 */
#include <float.h>

#include "common/agree/float_setting.h"
#include "model/graph/autodiff.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/op_case.h"

/* f32 sums of a few hundred terms in another order. */
static const struct tolerance backend_tolerance = {.relative = 1e-4, .absolute = 1e-5};
/* Parts of a tensor's greatest magnitude. bf16 rounds by up to 2^-9, tf32 by 2^-12; a few roundings follow
   each other, and the sums of a case are of terms of both signs. */
static const double precision_tolerances[] = {
    [PRECISION_TF32] = 0.004, [PRECISION_BF16] = 0.03, [PRECISION_F32_FAST] = 1e-4};

/* Central differences of sum(outputs * seeds), summed in f64, with this step and its half, extrapolated to
   the fourth order (Richardson). What is left is the rounding of the f32 results over the step: an ulp of the
   sum's terms is allowed besides. Within a step of where a second derivative jumps (Softsign's at 0) they are
   off by a part of the step: a gradient that disagrees is compared again with a smaller one. */
static const double difference_steps[] = {1.0 / 64, 1.0 / 512};
static const struct tolerance difference_tolerance = {.relative = 2e-3, .absolute = 3e-4};
/* A gradient that is wrong by this part fails: some element of each op's is so large that it stands out. */
static const double gradient_sharpness = 0.01;

enum {
  DIFFERENCES_MAX = 48, /* elements of an input that are tried */
  OPS_MAX = 512,
  TRIALS = 8,     /* seeds of a case with a draw */
  DRAWS_MAX = 16, /* draws of one trial until its shapes fit */
};

/* Inputs that a result depends on and that have no gradient on purpose, and outputs through which none flows.
 */
static const struct {
  const char *op;
  int input, output; /* -1: none; an output stands for those behind it too */
} undifferentiated[] = {
    {"BatchNormalization", 3, 1}, {"BatchNormalization", 4, 1},  {"BatchNormTraining", -1, 1},
    {"CrossEntropy", -1, 1},      {"CrossEntropy", 2, -1},       {"ElementLoss", 1, -1},
    {"ElementLoss", 2, -1},       {"LayerNormalization", -1, 1}, {"LinearCrossEntropy", 4, 1},
    {"SoftCrossEntropy", 1, -1},  {"SoftCrossEntropy", 2, -1},
};

/* Ops that a node of some case was executed of: gradient ops have no cases of their own. */
static const struct op_def *executed[OPS_MAX];
static int n_executed;

static struct backends backends;
static struct backend_options options;
static bool is_inner;

/* A case with its gradients, executed by the reference backend. Its fed inputs are followed by the seeds. */
struct trial {
  const struct op_def *op;
  const struct op_case *op_case;
  uint64_t seed;
  struct op_trial built;
  int n_fed;                 /* of graph->inputs, those that are the case's */
  int n_outputs;             /* the case's: backward may give the node more, which have no gradient */
  int n_seeds;               /* gradients of outputs, fed; 0: nothing is differentiated */
  int roots[OP_OUTPUTS_MAX]; /* the outputs that they are gradients of: values */
  bool is_wanted[OP_INPUTS_MAX];
  int grads[OP_INPUTS_MAX]; /* of the fed inputs: values or -1 */
  struct outcome expected;  /* the outputs, then the gradients */
};

static void mark_executed(const struct graph *graph) {
  for (int n = 0; n < graph->n_nodes; n++) {
    int i = 0;
    while (i < n_executed && executed[i] != graph->nodes[n]->op)
      i++;
    if (i == n_executed && n_executed < OPS_MAX)
      executed[n_executed++] = graph->nodes[n]->op;
  }
}

static bool was_executed(const struct op_def *op) {
  for (int i = 0; i < n_executed; i++)
    if (executed[i] == op)
      return true;
  return false;
}

static void complain(const struct trial *trial, const char *where, const char *text) {
  printf("# op_test %s %llu: \"%s\" %s: %s: %s\n", trial->op->name, (unsigned long long)trial->seed,
         trial->built.inputs, trial->built.attrs, where, text);
}

static bool is_differentiable(const struct trial *trial, int input, int output) {
  for (size_t i = 0; i < sizeof undifferentiated / sizeof *undifferentiated; i++)
    if (strcmp(undifferentiated[i].op, trial->op->name) == 0 &&
        ((input >= 0 && undifferentiated[i].input == input) ||
         (output >= 0 && undifferentiated[i].output >= 0 && output >= undifferentiated[i].output)))
      return false;
  return true;
}

/* The first seed of a case takes everything; others leave out some, as parts of models do, but never the only
   one. */
static bool is_taken(const struct trial *trial, uint64_t stream, int i, int n) {
  uint64_t key = random_key(trial->built.key, stream, 0, 0);
  return trial->seed == 1 || n == 1 || random_bits(key, (uint64_t)i) % 4 > 0;
}

static bool has_seed(const struct trial *trial, int output) {
  return node_output(trial->built.graph, trial->built.node, output)->dtype == DTYPE_F32 &&
         is_differentiable(trial, -1, output);
}

/* Feeds random gradients of outputs. */
static void add_seeds(struct trial *trial) {
  struct op_trial *built = &trial->built;
  struct graph *graph = built->graph;
  const struct node *node = built->node;
  int n = 0;
  for (int o = 0; o < node->n_outputs; o++)
    n += has_seed(trial, o);
  for (int o = 0; o < node->n_outputs; o++) {
    struct case_input seed = {
        .dtype = DTYPE_F32, .shape = node_output(graph, node, o)->shape, .low = -1.0, .high = 1.0};
    if (!has_seed(trial, o) || !is_taken(trial, 1, o, n))
      continue;
    built->data[graph->n_inputs] = case_input_data(built, &seed, random_key(built->key, 99, (uint64_t)o, 0));
    trial->roots[trial->n_seeds++] = built->results[o];
    graph_add_input(graph, NULL, seed.dtype, &seed.shape);
  }
}

/* The fed inputs whose gradients are asked for. Returns how many. */
static int choose_wanted(struct trial *trial) {
  const struct graph *graph = trial->built.graph;
  int n = 0, n_wanted = 0;
  for (int i = 0; i < trial->n_fed; i++)
    n += graph->values[graph->inputs[i]].dtype == DTYPE_F32;
  for (int i = 0; i < trial->n_fed; i++) {
    trial->is_wanted[i] = graph->values[graph->inputs[i]].dtype == DTYPE_F32 && is_taken(trial, 2, i, n);
    n_wanted += trial->is_wanted[i];
  }
  return n_wanted;
}

static int add_gradients(struct trial *trial, struct err *err) {
  struct graph *graph = trial->built.graph;
  bool *wanted;
  int *grads;
  if (!trial->op->backward || choose_wanted(trial) == 0)
    return ERR_OK;
  add_seeds(trial);
  if (trial->n_seeds == 0)
    return ERR_OK;
  wanted = mem_new((size_t)graph->n_values);
  grads = mem_new((size_t)graph->n_values * sizeof *grads);
  for (int i = 0; i < trial->n_fed; i++)
    wanted[graph->inputs[i]] = trial->is_wanted[i];
  if (!autodiff_run(graph,
                    &(struct derivative){.roots = trial->roots,
                                         .seeds = graph->inputs + trial->n_fed,
                                         .n_roots = trial->n_seeds,
                                         .wanted = wanted},
                    grads, err))
    for (int i = 0; i < trial->n_fed; i++)
      trial->grads[i] = trial->is_wanted[i] ? grads[graph->inputs[i]] : -1;
  free(wanted);
  free(grads);
  return err->code;
}

/* Draws until the shapes fit. */
static int trial_build(struct trial *trial, int index, struct err *err) {
  for (uint64_t draw = 0;; draw++) {
    uint64_t key = random_key(trial->seed, (uint64_t)index, draw, 0);
    *err = ERR_NONE;
    const struct op_wish wish = {trial->op, trial->op_case, key, is_inner};
    if (op_trial_init(&trial->built, &wish, err) != ERR_INVALID || !trial->op_case->draw || draw == DRAWS_MAX)
      return err->code;
    op_trial_fini(&trial->built);
  }
}

static int trial_init(struct trial *trial, const struct op_def *op, int index, uint64_t seed,
                      struct err *err) {
  int values[OP_INPUTS_MAX + OP_OUTPUTS_MAX], n = 0;
  *trial = (struct trial){.op = op, .op_case = &op->cases[index], .seed = seed};
  for (int i = 0; i < OP_INPUTS_MAX; i++)
    trial->grads[i] = -1;
  if (trial_build(trial, index, err))
    return err->code;
  trial->n_fed = trial->built.graph->n_inputs;
  trial->n_outputs = trial->built.node->n_outputs;
  if (add_gradients(trial, err))
    return err->code;
  for (int o = 0; o < trial->n_outputs; o++)
    values[n++] = trial->built.results[o];
  for (int i = 0; i < trial->n_fed; i++)
    if (trial->grads[i] >= 0)
      values[n++] = trial->grads[i];
  outcome_init(&trial->expected, trial->built.graph, values, n);
  return graph_execute(backend_find("ref"), NULL, (const void *const *)trial->built.data, &trial->expected,
                       err);
}

static void trial_fini(struct trial *trial) {
  outcome_fini(&trial->expected);
  op_trial_fini(&trial->built);
}

static struct tolerance tolerance_of(enum dtype dtype, const void *expected, int64_t elems) {
  double greatest = 0.1;
  if (options.precision == PRECISION_F32)
    return backend_tolerance;
  for (int64_t i = 0; i < elems; i++)
    if (isfinite(element_at(dtype, expected, i)))
      greatest = fmax(greatest, fabs(element_at(dtype, expected, i)));
  return (struct tolerance){.absolute = backend_tolerance.absolute +
                                        precision_tolerances[options.precision] * greatest};
}

static bool backend_agrees(const struct trial *trial, const struct backend_def *backend) {
  const struct graph *graph = trial->built.graph;
  struct err err = ERR_NONE;
  struct outcome outcome;
  char text[256], where[64];
  bool is_ok = true;
  outcome_init(&outcome, graph, trial->expected.values, trial->expected.n);
  if (graph_execute(backend, &options, (const void *const *)trial->built.data, &outcome, &err)) {
    complain(trial, backend->name, err.text);
    is_ok = false;
  }
  for (int i = 0; i < outcome.n && is_ok; i++) {
    enum dtype dtype = graph->values[outcome.values[i]].dtype;
    int64_t elems = value_elems(graph, outcome.values[i]);
    struct tensor_pair pair = {
        .dtype = dtype, .elems = elems, .got = outcome.data[i], .want = trial->expected.data[i]};
    is_ok = tensors_agree(&pair, tolerance_of(dtype, pair.want, elems), text, sizeof text);
    snprintf(where, sizeof where, "%s, %s %d", backend->name, i < trial->n_outputs ? "output" : "gradient",
             i < trial->n_outputs ? i : i - trial->n_outputs);
    if (!is_ok)
      complain(trial, where, text);
  }
  outcome_fini(&outcome);
  return is_ok;
}

/* Executions of the forward graph alone, for differences. */
struct forward {
  const struct trial *trial;
  struct backend_program *program;
  struct outcome outcome; /* trial->roots */
  double magnitude;       /* the sum of the loss's terms without their signs */
};

/* The sum over the seeded outputs of output * seed. */
static double loss_of(struct forward *forward) {
  const struct op_trial *built = &forward->trial->built;
  struct feed feed = {.inputs = (const void *const *)built->data, .seed = USUAL_SEED};
  struct err err = ERR_NONE;
  double sum = 0.0;
  forward->magnitude = 0.0;
  if (program_run(backend_find("ref"), forward->program, &feed, &forward->outcome, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int r = 0; r < forward->trial->n_seeds; r++) {
    const float *seed = built->data[forward->trial->n_fed + r], *y = forward->outcome.data[r];
    for (int64_t i = 0; i < value_elems(built->graph, forward->trial->roots[r]); i++) {
      sum += (double)y[i] * seed[i];
      forward->magnitude += fabs((double)y[i] * seed[i]);
    }
  }
  return sum;
}

static double slope_at(struct forward *forward, float *x, double step) {
  float middle = *x, above = (float)(middle + step), below = (float)(middle - step);
  double rise;
  *x = above;
  rise = loss_of(forward);
  *x = below;
  rise -= loss_of(forward);
  *x = middle;
  return rise / ((double)above - below);
}

static double difference_at(struct forward *forward, float *x, double step) {
  return (4.0 * slope_at(forward, x, step / 2) - slope_at(forward, x, step)) / 3.0;
}

/* Which input of the node fed input i is. */
static int node_input_index(const struct trial *trial, int fed) {
  int i = 0;
  while (trial->built.node->inputs[i] != trial->built.graph->inputs[fed])
    i++;
  return i;
}

/* What became of an op's cases. */
struct tally {
  int cases, trials, drawn, differentiated;
  bool has_slope, is_sharp; /* some difference was not 0; some would tell a slightly wrong gradient */
  bool gradients_ok, backend_ok[BACKENDS_MAX];
};

/* Compares the gradient of fed input i (NULL: none, so it should be zero) with differences. */
static bool gradient_agrees(struct forward *forward, int fed, const float *grad, struct tally *tally) {
  const struct trial *trial = forward->trial;
  int64_t elems = value_elems(trial->built.graph, trial->built.graph->inputs[fed]);
  float *x = trial->built.data[fed];
  char text[256], where[64];
  for (int64_t k = 0; k < elems && k < DIFFERENCES_MAX; k++) {
    int64_t i = elems <= DIFFERENCES_MAX
                    ? k
                    : (int64_t)random_permute(trial->built.key, (uint64_t)k, (uint64_t)elems);
    double difference, got = grad ? grad[i] : 0.0;
    bool is_near = false;
    for (int s = 0; s < (int)(sizeof difference_steps / sizeof *difference_steps) && !is_near; s++) {
      double tolerance;
      difference = difference_at(forward, &x[i], difference_steps[s]);
      tolerance = difference_tolerance.absolute + difference_tolerance.relative * fabs(difference) +
                  FLT_EPSILON * forward->magnitude / difference_steps[s];
      tally->has_slope |= fabs(difference) > difference_tolerance.absolute;
      tally->is_sharp |= fabs(difference) * gradient_sharpness > tolerance;
      is_near = fabs(got - difference) <= tolerance;
    }
    if (is_near)
      continue;
    snprintf(where, sizeof where, "gradient of input %d, element %lld", node_input_index(trial, fed),
             (long long)i);
    snprintf(text, sizeof text, "%s%.6g, by differences %.6g", grad ? "" : "none: ", got, difference);
    complain(trial, where, text);
    return false;
  }
  return true;
}

static bool gradients_agree(const struct trial *trial, struct tally *tally) {
  const struct backend_def *ref = backend_find("ref");
  struct forward forward = {.trial = trial};
  struct err err = ERR_NONE;
  bool is_ok = true;
  int at = trial->n_outputs;
  outcome_init(&forward.outcome, trial->built.graph, trial->roots, trial->n_seeds);
  if (ref->prepare(&(struct backend_request){.graph = trial->built.graph,
                                             .watched = forward.outcome.values,
                                             .n_watched = trial->n_seeds},
                   &forward.program, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int i = 0; i < trial->n_fed && is_ok; i++) {
    const float *grad = trial->grads[i] >= 0 ? trial->expected.data[at++] : NULL;
    if (trial->is_wanted[i] && is_differentiable(trial, node_input_index(trial, i), -1))
      is_ok = gradient_agrees(&forward, i, grad, tally);
  }
  ref->release(forward.program);
  outcome_fini(&forward.outcome);
  return is_ok;
}

static void run_trial(const struct op_def *op, int index, uint64_t seed, struct tally *tally) {
  struct err err = ERR_NONE;
  struct trial trial;
  tally->trials++;
  if (trial_init(&trial, op, index, seed, &err)) {
    complain(&trial, "ref", err.text);
    tally->gradients_ok = tally->backend_ok[0] = false;
  } else {
    mark_executed(trial.built.graph);
    for (int b = 0; backends.at[b]; b++)
      if (strcmp(backends.at[b]->name, "ref") != 0)
        tally->backend_ok[b] &= backend_agrees(&trial, backends.at[b]);
    if (options.precision == PRECISION_F32 && !is_inner && trial.n_seeds > 0 &&
        !op->cases[index].is_not_smooth) {
      tally->differentiated++;
      tally->gradients_ok &= gradients_agree(&trial, tally);
    }
    /* What is drawn from probabilities jumps with them. */
    if (trial.n_seeds > 0 && (!op->cases[index].is_not_smooth || op->flags & OP_RANDOM))
      tally->drawn += op->cases[index].draw != NULL;
  }
  trial_fini(&trial);
}

/* What is to be run. */
struct selection {
  const char *backend;            /* NULL: each that is built in */
  const struct op_def *op;        /* NULL: each */
  unsigned long long first, last; /* seeds; 0: the usual ones */
};

static void run_case(const struct op_def *op, int index, const struct selection *selection,
                     struct tally *tally) {
  uint64_t first = 1, last = op->cases[index].draw ? TRIALS : 1;
  if (selection->first) {
    first = selection->first;
    last = selection->last;
  }
  tally->cases++;
  for (uint64_t seed = first; seed <= last; seed++)
    run_trial(op, index, seed, tally);
}

static void run_op(const struct op_def *op, const struct selection *selection) {
  struct tally tally = {.gradients_ok = true};
  memset(tally.backend_ok, true, sizeof tally.backend_ok);
  for (int i = 0; op->cases[i].inputs; i++)
    run_case(op, i, selection, &tally);
  for (int b = 0; backends.at[b]; b++)
    tap_result(tally.backend_ok[b], "%s on %s (%d cases, %d trials)", op->name, backends.at[b]->name,
               tally.cases, tally.trials);
  if (!op->backward || options.precision != PRECISION_F32 || is_inner)
    return;
  if (tally.drawn == 0)
    printf("# %s has no case with a draw whose gradient is compared\n", op->name);
  if (tally.has_slope && !tally.is_sharp)
    printf("# %s's gradients are all so small that one wrong by %g would pass\n", op->name,
           gradient_sharpness);
  tap_result(tally.gradients_ok && tally.drawn > 0 && (tally.is_sharp || !tally.has_slope),
             "%s's gradient against finite differences (%d trials, %d drawn)", op->name, tally.differentiated,
             tally.drawn);
}

static bool select_word(struct selection *selection, const char *word) {
  int length = 0, n = sscanf(word, "%llu%n..%llu%n", &selection->first, &length, &selection->last, &length);
  if (n > 0) {
    if (n == 1)
      selection->last = selection->first;
    return selection->first > 0 && word[length] == '\0';
  }
  if (precision_find(word, &options.precision))
    return true;
  is_inner |= strcmp(word, "inner") == 0;
  if (strcmp(word, "inner") == 0)
    return true;
  if (backend_find(word) || strcmp(word, PLUGIN_BACKEND) == 0) {
    selection->backend = word;
    return true;
  }
  selection->op = op_find("", word) ? op_find("", word) : op_find("ai.weir", word);
  return selection->op && selection->op->cases;
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct selection selection = {NULL};
  struct err err = ERR_NONE;
  for (int i = 1; i < argc; i++)
    if (!select_word(&selection, argv[i])) {
      fprintf(stderr, "op_test: '%s' is no backend, no precision, no op with cases and no seed\n", argv[i]);
      return 2;
    }
  tap_init();
  if (!backends_init(&backends, selection.backend, options.precision, &err))
    return suite_skip(selection.backend, &err);
  for (int i = 0; op_at(i); i++)
    if (op_at(i)->cases && (!selection.op || selection.op == op_at(i)))
      run_op(op_at(i), &selection);
  for (int i = 0; op_at(i) && !selection.op; i++) {
    if (op_at(i)->cases)
      continue;
    if (op_at(i)->ref)
      tap_result(was_executed(op_at(i)), "%s is executed by the cases of others", op_at(i)->name);
    else
      tap_skip(op_at(i)->name, "never executed: the loader reads it");
  }
  if (backends.at[0]->host_node)
    suite_tell_host_nodes(!selection.op && selection.first == 0);
  return tap_finish();
}
