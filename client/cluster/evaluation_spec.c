/* The spec of an evaluation. */
#include "client/cluster/evaluation_spec.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"

enum { NAME_KEPT = 35 }; /* of at most 40 characters, "eval-" included */

static void rename_run(Weir__RunSpec *spec) {
  char *name = mem_printf("eval-%.*s", NAME_KEPT, spec->name);
  free(spec->name);
  spec->name = name;
}

/* What it takes to train is not looked at, but for the optimizer: its groups say what is frozen. */
static void train_nothing(Weir__RunSpec *spec) {
  Weir__TrainSpec *train = spec->train;
  train->has_epochs = train->has_hold = train->has_hold_epochs = false;
  train->has_clip_norm = train->has_clip_value = false;
  train->has_steps = true;
  train->steps = 0;
  message_free(train->average);
  train->average = NULL;
  message_free(train->early_stopping);
  train->early_stopping = NULL;
  message_free(train->schedule);
  train->schedule = NULL;
  message_free(spec->checkpoint);
  spec->checkpoint = NULL;
  spec->workers->min = 1;
}

static void move_transforms(Weir__DataSpec *to, Weir__DataSpec *from) {
  Weir__DataSpec was = *to;
  to->transforms = from->transforms;
  to->n_transforms = from->n_transforms;
  to->eval_transforms = from->eval_transforms;
  to->n_eval_transforms = from->n_eval_transforms;
  from->transforms = was.transforms;
  from->n_transforms = was.n_transforms;
  from->eval_transforms = was.eval_transforms;
  from->n_eval_transforms = was.n_eval_transforms;
}

/* Its source, and its root and transforms where it has its own. */
static int take_data(Weir__DataSpec *data, const char *path, struct err *err) {
  Weir__RunSpec *given = NULL;
  Weir__DataSource **source;
  if (spec_read_file(path, &given, err))
    return err->code;
  source = !given->data ? NULL : given->data->eval ? &given->data->eval : &given->data->train;
  if (!source || !*source) {
    spec_free(given);
    return err_set(err, ERR_INVALID, "%s: has neither data.eval nor data.train: what is to be evaluated?",
                   path);
  }
  message_free(data->eval);
  data->eval = *source;
  *source = NULL;
  data->n_split = 0; /* its array goes with the message */
  data->has_split_seed = false;
  if (given->data->root) {
    char *root = data->root;
    data->root = given->data->root;
    given->data->root = root;
  }
  if (given->data->n_transforms || given->data->n_eval_transforms)
    move_transforms(data, given->data);
  spec_free(given);
  return 0;
}

/* Formats whose characters are numbered as those of data.train, or whose classes must be the same. */
static bool is_numbered_by_train(const Weir__DataSource *source) {
  return source->format && (strcmp(source->format, "images") == 0 || strcmp(source->format, "text") == 0);
}

/* Workers open training data in any case: the same once more, where the run's own does not matter. */
static int evaluate_data(Weir__DataSpec *data, const char *path, struct err *err) {
  char *root = data->root ? mem_strdup(data->root) : NULL;
  bool is_elsewhere = false;
  if (path && take_data(data, path, err) == 0)
    is_elsewhere = (root || data->root) && (!root || !data->root || strcmp(root, data->root) != 0);
  if (!err->code && !data->eval && !data->n_split)
    err_set(err, ERR_INVALID, "the run has no data.eval: name what is to be evaluated with --data");
  if (!err->code && data->eval && is_elsewhere && is_numbered_by_train(data->eval))
    err_set(err, ERR_INVALID,
            "%s: data.root: must be that of the run, '%s', where data.train says which %s there are", path,
            root ? root : "", strcmp(data->eval->format, "text") == 0 ? "characters" : "classes");
  free(root);
  if (err->code)
    return err->code;
  if (data->eval && !is_numbered_by_train(data->eval)) {
    message_free(data->train);
    data->train = message_copy(data->eval);
  }
  free(data->sampler);
  data->sampler = NULL;
  data->has_shuffle = true;
  data->shuffle = false;
  return 0;
}

static void free_names(char **names, size_t n) {
  for (size_t i = 0; i < n; i++)
    free(names[i]);
  free(names);
}

static void metrics_set(Weir__RunSpec *spec, const char *names) {
  Weir__EvalSpec *eval = spec->eval;
  if (!eval) {
    eval = spec->eval = mem_new(sizeof *eval);
    weir__eval_spec__init(eval);
  }
  eval->has_every_steps = false;
  eval->n_at = eval->n_at_epochs = 0; /* their arrays go with the message */
  if (!names)
    return;
  free_names(eval->metrics, eval->n_metrics);
  eval->metrics = mem_new((strlen(names) + 1) * sizeof *eval->metrics);
  eval->n_metrics = 0;
  while (*names) {
    size_t length = strcspn(names, ",");
    eval->metrics[eval->n_metrics++] = mem_printf("%.*s", (int)length, names);
    names += length + (names[length] == ',');
  }
}

int evaluation_spec(Weir__RunSpec *spec, const struct evaluation_wishes *wishes, struct err *err) {
  rename_run(spec);
  train_nothing(spec);
  metrics_set(spec, wishes->measure);
  return evaluate_data(spec->data, wishes->data, err) ? (int)err->code : spec_check(spec, err);
}
