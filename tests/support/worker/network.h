/* A small network with its loss and its gradients, executed on a backend by name ("ref", "cpu", "cuda"),
   for tests that compare backends: network_init(&f); network_run_once("cpu", &f, &a);
   answer_check_near(&a, &expected, 1e-5); answer_fini(&a). What fails here fails the test. add_... build
   other networks. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_NETWORK_H
#define WEIR_TESTS_SUPPORT_WORKER_NETWORK_H

#include "worker/backend/backend.h"

enum { BATCH = 6, CLASSES = 10, WEIGHTS_MAX = 16, WATCHED_MAX = WEIGHTS_MAX + 4 };

/* A graph, its inputs (images, labels i64[BATCH]), and the indices of its values that are weights and that
   are watched: first the loss, then the gradients of the weights in their order. */
struct network {
  struct graph *graph;
  int weights[WEIGHTS_MAX], n_weights;
  int watched[WATCHED_MAX], n_watched;
  float *images;
  int64_t labels[BATCH];
  const void *inputs[2];
};

/* What an execution gave: each watched value, dense f32, and in what order they came. */
struct answer {
  const struct network *network;
  float *values[WATCHED_MAX];
  int order[WATCHED_MAX * 2], n;
};

/* These add to f->graph and return the index of the value that they made; x is the index of the value that
   they read. The same calls make the same weights. add_weight(): an f32 initializer with random elements
   in [-scale, scale), which is listed in weights. */
int add_weight(struct network *f, struct shape shape, float scale);

/* A node with one output. Lists are copied. */
int add_node(struct network *f, const char *op, struct value_list inputs, struct attr_list attrs);

/* x f32[N,in,H,W] -> f32[N,out,H,W], with a bias, kernels of 3 x 3 and pads of 1. */
int add_conv(struct network *f, int x, int64_t in, int64_t out, int64_t group);

/* x f32[N,channels,...] -> the same, by the batch's own statistics. */
int add_batch_norm(struct network *f, int x, int64_t channels);

/* Windows of 2 x 2, side by side. */
int add_max_pool(struct network *f, int x);

/* x f32[N,in] -> f32[N,out], with a bias. */
int add_gemm(struct network *f, int x, int64_t in, int64_t out);

/* x f32[N,C,H,W] -> f32[N,C]. */
int add_mean(struct network *f, int x);

/* Cross entropy of logits f32[BATCH,CLASSES], the gradients of all weights, and both in `watched`. Once,
   after the forward nodes. */
void add_backward(struct network *f, int logits);

/* The same where the network has its loss already: the value of that index. */
void add_gradients(struct network *f, int loss_sum);

/* Sets the inputs: random images f32 of this shape in [-1, 1), and labels of all kinds. */
void network_feed(struct network *f, const struct shape *images);

/* conv-bn-relu-pool, grouped conv-relu with a skip, then pool-flatten-gemm beside mean-gemm, relu-gemm, cross
   entropy, backward. */
void network_init(struct network *f);

/* Weights of several megabytes each, so that a program is cut: flatten, gemm-tanh five times, gemm; what goes
   into each tanh is watched, too. Smooth, so that what rounding does is in proportion. */
void network_init_wide(struct network *f);

/* Frees the graph, with all that lies in it. */
void network_fini(struct network *f);

/* Bytes of watched value number `watch`. */
size_t watched_bytes(const struct network *f, int watch);

/* Room for the values of every execution of f, which outlives the answer. */
void answer_init(struct answer *a, const struct network *f);
void answer_fini(struct answer *a);

/* An on_value for backend_run, whose user is an answer. */
void keep_value(void *user, int watch, const float *data);

/* The backend, which must be there, in its plugin too. */
const struct backend_def *backend_of(const char *name);

/* The program, which the caller releases with backend_of(backend)->release(). options NULL: the default,
   as network_prepare() does. */
struct backend_program *network_prepare_with(const char *backend, const struct network *f,
                                             const struct backend_options *options);
struct backend_program *network_prepare(const char *backend, const struct network *f);

/* Executes a program of a's network once, into a, which answer_init() made. weights, version: as in struct
   backend_run. */
void network_run(const char *backend, struct backend_program *program, const float *const *weights,
                 uint64_t version, struct answer *a);

/* Prepares, makes the answer (answer_fini() is the caller's), executes and releases. */
void network_run_once(const char *backend, const struct network *f, struct answer *a);

/* Whether all watched values have the same bits. */
bool answer_is_same(const struct answer *a, const struct answer *b);

/* Asserts that the error of each watched value has at most `tolerance` times the norm of what is expected. */
void answer_check_near(const struct answer *a, const struct answer *expected, double tolerance);

#endif
