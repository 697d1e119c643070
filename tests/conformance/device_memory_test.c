/* What the memory of every device does, by the plugin's backend on as many devices as there are: copies, sums
   of ranges with the bits of common/agree/sum.h, and what is not finite is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/sum.h"
#include "common/base/memory.h"
#include "harness.h"
#include "tests/conformance/sum_cases.h"

enum { DEVICES_MAX = 8, ELEMS = 60000 };

static const struct backend_def *backend;
static const struct device_memory *memory;
static int n_devices;

/* An array on a device, and what it should hold. */
struct array {
  int device;
  size_t elems;
  float *there, *here;
};

#define GOOD(call)                                                                                           \
  do {                                                                                                       \
    struct err err = ERR_NONE;                                                                               \
    if (call)                                                                                                \
      fail_msg("%s", err.text);                                                                              \
  } while (0)

static struct device_stream *stream_on(int device) {
  struct device_stream *stream = NULL;
  GOOD(memory->open(device, &stream, &err));
  return stream;
}

static bool wait_for(struct device_stream *stream) {
  bool is_finite = false;
  GOOD(memory->wait(stream, &is_finite, &err));
  return is_finite;
}

/* Numbers of many sizes, subnormals, zeros of both signs. */
static void draw(float *out, size_t elems, uint64_t seed) {
  uint64_t key = random_key(seed, 0, 0, 0);
  for (size_t i = 0; i < elems; i++) {
    uint64_t bits = random_bits(key, i);
    uint32_t word = (uint32_t)bits;
    if (bits >> 60 == 0)
      word &= 0x807fffffu;
    else if (bits >> 60 == 1)
      word = (word & 0x80ffffffu) | 0x00800000u;
    else
      word = (word & 0x87ffffffu) | 0x3c000000u;
    if (bits >> 56 == 0x20)
      word &= 0x80000000u;
    memcpy(&out[i], &word, sizeof word);
  }
}

static struct array array_new(struct device_stream *stream, int device, size_t elems, uint64_t seed) {
  struct array array = {.device = device, .elems = elems, .here = mem_new(elems * sizeof(float))};
  void *there = NULL;
  GOOD(memory->new (device, elems * sizeof(float), &there, &err));
  array.there = there;
  draw(array.here, elems, seed);
  GOOD(memory->copy(stream, array.there, array.here, elems * sizeof(float), &err));
  wait_for(stream);
  return array;
}

static void array_free(struct array *array) {
  memory->free(array->device, array->there);
  free(array->here);
}

static void check_array(struct device_stream *stream, const struct array *array) {
  float *got = mem_new(array->elems * sizeof *got);
  GOOD(memory->copy(stream, got, array->there, array->elems * sizeof(float), &err));
  wait_for(stream);
  for (size_t i = 0; i < array->elems; i++)
    if (memcmp(&got[i], &array->here[i], sizeof *got))
      fail_msg("element %zu of %zu is %a, not %a", i, array->elems, (double)got[i], (double)array->here[i]);
  free(got);
}

/* The sum on the device, and on the host. in_there: where in_here's bytes are, for the device. */
static struct device_sum sum_both(struct array *out, size_t out_at, const float *in_there,
                                  const float *in_here, size_t elems) {
  sum_add(out->here + out_at, in_here, elems);
  return (struct device_sum){out->there + out_at, in_there, elems};
}

static void sums_of_many_ranges_have_the_bits_of_the_host(void **state) {
  static const size_t sizes[] = {1, 3, 0, 33, 255, 2047, 2048, 2049, 4097};
  struct device_stream *stream = stream_on(0);
  struct array out = array_new(stream, 0, 20 * ELEMS, 1), in = array_new(stream, 0, 20 * ELEMS, 2);
  struct device_sum sums[700];
  size_t out_at = 1, in_at = 3;
  int n = 0;
  (void)state;
  for (; n < 700; n++) {
    size_t elems = sizes[n % (int)(sizeof sizes / sizeof *sizes)];
    sums[n] = sum_both(&out, out_at, in.there + in_at, in.here + in_at, elems);
    out_at += elems + (size_t)(n % 3);
    in_at += elems + (size_t)(n % 5);
  }
  assert_true(in_at < in.elems && out_at < out.elems);
  GOOD(memory->add(stream, sums, n, &err));
  memset(sums, 0xff, sizeof sums); /* the callee has its own */
  assert_true(wait_for(stream));
  check_array(stream, &out);
  check_array(stream, &in);
  array_free(&out);
  array_free(&in);
  memory->close(stream);
}

