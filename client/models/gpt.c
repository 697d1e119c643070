/* gpt: GPT-2 (Radford et al., 2019), with the names of nanoGPT's module. The output layer is the token
   embedding's transpose. */
#include <math.h>

#include "client/models/attention.h"
#include "client/models/model_kind.h"

enum { CONTEXT_MAX = 1 << 16 };

static const float EPSILON = 1e-5f;
static const double DEVIATION = 0.02;

struct gpt {
  int64_t width, heads, depth, context, vocabulary;
  double dropout;
  const char *mask;
};

static const char *add_linear(struct onnx_writer *writer, const char *name, const char *input,
                              const struct gpt *gpt, int64_t out) {
  struct linear linear = {
      .in = gpt->width, .out = out, .weight = initial_normal(DEVIATION), .bias = initial_constant(0)};
  return layer_token_linear(writer, name, input, gpt->context, &linear);
}

/* Into the residual stream: the more layers add to it, the less each does at first (GPT-2, section 2.3). */
static const char *add_projection(struct onnx_writer *writer, const char *name, const char *input,
                                  const struct gpt *gpt, int64_t in) {
  struct linear linear = {.in = in,
                          .out = gpt->width,
                          .weight = initial_normal(DEVIATION / sqrt(2.0 * (double)gpt->depth)),
                          .bias = initial_constant(0)};
  const char *at =
      layer_token_linear(writer, layer_part(writer, name, "c_proj"), input, gpt->context, &linear);
  return layer_dropout(writer, layer_part(writer, name, "drop"), at, gpt->dropout);
}

static const char *add_attention(struct onnx_writer *writer, const char *name, const char *input,
                                 const struct gpt *gpt) {
  struct attention attention = {gpt->width, gpt->heads, gpt->mask, gpt->dropout};
  const char *at = add_linear(writer, layer_part(writer, name, "c_attn"), input, gpt, 3 * gpt->width);
  at = layer_attention(writer, layer_part(writer, name, "heads"), at, &attention);
  return add_projection(writer, name, at, gpt, gpt->width);
}

static const char *add_mlp(struct onnx_writer *writer, const char *name, const char *input,
                           const struct gpt *gpt) {
  const char *at = add_linear(writer, layer_part(writer, name, "c_fc"), input, gpt, 4 * gpt->width);
  at = layer_gelu(writer, name, at, "tanh");
  return add_projection(writer, name, at, gpt, 4 * gpt->width);
}

static const char *add_block(struct onnx_writer *writer, const char *name, const char *input,
                             const struct gpt *gpt) {
  const char *at = layer_norm(writer, layer_part(writer, name, "ln_1"), input, gpt->width, EPSILON), *middle;
  at = add_attention(writer, layer_part(writer, name, "attn"), at, gpt);
  middle = layer_add(writer, layer_part(writer, name, "attended"), input, at);
  at = layer_norm(writer, layer_part(writer, name, "ln_2"), middle, gpt->width, EPSILON);
  at = add_mlp(writer, layer_part(writer, name, "mlp"), at, gpt);
  return layer_add(writer, layer_part(writer, name, "sum"), middle, at);
}

/* The sum of what each token and its place are embedded as; *tokens is the token embedding's weight. */
static const char *add_embeddings(struct onnx_writer *writer, const struct gpt *gpt, const char **tokens) {
  const char *places, *at;
  onnx_writer_input(writer, "tokens", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &gpt->context, 1);
  *tokens = onnx_writer_parameter(writer, "transformer.wte.weight", (int64_t[]){gpt->vocabulary, gpt->width},
                                  2, initial_normal(DEVIATION));
  places = onnx_writer_parameter(writer, "transformer.wpe.weight", (int64_t[]){gpt->context, gpt->width}, 2,
                                 initial_normal(DEVIATION));
  at = layer_embedding(writer, "transformer.wte", "tokens", *tokens);
  at = layer_add(writer, "transformer.embedded", at, places);
  return layer_dropout(writer, "transformer.drop", at, gpt->dropout);
}

static void gpt_build(struct onnx_writer *writer, const struct args *args) {
  struct gpt gpt = {.width = args_count(args, "width"),
                    .heads = args_count(args, "heads"),
                    .depth = args_count(args, "depth"),
                    .context = args_count(args, "context"),
                    .vocabulary = args_count(args, "vocabulary"),
                    .dropout = args_number(args, "dropout")};
  struct linear head = {.in = gpt.width, .out = gpt.vocabulary, .has_no_bias = true, .is_tied = true};
  const char *at;
  if (gpt.width % gpt.heads) {
    onnx_writer_fail(writer, "--heads: %lld do not divide a --width of %lld", (long long)gpt.heads,
                     (long long)gpt.width);
    return;
  }
  at = add_embeddings(writer, &gpt, &head.weight_name);
  gpt.mask = layer_causal_mask(writer, "mask", gpt.context);
  for (int64_t i = 0; i < gpt.depth; i++)
    at = add_block(writer, arena_printf(&writer->arena, "transformer.h.%lld", (long long)i), at, &gpt);
  at = layer_norm(writer, "transformer.ln_f", at, gpt.width, EPSILON);
  at = layer_token_linear(writer, "lm_head", at, gpt.context, &head);
  layer_logits(writer, at, (int64_t[]){gpt.context, gpt.vocabulary}, 2);
}

static const struct option_def gpt_options[] = {
    MODEL_OUTPUT_OPTIONS,
    {"vocabulary", 0, OPTION_COUNT, "N", "50257", 1, MODEL_WIDTH_MAX, "Number of tokens that there are."},
    {"context", 0, OPTION_COUNT, "N", "1024", 1, CONTEXT_MAX,
     "Tokens of a sample; every sample has as many."},
    {"width", 0, OPTION_COUNT, "N", "768", 1, MODEL_WIDTH_MAX, "Width of a token (GPT-2's n_embd)."},
    {"depth", 0, OPTION_COUNT, "N", "12", 1, MODEL_DEPTH_MAX, "Number of layers."},
    {"heads", 0, OPTION_COUNT, "N", "12", 1, MODEL_WIDTH_MAX,
     "Heads of an attention; they divide the width."},
    MODEL_DROPOUT_OPTION("0", "Share of embeddings, attention weights and each layer's outputs that a "
                              "training step drops, as 0.1."),
    {0},
};

const struct model_kind_def model_kind_gpt = {
    .command =
        {.name = "gpt",
         .summary = "a language model",
         .description =
             "Writes GPT-2 as an ONNX model with the names of nanoGPT's module, of the smallest published "
             "size unless options say otherwise: from 'tokens', i64[batch,context], to 'logits', "
             "f32[batch,context,vocabulary], scores of each next token. The output layer is tied to the "
             "token embedding. Initially weights are normal with a deviation of 0.02, and of less where "
             "a layer adds to its input.",
         .options = gpt_options,
         .examples = "weir model gpt -o gpt2.onnx\n"
                     "weir model gpt --vocabulary 256 --context 128 --width 192 --depth 6 --heads 6 "
                     "--dropout 0.1 -o bytes.onnx\n",
         MODEL_COMMAND},
    .build = gpt_build,
};
