#include "tests/support/world/world_processes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/placement.h"
#include "common/base/message.h"
#include "tests/support/world/world_holds.h"
#include "tests/support/world/world_labels.h"
#include "tests/support/world/world_liars.h"
#include "tests/support/world/world_work.h"

void process_tells(struct process *process, Weir__MemberMessage__BodyCase body, void *content) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  if (!process->key)
    return; /* it will be asked again */
  message.body_case = body;
  message.hello = content;
  queue_push(&process->up, &message);
}

void process_begin(struct world *w, int slot) {
  struct process *process = &w->processes[slot];
  process->slot = slot;
  process->role = slot < SERVERS ? WEIR__ROLE__SERVER : WEIR__ROLE__WORKER;
  process->pid = ++w->pids;
  process->is_alive = true;
  process->term = 0;
  process->microbatch_ms = (world_roll(w, 4) ? 10 : 60) + world_roll(w, 10);
  process->version_ms = world_roll(w, 4) ? 20 : 2000;
  process->is_hung = false;
  process->computed = process->busy_ms = 0;
  *process->id = 0;
  memset(process->hosted, 0, sizeof process->hosted);
}

/* In half of the worlds some compute both runs at the same time. */
static uint32_t executors_of(const struct world *w, const struct process *process) {
  return w->seed / 4 % 2 ? 1 + (uint32_t)process->slot % 3 : 1;
}

void process_join(struct world *w, struct process *process) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__HostedRun hosted[RUNS], *list[RUNS];
  struct coordinator_event event = {.kind = EVENT_MEMBER_JOINED, .member = ++w->keys, .hello = &hello};
  char address[32];
  if (!w->core || !process->is_alive || process->key || process->is_unheard)
    return;
  snprintf(address, sizeof address, "host:%d", process->slot);
  hello.role = process->role;
  hello.host = "host";
  hello.pid = process->pid;
  hello.address = process->role == WEIR__ROLE__SERVER ? address : "";
  hello.executors = executors_of(w, process);
  hello.device = liars_device(process);
  hello.shm_host = process->slot == PROCESSES - 1 ? "another" : "node";
  hello.share_host = process->slot == 0 ? "elsewhere" : "node";
  hello.fingerprint = "build";
  hello.id = process->id;
  hello.term = process->term;
  hello.runs = list;
  labels_tell(w, process, &hello);
  for (int i = 0; i < RUNS; i++) {
    if (!process->hosted[i].is_hosted)
      continue;
    list[hello.n_runs] = &hosted[hello.n_runs];
    weir__hosted_run__init(list[hello.n_runs]);
    list[hello.n_runs]->run = w->runs[i].id;
    list[hello.n_runs]->incarnation = process->hosted[i].incarnation;
    list[hello.n_runs]->hold = process->hosted[i].hold;
    list[hello.n_runs++]->version = process->hosted[i].version;
  }
  process->key = event.member;
  world_step(w, &event);
}

void process_unlink(struct world *w, struct process *process) {
  queue_clear(&process->up);
  queue_clear(&process->down);
  if (process->key)
    w->leaving[w->n_leaving++ % QUEUE] = process->key;
  process->key = 0;
  process->is_frozen = false;
}

void process_kill(struct world *w, struct process *process) {
  process_unlink(w, process);
  process->is_alive = false;
  memset(process->hosted, 0, sizeof process->hosted);
}

void deliver_leaving(struct world *w) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_LEFT, .reason = "connection reset"};
  int at;
  if (!w->n_leaving || !w->core)
    return;
  at = (int)world_roll(w, (uint64_t)w->n_leaving);
  event.member = w->leaving[at];
  w->leaving[at] = w->leaving[--w->n_leaving];
  world_step(w, &event);
}

void deliver_up(struct world *w, struct process *process) {
  Weir__MemberMessage *message = process->is_frozen || process->is_unheard ? NULL : queue_pop(&process->up);
  struct coordinator_event event = {.kind = EVENT_MEMBER_MESSAGE, .member = process->key, .message = message};
  if (!message)
    return;
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_LOADED && process->role == WEIR__ROLE__SERVER) {
    struct server_set *set = set_of(w, run_index(w, message->loaded->run), message->loaded->incarnation);
    if (set_index(set, process) >= 0)
      set->is_loaded[set_index(set, process)] = true;
  }
  world_step(w, &event);
  message_free(message);
}

