/* Every op of the table, in every case of its row: each backend agrees with the reference kernels in results
   and gradients, and the reference gradients agree with finite differences. A new row needs no new test.
   usage: op_test [BACKEND] */
#include "common/graph/autodiff.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/op_case.h"

/* f32 sums of a few hundred terms in another order. */
static const struct tolerance backend_tolerance = {.relative = 1e-4, .absolute = 1e-5};

/* Central differences of a loss made of f32 results, with this step. */
static const struct tolerance difference_tolerance = {.relative = 2e-2, .absolute = 2e-3};
static const float difference_step = 1e-2f;
enum { DIFFERENCES_MAX = 48, OPS_MAX = 256 }; /* elements of an input that are tried */

/* Inputs that a result depends on and that have no gradient on purpose. */
static const struct {
  const char *op;
  int input;
} undifferentiated[] = {{"BatchNormalization", 3}, {"BatchNormalization", 4}};

/* Ops that a node of some case was executed of: gradient ops have no cases of their own. */
static const struct op_def *executed[OPS_MAX];
static int n_executed;

/* A case with its gradients, executed by the reference backend. */
struct trial {
  const struct op_def *op;
  const struct op_case *op_case;
  struct op_trial built;
  int seed;                 /* the gradient of output 0, a fed input; -1 without gradients */
  int grads[OP_INPUTS_MAX]; /* of graph->inputs in order; -1 */
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
  printf("# %s \"%s\" %s: %s: %s\n", trial->op->name, trial->op_case->inputs,
         trial->op_case->attrs ? trial->op_case->attrs : "", where, text);
}

/* Feeds a random gradient of output 0 and adds the nodes that compute those of the inputs. */
static int add_gradients(struct trial *trial, struct err *err) {
  struct op_trial *built = &trial->built;
  struct graph *graph = built->graph;
  int output = trial->built.node->outputs[0], fed = graph->n_inputs;
  struct case_input seed = {.dtype = DTYPE_F32, .shape = graph->values[output].shape};
  bool *wanted;
  int *grads;
  if (!trial->op->backward || graph->values[output].dtype != DTYPE_F32)
    return ERR_OK;
  built->data[fed] = case_input_data(&seed, random_key(built->key, 99, 0, 0));
  trial->seed = graph_add_input(graph, NULL, seed.dtype, &seed.shape);
  wanted = mem_new((size_t)graph->n_values);
  grads = mem_new((size_t)graph->n_values * sizeof *grads);
  for (int i = 0; i < fed; i++)
    wanted[graph->inputs[i]] = graph->values[graph->inputs[i]].dtype == DTYPE_F32;
  if (!autodiff_run(graph, &output, &trial->seed, 1, wanted, grads, err))
    for (int i = 0; i < fed; i++)
      trial->grads[i] = grads[graph->inputs[i]];
  free(wanted);
  free(grads);
  return err->code;
}

static int trial_init(struct trial *trial, const struct op_def *op, const struct op_case *c, uint64_t key,
                      struct err *err) {
  int values[OP_INPUTS_MAX + OP_OUTPUTS_MAX], n = 0;
  *trial = (struct trial){.op = op, .op_case = c, .seed = -1};
  for (int i = 0; i < OP_INPUTS_MAX; i++)
    trial->grads[i] = -1;
  op_trial_init(&trial->built, op, c, key);
  if (add_gradients(trial, err))
    return err->code;
  for (int o = 0; o < trial->built.node->n_outputs; o++)
    values[n++] = trial->built.node->outputs[o];
  for (int i = 0; i < trial->built.graph->n_inputs; i++)
    if (trial->grads[i] >= 0)
      values[n++] = trial->grads[i];
  outcome_init(&trial->expected, trial->built.graph, values, n);
  return graph_execute(backend_find("ref"), trial->built.graph, (const void *const *)trial->built.data,
                       &trial->expected, err);
}

static void trial_fini(struct trial *trial) {
  outcome_fini(&trial->expected);
  op_trial_fini(&trial->built);
}

static bool backend_agrees(const struct trial *trial, const struct backend_def *backend) {
  const struct graph *graph = trial->built.graph;
  struct err err = ERR_NONE;
  struct outcome outcome;
  char text[256], where[64];
  bool is_ok = true;
  outcome_init(&outcome, graph, trial->expected.values, trial->expected.n);
  if (graph_execute(backend, graph, (const void *const *)trial->built.data, &outcome, &err)) {
    complain(trial, backend->name, err.text);
    is_ok = false;
  }
  for (int i = 0; i < outcome.n && is_ok; i++) {
    is_ok = tensors_agree(graph->values[outcome.values[i]].dtype, value_elems(graph, outcome.values[i]),
                          outcome.data[i], trial->expected.data[i], backend_tolerance, text, sizeof text);
    snprintf(where, sizeof where, "%s, %s %d", backend->name,
             i < trial->built.node->n_outputs ? "output" : "gradient",
             i < trial->built.node->n_outputs ? i : i - trial->built.node->n_outputs);
    if (!is_ok)
      complain(trial, where, text);
  }
  outcome_fini(&outcome);
  return is_ok;
}

