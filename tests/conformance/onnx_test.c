/* The ONNX project's own backend test vectors (Debian's libonnx-testdata), each on every backend. What cannot
   be run - an operator, a type or a form that the loader refuses - is counted as skipped, with the reason.
   usage: onnx_test [--table] [BACKEND] [fp32-fast] [PART-OF-A-NAME]
   TAP with one line for each reason of skips; with --table, one line for each op. */
#include <dirent.h>

#include "common/agree/float_setting.h"
#include "model/onnx/onnx_parts.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/onnx_vector.h"

/* Where Debian puts them, unless WEIR_ONNX_VECTORS names another folder. */
static const char vectors_debian[] = "/usr/share/libonnx-testdata/data";
static const char *const vectors_folders[] = {"node", "simple", "pytorch-operator", "pytorch-converted"};

/* Tighter than ONNX's own runner, which takes 1e-3 relative. What a model keeps in 16 bits we compute as f32.
 */
static const struct tolerance vector_tolerance = {.relative = 1e-5, .absolute = 1e-6};
static const struct tolerance f16_tolerance = {.relative = 2e-3, .absolute = 1e-4};
static const struct tolerance bf16_tolerance = {.relative = 1e-2, .absolute = 1e-3};

/* Vectors whose expected numbers are less exact. */
static const struct {
  const char *part; /* of their names */
  struct tolerance tolerance;
} inexact[] = {
    {"window", {.relative = 0.0, .absolute = 2e-4}},     /* made with 3.1415 for pi */
    {"gridsample", {.relative = 0.0, .absolute = 1e-4}}, /* written down with four digits */
};

enum { NAMES_MAX = 512 };

/* What became of the vectors of one op, or of those skipped for one reason. */
struct row {
  char *name;
  int passed, failed, skipped;
  char reasons[512]; /* of skips, each once */
};

struct rows {
  struct row *row[NAMES_MAX];
  int n;
};

static struct {
  bool is_table;
  struct backends backends;
  const char *backend; /* NULL: each that is built in */
  struct backend_options options;
  const char *part; /* of a name; NULL: every vector */
  struct rows ops, reasons, by_backend;
} suite;

static struct row *row_of(struct rows *rows, const char *name) {
  int i = 0;
  while (i < rows->n && strcmp(rows->row[i]->name, name) != 0)
    i++;
  if (i == rows->n) {
    CHECK(rows->n < NAMES_MAX);
    rows->row[rows->n] = mem_new(sizeof *rows->row[0]);
    rows->row[rows->n++]->name = mem_strdup(name);
  }
  return rows->row[i];
}

static void rows_fini(struct rows *rows) {
  for (int i = 0; i < rows->n; i++) {
    free(rows->row[i]->name);
    free(rows->row[i]);
  }
}

static void count_result(const char *name, const char *op, const struct backend_def *backend,
                         const struct err *err) {
  struct row *rows[] = {row_of(&suite.ops, op), row_of(&suite.by_backend, backend->name)};
  for (int i = 0; i < 2; i++) {
    rows[i]->passed += err->code == ERR_OK;
    rows[i]->failed += err->code != ERR_OK;
  }
  if (!suite.is_table)
    tap_result(err->code == ERR_OK, "%s on %s", name, backend->name);
  if (err->code)
    printf("# %s on %s: %s\n", name, backend->name, err->text);
}

static void count_skip(const char *op, const struct backend_def *backend, const char *reason) {
  struct row *row = row_of(&suite.ops, op);
  size_t used = strlen(row->reasons);
  row->skipped++;
  row_of(&suite.by_backend, backend->name)->skipped++;
  row_of(&suite.reasons, reason)->skipped++;
  if (!strstr(row->reasons, reason))
    snprintf(row->reasons + used, sizeof row->reasons - used, "%s%s", used ? "; " : "", reason);
}

