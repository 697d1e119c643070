/* Messages on the wire, however they are cut into slices and whatever they hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/unpack.h"
#include "common/rpc/core.h"
#include "onnx.pb-c.h"
#include "parameters.pb-c.h"

enum { ELEMS = 1000 };

/* What a hand-made message is assembled in. */
struct text {
  uint8_t data[128 * 1024];
  size_t size;
};

static void put_varint(struct text *text, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    text->data[text->size++] = (uint8_t)(value | 0x80);
  text->data[text->size++] = (uint8_t)value;
}

static void put_bytes(struct text *text, uint32_t field, const void *data, size_t size) {
  put_varint(text, field << 3 | 2);
  put_varint(text, size);
  memcpy(text->data + text->size, data, size);
  text->size += size;
}

static void put_number(struct text *text, uint32_t field, uint64_t value) {
  put_varint(text, field << 3);
  put_varint(text, value);
}

/* Cut into slices of cut bytes; 0: one slice. */
static grpc_byte_buffer *sliced(const uint8_t *data, size_t size, size_t cut) {
  grpc_byte_buffer *wire = grpc_raw_byte_buffer_create(NULL, 0);
  for (size_t at = 0; at < size;) {
    size_t run = cut && cut < size - at ? cut : size - at;
    grpc_slice_buffer_add_indexed(&wire->data.raw.slice_buffer,
                                  grpc_slice_from_copied_buffer((const char *)data + at, run));
    at += run;
  }
  return wire;
}

static int read_push(const struct text *text, size_t cut, struct wire_message *got, struct err *err) {
  grpc_byte_buffer *wire = sliced(text->data, text->size, cut);
  int code = wire_read(&rpc_method_defs[RPC_PUSH].request, wire, got, err);
  grpc_byte_buffer_destroy(wire);
  return code;
}

static void a_message_is_read_whatever_the_order_and_the_slices(void **state) {
  float values[ELEMS], got_values[ELEMS];
  const size_t cuts[] = {0, 1, 2, 3, 7, 64, 1023};
  (void)state;
  for (int i = 0; i < ELEMS; i++)
    values[i] = (float)i - 0.3f;
  for (int order = 0; order < 3; order++)
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
      struct text text = {.size = 0};
      struct wire_message got;
      struct err err = ERR_NONE;
      const Weir__PushRequest *push;
      if (order == 0)
        put_bytes(&text, 15, values, sizeof values);
      put_number(&text, 3, 1u << 20);
      put_bytes(&text, 1, "some-run", 8);
      if (order == 1)
        put_bytes(&text, 15, values, sizeof values);
      put_number(&text, 8, 1);
      put_number(&text, 77, 5); /* a field of a later version */
      if (order == 2)
        put_bytes(&text, 15, values, sizeof values);
      assert_int_equal(read_push(&text, cuts[c], &got, &err), ERR_OK);
      push = (const Weir__PushRequest *)got.message;
      assert_string_equal(push->run, "some-run");
      assert_int_equal(push->step, 1u << 20);
      assert_true(push->wait);
      assert_int_equal(push->data.len, 0);
      assert_int_equal(rpc_bytes_size(got.bytes), sizeof values);
      rpc_bytes_copy(got.bytes, got_values);
      assert_memory_equal(got_values, values, sizeof values);
      wire_message_fini(&got);
    }
}

static void the_last_of_two_bytes_fields_counts(void **state) {
  struct text text = {.size = 0};
  struct wire_message got;
  struct err err = ERR_NONE;
  char out[4];
  (void)state;
  put_bytes(&text, 15, "first one", 9);
  put_bytes(&text, 15, "last", 4);
  assert_int_equal(read_push(&text, 1, &got, &err), ERR_OK);
  assert_int_equal(rpc_bytes_size(got.bytes), 4);
  rpc_bytes_copy(got.bytes, out);
  assert_memory_equal(out, "last", 4);
  wire_message_fini(&got);
  put_bytes(&text, 15, "", 0);
  assert_int_equal(read_push(&text, 1, &got, &err), ERR_OK);
  assert_null(got.bytes);
  wire_message_fini(&got);
}

