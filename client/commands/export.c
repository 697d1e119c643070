/* weir export: a run's weights as a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/download.h"
#include "client/cluster/stored.h"
#include "client/cluster/weights_sources.h"
#include "client/command.h"
#include "client/files/export.h"
#include "common/base/message.h"
#include "training.pb-c.h"

enum { APART_BYTES_MAX = 1 }; /* no file is as small: all its tensors lie beside it */

typedef int export_fn(const struct export_source *source, const char *path, struct err *err);

static export_fn *find_format(const struct args *args, const char *path, struct err *err) {
  const char *dot = path ? strrchr(path, '.') : NULL;
  if (!path)
    err_set(err, ERR_INVALID, "export: name the file to write with -o FILE.onnx or -o FILE.safetensors");
  else if (dot && strcmp(dot, ".onnx") == 0)
    return export_onnx;
  else if (dot && strcmp(dot, ".safetensors") == 0 && args_flag(args, "external-data"))
    err_set(err, ERR_INVALID, "export: --external-data is for .onnx, not for '%s'", path);
  else if (dot && strcmp(dot, ".safetensors") == 0)
    return export_safetensors;
  else
    err_set(err, ERR_INVALID, "export: '%s' ends neither in .onnx nor in .safetensors", path);
  return NULL;
}

/* Writes it, and closes the weights. */
static int export_from(const struct args *args, struct export_source *source, export_fn *write,
                       struct err *err) {
  source->bytes_max = args_flag(args, "external-data") ? APART_BYTES_MAX : 0;
  write(source, args_text(args, "output"), err);
  source->weights.close(source->weights.user);
  return err->code;
}

static int export_asked(const struct args *args, export_fn *write, struct err *err) {
  struct connection connection = {0};
  Weir__WeightsRequest wanted;
  struct download_export export = {.write = write,
                                   .path = args_text(args, "output"),
                                   .bytes_max = args_flag(args, "external-data") ? APART_BYTES_MAX : 0};
  stored_wanted(args, &wanted);
  wanted.run = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &args->security, err) == 0)
    download_export(&connection, &wanted, &export, err);
  connection_close(&connection);
  return err->code;
}

static int export_stored(const struct args *args, struct store *store, export_fn *write, struct err *err) {
  struct stored_run run;
  struct buffer *onnx = NULL;
  struct export_source source = {0};
  Weir__Manifest *manifest;
  Weir__WeightsRequest wanted;
  stored_wanted(args, &wanted);
  if (stored_run_open(store, args->arguments[0], &run, err) ||
      (wanted.average && checkpoint_check_average(run.record->run, run.record->spec, err)) ||
      checkpoint_blob(store, run.record->model_sha256, &onnx, err))
    goto out;
  source.model =
      (struct submitted_model){onnx->data, onnx->size_bytes, run.record->spec, {piece_stored_read, store}};
  if (wanted.step == 0)
    wanted.step = run.record->parent_step;
  if (wanted.has_step && wanted.step == 0)
    weights_from_file(&source.model, &source.weights, NULL, err);
  else if (stored_manifest(&run, wanted.has_step ? &wanted.step : NULL, &manifest, err) == 0)
    weights_from_store(store, manifest, wanted.average, &source.weights, err);
  if (!err->code)
    export_from(args, &source, write, err);
out:
  buffer_put(onnx);
  stored_run_fini(&run);
  return err->code;
}

static int export_run(const struct args *args) {
  struct err err = ERR_NONE;
  struct store *store = NULL;
  const char *path = args_text(args, "output");
  export_fn *write = find_format(args, path, &err);
  if (!write || stored_open(args, &store, &err))
    return command_fail(&err);
  if (store)
    export_stored(args, store, write, &err);
  else
    export_asked(args, write, &err);
  store_close(store);
  if (err.code)
    return command_fail(&err);
  printf("%s\n", path);
  return EXIT_DONE;
}

static const struct option_def export_options[] = {
    WEIGHTS_STEP_OPTION,
    {.name = "average",
     .kind = OPTION_FLAG,
     .help =
         "the moving average of the weights in their place (the spec's train.average). Running statistics "
         "are the checkpoint's."},
    {.name = "external-data",
     .kind = OPTION_FLAG,
     .help =
         "Tensors of 1 KiB and more in FILE.onnx.data also below 2 GiB: a runtime maps them as they are."},
    {"output", 'o', OPTION_TEXT, "FILE", NULL, 0, 0, "The file to write; .onnx or .safetensors. Required."},
    STORED_OPTION,
    {0},
};

const struct command_def command_export = {
    .name = "export",
    .summary = "write the weights of a run's checkpoint to a file",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Writes the weights of a checkpoint of RUN, by default of the newest: those that it ended with when "
        "it is done. FILE.onnx is the submitted model in inference "
        "form: its "
        "trained initializers and running statistics replaced, batch norm on the latter and dropout gone. "
        "Above 2 GiB, which no ONNX file can hold, its tensors lie in FILE.onnx.data beside it. "
        "FILE.safetensors holds every tensor that training changed, under its name in the model.\n\n"
        "RUN is the run's id, a unique prefix of it, or a name, which means the newest run of that name.",
    .options = export_options,
    .examples = "weir export fashion-mnist -o model.onnx\n"
                "weir export fashion-mnist-3fa9c1 --step 500 -o model.safetensors\n",
    .run = export_run,
};