static void server_step_report(struct world *w, struct process *server, int run, uint64_t step) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  report.run = w->runs[run].id;
  report.incarnation = server->hosted[run].incarnation;
  report.step = step;
  report.loss = 1.0 / (double)(step + 1);
  report.samples = BATCH;
  report.seconds = 0.1;
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_STEP, &report);
}

void server_eval_report(struct world *w, struct process *server, int run, uint64_t version) {
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  if (!plan_evaluates(&w->plan, version))
    return;
  report.run = w->runs[run].id;
  report.incarnation = server->hosted[run].incarnation;
  report.step = version;
  report.accuracy = report.loss = accuracy_at(version);
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_EVAL, &report);
}

static void server_complete(struct world *w, struct process *server, int run) {
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  complete.run = w->runs[run].id;
  complete.incarnation = server->hosted[run].incarnation;
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, &complete);
}

bool has_statistics(struct world *w, struct process *server, int run) {
  return set_index(set_of(w, run, server->hosted[run].incarnation), server) == 0;
}

static void server_cannot_write(struct world *w, struct process *server, int run, bool is_too_late) {
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  written.run = w->runs[run].id;
  written.incarnation = server->hosted[run].incarnation;
  written.step = server->hosted[run].write_step;
  written.error = is_too_late ? "that version is gone" : "connection refused";
  written.is_too_late = is_too_late;
  w->too_late += is_too_late;
  server->hosted[run].write_step = 0;
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
}

static bool is_at_end(const struct world *w, const struct hosted *hosted) {
  return hosted->version == w->plan.steps && (w->plan.steps > 0 || hosted->is_evaluated);
}

static void server_order(struct world *w, struct process *server, const Weir__Order *order) {
  int run = -1;
  struct hosted *hosted = NULL;
  if (order->body_case == WEIR__ORDER__BODY_LOAD) {
    run = run_index(w, order->load->run);
    hosted = &server->hosted[run];
    assert_true(!hosted->is_hosted || order->load->incarnation > hosted->incarnation);
    w->rolled_back += order->load->incarnation > 0;
    *hosted = (struct hosted){.is_hosted = true,
                              .incarnation = order->load->incarnation,
                              .hold = order->load->hold,
                              .base = order->load->step,
                              .version = order->load->step};
  } else if (order->body_case == WEIR__ORDER__BODY_KEEP) {
    run = run_index(w, order->keep->run);
    hosted = &server->hosted[run];
    assert_true(hosted->is_loaded && hosted->incarnation == order->keep->incarnation);
    w->kept++;
    for (uint64_t step = order->keep->step > hosted->base ? order->keep->step : hosted->base;
         has_statistics(w, server, run) && step <= hosted->version; step++) {
      if (step < hosted->version || is_at_end(w, hosted))
        server_eval_report(w, server, run, step);
      if (step < hosted->version)
        server_step_report(w, server, run, step);
    }
    if (is_at_end(w, hosted))
      server_complete(w, server, run);
    server_told_hold(w, server, run, order->keep->hold);
  } else if (order->body_case == WEIR__ORDER__BODY_HOLD) {
    run = run_index(w, order->hold->run);
    if (server->hosted[run].is_hosted && server->hosted[run].incarnation == order->hold->incarnation)
      server_told_hold(w, server, run, order->hold->step);
  } else if (order->body_case == WEIR__ORDER__BODY_WRITE) {
    run = run_index(w, order->write->run);
    hosted = &server->hosted[run];
    assert_true(hosted->is_loaded && hosted->incarnation == order->write->incarnation);
    hosted->write_step = order->write->step;
    if (hosted->version > order->write->step)
      server_cannot_write(w, server, run, true);
  } else if (order->body_case == WEIR__ORDER__BODY_UNLOAD) {
    server->hosted[run_index(w, order->unload->run)] = (struct hosted){0};
  }
}

static void process_loaded(struct world *w, struct process *process, int run) {
  Weir__RunLoaded message = WEIR__RUN_LOADED__INIT;
  process->hosted[run].is_loaded = true;
  message.run = w->runs[run].id;
  message.incarnation =
      process->role == WEIR__ROLE__WORKER ? process->hosted[run].ordered : process->hosted[run].incarnation;
  message.train_samples = process->role == WEIR__ROLE__WORKER ? SAMPLES : 0;
  message.eval_samples = process->role == WEIR__ROLE__WORKER ? w->plan.eval_samples : 0;
  message.dataset_sha256 = "data";
  message.probe_sha256 = "probe";
  process_tells(process, WEIR__MEMBER_MESSAGE__BODY_LOADED, &message);
}

