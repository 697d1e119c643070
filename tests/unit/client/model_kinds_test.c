/* The models that `weir model` writes: their sizes, and what their tensors hold at first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/model/model_bytes.h"

#define MODEL_KIND(name) extern const struct model_kind_def model_kind_##name;
#include "client/models/model_kind.def"
#undef MODEL_KIND

static const struct model_kind_def *const kinds[] = {
#define MODEL_KIND(name) &model_kind_##name,
#include "client/models/model_kind.def"
#undef MODEL_KIND
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, OPTIONS_LISTED_MAX = 16 };

static const struct model_kind_def *kind_named(const char *name) {
  for (int i = 0; i < N_KINDS; i++)
    if (strcmp(kinds[i]->command.name, name) == 0)
      return kinds[i];
  fail_msg("there is no kind '%s'", name);
  return NULL;
}

/* Small ones of the kinds that are large by themselves. */
static const struct {
  const char *kind;
  const char *options[OPTIONS_LISTED_MAX];
} small[] = {
    {"resnet18", {"--width", "8"}},
    {"resnet50", {"--width", "4"}},
    {"mobilenet_v2", {"--width", "0.25"}},
    {"vit", {"--width", "24", "--depth", "2"}},
    {"gpt", {"--vocabulary", "64", "--context", "8", "--width", "24", "--depth", "2"}},
};

static const char *const *small_options(const char *kind) {
  static const char *const none[] = {NULL};
  for (size_t i = 0; i < sizeof small / sizeof *small; i++)
    if (strcmp(small[i].kind, kind) == 0)
      return small[i].options;
  return none;
}

/* Builds without drawing. */
static void build(struct onnx_writer *writer, struct args *args, const char *kind,
                  const char *const *options) {
  const struct model_kind_def *def = kind_named(kind);
  struct err err = ERR_NONE;
  int argc = 0;
  while (options[argc])
    argc++;
  if (args_parse(args, &(struct command_syntax){.options = def->command.options}, argc, (char **)options,
                 &err))
    fail_msg("%s", err.text);
  args->command = &def->command;
  onnx_writer_init(writer, kind, 3);
  def->build(writer, args);
}

static void standard_sizes_have_as_many_parameters_as_pytorch_counts(void **state) {
  static const struct {
    const char *kind;
    uint64_t parameters;
    const char *options[OPTIONS_LISTED_MAX];
  } cases[] = {
      {"resnet18", 11689512, {NULL}},
      {"resnet50", 25557032, {NULL}},
      {"resnet18", 21797672, {"--depth", "3,4,6,3"}},  /* resnet34 */
      {"resnet50", 44549160, {"--depth", "3,4,23,3"}}, /* resnet101 */
      {"mobilenet_v2", 3504872, {NULL}},
      {"vit", 86567656, {NULL}},                                                 /* vit_b_16 */
      {"vit", 88224232, {"--patch", "32"}},                                      /* vit_b_32 */
      {"vit", 304326632, {"--width", "1024", "--depth", "24", "--heads", "16"}}, /* vit_l_16 */
      {"gpt", 124439808, {NULL}},                                                /* gpt2 */
      {"gpt", 354823168, {"--width", "1024", "--depth", "24", "--heads", "16"}}, /* gpt2-medium */
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct onnx_writer writer;
    struct args args;
    build(&writer, &args, cases[i].kind, cases[i].options);
    assert_string_equal(writer.err.text, "");
    assert_int_equal(writer.parameters, cases[i].parameters);
    onnx_writer_fini(&writer);
  }
}

