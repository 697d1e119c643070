/* The history of a long run, as the coordinator's service and its store have it. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/shell/reading/stored_runs.h"
#include "tests/support/coordinator/service_members.h"

enum {
  LONG = 200000,       /* steps: more than twice as many chunks of events as may be there at a time */
  AT_ONCE = 2000,      /* that are reported before it is asked for them */
  CHUNK_EVENTS = 1024, /* as the store has them */
};

/* How many records of events the store has of the run. */
static int count_chunks(struct service_fixture *f, const char *run) {
  struct stored_runs runs;
  struct err err = ERR_NONE;
  int chunks = 0;
  assert_int_equal(stored_runs_read(f->store, NULL, &runs, &err), 0);
  for (int i = 0; i < runs.count; i++)
    if (strcmp(runs.items[i].record->run, run) == 0)
      chunks = runs.items[i].n_chunks;
  stored_runs_fini(&runs);
  return chunks;
}

static void check_history(struct service_fixture *f, const char *run, uint64_t steps) {
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, patience_ms());
  struct err err = ERR_NONE;
  Weir__RunEvent *event;
  uint64_t next = 0, events = 0;
  request.run = (char *)run;
  assert_int_equal(rpc_reader_send(reader, &request, &err), 0);
  rpc_reader_half_close(reader);
  while (next < steps) {
    assert_int_equal(rpc_reader_next(reader, (void **)&event, &err), 0);
    assert_non_null(event);
    if (event->event_case == WEIR__RUN_EVENT__EVENT_STEP) {
      assert_int_equal(event->step->step + 1 - (event->step->steps ? event->step->steps : 1), next);
      next = event->step->step + 1;
      events++;
    }
    message_free(event);
  }
  assert_in_range(events, 1, steps / 2);
  rpc_reader_close(reader);
}

/* Older events become fewer in the store as they do in memory, and none is lost. */
static void a_long_history_is_kept_as_few_events(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id;
  f->spec->train->steps = 2 * LONG;
  id = submit_run(f);
  begin_run(f, id, server, worker);
  for (uint64_t step = 0; step < LONG; step++) {
    tell_step(f, server, id, step);
    if ((step + 1) % AT_ONCE == 0)
      AWAIT(ask_step(f, id) == step + 1);
  }
  check_history(f, id, LONG);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  seat_restart(f, false);
  assert_in_range(count_chunks(f, id), 1, LONG / CHUNK_EVENTS / 2);
  check_history(f, id, LONG);
  free(id);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_long_history_is_kept_as_few_events, service_setup, service_teardown),
  };
  float_setting_apply();
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
