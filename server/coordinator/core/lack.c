/* What a run asks of workers and they lack, for people: labels, the kind of its sweep, bits of weir-worker.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "server/coordinator/core/settle.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/sweep_kind.h"
#include "server/coordinator/state/tenant.h"

enum { VALUES_SAID_MAX = 4 };

struct text {
  char bytes[1024];
};

static void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void text_add(struct text *text, const char *format, ...) {
  size_t length = strlen(text->bytes);
  va_list args;
  va_start(args, format);
  vsnprintf(text->bytes + length, sizeof text->bytes - length, format, args);
  va_end(args);
}

/* For the run's tenant. */
static bool is_there(const struct run *run, const struct member *member) {
  return member->role == WEIR__ROLE__WORKER && coordinator_is_usable(member) && tenant_shares(run, member);
}

static bool is_among(const char *const *values, int n, const char *value) {
  for (int i = 0; i < n; i++)
    if (strcmp(values[i], value) == 0)
      return true;
  return false;
}

/* Returns how many values of the key there are. */
static int say_values(const struct coordinator *coordinator, const struct run *run, const char *key,
                      struct text *text) {
  const char **values =
      arena_new(&coordinator->actions->arena, (size_t)coordinator->n_members * sizeof *values);
  int n = 0;
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    const char *value = is_there(run, member) ? labels_find(member->labels, key) : NULL;
    if (!value || is_among(values, n, value))
      continue;
    values[n++] = value;
    if (n <= VALUES_SAID_MAX)
      text_add(text, "%s%s=%s", *text->bytes ? ", " : "", key, value);
  }
  if (n > VALUES_SAID_MAX)
    text_add(text, " and %d more", n - VALUES_SAID_MAX);
  return n;
}

static void say_count(struct text *text, uint32_t suited, uint32_t all, bool is_one) {
  const char *what = is_one ? "it" : "them";
  if (suited)
    text_add(text, "%u of the %u workers %s %s", suited, all, suited == 1 ? "has" : "have", what);
  else if (all == 1)
    text_add(text, "the only worker does not have %s", what);
  else
    text_add(text, "none of the %u workers has %s", all, what);
}

char *coordinator_missing_labels(const struct coordinator *coordinator, const struct run *run,
                                 uint32_t needed) {
  struct labels required = coordinator_required(run);
  struct text text, values, keys;
  uint32_t suited = 0, all = 0;
  if (required.n == 0)
    return NULL;
  text.bytes[0] = values.bytes[0] = keys.bytes[0] = 0;
  for (int i = 0; i < coordinator->n_members; i++)
    if (is_there(run, coordinator->members[i])) {
      all++;
      suited += coordinator_has_labels(run, coordinator->members[i]);
    }
  if (all == 0 || suited >= needed)
    return NULL;
  say_count(&text, suited, all, required.n == 1);
  for (size_t i = 0; i < required.n; i++)
    if (say_values(coordinator, run, required.list[i]->key, &values) == 0)
      text_add(&keys, "%s%s", *keys.bytes ? ", " : "", required.list[i]->key);
  return mem_printf("%s%s%s%s%s", text.bytes, *values.bytes ? "; they have " : "", values.bytes,
                    *keys.bytes ? "; none has a label " : "", keys.bytes);
}

char *coordinator_missing_kind(const struct coordinator *coordinator, const struct run *run,
                               uint32_t needed) {
  const struct member *stranger = NULL; /* the first one */
  uint32_t fitting = 0, all = 0;
  char *mismatch, *text;
  if (!sweep_kind_of(run) && coordinator->n_foreign == 0 && coordinator->n_unconfining == 0 &&
      coordinator->n_uncompressing == 0)
    return NULL;
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (!is_there(run, member))
      continue;
    all++;
    if (coordinator_worker_fits(run, member))
      fitting++;
    else if (!stranger)
      stranger = member;
  }
  if (!stranger || fitting >= needed)
    return NULL;
  mismatch = coordinator_worker_mismatch(run, stranger);
  text =
      mem_printf("workers %s: %u of the %u there: %s",
                 sweep_kind_of(run) ? "of its sweep's kind" : "that may compute it", fitting, all, mismatch);
  free(mismatch);
  return text;
}