static void what_is_written_reads_back_and_shares_the_payloads_memory(void **state) {
  struct buffer *buffer = buffer_new(4096);
  struct rpc_payload payload = {buffer, 96, 4000};
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  const struct wire_type *type = &rpc_method_defs[RPC_PUSH].request;
  struct wire_message got;
  struct err err = ERR_NONE;
  grpc_byte_buffer *wire;
  (void)state;
  memset(buffer->data, 0x5a, 4096);
  push.run = "some-run";
  push.block = 300;
  wire = wire_write(type, &push, &payload);
  assert_int_equal(wire->data.raw.slice_buffer.count, 2);
  assert_ptr_equal(GRPC_SLICE_START_PTR(wire->data.raw.slice_buffer.slices[1]), (char *)buffer->data + 96);
  assert_false(buffer_is_sole(buffer));
  assert_int_equal(wire_read(type, wire, &got, &err), ERR_OK);
  assert_int_equal(((Weir__PushRequest *)got.message)->block, 300);
  assert_int_equal(rpc_bytes_size(got.bytes), 4000);
  grpc_byte_buffer_destroy(wire);
  wire_message_fini(&got);
  assert_true(buffer_is_sole(buffer));
  buffer_put(buffer);
}

static struct rpc_bytes *bytes_of(const void *data, size_t size, size_t cut) {
  static struct text text;
  struct wire_message got;
  struct err err = ERR_NONE;
  struct rpc_bytes *bytes;
  text.size = 0;
  put_bytes(&text, 15, data, size);
  assert_int_equal(read_push(&text, cut, &got, &err), ERR_OK);
  bytes = got.bytes;
  got.bytes = NULL;
  wire_message_fini(&got);
  return bytes;
}

static void a_sum_does_not_depend_on_how_floats_are_cut(void **state) {
  const size_t cuts[] = {0, 1, 2, 3, 4, 5, 6, 7, 13, 1001};
  float in[ELEMS], begin[ELEMS], expected[ELEMS];
  (void)state;
  for (int i = 0; i < ELEMS; i++) {
    in[i] = random_uniform(1, (uint64_t)i) - 0.5f;
    begin[i] = 1e3f * random_uniform(2, (uint64_t)i);
    expected[i] = in[i] + begin[i];
  }
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
    struct rpc_bytes *bytes = bytes_of(in, sizeof in, cuts[c]);
    float out[ELEMS];
    memcpy(out, begin, sizeof out);
    assert_true(rpc_bytes_add_f32(bytes, out));
    assert_memory_equal(out, expected, sizeof out);
    rpc_bytes_free(bytes);
  }
}

static void an_element_that_is_not_finite_is_noticed_wherever_it_lies(void **state) {
  const float wrong[] = {INFINITY, -INFINITY, NAN, -NAN};
  float in[ELEMS] = {0}, out[ELEMS] = {0};
  (void)state;
  in[3] = 3.4028235e38f; /* the largest that is */
  in[4] = 1e-45f;
  for (size_t cut = 0; cut < 8; cut++) {
    struct rpc_bytes *bytes = bytes_of(in, sizeof in, cut);
    assert_true(rpc_bytes_add_f32(bytes, out));
    rpc_bytes_free(bytes);
    memset(out, 0, sizeof out);
    for (int i = 0; i < ELEMS; i += 111) {
      float kept = in[i];
      in[i] = wrong[i % 4];
      bytes = bytes_of(in, sizeof in, cut);
      assert_false(rpc_bytes_add_f32(bytes, out));
      rpc_bytes_free(bytes);
      in[i] = kept;
      memset(out, 0, sizeof out);
    }
  }
}

static void no_bytes_are_no_sum(void **state) {
  float out = 1;
  (void)state;
  assert_int_equal(rpc_bytes_size(NULL), 0);
  assert_true(rpc_bytes_add_f32(NULL, &out));
  rpc_bytes_copy(NULL, &out);
  rpc_bytes_free(NULL);
  assert_true(out == 1);
}

static void more_than_64_kib_beside_the_bytes_is_refused(void **state) {
  struct text *text = calloc(1, sizeof *text);
  uint8_t *filler = calloc(1, WIRE_REST_BYTES_MAX);
  struct wire_message got;
  struct err err = ERR_NONE;
  (void)state;
  memset(filler, 'x', WIRE_REST_BYTES_MAX);
  put_bytes(text, 1, filler, WIRE_REST_BYTES_MAX - 100);
  put_bytes(text, 15, filler, 100);
  assert_int_equal(read_push(text, 1000, &got, &err), ERR_OK);
  wire_message_fini(&got);
  text->size = 0;
  put_bytes(text, 15, filler, 100);
  put_bytes(text, 1, filler, WIRE_REST_BYTES_MAX);
  assert_int_equal(read_push(text, 1000, &got, &err), ERR_INVALID);
  assert_null(got.message);
  assert_null(got.bytes);
  free(filler);
  free(text);
}