/* In several tiles, and from several places within them. */
static void sums_on_the_borders_have_the_bits_that_the_rules_say(void **state) {
  enum { N = 5 * SUM_CASES * 43 };
  struct device_stream *stream = stream_on(0);
  struct array out = array_new(stream, 0, N, 1), in = array_new(stream, 0, N, 2);
  (void)state;
  for (size_t i = 0; i < N; i++) {
    out.here[i] = sum_float(sum_cases[i % SUM_CASES].a);
    in.here[i] = sum_float(sum_cases[i % SUM_CASES].b);
  }
  for (size_t begin = 0; begin < 3; begin++) {
    struct device_sum sum = {out.there + begin, in.there + begin, N - begin};
    GOOD(memory->copy(stream, out.there, out.here, N * sizeof(float), &err));
    GOOD(memory->copy(stream, in.there, in.here, N * sizeof(float), &err));
    wait_for(stream);
    GOOD(memory->add(stream, &sum, 1, &err));
    assert_false(wait_for(stream));
    GOOD(memory->copy(stream, in.here, out.there, N * sizeof(float), &err));
    wait_for(stream);
    for (size_t i = begin; i < N; i++)
      if (!sum_is_case(&sum_cases[i % SUM_CASES], in.here[i]))
        fail_msg("case %zu at %zu is %a", i % SUM_CASES, i, (double)in.here[i]);
    for (size_t i = 0; i < N; i++)
      in.here[i] = sum_float(sum_cases[i % SUM_CASES].b);
  }
  array_free(&out);
  array_free(&in);
  memory->close(stream);
}

static void sums_are_made_in_the_order_in_which_they_were_enqueued(void **state) {
  struct device_stream *stream = stream_on(0);
  struct array a = array_new(stream, 0, ELEMS, 3), b = array_new(stream, 0, ELEMS, 4);
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct device_sum sum = sum_both(&a, 0, b.there, b.here, ELEMS);
    GOOD(memory->add(stream, &sum, 1, &err));
    sum = sum_both(&b, 1, a.there + 5, a.here + 5, ELEMS - 5);
    GOOD(memory->add(stream, &sum, 1, &err));
  }
  assert_true(wait_for(stream));
  check_array(stream, &a);
  check_array(stream, &b);
  array_free(&a);
  array_free(&b);
  memory->close(stream);
}

/* More than is brought over at once, in odd pieces. */
static void what_is_added_may_lie_on_another_device_or_on_the_host(void **state) {
  struct device_stream *streams[DEVICES_MAX];
  const size_t elems = (5 << 20) + 7, third = elems / 3;
  float *pinned = aligned_alloc(4096, (elems * sizeof(float) + 4095) / 4096 * 4096);
  float *pageable = mem_new(elems * sizeof(float));
  (void)state;
  draw(pinned, elems, 5);
  draw(pageable, elems, 6);
  for (int d = 0; d < n_devices; d++)
    streams[d] = stream_on(d);
  backend->pin(pinned, elems * sizeof(float));
  for (int d = 0; d < n_devices; d++) {
    int other = (d + 1) % n_devices;
    struct array out = array_new(streams[d], d, elems, 7), in = array_new(streams[other], other, elems, 8);
    struct device_sum sums[] = {sum_both(&out, 0, in.there + 1, in.here + 1, third - 1),
                                sum_both(&out, third, pinned + third, pinned + third, third),
                                sum_both(&out, 2 * third, pageable + 5, pageable + 5, third),
                                sum_both(&out, third - 1, in.there, in.here, 1)};
    GOOD(memory->add(streams[d], sums, 4, &err));
    assert_true(wait_for(streams[d]));
    check_array(streams[other], &out);
    array_free(&out);
    array_free(&in);
  }
  backend->unpin(pinned);
  for (int d = 0; d < n_devices; d++)
    memory->close(streams[d]);
  free(pinned);
  free(pageable);
}

