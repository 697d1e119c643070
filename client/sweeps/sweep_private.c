/* A sweep with a cluster of its own, in a folder. */
#include "client/sweeps/sweep_private.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/cluster/private_cluster.h"
#include "client/cluster/stop.h"
#include "client/files/result_dir.h"
#include "client/files/run_file.h"
#include "client/files/socket_folder.h"
#include "client/sweeps/sweep_follow.h"
#include "client/sweeps/sweep_resume.h"
#include "client/sweeps/sweep_table.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/base/sha256.h"

/* What is released by private_fini, whatever happened. */
struct private_sweep {
  const struct args *args;
  const struct sweep_submission *sweep;
  char *out, *absolute, *data_root;
  struct run_file file;     /* of the folder: its run is the sweep */
  Weir__SweepBudget growth; /* of one that goes on */
  struct private_cluster cluster;
  struct connection connection;
  Weir__SweepInfo *info;
};

/* The sweep's spec, the run spec, its model. */
enum { INPUTS = 3 };

/* What the user gives; ends with NULL, and is freed by the caller. */
static const char **list_inputs(const struct private_sweep *own) {
  const struct sweep_submission *sweep = own->sweep;
  const char **inputs = mem_new((INPUTS + sweep->n_files + 1) * sizeof *inputs);
  int n = 0;
  inputs[n++] = own->args->arguments[0];
  inputs[n++] = sweep->submission.path;
  inputs[n++] = sweep->submission.model_path;
  for (size_t i = 0; i < sweep->n_files; i++)
    inputs[n++] = sweep->files[i].path;
  return inputs;
}

static int folder_begin(struct private_sweep *own, struct err *err) {
  const struct submission *submission = &own->sweep->submission;
  const char **inputs;
  char sha256[SHA256_HEX_SIZE];
  struct run_file was = {0};
  struct err none = ERR_NONE;
  if (!args_flag(own->args, "force") && run_file_read(own->out, &was, &none) == 0 && was.run)
    err_set(err, ERR_EXISTS, "'%s' holds '%s': --resume goes on with it, --force replaces it", own->out,
            was.run);
  run_file_fini(&was);
  if (err->code)
    return err->code;
  sha256_hex(submission->onnx, submission->onnx_size, sha256);
  own->file.model_sha256 = mem_strdup(sha256);
  inputs = list_inputs(own);
  if (result_dir_make(own->out, args_flag(own->args, "force"), inputs, &own->absolute, err) == 0)
    run_file_write(own->absolute, &own->file, err);
  free(inputs);
  return err->code;
}

static int folder_resume(struct private_sweep *own, struct err *err) {
  struct sweep_folder folder = {.path = own->out, .file = &own->file};
  char *store;
  if (result_dir_reopen(own->out, &own->absolute, err) || run_file_read(own->absolute, &own->file, err))
    return err->code;
  folder.store = store = mem_printf("file://%s/store", own->absolute);
  sweep_resume_check(own->sweep, &folder, &own->growth, err);
  free(store);
  return err->code;
}

static int prepare(struct private_sweep *own, struct err *err) {
  const struct args *args = own->args;
  if (own->sweep->spec->n_from > 0) {
    err_set(err, ERR_INVALID, "from: a private cluster has no other sweeps: give --coordinator HOST:PORT");
    return spec_blame(own->sweep->source, err);
  }
  own->out = args_text(args, "out") ? mem_strdup(args_text(args, "out"))
                                    : mem_printf("weir-out/%s", own->sweep->spec->name);
  own->data_root = private_cluster_data_root(args_text(args, "data-root"), own->sweep->submission.spec, err);
  if (!own->data_root)
    return err->code;
  if (args_flag(args, "resume") && args_flag(args, "force"))
    return err_set(err, ERR_INVALID,
                   "--resume goes on with the sweep in --out, --force removes it: choose one");
  return args_flag(args, "resume") ? folder_resume(own, err) : folder_begin(own, err);
}

static int launch(struct private_sweep *own, struct err *err) {
  const struct args *args = own->args;
  struct launcher_options members = {
      .data_root = own->data_root,
      .servers = (int)args_count(args, "servers"),
      .workers = args_count(args, "workers") > 0 ? (int)args_count(args, "workers") : 1,
      .threads = (int)args_count(args, "threads"),
      .device = args_text(args, "device"),
      .tls = args->given_tls,
      .sockets = socket_folder_is_wanted(args_flag(args, "sockets")),
  };
  own->cluster.kept = own->absolute;
  if (private_cluster_start(&own->cluster, &members, &own->connection, err))
    return err->code;
  printf("coordinator %s\n", launcher_address(own->cluster.launcher));
  fflush(stdout);
  return 0;
}

static int sweep_begin(struct private_sweep *own, struct err *err) {
  if (own->file.run)
    return sweep_resume_extend(&own->connection, own->file.run, &own->growth, err);
  return submission_send(&own->sweep->submission, &own->connection, &own->file.run, err)
             ? (int)err->code
             : run_file_write(own->absolute, &own->file, err);
}

static int run(struct private_sweep *own, struct err *err) {
  if (sweep_begin(own, err))
    return err->code;
  printf("sweep       %s\n", own->file.run);
  fflush(stdout);
  sweep_follow(&own->connection, own->file.run, stdout, &own->info, err);
  if (err->code || sweep_write_trials(own->info, own->absolute, err) ||
      sweep_write_best(&own->connection, own->info, own->sweep, own->absolute, err))
    return err->code;
  printf("\n");
  sweep_print(stdout, own->info);
  if (!own->info->has_best)
    return err_set(err, ERR_INTERNAL, "sweep '%s' has ended, and no trial has a result", own->file.run);
  printf("files       %s/best.onnx\n            %s/best.yaml\n            %s/trials.jsonl\n", own->out,
         own->out, own->out);
  fflush(stdout);
  return 0;
}

static void private_fini(struct private_sweep *own, struct err *err) {
  private_cluster_stop(&own->cluster, err);
  if (err->code && stop_cause() == STOP_SIGNAL)
    err_set(err, ERR_CANCELLED, "interrupted; the same command with --out %s --resume goes on", own->out);
  message_free(own->info);
  connection_close(&own->connection);
  run_file_fini(&own->file);
  free(own->out);
  free(own->absolute);
  free(own->data_root);
}

int sweep_private_run(const struct args *args, const struct sweep_submission *sweep, struct err *err) {
  struct private_sweep own = {.args = args, .sweep = sweep};
  if (prepare(&own, err) == 0 && launch(&own, err) == 0)
    run(&own, err);
  private_fini(&own, err);
  return err->code;
}
