/* dlrm (Naumov et al., 2019): a recommender. An MLP of the dense features and an embedding of each sparse one
   are multiplied pairwise, and another MLP tells one logit from the products; the names of the authors'
   module. */
#include <math.h>
#include <string.h>

#include "client/models/model_kind.h"

struct mlp {
  int64_t in;
  const int64_t *widths; /* [n] */
  int n;
  bool ends_in_relu;
};

/* NAME.0, NAME.2, ...: the even ones are linear, the odd ones ReLU, the last of which may be missing. */
static const char *add_mlp(struct onnx_writer *writer, const char *name, const char *input,
                           const struct mlp *mlp) {
  const char *at = input;
  int64_t in = mlp->in;
  for (int i = 0; i < mlp->n; i++) {
    const char *layer = layer_item(writer, name, 2 * i);
    int64_t out = mlp->widths[i];
    struct linear linear = {.in = in,
                            .out = out,
                            .weight = initial_normal(sqrt(2.0 / (double)(in + out))),
                            .bias = initial_normal(sqrt(1.0 / (double)out))};
    at = layer_linear(writer, layer, at, &linear);
    if (i + 1 < mlp->n || mlp->ends_in_relu)
      at = layer_relu(writer, layer, at);
    in = out;
  }
  return at;
}

/* The row of column `table` of sparse i64[batch,tables] in that table: f32[batch,width]. */
static const char *add_table(struct onnx_writer *writer, int table, int64_t rows, int64_t width) {
  const char *name = layer_item(writer, "emb_l", table);
  const char *column = onnx_writer_int(writer, layer_part(writer, name, "column"), table);
  const char *chosen = onnx_writer_node(writer, "Gather", layer_part(writer, name, "rows"),
                                        ONNX_NAMES("sparse", column), ONNX_ATTRS(onnx_int("axis", 1)));
  const char *weight =
      onnx_writer_parameter(writer, layer_part(writer, name, "weight"), (int64_t[]){rows, width}, 2,
                            initial_uniform(1 / sqrt((double)rows)));
  return layer_embedding(writer, name, chosen, weight);
}

/* Of vectors f32[batch,n*width]: the products of each with each one before it, f32[batch,n*(n-1)/2]. */
static const char *add_products(struct onnx_writer *writer, const char *vectors, int n, int64_t width) {
  int64_t pairs[(OPTION_LIST_MAX + 1) * OPTION_LIST_MAX / 2];
  int n_pairs = 0;
  const char *shape = onnx_writer_ints(writer, "vectors.shape", (int64_t[]){-1, n, width}, 3), *at, *chosen;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      pairs[n_pairs++] = i * n + j;
  vectors = onnx_writer_node(writer, "Reshape", "vectors", ONNX_NAMES(vectors, shape), NULL);
  at = onnx_writer_node(writer, "Transpose", "vectors.transposed", ONNX_NAMES(vectors),
                        ONNX_ATTRS(onnx_ints("perm", 3, (int64_t[]){0, 2, 1})));
  at = onnx_writer_node(writer, "MatMul", "products", ONNX_NAMES(vectors, at), NULL);
  at = onnx_writer_node(writer, "Flatten", "products.flat", ONNX_NAMES(at), NULL);
  chosen = onnx_writer_ints(writer, "pairs.places", pairs, n_pairs);
  return onnx_writer_node(writer, "Gather", "pairs", ONNX_NAMES(at, chosen), ONNX_ATTRS(onnx_int("axis", 1)));
}

/* Side by side, f32[batch,...]. */
static const char *add_concat(struct onnx_writer *writer, const char *name, const char *const *inputs) {
  return onnx_writer_node(writer, "Concat", name, inputs, ONNX_ATTRS(onnx_int("axis", 1)));
}

static bool wants_products(struct onnx_writer *writer, const struct args *args) {
  const char *word = args_text(args, "interaction");
  if (strcmp(word, "dot") != 0 && strcmp(word, "cat") != 0)
    onnx_writer_fail(writer, "--interaction: it is dot or cat, not '%s'", word);
  return strcmp(word, "dot") == 0;
}

