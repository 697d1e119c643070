/* Functional analysis of variance on a random forest. */
#include "client/sweeps/importance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/sweep/draw.h"

enum { DEPTH_MAX = 64 };

/* What is not active lies at ABSENT, within [-1, 0). */
#define ABSENT (-0.5)

/* A tree, as the boxes of its leaves. */
struct tree {
  const struct importance_data *data;
  double *low, *high;   /* f64[d]: of the box that is being cut */
  double *lows, *highs; /* f64[n_leaves, d] */
  double *values;       /* f64[n_leaves] */
  int n_leaves;
};

/* A sample as one dimension sees it. */
struct place {
  double x, y;
};

struct split {
  int dimension; /* -1: there is none */
  double at, gain;
};

static double place_of(const struct importance_data *data, int sample, int dimension) {
  double x = data->x[sample * data->d + dimension];
  return x >= 0 ? x : ABSENT;
}

static int compare_places(const void *a, const void *b) {
  const struct place *left = a, *right = b;
  return left->x < right->x ? -1 : left->x > right->x;
}

/* The cut of one dimension that leaves the least squared error on both sides. */
static void try_dimension(struct place *places, int n, int dimension, struct split *best) {
  double sum = 0, left = 0;
  qsort(places, (size_t)n, sizeof *places, compare_places);
  for (int i = 0; i < n; i++)
    sum += places[i].y;
  for (int i = 1; i < n; i++) {
    double before = places[i - 1].x, after = places[i].x, gain;
    left += places[i - 1].y;
    if (!(before < after))
      continue;
    gain = left * left / i + (sum - left) * (sum - left) / (n - i) - sum * sum / n;
    if (gain > best->gain)
      *best = (struct split){dimension, before < 0 ? 0 : (before + after) / 2, gain};
  }
}

static struct split find_split(const struct tree *tree, const int *samples, int n) {
  const struct importance_data *data = tree->data;
  struct split best = {.dimension = -1, .gain = 1e-12};
  struct place *places = mem_new((size_t)n * sizeof *places + 1);
  for (int d = 0; d < data->d; d++) {
    for (int i = 0; i < n; i++)
      places[i] = (struct place){place_of(data, samples[i], d), data->y[samples[i]]};
    try_dimension(places, n, d, &best);
  }
  free(places);
  return best;
}

static void add_leaf(struct tree *tree, const int *samples, int n) {
  size_t d = (size_t)tree->data->d, at = (size_t)tree->n_leaves * d;
  double sum = 0;
  for (int i = 0; i < n; i++)
    sum += tree->data->y[samples[i]];
  memcpy(tree->lows + at, tree->low, d * sizeof *tree->low);
  memcpy(tree->highs + at, tree->high, d * sizeof *tree->high);
  tree->values[tree->n_leaves++] = sum / n;
}

static void grow(struct tree *tree, int *samples, int n, int depth) {
  struct split split = {.dimension = -1};
  int n_left = 0;
  double kept;
  if (n > 1 && depth < DEPTH_MAX)
    split = find_split(tree, samples, n);
  if (split.dimension < 0) {
    add_leaf(tree, samples, n);
    return;
  }
  for (int i = 0; i < n; i++)
    if (place_of(tree->data, samples[i], split.dimension) < split.at) {
      int sample = samples[i];
      samples[i] = samples[n_left];
      samples[n_left++] = sample;
    }
  kept = tree->high[split.dimension];
  tree->high[split.dimension] = split.at;
  grow(tree, samples, n_left, depth + 1);
  tree->high[split.dimension] = kept;
  kept = tree->low[split.dimension];
  tree->low[split.dimension] = split.at;
  grow(tree, samples + n_left, n - n_left, depth + 1);
  tree->low[split.dimension] = kept;
}

/* How much of a dimension lies between: what is not active in [-1, 0), the rest uniform in [0, 1). */
static double mass_between(const struct importance_data *data, int dimension, double low, double high) {
  double absent = data->absent[dimension];
  return absent * (fmin(high, 0) - fmin(low, 0)) + (1 - absent) * (fmax(high, 0) - fmax(low, 0));
}

/* A leaf's edge in one dimension, and by how much the marginal changes there. */
struct edge {
  double x, change;
};