/* More small ranges than a launch has room for, all from elsewhere. */
static void many_ranges_may_come_from_elsewhere(void **state) {
  struct device_stream *stream = stream_on(0);
  struct array out = array_new(stream, 0, ELEMS, 9);
  struct array in = array_new(stream, n_devices - 1, ELEMS, 10);
  struct device_sum sums[300];
  (void)state;
  for (size_t i = 0; i < 300; i++) {
    const size_t at = i * 190;
    sums[i] = i % 2 ? sum_both(&out, at, in.there + at + 2, in.here + at + 2, 187)
                    : sum_both(&out, at, in.here + at, in.here + at, 190);
  }
  GOOD(memory->add(stream, sums, 300, &err));
  assert_true(wait_for(stream));
  check_array(stream, &out);
  array_free(&out);
  array_free(&in);
  memory->close(stream);
}

static void set(struct device_stream *stream, float *there, float value) {
  GOOD(memory->copy(stream, there, &value, sizeof value, &err));
  wait_for(stream);
}

/* Whether the sums, or looks, of these ranges are said to be finite. */
static bool is_found_finite(struct device_stream *stream, float *out, const float *in, size_t elems) {
  struct device_sum sum = {out, in, elems};
  GOOD(memory->add(stream, &sum, 1, &err));
  return wait_for(stream);
}

static void what_is_not_finite_is_found_once(void **state) {
  struct device_stream *stream = stream_on(0);
  struct array a = array_new(stream, 0, ELEMS, 11), b = array_new(stream, 0, ELEMS, 12);
  const float bad[] = {INFINITY, -INFINITY, NAN};
  const size_t places[] = {100, 101, 30000, ELEMS - 101};
  (void)state;
  for (int i = 0; i < 12; i++) {
    size_t at = places[i % 4];
    set(stream, a.there + at, bad[i % 3]);
    assert_false(is_found_finite(stream, a.there + 100, NULL, ELEMS - 200));
    assert_true(wait_for(stream));
    assert_false(is_found_finite(stream, b.there + 100, a.there + 100, ELEMS - 200));
    assert_true(is_found_finite(stream, a.there, NULL, at));
    assert_true(is_found_finite(stream, a.there + at + 1, NULL, ELEMS - at - 1));
    set(stream, a.there + at, 1.0f);
    set(stream, b.there + at, 1.0f);
  }
  set(stream, a.there + 7, 3e38f);
  set(stream, b.there + 7, 2e38f);
  assert_true(is_found_finite(stream, a.there, NULL, ELEMS));
  assert_false(is_found_finite(stream, a.there, b.there, ELEMS));
  array_free(&a);
  array_free(&b);
  memory->close(stream);
}

static void memory_that_is_not_there_is_refused_with_what_is_needed(void **state) {
  struct err err = ERR_NONE;
  void *out = &err;
  (void)state;
  assert_int_equal(memory->new (0, SIZE_MAX / 4, &out, &err), ERR_NO_MEMORY);
  assert_null(out);
  assert_non_null(strstr(err.text, "bytes of device memory"));
  memory->free(0, NULL);
  memory->close(NULL);
}

static void no_elements_are_no_work(void **state) {
  struct device_stream *stream = stream_on(0);
  struct device_sum sum = {NULL, NULL, 0};
  (void)state;
  GOOD(memory->add(stream, &sum, 1, &err));
  GOOD(memory->add(stream, NULL, 0, &err));
  GOOD(memory->copy(stream, NULL, NULL, 0, &err));
  assert_true(wait_for(stream));
  memory->close(stream);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_of_many_ranges_have_the_bits_of_the_host),
      cmocka_unit_test(sums_on_the_borders_have_the_bits_that_the_rules_say),
      cmocka_unit_test(sums_are_made_in_the_order_in_which_they_were_enqueued),
      cmocka_unit_test(what_is_added_may_lie_on_another_device_or_on_the_host),
      cmocka_unit_test(many_ranges_may_come_from_elsewhere),
      cmocka_unit_test(what_is_not_finite_is_found_once),
      cmocka_unit_test(memory_that_is_not_there_is_refused_with_what_is_needed),
      cmocka_unit_test(no_elements_are_no_work),
  };
  struct err err = ERR_NONE;
  suite_name_plugin();
  const struct plugin *plugin = plugin_load(&err);
  n_devices = plugin ? plugin->devices(NULL, 0, &err) : 0;
  if (n_devices < 1) {
    printf("1..1\nok 1 - device memory # SKIP %s\n", err.text);
    return 0;
  }
  n_devices = n_devices < DEVICES_MAX ? n_devices : DEVICES_MAX;
  backend = plugin->backend;
  memory = backend->memory;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
