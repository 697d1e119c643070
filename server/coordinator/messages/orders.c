/* What members are told. Messages live in the arena of the step's actions. */
#include "server/coordinator/messages/orders.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "server/coordinator/messages/record.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"

enum { MISSED_LATELY_MS = 1000 };

/* The assignments of a group's members. */
struct companions {
  struct seat *const *seats;
  Weir__Assignment *const *list; /* [n_seats] of each */
  int n_seats;
  uint32_t number;            /* of the group; 0: none yet */
  Weir__Assignment **members; /* of the step's arena */
  size_t n_members;
};

static Weir__Order *order_new(struct coordinator *coordinator, const struct member *member,
                              Weir__Order__BodyCase body);
static Weir__ForkSource *fork_source(struct coordinator *coordinator, const struct run *run,
                                     const struct member *server);
static Weir__Assignment **view_assignments(struct arena *arena, struct seat *const *seats, int n);
static Weir__Range **duty_ranges(struct coordinator *coordinator, const struct member *worker,
                                 const struct duty *duties, uint32_t n, size_t *n_ranges);
static Weir__View view_of(struct arena *arena, const struct run *run);
static void order_view(struct coordinator *coordinator, const Weir__View *common, struct seat *seat,
                       Weir__Assignment **assignments, size_t n);
static void companions_find(struct arena *arena, struct companions *companions, int worker);

/* As messages have it: 0 is none. */
static uint64_t hold_of(const struct run *run) {
  uint64_t bound = coordinator_run_bound(run);
  return bound == UINT64_MAX ? 0 : bound;
}

/* That of workers, which also stand where the run is to move, and where forks are to begin. */
static uint64_t hold_of_workers(const struct run *run) {
  const struct checkpointing *making = &run->checkpointing;
  uint64_t moves_at = making->is_for_move ? making->step : UINT64_MAX;
  uint64_t stands_at = moves_at < run->pin ? moves_at : run->pin;
  return stands_at < coordinator_run_bound(run) ? stands_at : hold_of(run);
}

void coordinator_order_welcome(struct coordinator *coordinator, const struct member *member) {
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_WELCOME);
  order->welcome = arena_new(&coordinator->actions->arena, sizeof *order->welcome);
  weir__welcome__init(order->welcome);
  order->welcome->id = arena_strdup(&coordinator->actions->arena, member->id);
}

void coordinator_order_beat(struct coordinator *coordinator, const struct member *member) {
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_BEAT);
  order->beat = arena_new(&coordinator->actions->arena, sizeof *order->beat);
  weir__beat__init(order->beat);
}

void coordinator_order_drain(struct coordinator *coordinator, const struct member *member) {
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_DRAIN);
  order->drain = arena_new(&coordinator->actions->arena, sizeof *order->drain);
  weir__drain__init(order->drain);
}

void coordinator_order_no_other(struct coordinator *coordinator, const struct member *server) {
  Weir__Order *order = order_new(coordinator, server, WEIR__ORDER__BODY_NO_OTHER);
  order->no_other = arena_new(&coordinator->actions->arena, sizeof *order->no_other);
  weir__no_other__init(order->no_other);
}

/* Of the run, in its present incarnation. */
static struct ticket_owner ticket_owner_of(const struct run *run, const struct member *member) {
  bool is_worker = member->role == WEIR__ROLE__WORKER;
  return (struct ticket_owner){run->id, run->incarnation, member->holder, is_worker ? member->number : 0};
}

static char *ticket_of(struct arena *arena, const unsigned char key[TICKET_KEY_BYTES],
                       const struct ticket_owner *owner) {
  char *ticket = arena_new(arena, TICKET_TEXT_SIZE);
  ticket_make(key, owner, ticket);
  return ticket;
}

/* A seat keeps its own: one event may send a thousand views. */
static void sign_seat(struct arena *arena, struct seat *seat) {
  struct ticket_owner owner = ticket_owner_of(seat->run, seat->worker);
  unsigned char peer_key[TICKET_KEY_BYTES];
  if (seat->ticket && seat->ticket_incarnation == seat->run->incarnation)
    return;
  ticket_derive_peer_key(seat->run->key, peer_key);
  free(seat->ticket);
  free(seat->peer_ticket);
  seat->ticket = mem_strdup(ticket_of(arena, seat->run->key, &owner));
  seat->peer_ticket = mem_strdup(ticket_of(arena, peer_key, &owner));
  seat->ticket_incarnation = seat->run->incarnation;
}

