#include "tests/support/coordinator/core_succession.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"

Weir__RunRecord *record_of(struct core_fixture *f) {
  Weir__RunRecord *record = NULL;
  struct coordinator_event emptied = {.kind = EVENT_STORE_EMPTIED};
  coordinator_step(f->coordinator, &emptied, f->now_ms, &f->actions);
  for (int i = 0; i < f->actions.count; i++)
    if (f->actions.items[i].kind == ACTION_SAVE) {
      message_free(record);
      record = message_copy(f->actions.items[i].record);
    }
  assert_non_null(record);
  return record;
}

Weir__RunRecord *record_of_run(struct core_fixture *f, const char *run) {
  Weir__RunSpec *spec = spec_copy(coordinator_run_spec(f->coordinator, run));
  struct coordinator_event set = {.kind = EVENT_RUN_SET, .set = {run, spec}};
  Weir__RunRecord *record = NULL;
  coordinator_step(f->coordinator, &set, f->now_ms, &f->actions);
  for (int i = 0; i < f->actions.count; i++)
    if (f->actions.items[i].kind == ACTION_SAVE && strcmp(f->actions.items[i].run, run) == 0) {
      message_free(record);
      record = message_copy(f->actions.items[i].record);
    }
  assert_non_null(record);
  spec_free(spec);
  return record;
}

void coordinator_is_succeeded(struct core_fixture *f, const char *run, Weir__RunRecord *changed) {
  struct coordinator_options options = {
      .term = TERM, .missing_after_ms = MISSING_MS, .server_grace_ms = GRACE_MS};
  struct coordinator_event event = {.kind = EVENT_RUN_RESTORED, .restored = {.record = changed}};
  Weir__RunEvent *events[64];
  struct run_event_view view;
  size_t n = 0;
  memset(options.secret, 1, sizeof options.secret); /* each coordinator draws its own */
  for (uint64_t at = 0; coordinator_run_event(f->coordinator, run, at, &view); at = view.event.number + 1) {
    assert_true(n < 64);
    events[n] = message_copy(&view.event);
    events[n++]->number -= (uint64_t)TERM << 32; /* as if of the term before */
  }
  event.restored.n_events = n;
  event.restored.events = events;
  event.restored.now_unix_ms = 1700000000000 + (int64_t)f->now_ms;
  coordinator_free(f->coordinator);
  f->coordinator = coordinator_new(&options);
  for (int i = 0; i < MEMBERS; i++)
    f->told[i].is_closed = true;
  core_step(f, &event);
  core_ticks(f);
  while (n)
    message_free(events[--n]);
  message_free(changed);
}

const char *server_message(struct core_fixture *f, size_t at) {
  static char text[1024];
  Weir__ListServersReply reply;
  struct arena arena;
  arena_init(&arena);
  coordinator_list_servers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  assert_true(at < reply.n_servers);
  snprintf(text, sizeof text, "%s", reply.servers[at]->message);
  arena_fini(&arena);
  return text;
}