static void process_refuse(struct world *w, struct process *process, int run, bool is_lost) {
  Weir__RunRefused message = WEIR__RUN_REFUSED__INIT;
  message.run = w->runs[run].id;
  message.incarnation = process->hosted[run].incarnation;
  message.message = is_lost ? "checkpoint is damaged" : "out of memory";
  message.lost_checkpoint = is_lost;
  w->lost_checkpoints += is_lost;
  process_tells(process, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &message);
}

void process_load(struct world *w, struct process *process, int run) {
  struct hosted *hosted = &process->hosted[run];
  const struct stored_checkpoint *checkpoint = &w->runs[run].checkpoints[hosted->base];
  if (!process->is_alive || !hosted->is_hosted || hosted->is_loaded)
    return;
  if (process->role == WEIR__ROLE__WORKER)
    process_loaded(w, process, run);
  else if (hosted->base && w->is_store_away)
    return;
  else if (hosted->base && (!checkpoint->exists || checkpoint->is_damaged))
    process_refuse(w, process, run, true);
  else if (!w->is_calm && world_roll(w, 25) == 0)
    process_refuse(w, process, run, false);
  else {
    process_loaded(w, process, run);
    server_tell_held(w, process, run);
    if (w->plan.steps == 0 && !has_statistics(w, process, run)) {
      hosted->is_evaluated = true; /* there is nothing of it to evaluate */
      server_complete(w, process, run);
    }
  }
}

void server_advance(struct world *w, struct process *server, int run) {
  struct hosted *hosted = &server->hosted[run];
  struct server_set *set = set_of(w, run, hosted->incarnation);
  bool is_computed;
  if (!hosted->is_loaded || is_at_end(w, hosted) || set_index(set, server) < 0)
    return;
  if (is_held(hosted)) { /* what workers push is kept */
    server_evaluate_held(w, server, run);
    return;
  }
  is_computed = round_is_complete(w, run, hosted);
  for (int i = 0; i < set->n; i++) {
    const struct process *other = &w->processes[set->slots[i]];
    const struct hosted *theirs = &other->hosted[run];
    is_computed &= other->is_alive && other->pid == set->pids[i] && theirs->is_loaded &&
                   theirs->incarnation == hosted->incarnation && theirs->version >= hosted->version;
  }
  if (!is_computed)
    return;
  if (hosted->write_step && hosted->version > hosted->write_step && world_roll(w, 2))
    return; /* writing has a share of its time */
  if (w->plan.steps == 0) {
    hosted->is_evaluated = true;
    server_eval_report(w, server, run, 0);
    server_complete(w, server, run);
    return;
  }
  if (has_statistics(w, server, run)) {
    server_eval_report(w, server, run, hosted->version);
    server_step_report(w, server, run, hosted->version);
  }
  if (++hosted->version < w->plan.steps) {
    server_tell_held(w, server, run);
    return;
  }
  if (has_statistics(w, server, run))
    server_eval_report(w, server, run, hosted->version);
  server_complete(w, server, run);
}