static Weir__LoadRun *order_load(struct coordinator *coordinator, const struct run *run,
                                 const struct member *member) {
  struct arena *arena = &coordinator->actions->arena;
  struct ticket_owner owner = ticket_owner_of(run, member);
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_LOAD);
  Weir__LoadRun *load = order->load = arena_new(arena, sizeof *load);
  weir__load_run__init(load);
  load->run = run->id;
  load->incarnation = run->incarnation;
  load->spec = run->spec;
  load->model_bytes = run->model_bytes;
  load->model_sha256 = run->model_sha256;
  load->outline_bytes = run->outline_bytes;
  load->outline_sha256 = run->outline_sha256;
  load->ticket = ticket_of(arena, run->key, &owner);
  return load;
}

void coordinator_order_load(struct coordinator *coordinator, const struct seat *seat) {
  Weir__LoadRun *load = order_load(coordinator, seat->run, seat->worker);
  char *data_root =
      quota_data_root(coordinator->options.quotas, seat->run->tenant, &coordinator->actions->arena);
  load->stage_begin = seat->stages.begin;
  load->stage_end = seat->stages.end;
  if (data_root)
    load->data_root = data_root;
  if (seat->stages.begin < seat->stages.end) {
    load->peer_key.len = TICKET_KEY_BYTES;
    load->peer_key.data = arena_new(&coordinator->actions->arena, TICKET_KEY_BYTES);
    ticket_derive_peer_key(seat->run->key, load->peer_key.data);
  }
}

void coordinator_order_load_blocks(struct coordinator *coordinator, const struct run *run,
                                   const struct member *server) {
  struct arena *arena = &coordinator->actions->arena;
  Weir__LoadRun *load = order_load(coordinator, run, server);
  load->plan = coordinator_plan_message(arena, run);
  load->servers = coordinator_endpoints(arena, run);
  load->n_servers = (size_t)run->n_servers;
  load->key = (ProtobufCBinaryData){TICKET_KEY_BYTES, (uint8_t *)run->key};
  load->step = run->base_step;
  load->hold = hold_of(run);
  load->slots_step = run->origin.slots_step;
  if (coordinator->options.store_identity)
    load->store_identity = (char *)coordinator->options.store_identity;
  if (run->base_step)
    load->manifest =
        arena_printf(arena, "runs/%s/checkpoints/%020llu", run->id, (unsigned long long)run->base_step);
  load->from = fork_source(coordinator, run, server);
}

/* NULL where the server has nothing of the run. */
static Weir__ForkSource *fork_source(struct coordinator *coordinator, const struct run *run,
                                     const struct member *server) {
  const struct run *parent = coordinator_fork_source(coordinator, run);
  Weir__ForkSource *source;
  if (!parent || !coordinator_run_server(parent, server))
    return NULL;
  source = arena_new(&coordinator->actions->arena, sizeof *source);
  weir__fork_source__init(source);
  source->run = arena_strdup(&coordinator->actions->arena, parent->id);
  source->incarnation = parent->incarnation;
  source->step = run->origin.step;
  return source;
}

/* Each view says of the workers only what its receiver goes by: all views together would grow with the square
   of the workers otherwise. */
void coordinator_order_views(struct coordinator *coordinator, const struct run *run,
                             struct seat *const *seats, int n_seats) {
  struct arena *arena = &coordinator->actions->arena;
  Weir__Assignment **list = view_assignments(arena, seats, n_seats);
  struct companions companions = {.seats = seats, .list = list, .n_seats = n_seats};
  Weir__View common = view_of(arena, run);
  for (int i = 0; i < n_seats; i++) {
    if (!seats[i]->group.number)
      order_view(coordinator, &common, seats[i], &list[i], 1);
    else {
      companions_find(arena, &companions, i);
      order_view(coordinator, &common, seats[i], companions.members, companions.n_members);
    }
  }
}