static struct tolerance output_tolerance(const struct vector *vector, const char *name, int output) {
  for (size_t i = 0; i < sizeof inexact / sizeof *inexact; i++)
    if (strstr(name, inexact[i].part))
      return inexact[i].tolerance;
  switch (vector->outputs[output]->data_type) {
  case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16:
    return f16_tolerance;
  case ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16:
    return bf16_tolerance;
  default:
    return vector_tolerance;
  }
}

static int vector_check(const struct vector *vector, const char *name, const struct outcome *outcome,
                        struct err *err) {
  char text[256], got[128], want[128];
  if (vector->n_outputs != vector->graph->n_outputs)
    return err_set(err, ERR_INVALID, "%d outputs, expected %d", vector->graph->n_outputs, vector->n_outputs);
  for (int i = 0; i < outcome->n; i++) {
    const struct value *value = &vector->graph->values[outcome->values[i]];
    const struct value *expected = vector_tensor(vector, "output", i);
    if (value->dtype != expected->dtype || !shape_is_same(&value->shape, &expected->shape))
      return err_set(err, ERR_INVALID, "output %d is %s%s, expected %s%s", i, dtype_name(value->dtype),
                     shape_text(&value->shape, got, sizeof got), dtype_name(expected->dtype),
                     shape_text(&expected->shape, want, sizeof want));
    struct tensor_pair pair = {.dtype = value->dtype,
                               .elems = shape_elems(&value->shape),
                               .got = outcome->data[i],
                               .want = expected->data};
    if (!tensors_agree(&pair, output_tolerance(vector, name, i), text, sizeof text))
      return err_set(err, ERR_INVALID, "output %d: %s", i, text);
  }
  return ERR_OK;
}

/* True if another seed gives other results: numbers that numpy drew cannot be expected. */
static bool is_random(const struct vector *vector, const struct backend_def *backend,
                      const struct outcome *usual) {
  struct feed feed = {.inputs = vector->feeds, .seed = USUAL_SEED + 1};
  struct backend_program *program = NULL;
  struct backend_request request;
  struct err err = ERR_NONE;
  struct outcome other;
  bool differs = false;
  outcome_init(&other, vector->graph, usual->values, usual->n);
  request = (struct backend_request){.graph = vector->graph, .watched = other.values, .n_watched = other.n};
  if (!backend->prepare(&request, &program, &err) && !program_run(backend, program, &feed, &other, &err))
    for (int i = 0; i < other.n; i++)
      differs |= memcmp(other.data[i], usual->data[i], value_size(vector->graph, usual->values[i])) != 0;
  backend->release(program);
  outcome_fini(&other);
  return differs;
}

static void vector_execute(const struct vector *vector, const char *name, const char *op,
                           const struct backend_def *backend) {
  struct err err = ERR_NONE;
  struct outcome outcome;
  outcome_init(&outcome, vector->graph, vector->graph->outputs, vector->graph->n_outputs);
  if (!graph_execute(backend, &suite.options, vector->feeds, &outcome, &err) &&
      vector_check(vector, name, &outcome, &err) && is_random(vector, backend, &outcome))
    count_skip(op, backend, "expects the random numbers of numpy");
  else
    count_result(name, op, backend, &err);
  outcome_fini(&outcome);
}

/* What an input or output is instead of a tensor; NULL for a tensor. */
static const char *other_than_tensor(const Onnx__ValueInfoProto *info) {
  switch (info->type ? info->type->value_case : ONNX__TYPE_PROTO__VALUE__NOT_SET) {
  case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE:
    return NULL;
  case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
    return "a sequence is not a tensor";
  case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
    return "an optional is not a tensor";
  default:
    return "not a tensor";
  }
}