static void dlrm_build(struct onnx_writer *writer, const struct args *args) {
  int64_t rows[OPTION_LIST_MAX], bottom[OPTION_LIST_MAX], top[OPTION_LIST_MAX + 1];
  int64_t dense = args_count(args, "dense"), width = args_count(args, "width"), features;
  int n_tables = args_list(args, "tables", rows), n_bottom = args_list(args, "bottom", bottom);
  int n_top = args_list(args, "top", top), n_vectors = n_tables + 1;
  const char *vectors[OPTION_LIST_MAX + 2] = {NULL}, *all, *at;
  bool has_products = wants_products(writer, args);
  if (n_tables < 1)
    onnx_writer_fail(writer, "--tables: name the rows of at least one table");
  if (n_bottom < 1 || bottom[n_bottom - 1] != width)
    onnx_writer_fail(writer, "--bottom: its last layer must be as wide as the embeddings, --width %lld",
                     (long long)width);
  if (writer->err.code)
    return;
  onnx_writer_input(writer, "dense", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &dense, 1);
  onnx_writer_input(writer, "sparse", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, (int64_t[]){n_tables}, 1);
  for (int t = 0; t < n_tables; t++)
    vectors[t + 1] = add_table(writer, t, rows[t], width);
  vectors[0] = add_mlp(writer, "bot_l", "dense", &(struct mlp){dense, bottom, n_bottom, true});
  all = add_concat(writer, "interaction.all", vectors);
  features = n_vectors * width;
  if (has_products) {
    at = add_products(writer, all, n_vectors, width);
    all = add_concat(writer, "interaction", ONNX_NAMES(vectors[0], at));
    features = width + n_vectors * (n_vectors - 1) / 2;
  }
  top[n_top] = 1;
  at = add_mlp(writer, "top_l", all, &(struct mlp){features, top, n_top + 1, false});
  all = onnx_writer_ints(writer, "logit.shape", (int64_t[]){-1}, 1);
  layer_logits(writer, onnx_writer_node(writer, "Reshape", "logit", ONNX_NAMES(at, all), NULL), NULL, 0);
}

static const struct option_def dlrm_options[] = {
    MODEL_OUTPUT_OPTIONS,
    {"dense", 0, OPTION_COUNT, "N", "13", 1, MODEL_WIDTH_MAX, "Number of dense features."},
    {"tables", 0, OPTION_LIST, "ROWS", "1000x26", 1, 1L << 30,
     "Rows of the embedding table of each sparse feature, as 1460,583,10131227 or 1000x26."},
    {"width", 0, OPTION_COUNT, "N", "16", 1, MODEL_WIDTH_MAX, "Width of the embeddings."},
    {"bottom", 0, OPTION_LIST, "WIDTHS", "512,256,64,16", 1, MODEL_WIDTH_MAX,
     "Widths of the MLP of the dense features; the last is that of the embeddings."},
    {"top", 0, OPTION_LIST, "WIDTHS", "512,256", 1, MODEL_WIDTH_MAX,
     "Widths of the MLP behind the interaction, but for its last layer, whose width is 1."},
    {"interaction", 0, OPTION_TEXT, "WORD", "dot", 0, 0,
     "dot, the products of all pairs, or cat, the vectors side by side."},
    {0},
};

const struct model_kind_def model_kind_dlrm = {
    .command =
        {.name = "dlrm",
         .summary = "a recommender of dense and sparse features",
         .description =
             "Writes DLRM as an ONNX model with the names of its authors' module, from 'dense', "
             "f32[batch,features], and 'sparse', i64[batch,tables], one row of each table, to 'logits', "
             "f32[batch], for the loss bce_with_logits. The MLPs are those that the authors train on "
             "Criteo's Kaggle data. Initially tables are uniform within one over the square root of "
             "their rows, layers normal.",
         .options = dlrm_options,
         .examples = "weir model dlrm -o dlrm.onnx\n"
                     "weir model dlrm --dense 5 --tables 50,30,20 --width 8 --bottom 32,8 --top 32 -o "
                     "small.onnx\n",
         MODEL_COMMAND},
    .build = dlrm_build,
};
