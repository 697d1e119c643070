/* weir export: a run's weights as a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/download.h"
#include "client/export.h"
#include "common/spec.h"
#include "training.pb-c.h"

typedef int export_fn(const void *onnx, size_t onnx_size, const Weir__RunSpec *spec, const float *params,
                      uint64_t n_params, const float *state, uint64_t n_state, const char *path,
                      struct err *err);

static export_fn *find_format(const char *path, struct err *err) {
  const char *dot = path ? strrchr(path, '.') : NULL;
  if (!path)
    err_set(err, ERR_INVALID, "export: name the file to write with -o FILE.onnx or -o FILE.safetensors");
  else if (dot && strcmp(dot, ".onnx") == 0)
    return export_onnx;
  else if (dot && strcmp(dot, ".safetensors") == 0)
    return export_safetensors;
  else
    err_set(err, ERR_INVALID, "export: '%s' ends neither in .onnx nor in .safetensors", path);
  return NULL;
}

static int fetch_and_write(struct connection *connection, const char *run, export_fn *write, const char *path,
                           struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct weights weights = {0};
  void *reply = NULL, *model = NULL;
  const Weir__RunInfo *info;
  size_t model_size;
  request.run = (char *)run;
  if (connection_call(connection, RPC_GET_RUN, &request, &reply, err))
    return err->code;
  info = reply;
  if (!info->spec) {
    err_set(err, ERR_INTERNAL, "the coordinator did not send the spec of run %s", info->run);
    goto out;
  }
  if (download_model(connection, info->run, &model, &model_size, err) ||
      download_weights(connection, info->run, info->parameters, &weights, err))
    goto out;
  write(model, model_size, info->spec, weights.params, weights.n_params, weights.state, weights.n_state, path,
        err);
out:
  weights_fini(&weights);
  free(model);
  protobuf_c_message_free_unpacked(reply, NULL);
  return err->code;
}

static int export_run(const struct args *args) {
  struct err err = ERR_NONE;
  struct connection connection = {0};
  const char *path = args_text(args, "output");
  export_fn *write = find_format(path, &err);
  if (!write || connection_open(&connection, args->coordinator, &err))
    return command_fail(&err);
  if (fetch_and_write(&connection, args->arguments[0], write, path, &err) == 0)
    printf("%s\n", path);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def export_options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", NULL, 0, 0, "The file to write; .onnx or .safetensors. Required."},
    {0},
};

const struct command_def command_export = {
    .name = "export",
    .summary = "write a run's trained weights to a file",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Writes the weights that a finished run ended with. FILE.onnx is the submitted model in inference "
        "form: its "
        "trained initializers and running statistics replaced, batch norm on the latter and dropout gone. "
        "FILE.safetensors holds every tensor that training changed, under its name in the model.\n\n"
        "RUN is the run's id or a unique prefix of it.",
    .options = export_options,
    .examples = "weir export fashion-mnist -o model.onnx\n"
                "weir export fashion-mnist-3fa9c1 -o model.safetensors\n",
    .run = export_run,
};
