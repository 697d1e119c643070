/* The model of a run, as every process of it understands it: train and eval graph, trained parameters,
   running statistics, and the blocks that all of them are cut into. A pure function of the ONNX file and the
   spec. */
#ifndef WEIR_MODEL_MODEL_H
#define WEIR_MODEL_MODEL_H

#include "common/agree/placement.h"
#include "model/graph/graph.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "spec.pb-c.h"

enum { MODEL_INPUTS_MAX = 16 }; /* fed values of a graph, labels and scale included */

/* A trained initializer. The flat parameter vector is all of them in the model's initializer order. */
struct param {
  const char *name;
  struct shape shape;
  uint64_t begin, elems; /* in the flat parameter vector */
  uint32_t group;        /* 1 + the index in train.optimizer.groups; 0: in none */
  const int64_t
      *frozen_rows; /* [n_frozen_rows] of the first dimension, ascending: training leaves them alone */
  uint32_t n_frozen_rows;
  int train_value; /* in the train graph: the initializer */
  int eval_value;  /* in the eval graph; -1 if it does not appear there */
  int grad;        /* in the train graph: its gradient, complete when that value's producer has run */
};

/* A running statistic of training-mode batch norm, behind the columns of a row that metric.h names: running =
   running * momentum + batch * (1 - momentum), one update a microbatch, in order (ONNX
   BatchNormalization-14). */
struct statistic {
  const char *name; /* of the initializer */
  struct shape shape;
  uint64_t begin, elems; /* in the statistics row: begin >= METRICS */
  float momentum;
  const float *initial; /* f32[elems] */
  int batch_value;      /* in the train graph: this microbatch's statistic */
  int eval_value;       /* in the eval graph: the initializer */
};

enum block_kind { BLOCK_PARAMETERS, BLOCK_KEPT, BLOCK_STATISTICS };

/* A contiguous range of the flat parameter vector or of the statistics row, at most BLOCK_ELEMS_MAX elements:
   a piece of one tensor, or several small neighbours of one group whole. Or, where replicas hand on what
   their optimizer keeps, one value of each weight of a parameter block, from the vector of all such values.
 */
struct block {
  enum block_kind kind;
  uint64_t begin;
  uint32_t elems;
  uint32_t group;           /* of its parameters */
  uint32_t kept_of, kept_n; /* of BLOCK_KEPT: the parameter block, and which of its weights' values */
};

/* f32s of what workers push of the block for a step: as many as it has; where they take several between two
   versions, the block with the metrics has those of each behind that. inner_steps: so many; 0: one. */
uint32_t block_part_elems(const struct block *block, uint32_t inner_steps);

struct model {
  struct graph *train; /* forward, loss and backward of one microbatch */
  struct graph *eval;  /* forward and loss in inference form, same batch */
  int n_columns;       /* inputs of both graphs: the model's so many, the labels if it has them, and of the */
  bool has_labels;     /* train graph the scale f32[]: 1 / the step's denominator */
  bool mixes_labels; /* the train graph's labels are f32[samples,classes], which transforms mix from those */
  struct label_rule labels; /* of the data, which are those of the eval graph */
  struct param *params;
  int n_params;
  struct statistic *statistics;
  int n_statistics;
  struct block *blocks; /* parameter blocks in order, then what is kept for each, in order, then statistics
                           blocks (at least one) */
  uint32_t n_blocks, n_param_blocks;
  uint32_t n_summed_blocks; /* but the statistics: blocks[n_summed_blocks] begins with the metrics */
  uint64_t kept_elems;      /* length of the vector of what is kept */
  uint64_t param_elems;     /* length of the flat parameter vector */
  uint64_t row_elems;       /* length of a statistics row and of the statistics state */
  struct value output;      /* that the loss is of; both graphs lack it where the loss took its layer in */
  struct loss_values train_loss, eval_loss;
  struct metric_set metrics;  /* that evaluations are asked for */
  int eval_output;            /* in the eval graph: what metrics read; -1: nothing */
  const char **input_columns; /* [n_columns] dataset column of each; "": not said by the spec, the dataset's
                                 first column that is not the labels */
  const char *label_column;   /* "": the dataset's column "labels" */
  int n_initializers;         /* of the ONNX file, in order: what weights_sha256 walks */
  struct initializer {
    const char *name;
    int param, statistic; /* index or -1 */
  } * initializers;
};

/* What a model is made of. */
struct model_source {
  const void *onnx; /* the file */
  size_t size_bytes;
  const Weir__RunSpec *spec; /* NULL, for a look at a file (inspect): cross_entropy when its output allows,
                                else the output's sum; nothing frozen */
  int64_t samples;           /* of a microbatch: the batch of one execution */
};

/* Errors: those of graph_load_onnx and graph_infer; INVALID for a loss, its options, an input, label, frozen
   pattern or group that does not fit the model; nothing trainable; a spec without model.inputs for a model
   that needs several columns. */
int model_open(const struct model_source *source, struct model **out, struct err *err);
void model_close(struct model *model); /* NULL is ignored */

/* Bytes that a worker needs, estimated before anything is allocated. Of models of more than some megabytes,
   what a program takes is within a factor of two of activations and kept weights together. */
struct model_memory {
  uint64_t train_bytes, eval_bytes; /* activations of one execution, as dense tensors */
  uint64_t kept_bytes;              /* weights that a program keeps in layouts of its own */
  uint64_t weights_bytes;           /* parameters and all other initializers, once */
  uint64_t file_bytes;              /* of these, what the model itself holds of its file, or will */
  uint64_t gradients_bytes;         /* once */
};
void model_memory(const struct model *model, struct model_memory *out);

/* Multiply-adds of a sample, forward: a whole number, at least 1. samples: of a microbatch, as it was opened.
 */
uint64_t model_multiply_adds(const struct model *model, int64_t samples);

/* The initial flat parameter vector (f32[elems of block]) or statistics state of one block, from the file.
   Zeros where the file has it in pieces, and of what is kept. */
void model_initial_block(const struct model *model, uint32_t block, float *out);
/* The block as a piece of a tensor that the file has in pieces: it is one as a whole. NULL pieces: it is not.
 */
struct block_piece {
  const struct pieces *pieces;
  uint32_t piece;
  const struct param *param;
};
struct block_piece model_block_piece(const struct model *model, uint32_t block);
/* Errors: INVALID naming the parameter and the first element of data[elems] that is not finite; begin: of
   data in the parameter. */
int model_check_finite(const char *name, const float *data, uint64_t begin, uint64_t elems, struct err *err);
/* Reads all parameters that the file has in pieces. Errors: as above, and those of source. */
int model_initial_check(const struct model *model, const struct piece_source *source, struct err *err);

/* SHA-256 over the little-endian bytes of every f32 initializer that training changes, in initializer order.
   params f32[param_elems], state f32[row_elems]. */
void model_weights_sha256(const struct model *model, const float *params, const float *state, char hex[65]);
/* The same of parameters that come bit by bit, in the order of the flat vector. state f32[row_elems] outlives
 * it. */
struct weights_hash;
struct weights_hash *weights_hash_new(const struct model *model, const float *state);
void weights_hash_add(struct weights_hash *hash, const float *params, uint64_t elems);
void weights_hash_finish(struct weights_hash *hash, char hex[65]); /* after all param_elems; frees it */
void weights_hash_free(struct weights_hash *hash);                 /* unfinished; NULL is ignored */
/* The same of the file's values. source: of those in pieces; may be NULL where there are none. Errors: its.
 */
int model_initial_sha256(const struct model *model, const struct piece_source *source, char hex[65],
                         struct err *err);

#endif
