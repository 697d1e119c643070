/* What a model is for, guessed from its inputs and outputs: the loss that fits, and the kind of data. */
#ifndef WEIR_CLIENT_DRAFTS_TASK_H
#define WEIR_CLIENT_DRAFTS_TASK_H

#include "common/base/err.h"
#include "model/model.h"

enum task_data {
  TASK_IMAGES, /* one input f32[samples,1 or 3,height,width], a class each */
  TASK_TOKENS, /* one input i64[samples,tokens], scores of each next token */
  TASK_TABLE,  /* one input f32[samples,features], a class or a number each */
  TASK_ARRAYS, /* anything else */
};

struct task {
  enum task_data data;
  const char *summary; /* "classifies images" */
  char *loss;          /* a row of loss.def, or the output that is the loss */
  const char *note;    /* what the file cannot say of its loss; NULL: nothing */
  int64_t
      samples; /* of a microbatch: as many as fit into memory, few, and for which the model can be built */
  struct model *model; /* with that loss; its columns are the inputs in order, behind them the labels */
};

/* onnx: the file's bytes. Errors: those of graph_load_onnx, graph_infer and model_open. Released with
   task_fini, also after an error. */
int task_find(const void *onnx, size_t size_bytes, struct task *out, struct err *err);
void task_fini(struct task *task); /* safe on a zeroed one */

/* Input i of the model, as it is fed; i = model->n_columns: its labels, where the model has any. */
const struct value *task_input(const struct task *task, int i);

#endif
