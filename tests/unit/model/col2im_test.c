/* Col2Im: files whose image, block, columns or attributes cannot be are refused, each with what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/model/graph_build.h"

enum { SIZES_MAX = 4, SIZES_TYPE = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

/* A list of integers. */
struct sizes {
  int n;
  int64_t at[SIZES_MAX];
};

struct col2im_case {
  struct sizes columns; /* the shape, of which the first is the batch */
  struct sizes image, block;
  const char *attr; /* NULL: none */
  struct sizes values;
  const char *text; /* of the refusal; NULL: the file is sound */
};

static void add_sizes(struct onnx_build *build, const char *name, const struct sizes *sizes) {
  int64_t n = sizes->n;
  Onnx__TensorProto *tensor = onnx_build_tensor(build, name, SIZES_TYPE, &n, 1);
  onnx_build_raw(build, tensor, sizes->at, (size_t)n * sizeof *sizes->at);
  onnx_build_add(build, tensor);
}

static void build_case(struct onnx_build *build, const struct col2im_case *of) {
  Onnx__NodeProto *node;
  onnx_build_init(build, 18);
  onnx_build_input(build, "x", of->columns.at, of->columns.n);
  onnx_build_output(build, "y");
  onnx_build_weight(build, "w", DIMS(1));
  add_sizes(build, "image", &of->image);
  add_sizes(build, "block", &of->block);
  onnx_build_node(build, "Mul", NULL, "x,w", "columns");
  node = onnx_build_node(build, "Col2Im", "fold", "columns,image,block", "y");
  if (of->attr) {
    Onnx__AttributeProto *attr =
        onnx_build_attr(build, node, of->attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attr->n_ints = (size_t)of->values.n;
    attr->ints = arena_copy(&build->arena, of->values.at, attr->n_ints * sizeof *attr->ints);
  }
}

static const struct col2im_case cases[] = {
    {{3, {-1, 4, 16}}, {2, {5, 5}}, {2, {2, 2}}, NULL, {0}, NULL},
    {{3, {-1, 4, 12}}, {0}, {0}, NULL, {0}, "image_shape has 0 sizes and block_shape has 0"},
    {{3, {-1, 4, 12}}, {1, {5}}, {2, {1, 1}}, NULL, {0}, "image_shape has 1 sizes and block_shape has 2"},
    {{3, {-1, 4, 12}}, {4, {5, 5, 5, 5}}, {4, {1, 1, 1, 1}}, NULL, {0}, "at most 3 make sense"},
    {{3, {-1, 4, 12}}, {2, {0, 5}}, {2, {1, 1}}, NULL, {0}, "image_shape holds 0"},
    {{3, {-1, 4, 12}}, {2, {-5, 5}}, {2, {1, 1}}, NULL, {0}, "image_shape holds -5"},
    {{3, {-1, 4, 12}}, {2, {5, INT64_MAX}}, {2, {1, 1}}, NULL, {0}, "image_shape holds 9223372036854775807"},
    {{3, {-1, 4, 12}}, {2, {5, 5}}, {2, {0, 1}}, NULL, {0}, "block_shape holds 0"},
    {{3, {-1, 4, 12}}, {2, {5, 5}}, {2, {1, INT64_MIN}}, NULL, {0}, "block_shape holds -9223372036854775808"},
    {{3, {-1, 4, 12}}, {2, {2, 2}}, {2, {9, 9}}, NULL, {0}, "a kernel that spans 9 does not fit"},
    {{3, {-1, 4, 12}},
     {3, {INT32_MAX, INT32_MAX, INT32_MAX}},
     {3, {1, 1, 1}},
     NULL,
     {0},
     "its windows are too many to count"},
    {{3, {-1, 5, 16}}, {2, {5, 5}}, {2, {2, 2}}, NULL, {0}, "not those of 16 windows of 4 elements"},
    {{3, {-1, 4, 15}}, {2, {5, 5}}, {2, {2, 2}}, NULL, {0}, "not those of 16 windows of 4 elements"},
    {{2, {-1, 4}}, {2, {5, 5}}, {2, {2, 2}}, NULL, {0}, "where 3 dimensions are needed"},
    {{3, {-1, 4, 16}},
     {2, {5, 5}},
     {2, {2, 2}},
     "pads",
     {4, {-1, 0, 0, 0}},
     "'pads' holds a negative number"},
    {{3, {-1, 4, 16}}, {2, {5, 5}}, {2, {2, 2}}, "pads", {1, {1}}, "'pads' must be a list of 4 integers"},
    {{3, {-1, 4, 16}}, {2, {5, 5}}, {2, {2, 2}}, "strides", {2, {0, 1}}, "'strides' holds 0"},
    {{3, {-1, 4, 16}},
     {2, {5, 5}},
     {2, {2, 2}},
     "dilations",
     {2, {INT64_C(1) << 40, 1}},
     "'dilations' holds"},
};

static void each_file_that_cannot_be_is_refused_with_what_is_wrong(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct onnx_build build;
    build_case(&build, &cases[i]);
    if (cases[i].text)
      refuse_graph(&build, ERR_INVALID, cases[i].text);
    else
      graph_free(load_graph(&build));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_file_that_cannot_be_is_refused_with_what_is_wrong),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