void coordinator_order_idle_view(struct coordinator *coordinator, struct seat *seat) {
  struct arena *arena = &coordinator->actions->arena;
  Weir__View common = view_of(arena, seat->run);
  if (seat->state == SEAT_FOLLOWING)
    order_view(coordinator, &common, seat, view_assignments(arena, &seat, 1), 1);
  else
    order_view(coordinator, &common, seat, NULL, 0);
}

/* What all views of a number share. */
static Weir__View view_of(struct arena *arena, const struct run *run) {
  Weir__View view = WEIR__VIEW__INIT;
  view.run = run->id;
  view.number = run->view;
  view.incarnation = run->incarnation;
  view.plan = coordinator_plan_message(arena, run);
  view.servers = coordinator_endpoints(arena, run);
  view.n_servers = (size_t)run->n_servers;
  view.hold = hold_of_workers(run);
  return view;
}

static void order_view(struct coordinator *coordinator, const Weir__View *common, struct seat *seat,
                       Weir__Assignment **assignments, size_t n) {
  Weir__Order *order = order_new(coordinator, seat->worker, WEIR__ORDER__BODY_VIEW);
  order->view = arena_copy(&coordinator->actions->arena, common, sizeof *common);
  order->view->workers = assignments;
  order->view->n_workers = n;
  sign_seat(&coordinator->actions->arena, seat);
  order->view->ticket = arena_strdup(&coordinator->actions->arena, seat->ticket);
  if (assignments && assignments[0]->team)
    order->view->peer_ticket = arena_strdup(&coordinator->actions->arena, seat->peer_ticket);
}

/* Members of a group are in one row, but for workers without microbatches; each group's list is built once.
 */
static void companions_find(struct arena *arena, struct companions *companions, int worker) {
  const struct grouping *group = &companions->seats[worker]->group;
  if (companions->number == group->number)
    return;
  companions->number = group->number;
  companions->members = arena_new(arena, group->size * sizeof(Weir__Assignment *));
  companions->n_members = 0;
  for (int i = worker; i < companions->n_seats && companions->n_members < group->size; i++)
    if (companions->seats[i]->group.number == group->number)
      companions->members[companions->n_members++] = companions->list[i];
}

void coordinator_order_reissue(struct coordinator *coordinator, const struct run *run,
                               const struct member *worker) {
  const struct reissue *from = run->reissue;
  Weir__Order *order = order_new(coordinator, worker, WEIR__ORDER__BODY_REISSUE);
  Weir__Reissue *reissue = arena_new(&coordinator->actions->arena, sizeof *reissue);
  order->reissue = reissue;
  weir__reissue__init(reissue);
  reissue->run = run->id;
  reissue->incarnation = run->incarnation;
  reissue->step = from->step;
  reissue->microbatches =
      duty_ranges(coordinator, worker, from->microbatches, from->n_microbatches, &reissue->n_microbatches);
  reissue->chunks = duty_ranges(coordinator, worker, from->chunks, from->n_chunks, &reissue->n_chunks);
}

void coordinator_order_write(struct coordinator *coordinator, const struct run *run,
                             const struct member *member) {
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_WRITE);
  order->write = arena_new(&coordinator->actions->arena, sizeof *order->write);
  weir__write_blocks__init(order->write);
  order->write->run = run->id;
  order->write->incarnation = run->incarnation;
  order->write->step = run->checkpointing.step;
}

void coordinator_order_keep(struct coordinator *coordinator, const struct run *run,
                            const struct member *member) {
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_KEEP);
  order->keep = arena_new(&coordinator->actions->arena, sizeof *order->keep);
  weir__keep_run__init(order->keep);
  order->keep->run = run->id;
  order->keep->incarnation = run->incarnation;
  order->keep->step = run->step;
  order->keep->hold = hold_of(run);
}

void coordinator_order_hold(struct coordinator *coordinator, const struct run *run,
                            const struct member *server) {
  Weir__Order *order = order_new(coordinator, server, WEIR__ORDER__BODY_HOLD);
  order->hold = arena_new(&coordinator->actions->arena, sizeof *order->hold);
  weir__hold__init(order->hold);
  order->hold->run = run->id;
  order->hold->incarnation = run->incarnation;
  order->hold->step = hold_of(run);
  order->hold->reached = run->state == WEIR__RUN_STATE__HELD;
}

