/* Weights on their way into programs of the cuda backend, on simulated devices (tests/simulation/cuda): from
   host memory and from that of any device, in as few copies as can be; and the memory that they take. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/network.h"
#include "tests/support/worker/find_simulation.h"
#include "worker/backend/plugin.h"

static const char device[] = "cuda";

enum { COPY_DEFAULT = 4, COPIED_UP = 0, COPIED_WITHIN = 2, HOST = -1 };

/* Of the simulated device. */
static int (*set_device)(int device);
static int (*device_new)(void **out, size_t size_bytes);
static int (*device_free)(void *bytes);
static int (*device_room)(size_t *free_bytes, size_t *total_bytes);
static int (*device_copy)(void *to, const void *from, size_t size_bytes, int kind);
static uint64_t (*copied)(int direction, uint64_t *size_bytes);

static void find_device(void) {
  struct err err;
  void *simulation;
  if (!plugin_load(&err) || !(simulation = dlopen(getenv("WEIR_CUDA"), RTLD_NOW | RTLD_NOLOAD)))
    fail_msg("there is no simulation");
  *(void **)&set_device = dlsym(simulation, "cudaSetDevice");
  *(void **)&device_new = dlsym(simulation, "cudaMalloc");
  *(void **)&device_free = dlsym(simulation, "cudaFree");
  *(void **)&device_room = dlsym(simulation, "cudaMemGetInfo");
  *(void **)&device_copy = dlsym(simulation, "cudaMemcpy");
  *(void **)&copied = dlsym(simulation, "sim_copied");
  assert_true(set_device && device_new && device_free && device_room && device_copy && copied);
}

/* The weights of a network, and one more that it may have, as one vector in host memory, or on a device. */
struct vector {
  float *host, *bytes; /* bytes: where they are given */
  size_t elems;
  const float **weights; /* by value */
  int place;             /* HOST, or a device */
};

static size_t weight_elems(const struct network *f, int value) {
  return (size_t)shape_elems(&f->graph->values[value].shape);
}

static void vector_put(const struct vector *v) {
  if (v->place != HOST)
    assert_int_equal(device_copy(v->bytes, v->host, v->elems * sizeof(float), COPY_DEFAULT), 0);
}

static void vector_init(struct vector *v, const struct network *f, int extra, int place) {
  *v = (struct vector){.place = place, .weights = mem_new((size_t)f->graph->n_values * sizeof *v->weights)};
  v->elems = extra < 0 ? 0 : weight_elems(f, extra);
  for (int w = 0; w < f->n_weights; w++)
    v->elems += weight_elems(f, f->weights[w]);
  v->host = v->bytes = mem_new(v->elems * sizeof *v->host);
  if (place != HOST) {
    void *bytes;
    set_device(place);
    assert_int_equal(device_new(&bytes, v->elems * sizeof(float)), 0);
    v->bytes = bytes;
  }
  size_t at = 0;
  for (int w = 0; w < f->n_weights + (extra >= 0); w++) {
    int value = w < f->n_weights ? f->weights[w] : extra;
    memcpy(v->host + at, f->graph->values[value].data, weight_elems(f, value) * sizeof(float));
    v->weights[value] = v->bytes + at;
    at += weight_elems(f, value);
  }
  vector_put(v);
}

static void vector_fini(struct vector *v) {
  if (v->place != HOST)
    device_free(v->bytes);
  free(v->host);
  free(v->weights);
}

