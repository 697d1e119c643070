/* `weir train`: a private cluster, one run, its results. */
#include "client/cluster/training.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/stop.h"
#include "client/cluster/teams_check.h"
#include "client/cluster/weights_sources.h"
#include "client/files/export.h"
#include "client/files/socket_folder.h"
#include "common/base/memory.h"
#include "common/base/message.h"

enum { PAUSE_DEADLINE_MS = 3000, PAUSED_MS = 30000, LOST_CHILD_MS = 2000 };

static int worker_count(const struct training *training);
static int check_other_runs(struct training *training, struct err *err);
static int run_begin(struct training *training, struct err *err);
static int run_resume(struct training *training, struct err *err);
static void run_follow(struct training *training, int deadline_ms, struct err *err);
static void run_pause(struct training *training, struct err *err);
static int run_save(struct training *training, struct err *err);
static int weights_save(struct training *training, bool is_average, struct err *err);
static void print_quoted(FILE *file, const char *word);

int training_launch(struct training *training, struct err *err) {
  const struct args *args = training->args;
  char *logs = mem_printf("%s/logs", training->absolute);
  char *store = training->run.store ? mem_strdup(training->run.store)
                                    : mem_printf("file://%s/store", training->absolute);
  int workers = worker_count(training);
  struct launcher_options options = {
      .logs = logs,
      .store = store,
      .data_root = training->data_root,
      .servers = (int)args_count(args, "servers"),
      .workers = workers,
      .threads = launcher_threads((int)args_count(args, "threads"), workers),
      .device = args_text(args, "device"),
      .memory = args_text(args, "memory"),
      .labels = training->labels,
      .trace = args_text(args, "trace"),
      .tls = args_text(args, "tls"),
      .is_insecure = args_flag(args, "insecure"),
      .sockets = socket_folder_is_wanted(args_flag(args, "sockets")),
      .restart = !args_flag(args, "no-restart"),
  };
  launcher_start(&options, &training->launcher, err);
  free(logs);
  free(store);
  if (err->code)
    return err->code;
  printf("coordinator %s\n", launcher_address(training->launcher));
  printf("cluster     %d server%s, %d worker%s of %d thread%s; logs in %s/logs\n", options.servers,
         options.servers == 1 ? "" : "s", workers, workers == 1 ? "" : "s", options.threads,
         options.threads == 1 ? "" : "s", training->out);
  fflush(stdout);
  if (connection_open(&training->connection, launcher_address(training->launcher),
                      &(struct rpc_security){.folder = options.tls}, err) ||
      launcher_wait_members(training->launcher, &training->connection, err) ||
      teams_check(&training->connection, training->submission.spec->workers, err))
    return err->code;
  return training->run.store ? check_other_runs(training, err) : ERR_OK;
}

/* By default as few as the spec asks for. */
static int worker_count(const struct training *training) {
  int least = (int)training->submission.spec->workers->min;
  int given = (int)args_count(training->args, "workers");
  return given > 0 ? given : least > 0 ? least : 1;
}

static bool state_is_live(Weir__RunState state) {
  return state == WEIR__RUN_STATE__QUEUED || state == WEIR__RUN_STATE__LOADING ||
         state == WEIR__RUN_STATE__RUNNING || state == WEIR__RUN_STATE__FINISHING ||
         state == WEIR__RUN_STATE__HELD;
}

/* A store that is not the folder's own may hold runs that would take our members; the one that --force
   replaces is cancelled. */
static int check_other_runs(struct training *training, struct err *err) {
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  Weir__ListRunsReply *reply = NULL;
  if (connection_call(&training->connection, RPC_LIST_RUNS, &request, (void **)&reply, err))
    return err->code;
  for (size_t i = 0; i < reply->n_runs && err->code == ERR_OK; i++) {
    const Weir__RunInfo *run = reply->runs[i];
    Weir__RunRequest cancel = WEIR__RUN_REQUEST__INIT;
    void *cancelled = NULL;
    if (!state_is_live(run->state) || (training->run.run && strcmp(run->run, training->run.run) == 0))
      continue;
    cancel.run = run->run;
    if (!training->replaced.run || strcmp(run->run, training->replaced.run) != 0)
      err_set(err, ERR_EXISTS,
              "the store %s holds run '%s', which is not over: resume or cancel it, or give a store of this "
              "run's own, by its prefix for one",
              training->run.store, run->run);
    else if (connection_call(&training->connection, RPC_CANCEL, &cancel, &cancelled, err) == 0)
      message_free(cancelled);
  }
  message_free(reply);
  return err->code;
}