/* The first type that we do not have; NULL if we have all. */
static const char *missing_type(const Onnx__GraphProto *graph) {
  const char *name;
  for (size_t i = 0; i < graph->n_input; i++)
    if (onnx_dtype(graph->input[i]->type->tensor_type->elem_type, &name) == DTYPE_NONE)
      return name;
  for (size_t i = 0; i < graph->n_output; i++)
    if (onnx_dtype(graph->output[i]->type->tensor_type->elem_type, &name) == DTYPE_NONE)
      return name;
  for (size_t i = 0; i < graph->n_initializer; i++)
    if (onnx_dtype(graph->initializer[i]->data_type, &name) == DTYPE_NONE)
      return name;
  for (size_t n = 0; n < graph->n_node; n++)
    for (size_t a = 0; a < graph->node[n]->n_attribute; a++) {
      const Onnx__AttributeProto *attr = graph->node[n]->attribute[a];
      if (attr->t && onnx_dtype(attr->t->data_type, &name) == DTYPE_NONE)
        return name;
      if (strcmp(attr->name, "to") == 0 && onnx_dtype((int)attr->i, &name) == DTYPE_NONE)
        return name;
    }
  return NULL;
}

/* The first op that we do not have; NULL if we have all. */
static const Onnx__NodeProto *missing_op(const Onnx__GraphProto *graph) {
  for (size_t n = 0; n < graph->n_node; n++)
    if (!onnx_domain_is_standard(graph->node[n]->domain) || !op_find("", graph->node[n]->op_type))
      return graph->node[n];
  return NULL;
}

/* Why a vector cannot be run; NULL: it is wrong that it cannot. Freed by the caller. */
static char *reason_of(const struct vector *vector, const struct err *err) {
  const Onnx__GraphProto *graph = vector->model->graph;
  const char *detail = strstr(err->text, "): ");
  if (missing_op(graph))
    return mem_printf("no op %s", missing_op(graph)->op_type);
  if (missing_type(graph))
    return mem_printf("type %s", missing_type(graph));
  if (err->code == ERR_INVALID && strstr(err->text, "would be empty"))
    return mem_strdup("tensors without elements are refused");
  if (err->code == ERR_UNSUPPORTED)
    return mem_strdup(detail ? detail + strlen("): ") : err->text);
  return NULL;
}

static const char *vector_other_than_tensor(const struct vector *vector) {
  const Onnx__GraphProto *graph = vector->model->graph;
  const char *other = NULL;
  for (size_t i = 0; i < graph->n_input && !other; i++)
    other = other_than_tensor(graph->input[i]);
  for (size_t i = 0; i < graph->n_output && !other; i++)
    other = other_than_tensor(graph->output[i]);
  return other;
}

/* Runs one data set of a vector on every backend that is asked for. */
static void run_data_set(struct vector *vector, const char *folder, const char *name, const char *op) {
  struct err err = ERR_NONE;
  const char *other = vector_other_than_tensor(vector);
  char *reason = other ? mem_strdup(other) : NULL;
  if (!reason && (vector_read_data(vector, folder, &err) || vector_load(vector, &err)))
    reason = reason_of(vector, &err);
  for (int b = 0; suite.backends.at[b]; b++) {
    if (reason)
      count_skip(op, suite.backends.at[b], reason);
    else if (err.code)
      count_result(name, op, suite.backends.at[b], &err);
    else
      vector_execute(vector, name, op, suite.backends.at[b]);
  }
  free(reason);
}

/* The op that a vector is about: that of `base`, of which it may be the expanded form. */
static const char *about(const struct vector *vector, const char *name, const char *base,
                         const char *base_op) {
  const char *op = vector_op(vector);
  if (*base && strncmp(name, base, strlen(base)) == 0 && strstr(name, "_expanded"))
    return base_op;
  return op ? op : "(models of several ops)";
}

static void run_vector(const char *folder, const char *name) {
  static char base[320], base_op[128]; /* of the last vector that is not an expanded form */
  bool is_there = true;
  for (int set = 0; is_there; set++) {
    char *data = mem_printf("%s/test_data_set_%d", folder, set);
    struct vector vector;
    struct err err = ERR_NONE;
    struct stat info;
    is_there = set == 0 || stat(data, &info) == 0;
    if (is_there && vector_read_model(&vector, folder, &err)) {
      count_result(name, "(unreadable)", suite.backends.at[0], &err);
    } else if (is_there) {
      char op[128];
      snprintf(op, sizeof op, "%s", about(&vector, name, base, base_op));
      if (!strstr(name, "_expanded")) {
        snprintf(base, sizeof base, "%s", name);
        snprintf(base_op, sizeof base_op, "%s", op);
      }
      run_data_set(&vector, data, name, op);
    }
    if (is_there)
      vector_fini(&vector);
    free(data);
  }
}