/* sum(output 0 * seed) */
static double loss_of(const struct trial *trial, struct backend_program *program, struct outcome *outcome) {
  const struct graph *graph = trial->built.graph;
  const float *seed = trial->built.data[graph->n_inputs - 1], *y = outcome->data[0];
  struct err err = ERR_NONE;
  double sum = 0.0;
  if (program_run(backend_find("ref"), program, (const void *const *)trial->built.data, outcome, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int64_t i = 0; i < value_elems(graph, outcome->values[0]); i++)
    sum += (double)y[i] * seed[i];
  return sum;
}

static double difference_at(const struct trial *trial, struct backend_program *program,
                            struct outcome *outcome, float *x) {
  float middle = *x, above = middle + difference_step, below = middle - difference_step;
  double rise;
  *x = above;
  rise = loss_of(trial, program, outcome);
  *x = below;
  rise -= loss_of(trial, program, outcome);
  *x = middle;
  return rise / ((double)above - below);
}

static bool is_undifferentiated(const struct trial *trial, int fed) {
  int value = trial->built.graph->inputs[fed];
  for (size_t i = 0; i < sizeof undifferentiated / sizeof *undifferentiated; i++)
    if (strcmp(undifferentiated[i].op, trial->op->name) == 0 &&
        trial->built.node->inputs[undifferentiated[i].input] == value)
      return true;
  return false;
}

/* Compares the gradient of fed input i (NULL: none, so it should be zero) with differences. */
static bool gradient_agrees(const struct trial *trial, struct backend_program *program,
                            struct outcome *outcome, int fed, const float *grad) {
  const struct graph *graph = trial->built.graph;
  int64_t elems = value_elems(graph, graph->inputs[fed]);
  float *x = trial->built.data[fed];
  char text[256], where[64];
  for (int64_t k = 0; k < elems && k < DIFFERENCES_MAX; k++) {
    int64_t i = elems <= DIFFERENCES_MAX
                    ? k
                    : (int64_t)random_permute(trial->built.key, (uint64_t)k, (uint64_t)elems);
    double difference = difference_at(trial, program, outcome, &x[i]), got = grad ? grad[i] : 0.0;
    double scale = fmax(fabs(difference), fabs(got));
    if (fabs(got - difference) <= difference_tolerance.absolute + difference_tolerance.relative * scale)
      continue;
    snprintf(where, sizeof where, "gradient of fed input %d, element %lld", fed, (long long)i);
    snprintf(text, sizeof text, "%s%.6g, by differences %.6g", grad ? "" : "none: ", got, difference);
    complain(trial, where, text);
    return false;
  }
  return true;
}

static bool gradients_agree(const struct trial *trial) {
  const struct graph *graph = trial->built.graph;
  const struct backend_def *ref = backend_find("ref");
  struct backend_program *program;
  struct err err = ERR_NONE;
  struct outcome outcome;
  bool is_ok = true;
  int at = trial->built.node->n_outputs;
  outcome_init(&outcome, graph, trial->built.node->outputs, 1);
  if (ref->prepare(graph, outcome.values, 1, &program, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int i = 0; i < graph->n_inputs - 1 && is_ok; i++) {
    const float *grad = trial->grads[i] >= 0 ? trial->expected.data[at++] : NULL;
    if (graph->values[graph->inputs[i]].dtype == DTYPE_F32 && !is_undifferentiated(trial, i))
      is_ok = gradient_agrees(trial, program, &outcome, i, grad);
  }
  ref->release(program);
  outcome_fini(&outcome);
  return is_ok;
}

enum { BACKENDS_MAX = 8 };

/* What became of an op's cases. */
struct tally {
  int cases, differentiated;
  bool gradients_ok, backend_ok[BACKENDS_MAX];
};

static void run_case(const struct op_def *op, int index, const struct backend_def *only,
                     struct tally *tally) {
  struct err err = ERR_NONE;
  struct trial trial;
  tally->cases++;
  if (trial_init(&trial, op, &op->cases[index], (uint64_t)index + 1, &err)) {
    complain(&trial, "ref", err.text);
    tally->gradients_ok = tally->backend_ok[0] = false;
  } else {
    mark_executed(trial.built.graph);
    for (int b = 0; backend_at(b); b++)
      if ((!only || backend_at(b) == only) && strcmp(backend_at(b)->name, "ref") != 0)
        tally->backend_ok[b] &= backend_agrees(&trial, backend_at(b));
    if (trial.seed >= 0 && !op->cases[index].is_not_smooth) {
      tally->differentiated++;
      tally->gradients_ok &= gradients_agree(&trial);
    }
  }
  trial_fini(&trial);
}

static void run_op(const struct op_def *op, const struct backend_def *only) {
  struct tally tally = {.gradients_ok = true};
  memset(tally.backend_ok, true, sizeof tally.backend_ok);
  for (int i = 0; op->cases[i].inputs; i++)
    run_case(op, i, only, &tally);
  for (int b = 0; backend_at(b); b++)
    if (!only || backend_at(b) == only)
      tap_result(tally.backend_ok[b], "%s on %s (%d cases)", op->name, backend_at(b)->name, tally.cases);
  if (op->backward)
    tap_result(tally.gradients_ok && tally.differentiated > 0,
               "%s's gradient against finite differences (%d cases)", op->name, tally.differentiated);
}

int main(int argc, char **argv) {
  const struct backend_def *only = argc > 1 ? backend_find(argv[1]) : NULL;
  if (argc > 1 && !only) {
    fprintf(stderr, "op_test: there is no backend '%s'\n", argv[1]);
    return 2;
  }
  backend_thread_init();
  for (int i = 0; op_at(i); i++)
    if (op_at(i)->cases)
      run_op(op_at(i), only);
  for (int i = 0; op_at(i); i++) {
    if (op_at(i)->cases)
      continue;
    if (op_at(i)->ref)
      tap_result(was_executed(op_at(i)), "%s is executed by the cases of others", op_at(i)->name);
    else
      tap_skip(op_at(i)->name, "never executed: the loader reads it");
  }
  return tap_finish();
}