/* GraphProto.node.attribute.g is a GraphProto again. */
static size_t nest(uint8_t *data, size_t capacity, int levels) {
  const uint8_t tags[] = {1 << 3 | 2, 5 << 3 | 2, 6 << 3 | 2};
  size_t begin = capacity;
  for (int i = levels - 1; i >= 0; i--) {
    size_t length = capacity - begin, end = begin;
    begin -= length < 1 << 7 ? 2 : length < 1 << 14 ? 3 : 4;
    data[begin] = tags[i % 3];
    for (size_t at = begin + 1; at < end; at++, length >>= 7)
      data[at] = (uint8_t)((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
  }
  memmove(data, data + begin, capacity - begin);
  return capacity - begin;
}

static void messages_nested_too_deep_are_refused(void **state) {
  enum { CAPACITY = 400000 };
  uint8_t *data = malloc(CAPACITY);
  const ProtobufCMessageDescriptor *graph = &onnx__graph_proto__descriptor;
  struct err err = ERR_NONE;
  void *message = message_unpack(graph, data, nest(data, CAPACITY, UNPACK_DEPTH_MAX), &err);
  (void)state;
  assert_non_null(message);
  protobuf_c_message_free_unpacked(message, NULL);
  assert_null(message_unpack(graph, data, nest(data, CAPACITY, UNPACK_DEPTH_MAX + 1), &err));
  assert_non_null(strstr(err.text, "nested too deep"));
  assert_null(message_unpack(graph, data, nest(data, CAPACITY, 60000), &err));
  free(data);
}

static void read_any(enum rpc_method_id id, const uint8_t *data, size_t size, size_t cut) {
  grpc_byte_buffer *wire = sliced(data, size, cut);
  struct wire_message got;
  struct err err = ERR_NONE;
  int code = wire_read(&rpc_method_defs[id].request, wire, &got, &err);
  assert_int_equal(code == ERR_OK, got.message != NULL);
  assert_int_equal(code, err.code);
  wire_message_fini(&got);
  grpc_byte_buffer_destroy(wire);
}

static void no_bytes_from_the_network_do_harm(void **state) {
  uint8_t data[256];
  (void)state;
  for (uint64_t round = 0; round < 4000; round++) {
    size_t size = random_bits(3, round) % sizeof data;
    for (size_t i = 0; i < size; i++)
      data[i] = (uint8_t)(random_bits(round, i) >> (random_bits(round, i) & 1 ? 8 : 12) & 0x7f);
    for (int id = 0; id < RPC_METHODS; id++)
      read_any(id, data, size, round % 9);
  }
}

static void a_good_message_that_is_damaged_does_no_harm(void **state) {
  struct text text = {.size = 0};
  float values[16] = {0};
  (void)state;
  put_bytes(&text, 1, "some-run", 8);
  put_number(&text, 3, 1u << 20);
  put_bytes(&text, 15, values, sizeof values);
  put_number(&text, 8, 1);
  for (size_t at = 0; at < text.size; at++) {
    uint8_t kept = text.data[at];
    read_any(RPC_PUSH, text.data, at, 5); /* cut short */
    for (int value = 0; value < 256; value++) {
      text.data[at] = (uint8_t)value;
      read_any(RPC_PUSH, text.data, text.size, (size_t)value % 7);
    }
    text.data[at] = kept;
  }
}

static int start_grpc(void **state) {
  (void)state;
  rpc_init();
  return 0;
}

static int end_grpc(void **state) {
  (void)state;
  rpc_fini();
  return 0;
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_message_is_read_whatever_the_order_and_the_slices),
      cmocka_unit_test(the_last_of_two_bytes_fields_counts),
      cmocka_unit_test(what_is_written_reads_back_and_shares_the_payloads_memory),
      cmocka_unit_test(a_sum_does_not_depend_on_how_floats_are_cut),
      cmocka_unit_test(an_element_that_is_not_finite_is_noticed_wherever_it_lies),
      cmocka_unit_test(no_bytes_are_no_sum),
      cmocka_unit_test(more_than_64_kib_beside_the_bytes_is_refused),
      cmocka_unit_test(messages_nested_too_deep_are_refused),
      cmocka_unit_test(no_bytes_from_the_network_do_harm),
      cmocka_unit_test(a_good_message_that_is_damaged_does_no_harm),
  };
  return cmocka_run_group_tests(tests, start_grpc, end_grpc);
}
