/* weir init: a spec to begin with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/command.h"
#include "client/drafts/draft.h"
#include "client/files/output_file.h"
#include "common/base/memory.h"

/* NAME.yaml beside NAME.onnx; freed by the caller. */
static char *spec_path(const struct args *args) {
  const char *given = args_text(args, "output"), *model = args->arguments[0];
  const char *dot = strrchr(model, '.'), *slash = strrchr(model, '/');
  bool has_ending = dot && (!slash || dot > slash);
  return given ? mem_strdup(given)
               : mem_printf("%.*s.yaml", has_ending ? (int)(dot - model) : (int)strlen(model), model);
}

static void print_summary(const struct draft *draft, const char *path) {
  const struct data_guess *data = &draft->data;
  printf("%s: for a model that %s, with the loss %s\n", path, draft->task.summary, draft->task.loss);
  if (draft->task.note)
    printf("note      %s\n", draft->task.note);
  if (data->is_found)
    printf("data      %s\n", data->train);
  else
    printf("fill in   data: %s (now %s)\n", data->meaning, data->train);
  if (data->eval)
    printf("eval      %s\n", data->eval);
  if (data->doubt)
    printf("fill in   data: %s\n", data->doubt);
  data_guess_write_notes(data, stdout, "note      ");
  printf("then      weir train %s\n", path);
}

static int init_run(const struct args *args) {
  char *path = spec_path(args);
  const struct draft_request request = {
      .model = args->arguments[0], .data = args_text(args, "data"), .spec = path};
  struct draft draft = {0};
  struct err err = ERR_NONE;
  if (output_file_is(path, request.model))
    err_set(&err, ERR_EXISTS, "init: '%s' is the model itself: name another file with -o", path);
  else if (!args_flag(args, "force") && access(path, F_OK) == 0)
    err_set(&err, ERR_EXISTS, "init: '%s' exists: name another file with -o, or --force", path);
  if (!err.code && draft_make(&request, &draft, &err) == 0 &&
      output_file_save(path, draft.text, strlen(draft.text), &err) == 0)
    print_summary(&draft, path);
  draft_fini(&draft);
  free(path);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def init_options[] = {
    {"output", 'o', OPTION_TEXT, "SPEC.yaml", NULL, 0, 0,
     "The file to write. Default: FILE.yaml beside FILE.onnx."},
    {"data", 0, OPTION_TEXT, "DIR", NULL, 0, 0,
     "The folder of the data. What lies there by a usual name is put into the spec. Default: the spec's "
     "folder."},
    {"force", 0, OPTION_FLAG, NULL, NULL, 0, 0, "Replace the file if it exists."},
    {0},
};

const struct command_def command_init = {
    .name = "init",
    .summary = "write a spec for a model",
    .arguments = "FILE.onnx",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Writes a spec with comments, from which a run of the model can begin. The loss and the kind of data "
        "follow from the model's inputs and outputs. Data is looked for in the folder: train and val or "
        "test, "
        "with a folder of images for each class; MNIST's and CIFAR's files; train.csv; train.txt; train.bin, "
        "numbers of tokens; an array INPUT.npy for each input, and labels.npy. What is not found is marked "
        "FILL IN in the spec, and printed.\n\n"
        "The batch is 8 microbatches of at most 8 samples, fewer where an execution would need more than 1 "
        "GiB. The optimizer is AdamW with PyTorch's learning rate.",
    .options = init_options,
    .examples = "weir init cnn.onnx --data /srv/photos\n"
                "weir init cnn.onnx -o run.yaml\n"
                "weir train cnn.yaml\n",
    .run = init_run,
};
