/* Graphs with a forward and a backward part, for tests that execute them in more ways than one: train graphs
   of models, and graphs drawn by chance. What fails here ends the program. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_TRAIN_SUBJECT_H
#define WEIR_TESTS_SUPPORT_MODEL_TRAIN_SUBJECT_H

#include "client/models/model_kind.h"
#include "model/model.h"

enum { SUBJECT_WORDS_MAX = 14 };

/* A graph, and what is read of it: losses, statistics, gradients. */
struct subject {
  struct graph *graph;
  struct model *model; /* whose graph it is; NULL */
  int *watched, n_watched, watched_capacity;
};

/* A small model of a kind. */
struct subject_model {
  const char *name;
  const struct model_kind_def *kind;
  const char *options[SUBJECT_WORDS_MAX];
  bool is_small; /* weights and their gradients are most of its memory */
};

extern const struct subject_model subject_models[]; /* the last has no name */

/* Each fills the subject, which subject_fini() empties. */
void subject_of_model(struct subject *subject, const struct subject_model *row);
void subject_of_eval(struct subject *subject, const struct subject_model *row); /* it has no backward part */
/* x f32[steps,batch,in] -> two LSTMs, of which the second has two directions -> the last states' product. */
void subject_of_lstm(struct subject *subject);
/* Convolutions with norms at three sizes, and up again beside what each size had on the way down. */
void subject_of_unet(struct subject *subject);
/* Convolutions, norms, products, pools, dropout and elementwise nodes, some in place, and the gradients of
   all inputs. */
void subject_of_seed(struct subject *subject, uint64_t seed);
void subject_fini(struct subject *subject);

/* Dense bytes for each of the graph's inputs: reals in [-1, 1), and whole numbers below 4, which is less than
   any number of classes, rows and tokens here. */
void *const *subject_inputs_new(const struct graph *graph, uint64_t seed);
void subject_inputs_free(const struct graph *graph, void *const *inputs);

/* weights[n_values] as a backend's run takes them: a model's parameters, each times `factor`; else none. */
float **subject_weights_new(const struct subject *subject, float factor);
void subject_weights_free(const struct subject *subject, float **weights);

#endif