/* Wide enough to be cut into segments, and every tensor ends where another may begin. */
static void fixture_init_even(struct network *f) {
  struct shape image = {4, {BATCH, 1, 12, 12}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_node(f, "Flatten", VALUES(x), ATTRS_NONE);
  x = add_gemm(f, x, 144, 2048);
  x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  x = add_gemm(f, x, 2048, 1024);
  x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  x = add_gemm(f, x, 1024, 64);
  x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  x = add_gemm(f, x, 64, 64);
  x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  add_backward(f, add_gemm(f, x, 64, CLASSES));
  network_feed(f, &image);
}

/* A node that runs on the host reads a weight, which nobody else does. Returns it. */
static int fixture_init_with_host_node(struct network *f) {
  struct shape image = {4, {BATCH, 1, 12, 12}}, square = {2, {3, 3}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  int extra = add_weight(f, square, 1);
  f->n_weights--;
  int factor = add_node(f, "Det", VALUES(extra), ATTRS_NONE);
  x = add_node(f, "Flatten", VALUES(x), ATTRS_NONE);
  x = add_node(f, "Mul", VALUES(x, factor), ATTRS_NONE);
  add_backward(f, add_gemm(f, x, 144, CLASSES));
  network_feed(f, &image);
  return extra;
}

/* Of three executions, the first captured by nobody, with versions of their own. */
static void check_from(const struct network *f, int extra, int place, enum precision precision) {
  struct backend_program *program =
      network_prepare_with(device, f, &(struct backend_options){.precision = precision, .device = 0});
  struct answer expected, answer;
  struct vector vector;
  vector_init(&vector, f, extra, place);
  answer_init(&expected, f);
  answer_init(&answer, f);
  network_run(device, program, NULL, 0, &expected);
  for (uint64_t version = 1; version <= 3; version++) {
    network_run(device, program, vector.weights, version, &answer);
    assert_true(answer_is_same(&expected, &answer));
  }
  for (size_t i = 0; i < vector.elems; i++)
    vector.host[i] *= 1.25f;
  vector_put(&vector);
  network_run(device, program, vector.weights, 4, &answer);
  assert_false(answer_is_same(&expected, &answer));
  backend_of(device)->release(program);
  answer_fini(&expected);
  answer_fini(&answer);
  vector_fini(&vector);
}

static void weights_are_taken_from_host_memory_and_from_any_device(void **state) {
  struct network even, odd, with_host_node;
  (void)state;
  fixture_init_even(&even);
  network_init(&odd);
  int extra = fixture_init_with_host_node(&with_host_node);
  for (int place = HOST; place < 2; place++) {
    check_from(&even, -1, place, PRECISION_F32);
    check_from(&even, -1, place, PRECISION_BF16); /* what is made of them is made anew */
    check_from(&odd, -1, place, PRECISION_F32);
    check_from(&with_host_node, extra, place, PRECISION_F32);
  }
  network_fini(&even);
  network_fini(&odd);
  network_fini(&with_host_node);
}

/* Copies of one execution with new weights in the direction. */
static uint64_t count_copies(const struct network *f, int place, int direction, uint64_t *size_bytes) {
  struct backend_program *program = network_prepare(device, f);
  struct answer answer;
  struct vector vector;
  uint64_t copies, bytes;
  vector_init(&vector, f, -1, place);
  answer_init(&answer, f);
  network_run(device, program, vector.weights, 1, &answer);
  copies = copied(direction, &bytes);
  network_run(device, program, vector.weights, 2, &answer);
  copies = copied(direction, size_bytes) - copies;
  *size_bytes -= bytes;
  backend_of(device)->release(program);
  answer_fini(&answer);
  vector_fini(&vector);
  return copies;
}

/* Ten tensors in three segments, as one matrix is 8 MiB. */
static void weights_that_adjoin_go_up_in_one_copy(void **state) {
  struct network f;
  uint64_t bytes, weights_bytes = 0;
  (void)state;
  fixture_init_even(&f);
  for (int w = 0; w < f.n_weights; w++)
    weights_bytes += weight_elems(&f, f.weights[w]) * sizeof(float);
  uint64_t up = count_copies(&f, HOST, COPIED_UP, &bytes);
  uint64_t within = count_copies(&f, 0, COPIED_WITHIN, &bytes);
  assert_int_equal(bytes, weights_bytes);
  assert_int_equal(within, 3);
  assert_int_equal(up, within + 3); /* the context, images and labels */
  network_fini(&f);
}

static size_t free_bytes_of(int d) {
  size_t free_bytes, total_bytes;
  set_device(d);
  assert_int_equal(device_room(&free_bytes, &total_bytes), 0);
  return free_bytes;
}

/* Who is refused may go to the host; a kernel that is loaded late may not. */
static void what_is_exchanged_leaves_room_for_kernels(void **state) {
  const size_t total_bytes = 16 << 20;
  const struct device_memory *memory;
  struct err err = ERR_NONE;
  size_t free_bytes;
  void *bytes;
  (void)state;
  memory = plugin_load(&err)->backend->memory;
  setenv("WEIR_SIMULATED_MEMORY", "16777216", 1);
  free_bytes = free_bytes_of(1);
  assert_true(free_bytes > total_bytes / 2);
  assert_int_equal(memory->new (1, free_bytes - total_bytes / 512, &bytes, &err), ERR_NO_MEMORY);
  assert_non_null(strstr(err.text, "are kept for kernels and graphs"));
  assert_null(bytes);
  assert_int_equal(free_bytes_of(1), free_bytes);
  err = ERR_NONE;
  assert_int_equal(memory->new (1, free_bytes - total_bytes / 128, &bytes, &err), ERR_OK);
  memory->free(1, bytes);
  unsetenv("WEIR_SIMULATED_MEMORY");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_taken_from_host_memory_and_from_any_device),
      cmocka_unit_test(weights_that_adjoin_go_up_in_one_copy),
      cmocka_unit_test(what_is_exchanged_leaves_room_for_kernels),
  };
  if (!find_simulation("2"))
    return 0;
  find_device();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