void server_write(struct world *w, struct process *server, int run) {
  struct hosted *hosted = &server->hosted[run];
  struct server_set *set = set_of(w, run, hosted->incarnation);
  uint32_t owner[BLOCKS];
  char keys[BLOCKS][65];
  if (!hosted->is_loaded || !hosted->write_step || hosted->version < hosted->write_step)
    return;
  if (w->is_store_away || (!w->is_calm && world_roll(w, 10) == 0)) {
    server_cannot_write(w, server, run, false);
    return;
  }
  placement_compute(world_block_elems, BLOCKS, (uint32_t)set->n, owner);
  for (uint32_t i = 0; i <= BLOCKS; i++) { /* a message a block, and one that ends */
    Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
    Weir__WrittenBlock block = WEIR__WRITTEN_BLOCK__INIT, *list = &block;
    if (i < BLOCKS && owner[i] != (uint32_t)set_index(set, server))
      continue;
    written.run = w->runs[run].id;
    written.incarnation = hosted->incarnation;
    written.step = hosted->write_step;
    written.is_last = i == BLOCKS;
    if (i < BLOCKS) {
      block_key(i, hosted->write_step, keys[i]);
      block.block = i;
      block.sha256 = keys[i];
      block.bytes = 4;
      written.blocks = &list;
      written.n_blocks = 1;
    }
    process_tells(server, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
  }
  hosted->write_step = 0;
}

static void worker_order(struct world *w, struct process *worker, const Weir__Order *order) {
  if (order->body_case == WEIR__ORDER__BODY_LOAD) {
    int run = run_index(w, order->load->run);
    uint32_t n_hosted = 1;
    for (int i = 0; i < RUNS; i++)
      n_hosted += i != run && worker->hosted[i].is_hosted;
    assert_true(n_hosted <= executors_of(w, worker));
    w->seated_beside += n_hosted > 1;
    worker->hosted[run].is_hosted = true;
    worker->hosted[run].ordered = order->load->incarnation;
    if (worker->hosted[run].is_loaded) /* it goes on */
      process_loaded(w, worker, run);
  } else if (order->body_case == WEIR__ORDER__BODY_VIEW) {
    struct hosted *hosted = &worker->hosted[run_index(w, order->view->run)];
    assert_true(hosted->is_hosted); /* it may load still: what it told may have answered an order of before */
    assert_true(order->view->number > hosted->view);
    assert_true(order->view->incarnation >= hosted->incarnation);
    hosted->has_view = true;
    hosted->view = order->view->number;
    hosted->hold = order->view->hold;
    hosted->group = group_in(order->view, worker->id);
    hosted->begin = hosted->end = 0;
    hosted->follows = hosted->is_ready_told = false;
    hosted->has_version &= order->view->incarnation == hosted->incarnation;
    for (size_t i = 0; i < order->view->n_workers; i++) {
      const Weir__Assignment *assignment = order->view->workers[i];
      if (strcmp(assignment->worker, worker->id) != 0)
        continue;
      hosted->begin = assignment->microbatch_begin;
      hosted->end = assignment->microbatch_end;
      hosted->follows = assignment->follows;
    }
    hosted->incarnation = order->view->incarnation;
  } else if (order->body_case == WEIR__ORDER__BODY_REISSUE)
    liars_reissue(w, worker, order->reissue);
  else if (order->body_case == WEIR__ORDER__BODY_UNLOAD)
    worker->hosted[run_index(w, order->unload->run)] = (struct hosted){0};
}

void worker_look(struct world *w, struct process *worker, int run) {
  struct hosted *hosted = &worker->hosted[run];
  const struct server_set *set = set_of(w, run, hosted->incarnation);
  Weir__Unreached unreached = WEIR__UNREACHED__INIT;
  char *servers[SERVERS];
  if (!worker->is_alive || !hosted->is_loaded || !hosted->has_view)
    return;
  for (int at = 0; at < set->n; at++)
    if (!worker_reaches(w, worker, set, at))
      servers[unreached.n_servers++] = w->processes[set->slots[at]].id;
  if (unreached.n_servers == 0 && !hosted->is_unreached_told)
    return;
  unreached.run = w->runs[run].id;
  unreached.incarnation = hosted->incarnation;
  unreached.servers = servers;
  unreached.message = "connection refused";
  hosted->is_unreached_told = unreached.n_servers > 0;
  process_tells(worker, WEIR__MEMBER_MESSAGE__BODY_UNREACHED, &unreached);
}

void deliver_down(struct world *w, struct process *process) {
  Weir__Order *order = process->is_frozen || process->is_unheard ? NULL : queue_pop(&process->down);
  if (!order)
    return;
  assert_true(order->term >= process->term);
  process->term = order->term;
  if (order->body_case == WEIR__ORDER__BODY_WELCOME)
    snprintf(process->id, sizeof process->id, "%s", order->welcome->id);
  else if (process->role == WEIR__ROLE__SERVER)
    server_order(w, process, order);
  else
    worker_order(w, process, order);
  message_free(order);
}

void claim_ready(struct world *w, struct process *process) {
  Weir__Ready ready = WEIR__READY__INIT;
  ready.run = world_roll(w, 4) ? w->runs[world_roll(w, RUNS)].id : "mlp-none";
  ready.incarnation = world_roll(w, 2) ? UINT64_MAX : world_roll(w, 5);
  ready.version = world_roll(w, 2) ? UINT64_MAX : STEPS + 1;
  if (process->key)
    process_tells(process, WEIR__MEMBER_MESSAGE__BODY_READY, &ready);
}
