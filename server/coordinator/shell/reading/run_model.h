/* The model of a run, as the coordinator has it in memory: the ONNX file, and what members get of it. Any
   thread; nothing changes once it is made. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_READING_RUN_MODEL_H
#define WEIR_SERVER_COORDINATOR_SHELL_READING_RUN_MODEL_H

#include "common/base/memory.h"
#include "model/graph/pieces.h"
#include "model/onnx/onnx_outline.h"

struct run_model {
  uint32_t refs;          /* atomic */
  struct buffer *file;    /* as submitted */
  struct buffer *outline; /* what members get: without large tensors. The file where there are none */
  char outline_sha256[SHA256_HEX_SIZE]; /* "" where it is the file */
  struct onnx_outline pieces; /* where pieces lie in the file; and those that it names, which the store has */
};

/* Hashes the file's large tensors: on a thread that may take long. file is taken. */
struct run_model *run_model_new(struct buffer *file);
struct run_model *run_model_get(struct run_model *model);
void run_model_put(struct run_model *model); /* NULL is ignored */

/* A struct piece_source's read; user is the run_model. Errors: NOT_FOUND naming the piece. */
int run_model_read(void *user, const struct piece_read *reads, int n, struct err *err);

#endif