int training_run(struct training *training, struct err *err) {
  struct err save_err = ERR_NONE;
  if (training->run.run ? run_resume(training, err) : run_begin(training, err))
    return err->code;
  run_follow(training, 0, err);
  if (err->code && stop_cause() == STOP_SIGNAL)
    run_pause(training, err);
  training->is_paused = training->result.info && training->result.info->state == WEIR__RUN_STATE__PAUSED;
  if (err->code == ERR_OK && training->is_paused)
    err_set(err, ERR_CANCELLED, "run '%s' was paused at step %" PRIu64, training->run.run,
            training->result.info->step);
  /* Also when the metrics could not be written: what was trained is not lost. */
  if (training->result.info && follow_has_result(training->result.info->state) &&
      run_save(training, &save_err))
    *err = save_err;
  return err->code;
}

static int run_begin(struct training *training, struct err *err) {
  if (submission_send(&training->submission, &training->connection, &training->run.run, err))
    return err->code;
  return run_file_write(training->absolute, &training->run, err);
}

/* A run that was under way when everything was killed goes on by itself. */
static int run_resume(struct training *training, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__ResumeRequest resume = WEIR__RESUME_REQUEST__INIT;
  Weir__RunInfo *info = NULL;
  void *resumed = NULL;
  request.run = resume.run = training->run.run;
  if (connection_call(&training->connection, RPC_GET_RUN, &request, (void **)&info, err) == ERR_NOT_FOUND)
    err_set(err, ERR_NOT_FOUND, "the store does not hold run '%s' of '%s' any more: begin anew with --force",
            training->run.run, training->out);
  if (err->code == ERR_OK && !state_is_live(info->state) && !follow_has_result(info->state) &&
      connection_call(&training->connection, RPC_RESUME, &resume, &resumed, err) == 0)
    message_free(resumed);
  message_free(info);
  return err->code;
}

static void run_follow(struct training *training, int deadline_ms, struct err *err) {
  struct follow_options options = {
      .connection = &training->connection,
      .run = training->run.run,
      .file = stdout,
      .metrics = {training->metrics[0], training->metrics[1]},
      .mark = &training->mark,
      .ends_when_paused = true,
      .deadline_ms = deadline_ms,
      .all_workers = worker_count(training),
  };
  follow_result_fini(&training->result);
  follow(&options, &training->result, err);
}

/* After a Ctrl-C: followed on until the run is paused, half a minute at most; a second one ends the waiting.
   It may be done before. */
static void run_pause(struct training *training, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct rpc_question question = {RPC_PAUSE, &request, PAUSE_DEADLINE_MS};
  struct err pause_err = ERR_NONE;
  Weir__RunInfo *info = NULL;
  request.run = training->run.run;
  stop_forget_signal();
  printf("pausing run '%s'; Ctrl-C again to stop at once\n", training->run.run);
  fflush(stdout);
  connection_ask(&training->connection, &question, (void **)&info, &pause_err);
  message_free(info);
  *err = ERR_NONE;
  run_follow(training, PAUSED_MS, err);
  info = training->result.info;
  if (err->code == ERR_OK && info->state == WEIR__RUN_STATE__PAUSED)
    err_set(err, ERR_CANCELLED, "interrupted; run '%s' is paused at step %" PRIu64, info->run, info->step);
  else if (err->code)
    err_set(err, ERR_CANCELLED,
            "interrupted; run '%s' was not paused%s%s: resumed, it goes on from its "
            "newest checkpoint",
            training->run.run, pause_err.code ? ": " : " in time", pause_err.text);
}

/* The trained model, in both forms. */
static int run_save(struct training *training, struct err *err) {
  if (weights_save(training, false, err) == 0 && training_has_average(training))
    weights_save(training, true, err);
  return err->code;
}

