/* `weir train` before anything is started: the spec, the model, the folder. */
#include <stdlib.h>
#include <string.h>

#include "client/cluster/private_cluster.h"
#include "client/cluster/start_weights.h"
#include "client/cluster/stored.h"
#include "client/cluster/training.h"
#include "client/files/output_file.h"
#include "client/files/result_dir.h"
#include "common/agree/spec.h"
#include "common/specs/spec_diff.h"
#include "common/base/memory.h"
#include "common/base/sha256.h"

static int check_options(const struct training *training, struct err *err);
static int find_data_root(struct training *training, struct err *err);
static int check_metrics(const struct training *training, struct err *err);
static int check_workers(const struct training *training, struct err *err);
static int take_labels(struct training *training, struct err *err);
static int folder_begin(struct training *training, struct err *err);
static int folder_resume(struct training *training, struct err *err);
static int check_same_spec(const struct training *training, struct err *err);
static int check_same_store(const struct training *training, struct err *err);
static int metrics_begin(struct training *training, struct err *err);

int training_prepare(struct training *training, struct err *err) {
  const struct args *args = training->args;
  const struct spec_source source = submission_source(args);
  char sha256[SHA256_HEX_SIZE];
  if (check_options(training, err) || submission_load(&training->submission, &source, err) ||
      check_metrics(training, err) || find_data_root(training, err) || check_workers(training, err) ||
      take_labels(training, err))
    return err->code;
  sha256_hex(training->submission.onnx, training->submission.onnx_size, sha256);
  training->run.model_sha256 = mem_strdup(sha256);
  training->out = args_text(args, "out") ? mem_strdup(args_text(args, "out"))
                                         : mem_printf("weir-out/%s", training->submission.spec->name);
  if (args_text(args, "from") &&
      start_weights_apply(&training->submission, args_text(args, "from"), NULL, err))
    return err->code;
  if (args_flag(args, "resume") ? folder_resume(training, err) : folder_begin(training, err))
    return err->code;
  return metrics_begin(training, err);
}

static int check_options(const struct training *training, struct err *err) {
  const struct args *args = training->args;
  if (args_flag(args, "resume") && args_flag(args, "force"))
    return err_set(err, ERR_INVALID,
                   "--resume goes on with the run in --out, --force removes it: choose one");
  if (args_flag(args, "resume") && args_text(args, "from"))
    return err_set(err, ERR_INVALID, "--from is for the start of a run: leave it out with --resume");
  if (args_text(args, "tls") && args_flag(args, "insecure"))
    return err_set(err, ERR_INVALID, "--tls and --insecure exclude each other");
  return args_text(args, "store") ? stored_url_check(args_text(args, "store"), err) : ERR_OK;
}

static int find_data_root(struct training *training, struct err *err) {
  training->data_root =
      private_cluster_data_root(args_text(training->args, "data-root"), training->submission.spec, err);
  return training->data_root ? ERR_OK : (int)err->code;
}

/* It is appended to. */
static int check_metrics(const struct training *training, struct err *err) {
  const char *path = args_text(training->args, "metrics");
  const char *inputs[] = {training->submission.path, training->submission.model_path};
  for (size_t i = 0; path && i < sizeof inputs / sizeof *inputs; i++)
    if (inputs[i] && output_file_is(path, inputs[i]))
      return err_set(err, ERR_EXISTS, "--metrics '%s' is %s itself: name another file", path,
                     i ? "the model" : "the spec");
  return ERR_OK;
}

/* Fewer would wait for ever. */
static int check_workers(const struct training *training, struct err *err) {
  int least = (int)training->submission.spec->workers->min;
  int given = (int)args_count(training->args, "workers");
  if (given > 0 && given < least)
    err_set(err, ERR_INVALID, "--workers %d is fewer than the spec's workers.min, %d", given, least);
  return err->code;
}

/* Without those that the spec requires the run would wait for ever, too. */
static int take_labels(struct training *training, struct err *err) {
  const Weir__WorkersSpec *spec = training->submission.spec->workers;
  struct labels required = {spec->require, spec->n_require};
  char text[LABELS_TEXT_MAX];
  const char *const *given;
  int n = args_texts(training->args, "label", &given);
  for (int i = 0; i < n; i++)
    if (labels_read(&training->labels, given[i], err))
      return err_prefix(err, "--label");
  if (labels_read_usual(&training->labels, err))
    return err->code;
  if (!labels_include(training->labels, required))
    err_set(err, ERR_INVALID,
            "workers.require: workers with %.600s are asked for: say with --label what the workers that are "
            "started here have",
            labels_write(required, text));
  return err->code;
}

