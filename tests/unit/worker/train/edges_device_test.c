/* The edges of stages on the cuda backend, on a simulated device: the memory that messages come to, and what
   the probe draws in their place. */
#include <dlfcn.h>
#include <math.h>
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
#include "worker/train/boundary/inbox.h"
#include "worker/train/executor/edges_probe.h"

static const char device[] = "cuda";

/* What the simulated device itself says of host memory. */
static bool is_pinned(uintptr_t at, size_t size_bytes) {
  void *plugin = dlopen(getenv("WEIR_CUDA"), RTLD_LAZY | RTLD_NOLOAD);
  bool (*ask)(const void *at, size_t size_bytes);
  assert_non_null(plugin);
  ask = (bool (*)(const void *, size_t))dlsym(plugin, "sim_is_pinned");
  assert_non_null(ask);
  dlclose(plugin);
  return ask((const void *)at, size_bytes);
}

static void messages_come_to_pinned_memory(void **state) {
  enum { LAST_BYTES = 1000, MESSAGE_BYTES = BOUNDARY_PIECE_BYTES + LAST_BYTES, SLOTS = 2 };
  uintptr_t slots[SLOTS];
  struct err err = ERR_NONE;
  struct inbox inbox;
  size_t room;
  (void)state;
  assert_int_equal(backend_of(device)->room(0, &room, &err), ERR_OK); /* from here on a device is in use */
  inbox_init(&inbox, MESSAGE_BYTES, SLOTS, backend_of(device));
  for (int s = 0; s < SLOTS; s++) {
    struct boundary_key key = {.step = 1, .index = (uint32_t)s};
    struct boundary_range range = {0, BOUNDARY_PIECE_BYTES};
    void *to;
    assert_int_equal(inbox_claim(&inbox, &key, &range, &to), INBOX_CLAIMED);
    slots[s] = (uintptr_t)to;
    assert_true(is_pinned(slots[s], MESSAGE_BYTES));
    inbox_land(&inbox, &key, range.begin);
  }
  inbox_fini(&inbox);
  for (int s = 0; s < SLOTS; s++)
    assert_false(is_pinned(slots[s], MESSAGE_BYTES));
}

static float real_at(const unsigned char *piece, size_t index, int real_bytes) {
  uint32_t bits = 0;
  float real;
  memcpy((unsigned char *)&bits + sizeof bits - (size_t)real_bytes, piece + index * (size_t)real_bytes,
         (size_t)real_bytes);
  memcpy(&real, &bits, sizeof real);
  return real;
}

/* Of many reals half are on each side of zero, more or less. */
static void assert_drawn(const unsigned char *piece, size_t reals, int real_bytes) {
  enum { MANY = 64 };
  size_t n_below = 0, n_above = 0;
  for (size_t i = 0; i < reals; i++) {
    float real = real_at(piece, i, real_bytes);
    assert_true(fabsf(real) <= 1);
    n_below += real < 0;
    n_above += real > 0;
  }
  assert_true(n_below + n_above > 0);
  if (reals >= MANY)
    assert_true(n_below >= reals / 4 && n_above >= reals / 4);
}

/* How many pieces of reals of so many bytes each are in what a stage receives for the part, once all that is
   drawn for it is as it should be. */
static int count_drawn(struct backend_program *program, enum backend_part part, int real_bytes) {
  struct backend_message message;
  struct message_layout layout;
  int n = 0;
  if (!backend_of(device)->message(program, part, false, &message))
    return 0;
  message_layout_init(&layout, &message);
  unsigned char *first = message_draw(&layout, &message, 1), *same = message_draw(&layout, &message, 1),
                *other = message_draw(&layout, &message, 2);
  assert_memory_equal(first, same, message_layout_bytes(&layout));
  for (int p = 0; p < message.n; p++) {
    const unsigned char *piece = first + layout.offsets[p];
    int each = message.real_bytes[p];
    if (!each)
      continue;
    assert_drawn(piece, message.sizes_bytes[p] / (size_t)each, each);
    assert_memory_not_equal(piece, other + layout.offsets[p], message.sizes_bytes[p]);
    n += each == real_bytes;
  }
  free(first);
  free(same);
  free(other);
  message_layout_fini(&layout);
  return n;
}

/* The pieces of reals of so many bytes each that cross the cut, up and down. */
static int count_at(const struct network *f, int cut, enum precision precision, int real_bytes) {
  int n = 0;
  for (int stage = 0; stage < 2; stage++) {
    struct backend_request request = {
        .graph = f->graph,
        .watched = f->watched,
        .n_watched = f->n_watched,
        .options = {.precision = precision, .cuts = &cut, .n_cuts = 1, .stage = stage}};
    struct backend_program *program;
    struct err err = ERR_NONE;
    assert_int_equal(backend_of(device)->prepare(&request, &program, &err), ERR_OK);
    n += count_drawn(program, stage == 0 ? BACKEND_BACKWARD : BACKEND_FORWARD, real_bytes);
    backend_of(device)->release(program);
  }
  return n;
}

static void the_probe_draws_reals_of_each_size(void **state) {
  static const struct {
    enum precision precision;
    int real_bytes;
  } kinds[] = {{PRECISION_F32, 4}, {PRECISION_BF16, 2}};
  struct network f;
  (void)state;
  network_init(&f);
  bool *is_valid = mem_new((size_t)f.graph->n_nodes + 1);
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
    struct backend_request request = {.graph = f.graph,
                                      .watched = f.watched,
                                      .n_watched = f.n_watched,
                                      .options = {.precision = kinds[k].precision}};
    struct err err = ERR_NONE;
    int n = 0;
    assert_int_equal(backend_of(device)->find_places(&request, is_valid, &err), ERR_OK);
    for (int cut = 1; cut < f.graph->n_nodes; cut++)
      if (is_valid[cut])
        n += count_at(&f, cut, kinds[k].precision, kinds[k].real_bytes);
    assert_true(n > 0);
  }
  free(is_valid);
  network_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_come_to_pinned_memory),
      cmocka_unit_test(the_probe_draws_reals_of_each_size),
  };
  if (!find_simulation("1"))
    return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
