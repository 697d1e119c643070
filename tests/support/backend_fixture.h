/* Small networks with their losses and gradients, executed on a backend, for the tests of backends. */
#ifndef WEIR_TESTS_SUPPORT_BACKEND_FIXTURE_H
#define WEIR_TESTS_SUPPORT_BACKEND_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "model/losses/loss.h"
#include "worker/backend/plugin.h"

enum { BATCH = 6, CLASSES = 10, WEIGHTS_MAX = 16, WATCHED_MAX = WEIGHTS_MAX + 4 };

/* A graph, its inputs, and what is watched: first the loss, then the gradients of the weights. */
struct fixture {
  struct graph *graph;
  int weights[WEIGHTS_MAX], n_weights;
  int watched[WATCHED_MAX], n_watched;
  float *images;
  int64_t labels[BATCH];
  const void *inputs[2];
};

struct answer {
  const struct fixture *fixture;
  float *values[WATCHED_MAX];
  int order[WATCHED_MAX * 2], n;
};

int add_weight(struct fixture *f, struct shape shape, float scale);

int add_node(struct fixture *f, const char *op, const int *inputs, int n_inputs, const struct attr *attrs,
             int n_attrs);

int add_conv(struct fixture *f, int x, int64_t in, int64_t out, int64_t kernel, int64_t group);

int add_max_pool(struct fixture *f, int x);

int add_gemm(struct fixture *f, int x, int64_t in, int64_t out);

/* Over both spatial dimensions, which it drops. */
int add_mean(struct fixture *f, int x);

/* Loss, and the gradients of everything in weights. */
void add_backward(struct fixture *f, int logits);

void network_feed(struct fixture *f, const struct shape *images);

/* conv-bn-relu-pool, grouped conv-relu with a skip, then pool-flatten-gemm beside mean-gemm, relu-gemm, cross
   entropy, backward. */
void network_init(struct fixture *f);

void network_fini(struct fixture *f);

size_t watched_bytes(const struct fixture *f, int watch);

void answer_init(struct answer *a, const struct fixture *f);

void answer_fini(struct answer *a);

void keep_value(void *user, int watch, const float *data);

const struct backend_def *backend_of(const char *name);

struct backend_program *network_prepare_with(const char *backend, const struct fixture *f,
                                             const struct backend_options *options);

struct backend_program *network_prepare(const char *backend, const struct fixture *f);

void network_run(const char *backend, struct backend_program *program, const struct fixture *f,
                 const float *const *weights, uint64_t version, struct answer *a);

void network_run_once(const char *backend, const struct fixture *f, struct answer *a);

bool answer_is_same(const struct answer *a, const struct answer *b);

/* Within `tolerance` of the norm of each value. */
void answer_check_near(const struct answer *a, const struct answer *expected, double tolerance);

#endif