static int compare_edges(const void *a, const void *b) {
  const struct edge *left = a, *right = b;
  return left->x < right->x ? -1 : left->x > right->x;
}

static void add_marginal(struct importance *out, double low, double high, double value) {
  double begin = fmax(low, 0) * IMPORTANCE_BUCKETS, end = high * IMPORTANCE_BUCKETS;
  for (int b = (int)begin; b < IMPORTANCE_BUCKETS && b < end; b++)
    out->marginal[b] += value * (fmin(end, b + 1) - fmax(begin, b));
}

/* The variance of the tree's marginal; its buckets are added to out. shares: f64[n_leaves], of the space. */
static double marginal_variance(const struct tree *tree, const double *shares, double mean, int dimension,
                                struct importance *out) {
  const struct importance_data *data = tree->data;
  struct edge *edges = mem_new((size_t)tree->n_leaves * 2 * sizeof *edges);
  double value = 0, variance = 0;
  int n = 0;
  for (int i = 0; i < tree->n_leaves; i++) {
    double low = tree->lows[i * data->d + dimension], high = tree->highs[i * data->d + dimension];
    double own = mass_between(data, dimension, low, high);
    double change = own > 0 ? tree->values[i] * shares[i] / own : 0;
    edges[n++] = (struct edge){low, change};
    edges[n++] = (struct edge){high, -change};
  }
  qsort(edges, (size_t)n, sizeof *edges, compare_edges);
  for (int i = 0; i + 1 < n; i++) {
    value += edges[i].change;
    variance += mass_between(data, dimension, edges[i].x, edges[i + 1].x) * (value - mean) * (value - mean);
    if (edges[i + 1].x > 0)
      add_marginal(out, edges[i].x, edges[i + 1].x, value / IMPORTANCE_TREES);
  }
  free(edges);
  return variance;
}

static void add_tree(const struct tree *tree, struct importance *out) {
  const struct importance_data *data = tree->data;
  double *shares = mem_new((size_t)tree->n_leaves * sizeof *shares);
  double mean = 0, variance = 0;
  for (int i = 0; i < tree->n_leaves; i++) {
    shares[i] = 1;
    for (int d = 0; d < data->d; d++)
      shares[i] *= mass_between(data, d, tree->lows[i * data->d + d], tree->highs[i * data->d + d]);
    mean += shares[i] * tree->values[i];
  }
  for (int i = 0; i < tree->n_leaves; i++)
    variance += shares[i] * (tree->values[i] - mean) * (tree->values[i] - mean);
  for (int d = 0; d < data->d; d++) {
    double own = marginal_variance(tree, shares, mean, d, &out[d]);
    out[d].share += variance > 0 ? own / variance / IMPORTANCE_TREES : 0;
  }
  free(shares);
}

/* Of as many samples as there are, drawn with replacement. */
static void tree_grow(struct tree *tree, int number) {
  const struct importance_data *data = tree->data;
  struct draw draw = draw_begin(0, (uint64_t)number, 0);
  int *samples = mem_new((size_t)data->n * sizeof *samples);
  for (int i = 0; i < data->n; i++)
    samples[i] = (int)draw_below(&draw, (uint32_t)data->n);
  for (int d = 0; d < data->d; d++) {
    tree->low[d] = -1;
    tree->high[d] = 1;
  }
  tree->n_leaves = 0;
  grow(tree, samples, data->n, 0);
  free(samples);
}

void importance_find(const struct importance_data *data, struct importance *out) {
  size_t n = (size_t)data->n, d = (size_t)data->d;
  struct tree tree = {.data = data,
                      .low = mem_new(d * sizeof(double) + 1),
                      .high = mem_new(d * sizeof(double) + 1),
                      .lows = mem_new(n * d * sizeof(double) + 1),
                      .highs = mem_new(n * d * sizeof(double) + 1),
                      .values = mem_new(n * sizeof(double) + 1)};
  CHECK(data->n > 0 && data->n <= IMPORTANCE_SAMPLES_MAX);
  for (size_t i = 0; i < d; i++)
    out[i] = (struct importance){0};
  for (int t = 0; t < IMPORTANCE_TREES; t++) {
    tree_grow(&tree, t);
    add_tree(&tree, out);
  }
  free(tree.low);
  free(tree.high);
  free(tree.lows);
  free(tree.highs);
  free(tree.values);
}