bool training_has_average(const struct training *training) {
  return training->submission.spec->train->average != NULL;
}

/* One file; the weights come anew for each. */
static int weights_save_as(struct training *training, bool is_average,
                           int (*write)(const struct export_source *source, const char *path,
                                        struct err *err),
                           const char *ending, struct err *err) {
  const struct submission *submission = &training->submission;
  const Weir__RunInfo *info = training->result.info;
  Weir__WeightsRequest request = WEIR__WEIGHTS_REQUEST__INIT;
  struct piece_download pieces = {&training->connection, info->run};
  struct export_source source = {.model = {.onnx = submission->onnx,
                                           .onnx_size = submission->onnx_size,
                                           .spec = submission->spec,
                                           .pieces = {piece_download_read, &pieces}}};
  char *path = mem_printf("%s/%s.%s", training->absolute, is_average ? "model.average" : "model", ending);
  request.run = info->run;
  request.average = is_average;
  if (info->steps > 0)
    weights_from_coordinator(&training->connection, &request, &source.weights);
  else /* it was only evaluated */
    weights_from_file(&source.model, &source.weights, NULL, err);
  if (!err->code) {
    write(&source, path, err);
    source.weights.close(source.weights.user);
  }
  free(path);
  return err->code;
}

static int weights_save(struct training *training, bool is_average, struct err *err) {
  if (weights_save_as(training, is_average, export_onnx, "onnx", err) == 0)
    weights_save_as(training, is_average, export_safetensors, "safetensors", err);
  return err->code;
}

/* A process's death often shows as a broken connection first. */
void training_stop(struct training *training, struct err *err) {
  if (training->launcher && err_is_retryable(err->code))
    stop_wait(LOST_CHILD_MS);
  if (training->launcher && err->code && stop_cause() == STOP_CHILD)
    launcher_explain(training->launcher, err);
  else if (err->code && stop_cause() == STOP_SIGNAL && err->code != ERR_CANCELLED)
    err_set(err, ERR_CANCELLED, "interrupted");
  launcher_stop(training->launcher);
  training->launcher = NULL;
}

void training_print_resume(const struct training *training, FILE *file) {
  static const char *const changed[] = {"out", "force", "resume", "from", "trace"};
  const struct args *args = training->args;
  print_quoted(file, program_invocation_name);
  fputs(" train ", file);
  for (int i = 0; i < args->n_arguments; i++) {
    fputs(i ? " " : "", file);
    print_quoted(file, args->arguments[i]);
  }
  fputs(" --out ", file);
  print_quoted(file, training->out);
  fputs(" --resume", file);
  for (int i = 0; args->options[i].name; i++) {
    const struct option_def *option = &args->options[i];
    bool is_changed = !args->values[i] || args->values[i] == option->fallback;
    for (size_t c = 0; c < sizeof changed / sizeof *changed; c++)
      is_changed |= strcmp(option->name, changed[c]) == 0;
    if (is_changed)
      continue;
    fprintf(file, " --%s", option->name);
    if (option->kind != OPTION_FLAG) {
      fputc(' ', file);
      print_quoted(file, args->values[i]);
    }
  }
  for (int i = 0; i < args->n_texts; i++) {
    fputs(" --label ", file);
    print_quoted(file, args->texts[i]);
  }
  fputc('\n', file);
}

static void print_quoted(FILE *file, const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (word[0] && strspn(word, plain) == strlen(word)) {
    fputs(word, file);
    return;
  }
  fputc('\'', file);
  for (; *word; word++)
    if (*word == '\'')
      fputs("'\\''", file);
    else
      fputc(*word, file);
  fputc('\'', file);
}

void training_fini(struct training *training) {
  for (int i = 0; i < FOLLOW_METRICS_MAX; i++)
    metrics_close(training->metrics[i]);
  follow_result_fini(&training->result);
  connection_close(&training->connection);
  submission_fini(&training->submission);
  run_file_fini(&training->run);
  run_file_fini(&training->replaced);
  free(training->out);
  free(training->absolute);
  free(training->data_root);
  labels_free(&training->labels);
}