static int is_vector(const struct dirent *entry) {
  return strncmp(entry->d_name, "test_", 5) == 0;
}

static void run_folder(const char *folder) {
  const char *given = getenv("WEIR_ONNX_VECTORS");
  char *path = mem_printf("%s/%s", given ? given : vectors_debian, folder);
  struct dirent **entries;
  int n = scandir(path, &entries, is_vector, alphasort);
  if (n < 0) {
    struct err err = ERR_NONE;
    err_set(&err, ERR_NOT_FOUND, "%s is not there: install libonnx-testdata", path);
    count_result(folder, "(unreadable)", suite.backends.at[0], &err);
  }
  for (int i = 0; i < n; i++) {
    char *vector = mem_printf("%s/%s", path, entries[i]->d_name);
    char *name = mem_printf("%s/%s", folder, entries[i]->d_name);
    if (!suite.part || strstr(name, suite.part))
      run_vector(vector, name);
    free(vector);
    free(name);
    free(entries[i]);
  }
  if (n >= 0)
    free(entries);
  free(path);
}

static int compare_rows(const void *a, const void *b) {
  return strcmp((*(struct row *const *)a)->name, (*(struct row *const *)b)->name);
}

/* Returns the number of failures. */
static int print_table(void) {
  int passed = 0, failed = 0, skipped = 0;
  qsort(suite.ops.row, (size_t)suite.ops.n, sizeof *suite.ops.row, compare_rows);
  printf("%-28s %7s %7s %7s  %s\n", "op", "passed", "failed", "skipped", "why skipped");
  for (int i = 0; i < suite.ops.n; i++) {
    const struct row *row = suite.ops.row[i];
    printf("%-28s %7d %7d %7d  %s\n", row->name, row->passed, row->failed, row->skipped, row->reasons);
  }
  for (int i = 0; i < suite.by_backend.n; i++) {
    const struct row *row = suite.by_backend.row[i];
    printf("on %s: %d passed, %d failed, %d skipped\n", row->name, row->passed, row->failed, row->skipped);
    passed += row->passed;
    failed += row->failed;
    skipped += row->skipped;
  }
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed;
}

static bool read_arguments(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--table") == 0)
      suite.is_table = true;
    else if (backend_find(argv[i]) || strcmp(argv[i], PLUGIN_BACKEND) == 0)
      suite.backend = argv[i];
    else if (strcmp(argv[i], "fp32-fast") == 0)
      suite.options.precision = PRECISION_F32_FAST;
    else if (!suite.part)
      suite.part = argv[i];
    else
      return false;
  }
  return true;
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct err err = ERR_NONE;
  int status;
  if (!read_arguments(argc, argv)) {
    fprintf(stderr, "usage: onnx_test [--table] [BACKEND] [fp32-fast] [PART-OF-A-NAME]\n");
    return 2;
  }
  tap_init();
  if (!backends_init(&suite.backends, suite.backend, suite.options.precision, &err))
    return suite_skip(suite.backend, &err);
  for (size_t f = 0; f < sizeof vectors_folders / sizeof *vectors_folders; f++)
    run_folder(vectors_folders[f]);
  if (suite.is_table) {
    status = print_table() != 0;
  } else {
    for (int i = 0; i < suite.reasons.n; i++) {
      char *what = mem_printf("%d runs of vectors", suite.reasons.row[i]->skipped);
      tap_skip(what, suite.reasons.row[i]->name);
      free(what);
    }
    if (suite.backends.at[0]->host_node)
      suite_tell_host_nodes(false);
    status = tap_finish();
  }
  rows_fini(&suite.ops);
  rows_fini(&suite.reasons);
  rows_fini(&suite.by_backend);
  return status;
}
