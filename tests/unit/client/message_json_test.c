/* Every kind of field that a message may have becomes JSON: of a message that is made here, which has one of
   each type by itself and repeated, and of messages of ours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/terminal/message_json.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "onnx.pb-c.h"
#include "training.pb-c.h"

enum { TYPES = PROTOBUF_C_TYPE_MESSAGE + 1 };

union value {
  int32_t i32;
  int64_t i64;
  uint64_t u64;
  float f32;
  double f64;
  protobuf_c_boolean is_true;
  const char *text;
  ProtobufCBinaryData bytes;
  const void *message;
};

struct list {
  size_t n;
  const void *elements;
};

/* A field of each type, and a repeated one. */
struct sampler {
  ProtobufCMessage base;
  union value single[TYPES];
  struct list many[TYPES];
};

static const Weir__MetricValue metric = {PROTOBUF_C_MESSAGE_INIT(&weir__metric_value__descriptor),
                                         (char *)"auc", 0.5};
static const Weir__RunRequest inner = {PROTOBUF_C_MESSAGE_INIT(&weir__run_request__descriptor), (char *)"r"};

/* What the two elements of each type are, and their JSON. */
static const struct kind {
  const char *name, *json;
  const void *elements;
  const ProtobufCMessageDescriptor *message;
} kinds[TYPES] = {
#define KIND(TYPE, text, type, ...)                                                                          \
  [PROTOBUF_C_TYPE_##TYPE] = {.name = #TYPE, .json = text, .elements = (const type[2]){__VA_ARGS__}}
    KIND(INT32, "[-1,2147483647]", int32_t, -1, INT32_MAX),
    KIND(SINT32, "[-2,3]", int32_t, -2, 3),
    KIND(SFIXED32, "[-3,4]", int32_t, -3, 4),
    KIND(INT64, "[-9223372036854775808,5]", int64_t, INT64_MIN, 5),
    KIND(SINT64, "[-5,6]", int64_t, -5, 6),
    KIND(SFIXED64, "[-6,7]", int64_t, -6, 7),
    KIND(UINT32, "[4294967295,8]", uint32_t, UINT32_MAX, 8),
    KIND(FIXED32, "[8,9]", uint32_t, 8, 9),
    KIND(UINT64, "[1.8446744073709552e19,9223372036854775807]", uint64_t, UINT64_MAX, INT64_MAX),
    KIND(FIXED64, "[10,11]", uint64_t, 10, 11),
    KIND(FLOAT, "[0.5,null]", float, 0.5f, NAN),
    KIND(DOUBLE, "[null,-0.25]", double, INFINITY, -0.25),
    KIND(BOOL, "[true,false]", protobuf_c_boolean, 1, 0),
    KIND(ENUM, "[\"queued\",\"unknown\"]", int, WEIR__RUN_STATE__QUEUED, 99),
    KIND(STRING, "[\"a\\\"b\",null]", char *, "a\"b", "\xff"),
    KIND(BYTES, "[\"00ff10\",\"\"]", ProtobufCBinaryData, {3, (uint8_t *)"\0\xff\x10"}, {0, NULL}),
    [PROTOBUF_C_TYPE_MESSAGE] = {.name = "MESSAGE",
                                 .json = "[{\"run\":\"r\"},{\"run\":\"r\"}]",
                                 .elements = (const void *const[2]){&inner, &inner},
                                 .message = &weir__run_request__descriptor},
#undef KIND
};

static size_t element_bytes(int type) {
  return type == PROTOBUF_C_TYPE_BYTES                                       ? sizeof(ProtobufCBinaryData)
         : type == PROTOBUF_C_TYPE_STRING || type == PROTOBUF_C_TYPE_MESSAGE ? sizeof(void *)
         : type == PROTOBUF_C_TYPE_BOOL                                      ? sizeof(protobuf_c_boolean)
         : strstr(kinds[type].name, "64") || type == PROTOBUF_C_TYPE_DOUBLE  ? 8
                                                                             : 4;
}

static void field_init(ProtobufCFieldDescriptor *field, int type, bool is_repeated) {
  *field = (ProtobufCFieldDescriptor){
      .name = mem_printf("%s%s", kinds[type].name, is_repeated ? "s" : ""),
      .id = (uint32_t)(2 * type + is_repeated + 1),
      .label = is_repeated ? PROTOBUF_C_LABEL_REPEATED : PROTOBUF_C_LABEL_NONE,
      .type = (ProtobufCType)type,
      .offset = (unsigned)(is_repeated ? offsetof(struct sampler, many[type].elements)
                                       : offsetof(struct sampler, single[type])),
      .quantifier_offset = (unsigned)(is_repeated ? offsetof(struct sampler, many[type].n) : 0),
      .descriptor = type == PROTOBUF_C_TYPE_ENUM ? (const void *)&weir__run_state__descriptor
                                                 : (const void *)kinds[type].message};
}

static void assert_json(json_t *found, const char *expected) {
  json_t *wanted = json_loads(expected, JSON_DECODE_ANY, NULL);
  char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);
  assert_non_null(wanted);
  if (!json_equal(found, wanted))
    fail_msg("%s, expected %s", text, expected);
  free(text);
  json_decref(wanted);
}

