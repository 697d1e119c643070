#include "tests/support/world/world_labels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/labels.h"
#include "common/agree/spec_live.h"

static Weir__Label label_a = {PROTOBUF_C_MESSAGE_INIT(&weir__label__descriptor), "gpu", "a"};
static Weir__Label label_b = {PROTOBUF_C_MESSAGE_INIT(&weir__label__descriptor), "gpu", "b"};
static Weir__Label *list_a[] = {&label_a}, *list_b[] = {&label_b};

static bool has_labels(const struct world *w) {
  return w->seed % 5 == 2;
}

static struct labels labels_of(const struct world *w, const struct process *process) {
  bool has_a = process->slot >= PROCESSES - 2;
  if (!has_labels(w) || process->role != WEIR__ROLE__WORKER)
    return (struct labels){0};
  return (struct labels){has_a ? list_a : list_b, 1};
}

Weir__RunSpec *labels_spec(const struct world *w, int run) {
  static const char *const required[] = {"workers.require.gpu=a"};
  Weir__RunSpec *spec = spec_copy(w->spec);
  struct err err = ERR_NONE;
  if (has_labels(w) && run == 0)
    assert_int_equal(spec_set_live(spec, required, 1, &err), 0);
  return spec;
}

void labels_tell(const struct world *w, const struct process *process, Weir__Hello *hello) {
  struct labels labels = labels_of(w, process);
  hello->labels = labels.list;
  hello->n_labels = labels.n;
}

void labels_check_load(const struct world *w, const struct process *worker, const Weir__LoadRun *load) {
  const Weir__WorkersSpec *spec = load->spec->workers;
  if (worker->hosted[run_index(w, load->run)].is_hosted)
    return;
  assert_true(labels_include(labels_of(w, worker), (struct labels){spec->require, spec->n_require}));
}

void people_set(struct world *w, int run) {
  char priority[32], weight[32], max[32];
  const char *settings[] = {priority, weight, max, "workers.require=null"};
  bool requires_nothing = has_labels(w) && world_roll(w, 2);
  Weir__RunSpec *spec = labels_spec(w, run);
  struct coordinator_event event = {.kind = EVENT_RUN_SET, .set = {w->runs[run].id, spec}};
  struct err err = ERR_NONE;
  snprintf(priority, sizeof priority, "priority=%d", (int)world_roll(w, 3) - 1);
  snprintf(weight, sizeof weight, "workers.weight=%d", 1 + (int)world_roll(w, 4));
  snprintf(max, sizeof max, world_roll(w, 2) ? "workers.max=%d" : "workers.max=null",
           2 + (int)world_roll(w, WORKERS));
  assert_int_equal(spec_set_live(spec, settings, requires_nothing ? 4 : 3, &err), 0);
  if (w->core)
    world_step(w, &event);
  spec_free(spec);
}