static void every_kind_is_drawn_from_its_seed(void **state) {
  (void)state;
  for (int i = 0; i < N_KINDS; i++) {
    const char *const *options = small_options(kinds[i]->command.name);
    void *bytes[3];
    size_t sizes[3];
    struct err err = ERR_NONE;
    for (int m = 0; m < 3; m++) {
      struct model_recipe recipe = {.kind = kinds[i], .options = options, .seed = m == 2 ? 8 : 7};
      assert_int_equal(model_bytes(&recipe, &bytes[m], &sizes[m], &err), 0);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    assert_int_equal(sizes[0], sizes[2]);
    assert_int_not_equal(memcmp(bytes[0], bytes[2], sizes[0]), 0);
    for (int m = 0; m < 3; m++)
      free(bytes[m]);
  }
}

/* Of a tensor: deviation 0 means that all elements are `mean`; none is beyond `most`, if that is given. */
struct expected {
  const char *kind, *tensor;
  double mean, deviation, most;
  const char *options[OPTIONS_LISTED_MAX];
};

/* What torch.nn.init's formulas give for these shapes. */
static const struct expected initially[] = {
    {"mlp", "fc1.weight", 0, 0.0206197, 0.0357143, {NULL}},
    {"mlp", "fc1.bias", 0, 0.0206197, 0.0357143, {NULL}},
    {"lenet", "conv2.weight", 0, 0.0471405, 0.0816497, {NULL}},
    {"resnet18", "conv1.weight", 0, 0.0252538, 0, {NULL}},
    {"resnet18", "layer1.0.conv1.weight", 0, 0.0589256, 0, {NULL}},
    {"resnet18", "layer2.0.downsample.0.weight", 0, 0.125, 0, {NULL}},
    {"resnet18", "layer4.1.bn2.weight", 1, 0, 0, {NULL}},
    {"resnet18", "layer4.1.bn2.bias", 0, 0, 0, {NULL}},
    {"resnet18", "layer4.1.bn2.running_mean", 0, 0, 0, {NULL}},
    {"resnet18", "layer4.1.bn2.running_var", 1, 0, 0, {NULL}},
    {"resnet18", "fc.weight", 0, 0.0255155, 0.0441942, {NULL}},
    {"resnet18", "fc.bias", 0, 0.0255155, 0.0441942, {NULL}},
    {"resnet50", "layer1.0.conv3.weight", 0, 0.0883883, 0, {NULL}},
    {"mobilenet_v2", "features.1.conv.0.0.weight", 0, 0.0833333, 0, {NULL}},
    {"mobilenet_v2", "features.2.conv.2.weight", 0, 0.2886751, 0, {NULL}},
    {"mobilenet_v2", "classifier.1.weight", 0, 0.01, 0, {NULL}},
    {"mobilenet_v2", "classifier.1.bias", 0, 0, 0, {NULL}},
    {"vit", "conv_proj.weight", 0, 0.0360844, 0, {"--depth", "1"}},
    {"vit", "conv_proj.bias", 0, 0, 0, {"--depth", "1"}},
    {"vit", "class_token", 0, 0, 0, {"--depth", "1"}},
    {"vit", "encoder.pos_embedding", 0, 0.02, 0, {"--depth", "1"}},
    {"vit",
     "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
     0,
     0.0255155,
     0.0441942,
     {"--depth", "1"}},
    {"vit", "encoder.layers.encoder_layer_0.self_attention.in_proj_bias", 0, 0, 0, {"--depth", "1"}},
    {"vit",
     "encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
     0,
     0.0208333,
     0.0360844,
     {"--depth", "1"}},
    {"vit", "encoder.layers.encoder_layer_0.self_attention.out_proj.bias", 0, 0, 0, {"--depth", "1"}},
    {"vit", "encoder.layers.encoder_layer_0.mlp.0.weight", 0, 0.0228218, 0.0395285, {"--depth", "1"}},
    {"vit", "encoder.layers.encoder_layer_0.mlp.3.weight", 0, 0.0228218, 0.0395285, {"--depth", "1"}},
    {"vit", "encoder.layers.encoder_layer_0.mlp.0.bias", 0, 1e-6, 0, {"--depth", "1"}},
    {"vit", "encoder.layers.encoder_layer_0.ln_1.weight", 1, 0, 0, {"--depth", "1"}},
    {"vit", "heads.head.weight", 0, 0, 0, {"--depth", "1"}},
    {"vit",
     "conv_proj.weight",
     0,
     0.8796,
     2,
     {"--depth", "1", "--input", "1,2,2", "--patch", "1", "--width", "768"}},
    {"gpt", "transformer.wte.weight", 0, 0.02, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.wpe.weight", 0, 0.02, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.h.1.attn.c_attn.weight", 0, 0.02, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.h.1.attn.c_attn.bias", 0, 0, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.h.1.attn.c_proj.weight", 0, 0.01, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.h.1.mlp.c_proj.weight", 0, 0.01, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.ln_f.weight", 1, 0, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"gpt", "transformer.ln_f.bias", 0, 0, 0, {"--vocabulary", "100", "--depth", "2"}},
    {"dlrm", "emb_l.3.weight", 0, 0.0182574, 0.0316228, {NULL}},
    {"dlrm", "bot_l.2.weight", 0, 0.0510310, 0, {NULL}},
    {"dlrm", "bot_l.2.bias", 0, 0.0625, 0, {NULL}},
    {"dlrm", "top_l.0.weight", 0, 0.0477027, 0, {NULL}},
};

static const Onnx__TensorProto *tensor_named(const struct onnx_writer *writer, const char *name) {
  for (size_t i = 0; i < writer->graph.n_initializer; i++)
    if (strcmp(writer->graph.initializer[i]->name, name) == 0)
      return writer->graph.initializer[i];
  fail_msg("there is no '%s'", name);
  return NULL;
}

/* Mean and deviation within five standard errors of them. */
static void check_values(const struct expected *expected, const float *values, size_t n) {
  double sum = 0, squares = 0, most = 0, mean, deviation;
  for (size_t i = 0; i < n; i++) {
    sum += values[i];
    most = fmax(most, fabs(values[i]));
  }
  mean = sum / (double)n;
  for (size_t i = 0; i < n; i++)
    squares += (values[i] - mean) * (values[i] - mean);
  deviation = sqrt(squares / (double)n);
  if (fabs(mean - expected->mean) > 5 * expected->deviation / sqrt((double)n) ||
      fabs(deviation - expected->deviation) > 5 * expected->deviation / sqrt(2.0 * (double)n))
    fail_msg("%s: %s has mean %g, deviation %g; expected are %g and %g", expected->kind, expected->tensor,
             mean, deviation, expected->mean, expected->deviation);
  if (expected->most > 0 && (most > expected->most * (1 + 1e-6) || most < 0.9 * expected->most))
    fail_msg("%s: %s reaches %g; expected are %g", expected->kind, expected->tensor, most, expected->most);
}

static bool is_of_same_model(const struct expected *a, const struct expected *b) {
  int i = 0;
  while (a->options[i] && b->options[i] && strcmp(a->options[i], b->options[i]) == 0)
    i++;
  return strcmp(a->kind, b->kind) == 0 && !a->options[i] && !b->options[i];
}

static void initial_values_are_of_the_frameworks_distributions(void **state) {
  const struct expected *end = initially + sizeof initially / sizeof *initially;
  (void)state;
  for (const struct expected *expected = initially; expected < end;) {
    const struct expected *first = expected;
    struct onnx_writer writer;
    struct args args;
    struct err err = ERR_NONE;
    size_t size_bytes;
    void *bytes;
    build(&writer, &args, first->kind, first->options);
    assert_int_equal(onnx_writer_pack(&writer, &bytes, &size_bytes, &err), 0);
    free(bytes);
    for (; expected < end && is_of_same_model(first, expected); expected++) {
      const Onnx__TensorProto *tensor = tensor_named(&writer, expected->tensor);
      check_values(expected, (const float *)tensor->raw_data.data, tensor->raw_data.len / sizeof(float));
    }
    onnx_writer_fini(&writer);
  }
}

static void what_cannot_be_is_refused(void **state) {
  static const struct {
    const char *kind, *word;
    const char *options[OPTIONS_LISTED_MAX];
  } cases[] = {
      {"mlp", "--input", {"--input", ""}},
      {"mlp", "--input", {"--input", "1048576x7"}},
      {"mlp", "2 GiB", {"--input", "1048576,1048576"}},
      {"mlp", "2 GiB", {"--hidden", "1048576x64"}},
      {"lenet", "--input", {"--input", "784"}},
      {"lenet", "--input", {"--input", "1,8,8", "--channels", "4x4"}},
      {"resnet18", "--depth", {"--depth", "2,2"}},
      {"resnet18", "--stem", {"--stem", "medium"}},
      {"resnet18", "2 GiB", {"--width", "32768"}},
      {"vit", "--patch", {"--patch", "15"}},
      {"vit", "--patch", {"--patch", "448"}},
      {"vit", "--heads", {"--heads", "7"}},
      {"vit", "2 GiB", {"--input", "1,1048576,1048576", "--patch", "1"}},
      {"gpt", "--heads", {"--heads", "5"}},
      {"gpt", "2 GiB", {"--width", "1048576", "--heads", "1", "--depth", "1000"}},
      {"dlrm", "--bottom", {"--bottom", "512,8"}},
      {"dlrm", "--tables", {"--tables", ""}},
      {"dlrm", "--interaction", {"--interaction", "sum"}},
      {"dlrm", "2 GiB", {"--tables", "1000000000x64"}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_recipe recipe = {.kind = kind_named(cases[i].kind), .options = cases[i].options};
    struct err err = ERR_NONE;
    size_t size_bytes;
    void *bytes;
    assert_int_equal(model_bytes(&recipe, &bytes, &size_bytes, &err), ERR_INVALID);
    if (!strstr(err.text, cases[i].word))
      fail_msg("%s: '%s' does not name '%s'", cases[i].kind, err.text, cases[i].word);
  }
}

static bool has_node(const struct onnx_writer *writer, const char *name) {
  for (size_t i = 0; i < writer->graph.n_node; i++)
    if (strcmp(writer->graph.node[i]->name, name) == 0)
      return true;
  return false;
}

static void a_small_image_gets_a_small_stem(void **state) {
  static const struct {
    const char *options[OPTIONS_LISTED_MAX];
    bool has_pool;
  } cases[] = {{{NULL}, true},
               {{"--input", "3,64,64"}, true},
               {{"--input", "3,32,32"}, false},
               {{"--input", "3,32,32", "--stem", "large"}, true},
               {{"--stem", "small"}, false}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct onnx_writer writer;
    struct args args;
    build(&writer, &args, "resnet18", cases[i].options);
    assert_int_equal(has_node(&writer, "/maxpool"), cases[i].has_pool);
    assert_int_equal(tensor_named(&writer, "conv1.weight")->dims[3], cases[i].has_pool ? 7 : 3);
    onnx_writer_fini(&writer);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(standard_sizes_have_as_many_parameters_as_pytorch_counts),
      cmocka_unit_test(every_kind_is_drawn_from_its_seed),
      cmocka_unit_test(initial_values_are_of_the_frameworks_distributions),
      cmocka_unit_test(what_cannot_be_is_refused),
      cmocka_unit_test(a_small_image_gets_a_small_stem),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
