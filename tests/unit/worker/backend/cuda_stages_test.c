/* Stages on the cuda backend, on simulated devices: what they leave unsent, what they do without a
   neighbour's bytes, what is known of their memory before they have any, and what they read. That their bits
   are those of the uncut program is tests/conformance/stage_test.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/find_simulation.h"
#include "tests/support/worker/network.h"
#include "worker/backend/plugin.h"

static const char device[] = "cuda";

enum { FEATURES = 16, WIDTH = 256, PIECES_MAX = 16 };

/* flatten, gemm, gather of rows, tanh, gemm: `gather` is the third node. */
static void network_init_rows(struct network *f) {
  struct shape image = {4, {BATCH, 1, 4, 4}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_gemm(f, add_node(f, "Flatten", VALUES(x), ATTRS_NONE), FEATURES, WIDTH);
  int rows = graph_add_input(f->graph, "rows", DTYPE_I64, &(struct shape){1, {BATCH}});
  x = add_node(f, "Gather", VALUES(x, rows), ATTRS_NONE);
  x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  add_backward(f, add_gemm(f, x, WIDTH, CLASSES));
  network_feed(f, &image);
}

static struct backend_request request_of(const struct network *f, const int *cut, int stage) {
  return (struct backend_request){.graph = f->graph,
                                  .watched = f->watched,
                                  .n_watched = f->n_watched,
                                  .options = {.cuts = cut, .n_cuts = 1, .stage = stage}};
}

/* The first place behind the Gather where the graph can be cut. */
static int find_cut(const struct network *f) {
  struct backend_request request = {.graph = f->graph, .watched = f->watched, .n_watched = f->n_watched};
  bool *is_valid = mem_new((size_t)f->graph->n_nodes + 1);
  struct err err = ERR_NONE;
  int cut = 1;
  assert_int_equal(backend_of(device)->find_places(&request, is_valid, &err), ERR_OK);
  while (cut < f->graph->n_nodes && strcmp(f->graph->nodes[cut - 1]->op->name, "Gather") != 0)
    cut++;
  while (cut < f->graph->n_nodes && !is_valid[cut])
    cut++;
  assert_true(cut < f->graph->n_nodes);
  free(is_valid);
  return cut;
}

struct neighbour {
  int n_sent, n_asked;
  bool is_there;
  const void *pieces[PIECES_MAX]; /* [n_pieces] that it has for us */
  int n_pieces;
};

static void take(void *user, enum backend_part part, const void *const *pieces) {
  struct neighbour *neighbour = user;
  assert_true(part == BACKEND_FORWARD && pieces != NULL);
  neighbour->n_sent++;
}

static bool give(void *user, enum backend_part part, const void **pieces) {
  struct neighbour *neighbour = user;
  neighbour->n_asked++;
  if (part == BACKEND_FORWARD && neighbour->is_there)
    memcpy(pieces, neighbour->pieces, (size_t)neighbour->n_pieces * sizeof *pieces);
  return neighbour->is_there;
}

static void what_comes_of_a_fault_is_not_sent(void **state) {
  const int64_t inside[BATCH] = {0, 1, 3, 2, 1, 0}, outside[BATCH] = {0, 1, BATCH, 2, 1, 0};
  struct neighbour neighbour = {0};
  struct backend_program *program;
  struct err err = ERR_NONE;
  struct network f;
  (void)state;
  network_init_rows(&f);
  int cut = find_cut(&f);
  struct backend_request request = request_of(&f, &cut, 0);
  assert_int_equal(backend_of(device)->prepare(&request, &program, &err), ERR_OK);
  for (int i = 0; i < 4; i++) { /* enqueued, captured and replayed */
    const void *inputs[] = {f.inputs[0], i % 2 ? outside : inside, f.inputs[1]};
    struct backend_run run = {
        .part = BACKEND_FORWARD, .inputs = inputs, .receive = give, .send = take, .user = &neighbour};
    err = ERR_NONE;
    assert_int_equal(backend_of(device)->run(program, &run, &err), i % 2 ? ERR_INVALID : ERR_OK);
    assert_int_equal(neighbour.n_sent, 1 + i / 2);
  }
  assert_non_null(strstr(err.text, "is outside a dimension of"));
  backend_of(device)->release(program);
  network_fini(&f);
}

static void a_stage_without_its_neighbours_bytes_is_cancelled(void **state) {
  const int64_t rows[BATCH] = {0};
  struct neighbour neighbour = {0};
  struct backend_message message;
  struct backend_program *program;
  struct err err = ERR_NONE;
  struct network f;
  (void)state;
  network_init_rows(&f);
  int cut = find_cut(&f);
  struct backend_request request = request_of(&f, &cut, 1);
  const void *inputs[] = {f.inputs[0], rows, f.inputs[1]};
  struct backend_run run = {
      .part = BACKEND_FORWARD, .inputs = inputs, .receive = give, .send = take, .user = &neighbour};
  assert_int_equal(backend_of(device)->prepare(&request, &program, &err), ERR_OK);
  assert_true(backend_of(device)->message(program, BACKEND_FORWARD, false, &message));
  assert_false(backend_of(device)->message(program, BACKEND_FORWARD, true, &message));
  assert_true(backend_of(device)->message(program, BACKEND_FORWARD, false, &message));
  assert_true(message.n > 0 && message.n <= PIECES_MAX);
  assert_int_equal(backend_of(device)->run(program, &run, &err), ERR_CANCELLED);
  assert_int_equal(neighbour.n_asked, 1);
  for (int p = 0; p < message.n; p++)
    neighbour.pieces[p] = mem_new(message.sizes_bytes[p] + 1);
  neighbour.n_pieces = message.n;
  neighbour.is_there = true;
  err = ERR_NONE;
  assert_int_equal(backend_of(device)->run(program, &run, &err), ERR_OK);
  assert_int_equal(neighbour.n_asked, 2);
  for (int p = 0; p < message.n; p++)
    free((void *)neighbour.pieces[p]);
  backend_of(device)->release(program);
  network_fini(&f);
}

/* Whatever the device has room for. */
static void a_stage_is_measured_before_it_has_memory(void **state) {
  struct backend_program *program;
  struct err err = ERR_NONE;
  size_t room, measured, again;
  struct network f;
  (void)state;
  network_init_rows(&f);
  int cut = find_cut(&f);
  for (int stage = 0; stage < 2; stage++) {
    struct backend_request request = request_of(&f, &cut, stage);
    request.options.n_contexts = 2 - stage;
    assert_int_equal(backend_of(device)->prepare(&request, &program, &err), ERR_OK);
    assert_int_equal(backend_of(device)->measure(&request, &measured, &err), ERR_OK);
    assert_int_equal(measured, backend_of(device)->memory_bytes(program));
    backend_of(device)->release(program);
    setenv("WEIR_SIMULATED_MEMORY", "12000", 1);
    assert_int_equal(backend_of(device)->room(0, &room, &err), ERR_OK);
    assert_true(room < measured);
    assert_int_equal(backend_of(device)->measure(&request, &again, &err), ERR_OK);
    assert_int_equal(again, measured);
    assert_int_equal(backend_of(device)->prepare(&request, &program, &err), ERR_NO_MEMORY);
    unsetenv("WEIR_SIMULATED_MEMORY");
    err = ERR_NONE;
  }
  network_fini(&f);
}

/* As network_init_rows, with a norm before the rows are gathered, which the host computes: its scale and bias
   have different shapes. */
static void network_init_host(struct network *f) {
  struct shape image = {4, {BATCH, 1, 4, 4}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_gemm(f, add_node(f, "Flatten", VALUES(x), ATTRS_NONE), FEATURES, WIDTH);
  int scale = add_weight(f, (struct shape){1, {WIDTH}}, 1.0f),
      bias = add_weight(f, (struct shape){1, {1}}, 1.0f);
  x = add_node(f, "LayerNormalization", VALUES(x, scale, bias), ATTRS_NONE);
  int rows = graph_add_input(f->graph, "rows", DTYPE_I64, &(struct shape){1, {BATCH}});
  x = add_node(f, "Gather", VALUES(x, rows), ATTRS_NONE);
  x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  add_backward(f, add_gemm(f, x, WIDTH, CLASSES));
  network_feed(f, &image);
}

/* Of inputs: images, rows, labels; of weights: four of the gemm and the norm below, two of the gemm above. */
static void a_stage_reads_what_its_own_steps_do(void **state) {
  static const bool inputs[][3] = {{true, true, false}, {false, false, true}};
  static const bool weights[][6] = {{true, true, true, true}, {[4] = true, [5] = true}};
  const struct backend_def *backend = backend_of(device);
  struct backend_program *program;
  struct err err = ERR_NONE;
  struct network f;
  (void)state;
  network_init_host(&f);
  int cut = find_cut(&f);
  assert_int_equal(f.graph->n_inputs, 3);
  assert_int_equal(f.n_weights, 6);
  for (int precision = PRECISION_F32; precision <= PRECISION_BF16; precision++)
    for (int stage = 0; stage < 2; stage++) {
      struct backend_request request = request_of(&f, &cut, stage);
      request.options.precision = (enum precision)precision;
      assert_int_equal(backend->prepare(&request, &program, &err), ERR_OK);
      const struct node *on_host = backend->host_node(program, 0);
      assert_true(stage == 0 ? on_host && strcmp(on_host->op->name, "LayerNormalization") == 0 : !on_host);
      for (int i = 0; i < 3; i++)
        assert_int_equal(backend->reads(program, f.graph->inputs[i]), inputs[stage][i]);
      for (int w = 0; w < 6; w++)
        assert_int_equal(backend->reads(program, f.weights[w]), weights[stage][w]);
      backend->release(program);
    }
  network_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_comes_of_a_fault_is_not_sent),
      cmocka_unit_test(a_stage_without_its_neighbours_bytes_is_cancelled),
      cmocka_unit_test(a_stage_is_measured_before_it_has_memory),
      cmocka_unit_test(a_stage_reads_what_its_own_steps_do),
  };
  if (!find_simulation("1"))
    return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