static int folder_begin(struct training *training, struct err *err) {
  const struct args *args = training->args;
  const struct spec_source source = submission_source(args);
  const char *inputs[] = {training->submission.path, training->submission.model_path, NULL};
  struct err none = ERR_NONE;
  char *path;
  run_file_read(training->out, &training->replaced, &none); /* one that is damaged is replaced as well */
  if (result_dir_make(training->out, args_flag(args, "force"), inputs, &training->absolute, err) ||
      run_file_write(training->absolute, &training->run, err))
    return err->code;
  path = mem_printf("%s/spec.yaml", training->absolute);
  if (source.n_settings)
    spec_source_write(&source, path, err);
  else
    result_dir_copy(source.file, path, err);
  free(path);
  if (args_text(args, "store"))
    training->run.store = mem_strdup(args_text(args, "store"));
  return err->code;
}

/* Folders of earlier builds have the hash of a file with its external data in it. */
static bool is_model_of_before(const struct submission *submission, const char *sha256) {
  struct model_file file = {.bytes = submission->onnx, .size_bytes = submission->onnx_size};
  struct err unused = ERR_NONE;
  char found[SHA256_HEX_SIZE] = "";
  void *bytes;
  size_t size;
  if (!submission->pieces.read || model_file_complete(&file, &submission->pieces, &bytes, &size, &unused))
    return false;
  sha256_hex(bytes, size, found);
  free(bytes);
  return strcmp(found, sha256) == 0;
}

static int folder_resume(struct training *training, struct err *err) {
  struct run_file was = {0};
  if (result_dir_reopen(training->out, &training->absolute, err) ||
      run_file_read(training->absolute, &was, err))
    goto out;
  if (strcmp(was.model_sha256, training->run.model_sha256) != 0 &&
      !is_model_of_before(&training->submission, was.model_sha256)) {
    err_set(err, ERR_INVALID,
            "the model of '%s' is another one than when run '%s' in '%s' began: resume with the former, or "
            "begin a run with another --out",
            training->args->arguments[0], was.run, training->out);
    goto out;
  }
  run_file_fini(&training->run);
  training->run = was;
  was = (struct run_file){0};
  if (check_same_store(training, err) == 0)
    check_same_spec(training, err);
out:
  run_file_fini(&was);
  return err->code;
}

static int check_same_spec(const struct training *training, struct err *err) {
  char *path = mem_printf("%s/spec.yaml", training->absolute), difference[600];
  Weir__RunSpec *was = NULL;
  if (spec_read_file(path, &was, err) == 0 && spec_check(was, err))
    err_prefix(err, "%s", path);
  if (err->code == ERR_OK &&
      spec_differs(training->submission.spec, was, NULL, difference, sizeof difference))
    err_set(err, ERR_INVALID,
            "%s: %s in '%s', where the run began: a run cannot be resumed with another spec",
            training->args->arguments[0], difference, path);
  spec_free(was);
  free(path);
  return err->code;
}

static int check_same_store(const struct training *training, struct err *err) {
  const char *given = args_text(training->args, "store"), *was = training->run.store;
  if ((given && was && strcmp(given, was) == 0) || (!given && !was))
    return ERR_OK;
  if (was)
    return err_set(err, ERR_INVALID, "run '%s' has its checkpoints in %s: resume it with --store %s",
                   training->run.run, was, was);
  return err_set(err, ERR_INVALID, "run '%s' has its checkpoints in %s/store: resume it without --store",
                 training->run.run, training->out);
}

static int metrics_begin(struct training *training, struct err *err) {
  const struct args *args = training->args;
  bool is_resumed = args_flag(args, "resume");
  char *path = mem_printf("%s/metrics.jsonl", training->absolute);
  if (metrics_open(path, is_resumed, &training->metrics[0], err) == 0 && args_text(args, "metrics"))
    metrics_open(args_text(args, "metrics"), is_resumed, &training->metrics[1], err);
  free(path);
  return err->code;
}