static void every_kind_of_field_has_its_json(void **state) {
  static ProtobufCFieldDescriptor fields[2 * TYPES];
  ProtobufCMessageDescriptor type = {.n_fields = 2 * TYPES, .fields = fields};
  struct sampler sampler = {.base = {.descriptor = &type}};
  json_t *json;
  (void)state;
  for (int t = 0; t < TYPES; t++) {
    assert_non_null(kinds[t].name); /* a type of protobuf's that this test does not know */
    field_init(&fields[2 * t], t, false);
    field_init(&fields[2 * t + 1], t, true);
    memcpy(&sampler.single[t], kinds[t].elements, element_bytes(t));
    sampler.many[t] = (struct list){2, kinds[t].elements};
  }
  json = message_json(&sampler.base);
  assert_int_equal(json_object_size(json), 2 * TYPES);
  for (int t = 0; t < TYPES; t++) {
    json_t *many = json_object_get(json, fields[2 * t + 1].name);
    assert_json(many, kinds[t].json);
    assert_true(json_equal(json_object_get(json, fields[2 * t].name), json_array_get(many, 0)));
    sampler.many[t].n = 0;
  }
  json_decref(json);
  json = message_json(&sampler.base);
  for (int t = 0; t < TYPES; t++) {
    assert_json(json_object_get(json, fields[2 * t + 1].name), "[]");
    free((char *)fields[2 * t].name);
    free((char *)fields[2 * t + 1].name);
  }
  json_decref(json);
}

static void a_oneof_shows_the_member_that_is_set(void **state) {
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
  const Weir__MetricValue *metrics[] = {&metric};
  json_t *json;
  (void)state;
  json = message_json(&event.base);
  assert_json(json, "{\"number\":0}");
  json_decref(json);
  event.number = 7;
  event.event_case = WEIR__RUN_EVENT__EVENT_EVAL;
  event.eval = &eval;
  eval.accuracy = NAN;
  eval.n_metrics = 1;
  eval.metrics = (Weir__MetricValue **)metrics;
  json = message_json(&event.base);
  assert_json(json, "{\"number\":7,\"eval\":{\"step\":0,\"loss\":0.0,\"accuracy\":null,\"incarnation\":0,"
                    "\"metrics\":{\"auc\":0.5}}}");
  json_decref(json);
}

static void a_spec_is_shown_as_far_as_it_is_set(void **state) {
  static const char text[] = "name: a\nmodel: {onnx: m.onnx, inputs: {image: images}, frozen: [\"pos_*\"]}\n"
                             "train: {batch: 8, optimizer: {lr: 0.5, groups: [{params: [w]}]}}\n";
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  struct err err = ERR_NONE;
  json_t *json, *spec;
  (void)state;
  json = message_json(&info.base);
  assert_null(json_object_get(json, "spec"));
  json_decref(json);
  assert_int_equal(spec_read("spec", text, strlen(text), &info.spec, &err), 0);
  json = message_json(&info.base);
  spec = json_object_get(json, "spec");
  assert_json(json_object_get(json_object_get(spec, "model"), "inputs"), "{\"image\":\"images\"}");
  assert_json(json_object_get(json_object_get(spec, "model"), "frozen"), "[\"pos_*\"]");
  assert_json(json_object_get(json_object_get(spec, "train"), "batch"), "8");
  assert_null(json_object_get(json_object_get(spec, "train"), "epochs"));
  spec = json_object_get(json_object_get(spec, "train"), "optimizer");
  assert_json(json_object_get(json_array_get(json_object_get(spec, "groups"), 0), "params"), "[\"w\"]");
  json_decref(json);
  spec_free(info.spec);
}

/* A type of the ONNX schema holds itself. */
static void what_is_nested_without_end_is_cut(void **state) {
  Onnx__TypeProto type = ONNX__TYPE_PROTO__INIT;
  Onnx__TypeProto__Sequence sequence = ONNX__TYPE_PROTO__SEQUENCE__INIT;
  json_t *json, *at;
  int depth = 0;
  (void)state;
  type.value_case = ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
  type.sequence_type = &sequence;
  sequence.elem_type = &type;
  json = message_json(&type.base);
  for (at = json; json_is_object(at); depth++)
    at = json_object_get(at, depth % 2 ? "elem_type" : "sequence_type");
  assert_true(json_is_null(at));
  assert_in_range(depth, 10, 1000);
  json_decref(json);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_of_field_has_its_json),
      cmocka_unit_test(a_oneof_shows_the_member_that_is_set),
      cmocka_unit_test(a_spec_is_shown_as_far_as_it_is_set),
      cmocka_unit_test(what_is_nested_without_end_is_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
