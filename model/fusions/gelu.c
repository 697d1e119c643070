/* Gelu, as exporters write it before opset 20: x * 0.5 * (1 + erf(x / sqrt(2))), or with its approximation
   x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))). */
#include <math.h>

#include "model/fusions/fuse.h"

enum { FACTORS_MAX = 8, DEPTH_MAX = 8 };

/* A product taken apart: a number times values. */
struct product {
  double number;
  int values[FACTORS_MAX], n;
};

/* Adds the factors of `value`; products, quotients by numbers and whole powers of one reader are opened. What
   is too large or too deep for the pattern gets a number that nothing is equal to. */
static void product_open(const struct fuse *fuse, int value, int depth, struct product *product) {
  const struct node *node;
  double number;
  if (depth == DEPTH_MAX) {
    product->number = NAN;
  } else if (fuse_scalar(fuse, value, &number)) {
    product->number *= number;
  } else if ((node = fuse_sole_producer(fuse, value, "Mul")) && product->n + 2 <= FACTORS_MAX) {
    product_open(fuse, node->inputs[0], depth + 1, product);
    product_open(fuse, node->inputs[1], depth + 1, product);
  } else if ((node = fuse_sole_producer(fuse, value, "Div")) && fuse_scalar(fuse, node->inputs[1], &number) &&
             number != 0) {
    product->number /= number;
    product_open(fuse, node->inputs[0], depth + 1, product);
  } else if ((node = fuse_sole_producer(fuse, value, "Pow")) && fuse_scalar(fuse, node->inputs[1], &number) &&
             (number == 2 || number == 3)) {
    for (int i = 0; i < (int)number; i++)
      product_open(fuse, node->inputs[0], depth + 1, product);
  } else if (product->n < FACTORS_MAX) {
    product->values[product->n++] = value;
  } else {
    product->number = NAN;
  }
}

/* number * x^power */
static bool is_power(const struct product *product, double number, int x, int power) {
  if (product->n != power || !fuse_is_near(product->number, number))
    return false;
  for (int i = 0; i < product->n; i++)
    if (product->values[i] != x)
      return false;
  return true;
}

static bool is_multiple(const struct fuse *fuse, int value, double number, int x, int power) {
  struct product product = {.number = 1};
  product_open(fuse, value, 0, &product);
  return is_power(&product, number, x, power);
}

/* Of a sum of a number and a value: the value, if the number is as expected; else -1. */
static int added_to(const struct fuse *fuse, int value, double expected) {
  const struct node *sum = fuse_sole_producer(fuse, value, "Add");
  double number;
  for (int i = 0; sum && i < 2; i++)
    if (fuse_scalar(fuse, sum->inputs[i], &number) && fuse_is_near(number, expected))
      return sum->inputs[!i];
  return -1;
}

/* sqrt(2 / pi) * (x + 0.044715 * x^3) */
static bool is_tanh_argument(const struct fuse *fuse, int value, int x) {
  struct product product = {.number = 1};
  const struct node *sum;
  product_open(fuse, value, 0, &product);
  if (product.n != 1 || !fuse_is_near(product.number, sqrt(2 / M_PI)))
    return false;
  sum = fuse_sole_producer(fuse, product.values[0], "Add");
  for (int i = 0; sum && i < 2; i++)
    if (sum->inputs[i] == x && is_multiple(fuse, sum->inputs[!i], 0.044715, x, 3))
      return true;
  return false;
}

/* "none" or "tanh" if the value is 1 + erf or 1 + tanh of what belongs to x; else NULL. */
static const char *match_gate(const struct fuse *fuse, int value, int x) {
  int curve = added_to(fuse, value, 1);
  const struct node *node = fuse_sole_producer(fuse, curve, "Erf");
  if (node && is_multiple(fuse, node->inputs[0], sqrt(0.5), x, 1))
    return "none";
  node = fuse_sole_producer(fuse, curve, "Tanh");
  return node && is_tanh_argument(fuse, node->inputs[0], x) ? "tanh" : NULL;
}

static bool gelu_apply(struct fuse *fuse, struct node *node) {
  struct product product = {.number = 1};
  product_open(fuse, node->inputs[0], 0, &product);
  product_open(fuse, node->inputs[1], 0, &product);
  if (product.n != 2 || !fuse_is_near(product.number, 0.5))
    return false;
  for (int i = 0; i < 2; i++) {
    int x = product.values[i];
    const char *approximate = match_gate(fuse, product.values[!i], x);
    struct attr attr = {.name = "approximate", .type = ATTR_STRING, .s = approximate};
    if (!approximate)
      continue;
    fuse_become(fuse, node, "Gelu", VALUES(x), ATTR_LIST(attr));
    return true;
  }
  return false;
}

const struct fusion_def fusion_gelu = {"gelu", "Mul", gelu_apply};
