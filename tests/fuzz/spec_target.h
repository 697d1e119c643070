/* What a hostile spec goes through, as a file and as a message: reading, all checks, the options of every
   table, the plan; and what is done with a good one. */
#ifndef WEIR_TESTS_FUZZ_SPEC_TARGET_H
#define WEIR_TESTS_FUZZ_SPEC_TARGET_H

#include <stdlib.h>
#include <string.h>

#include "common/agree/plan.h"
#include "common/agree/spec.h"
#include "common/specs/spec_diff.h"
#include "common/base/memory.h"
#include "common/base/unpack.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

enum { TARGET_SAMPLES = 1000, TARGET_EVAL_SAMPLES = 100, TARGET_SETTINGS = 8 };

/* One that has passed spec_check. */
static void target_checked(Weir__RunSpec *spec) {
  struct err err = ERR_NONE;
  Weir__RunSpec *copy = spec_copy(spec);
  char text[600];
  struct plan plan;
  if (spec_differs(copy, spec, NULL, text, sizeof text))
    abort();
  if (spec_check(copy, &err)) /* what passed once passes again, with its defaults */
    abort();
  spec_free(copy);
  if (optimizer_settle(spec->train->optimizer, &err) == 0 &&
      schedule_settle(spec->train->schedule, &err) == 0 &&
      plan_init(&plan, spec, TARGET_SAMPLES, TARGET_EVAL_SAMPLES, &err) == 0)
    for (uint64_t step = 0; step < plan.steps; step = 2 * step + 1)
      schedule_lr(spec->train->schedule, spec->train->optimizer->lr, step, plan.steps);
}

static void target_spec(Weir__RunSpec *spec) {
  struct err err = ERR_NONE;
  if (spec && spec_check(spec, &err) == 0)
    target_checked(spec);
  spec_free(spec);
}

/* Lines up to one that is "---" are settings of the text behind it. */
static void target_settings(const char *text, size_t size) {
  static const char mark[] = "\n---\n";
  const char *end = memmem(text, size, mark, sizeof mark - 1), *settings[TARGET_SETTINGS];
  struct spec_source source = {.file = "spec", .settings = settings};
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *lines, *rest;
  if (!end)
    return;
  lines = rest = mem_printf("%.*s", (int)(end - text), text);
  while (rest && source.n_settings < TARGET_SETTINGS)
    settings[source.n_settings++] = strsep(&rest, "\n");
  end += sizeof mark - 1;
  spec_read_text(&source, end, size - (size_t)(end - text), &spec, &err);
  target_spec(spec);
  free(lines);
}

static void spec_target(const uint8_t *bytes, size_t size) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  target_settings((const char *)bytes, size);
  spec_read("spec", (const char *)bytes, size, &spec, &err);
  target_spec(spec);
  err = ERR_NONE;
  target_spec(message_unpack(&weir__run_spec__descriptor, bytes, size, &err));
}

#endif