static Weir__UnloadRun *order_unload(struct coordinator *coordinator, const char *run,
                                     const struct member *member, const char *reason) {
  struct arena *arena = &coordinator->actions->arena;
  Weir__Order *order = order_new(coordinator, member, WEIR__ORDER__BODY_UNLOAD);
  order->unload = arena_new(arena, sizeof *order->unload);
  weir__unload_run__init(order->unload);
  order->unload->run = arena_strdup(arena, run);
  order->unload->reason = arena_strdup(arena, reason);
  return order->unload;
}

void coordinator_order_unload(struct coordinator *coordinator, const char *run, const struct member *member,
                              const char *reason) {
  order_unload(coordinator, run, member, reason);
}

void coordinator_order_rest(struct coordinator *coordinator, const char *run, const struct member *worker,
                            const char *reason) {
  order_unload(coordinator, run, worker, reason)->may_return = true;
}

/* Who loads may still be at it when the run was rolled back. */
int coordinator_check_ticket(const struct coordinator *coordinator, const char *id, const char *text,
                             const char *holder, struct err *err) {
  const struct run *run = coordinator_run(coordinator, id);
  struct ticket ticket;
  if (!run)
    return err_set(err, ERR_NOT_FOUND, "there is no run '%.60s'", id);
  if (!text)
    return err_set(err, ERR_DENIED, "the call has no ticket for run '%s'", id);
  if (ticket_read(text, &ticket, err))
    return err->code;
  if (strcmp(ticket.run, run->id) == 0 && ticket.incarnation <= run->incarnation &&
      ticket_is_genuine(&ticket, run->key, holder))
    return 0;
  return err_set(err, ERR_DENIED, "the call's ticket for run '%s' is not one of %s", id,
                 *holder ? holder : "this coordinator's");
}

static Weir__Order *order_new(struct coordinator *coordinator, const struct member *member,
                              Weir__Order__BodyCase body) {
  struct coordinator_action *action = coordinator_act(coordinator, ACTION_ORDER);
  Weir__Order *order = arena_new(&coordinator->actions->arena, sizeof *order);
  weir__order__init(order);
  order->term = coordinator->options.term;
  order->body_case = body;
  action->member = member->key;
  action->order = order;
  return order;
}

static Weir__Assignment **view_assignments(struct arena *arena, struct seat *const *seats, int n) {
  Weir__Assignment **list = arena_new(arena, (size_t)n * sizeof *list);
  for (int i = 0; i < n; i++) {
    const struct seat *seat = seats[i];
    list[i] = arena_new(arena, sizeof **list);
    weir__assignment__init(list[i]);
    list[i]->worker = seat->worker->id;
    list[i]->microbatch_begin = seat->microbatches.begin;
    list[i]->microbatch_end = seat->microbatches.end;
    list[i]->eval_begin = seat->eval_chunks.begin;
    list[i]->eval_end = seat->eval_chunks.end;
    list[i]->executors = seat->executors < seat->worker->executors ? seat->executors : 0;
    if (coordinator_is_staged(seat)) {
      list[i]->team = seat->group.number;
      list[i]->address = seat->worker->address;
    } else {
      list[i]->group = seat->group.number;
    }
    list[i]->follows = seat->state == SEAT_FOLLOWING || seat->is_spare;
  }
  return list;
}

/* What the worker has of them; but not what was missed long ago: it has come since. */
static Weir__Range **duty_ranges(struct coordinator *coordinator, const struct member *worker,
                                 const struct duty *duties, uint32_t n, size_t *n_ranges) {
  struct arena *arena = &coordinator->actions->arena;
  Weir__Range **ranges = arena_new(arena, n * sizeof *ranges), *last = NULL;
  *n_ranges = 0;
  for (uint32_t i = 0; i < n; i++) {
    const struct duty *duty = &duties[i];
    if (duty->worker != worker->key ||
        (!duty->is_doubted && coordinator->now_ms - duty->missed_ms > MISSED_LATELY_MS))
      continue;
    if (!last || last->end != i) {
      last = ranges[(*n_ranges)++] = arena_new(arena, sizeof *last);
      weir__range__init(last);
      last->begin = i;
    }
    last->end = i + 1;
  }
  return ranges;
}
