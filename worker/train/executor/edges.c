/* What crosses the edges of a worker's stages. */
#include "worker/train/executor/edges.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/sum.h"

/* Evaluations go on before a chunk is over, so they are held up by what waits. */
enum { CHUNKS_WAITING_MAX = 2 };

/* To one neighbour. */
struct edge {
  struct message_layout train_in, train_out;
  struct message_layout eval; /* from below it comes, above it goes */
  struct riders riders;       /* that come from above, or go below */
  size_t in_bytes, out_bytes;
  struct sender *sender; /* NULL: there is no neighbour, or the run does not work */
  struct inbox train, evals;
};

struct edges {
  struct edge below, above;
  bool is_open;
  int n_landing; /* pieces that are being copied in */
};

static void layout_find(const struct executor *executor, const struct backend_program *program,
                        enum backend_part part, bool is_sent, struct message_layout *out) {
  struct backend_message message;
  *out = (struct message_layout){0};
  if (program && executor->run->options.backend->message(program, part, is_sent, &message))
    message_layout_init(out, &message);
}

static void edge_init(struct edge *edge, const struct executor *executor, bool is_above) {
  const struct run *run = executor->run;
  enum backend_part in = is_above ? BACKEND_BACKWARD : BACKEND_FORWARD;
  enum backend_part out = is_above ? BACKEND_FORWARD : BACKEND_BACKWARD;
  size_t rider_bytes;
  layout_find(executor, executor->train, in, false, &edge->train_in);
  layout_find(executor, executor->train, out, true, &edge->train_out);
  layout_find(executor, executor->eval, BACKEND_FORWARD, is_above, &edge->eval);
  riders_find(run->loaded.model, &run->map, &run->cuts, executor->stage + is_above, &edge->riders);
  rider_bytes = edge->riders.elems * sizeof(float);
  edge->in_bytes = message_layout_bytes(&edge->train_in) + (is_above ? rider_bytes : 0);
  edge->out_bytes = message_layout_bytes(&edge->train_out) + (is_above ? 0 : rider_bytes);
}

static void edge_fini(struct edge *edge) {
  message_layout_fini(&edge->train_in);
  message_layout_fini(&edge->train_out);
  message_layout_fini(&edge->eval);
  riders_fini(&edge->riders);
}

void edges_new(struct run *run) {
  if (stage_part_is_whole(&run->part))
    return;
  run->edges = mem_new(sizeof *run->edges);
  if (run->part.first > 0)
    edge_init(&run->edges->below, &run->executors[0], false);
  if (run->part.last < run->part.n_stages - 1)
    edge_init(&run->edges->above, &run->executors[run->n_executors - 1], true);
}

void edges_free(struct run *run) {
  if (!run->edges)
    return;
  edge_fini(&run->edges->below);
  edge_fini(&run->edges->above);
  free(run->edges);
  run->edges = NULL;
}

/* The neighbour has this step behind it: we go on where the servers are. */
static void on_refused(void *user, const struct err *err) {
  struct run *run = user;
  pthread_mutex_lock(&run->lock);
  if (run->phase == RUN_WORKING && err->code == ERR_DROPPED)
    run->must_rejoin = true;
  else if (run->phase == RUN_WORKING)
    run_fail_locked(run, err, false);
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
}

static void on_sent(void *user) {
  struct run *run = user;
  pthread_mutex_lock(&run->lock);
  run->is_touched |= run->phase == RUN_WORKING;
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
}

/* One more than tasks are under way: the next may come while the last is being let go of. */
static void edge_open(struct run *run, struct edge *edge, const char *address, int stage) {
  Weir__BoundaryPiece head = WEIR__BOUNDARY_PIECE__INIT;
  int n_slots = run->part.n_stages + 1;
  if (!*address)
    return;
  head.run = run->load->run;
  head.incarnation = run->mates.incarnation;
  head.term = run->mates.term;
  head.team = run->mates.number;
  head.stage = (uint32_t)stage;
  inbox_init(&edge->train, edge->in_bytes, n_slots, run->options.backend);
  inbox_init(&edge->evals, message_layout_bytes(&edge->eval), n_slots, run->options.backend);
  edge->sender = sender_new(&(struct sender_options){.client = run->options.client,
                                                     .address = address,
                                                     .head = &head,
                                                     .ticket = run->applied->peer_ticket,
                                                     .n_messages = n_slots + CHUNKS_WAITING_MAX,
                                                     .trace_number = run->trace_number,
                                                     .refused = on_refused,
                                                     .sent = on_sent,
                                                     .user = run});
}

void edges_open_locked(struct run *run) {
  struct edges *edges = run->edges;
  if (!edges)
    return;
  edge_open(run, &edges->below, run->mates.below, run->part.first);
  edge_open(run, &edges->above, run->mates.above, run->part.last);
  edges->is_open = true;
}

void edges_close_locked(struct run *run) {
  struct edges *edges = run->edges;
  struct sender *below, *above;
  if (!edges)
    return;
  edges->is_open = false;
  while (edges->n_landing > 0)
    pthread_cond_wait(&run->changed, &run->lock);
  below = edges->below.sender;
  above = edges->above.sender;
  edges->below.sender = edges->above.sender = NULL;
  inbox_fini(&edges->below.train);
  inbox_fini(&edges->below.evals);
  inbox_fini(&edges->above.train);
  inbox_fini(&edges->above.evals);
  pthread_mutex_unlock(&run->lock);
  sender_free(below);
  sender_free(above);
  pthread_mutex_lock(&run->lock);
}

void edges_fill_unreached_locked(struct run *run, Weir__RunCounters *counters, struct arena *arena) {
  enum { SIDES = 2 };
  struct edge *edges[SIDES];
  struct err failure;
  if (!run->edges)
    return;
  edges[0] = &run->edges->below;
  edges[1] = &run->edges->above;
  counters->unreached_mates = arena_new(arena, SIDES * sizeof *counters->unreached_mates);
  for (int side = 0; side < SIDES; side++) {
    Weir__UnreachedMate *mate;
    if (!edges[side]->sender || !sender_is_unreached(edges[side]->sender, &failure))
      continue;
    mate = arena_new(arena, sizeof *mate);
    weir__unreached_mate__init(mate);
    mate->team = run->mates.number;
    mate->is_above = side == 1;
    mate->message = arena_strdup(arena, failure.text);
    counters->unreached_mates[counters->n_unreached_mates++] = mate;
  }
}

static struct boundary_key key_of(const struct task *task) {
  return (struct boundary_key){.is_chunk = task->work.kind == WORK_CHUNK,
                               .step = task->work.step,
                               .index = task->work.index,
                               .execution = task->execution};
}

/* The step of a message against where this worker is. False: the message cannot be taken now. */
static bool step_fits_locked(struct run *run, uint64_t step, struct err *err) {
  bool has_current = run->weights->current->is_open;
  const struct step_tasks *tasks = steps_find(run, step);
  uint64_t here = run->first_step;
  if (tasks && (step == here || tasks->is_begun || !steps_are_owed(run)))
    return true;
  if (step < here) {
    err_set(err, ERR_DROPPED, "step %llu is over: this worker is at %llu", (unsigned long long)step,
            (unsigned long long)here);
    return false;
  }
  run->must_rejoin |= has_current; /* the team is ahead */
  pthread_cond_broadcast(&run->changed);
  err_set(err, ERR_BUSY, "this worker is at step %llu, not yet at %llu", (unsigned long long)here,
          (unsigned long long)step);
  return false;
}

/* The worker below may have learned before this one that the hold was raised. */
static bool step_is_due_locked(const struct run *run, const struct boundary_key *key, struct err *err) {
  if (key->is_chunk || steps_find(run, key->step)->is_due)
    return true;
  err_set(err, ERR_BUSY, "the run is held at step %llu, as far as this worker knows",
          (unsigned long long)key->step);
  return false;
}

/* Whether a message of the task is wanted: of one that is owed here, or of one that waits for more. */
static bool is_wanted_locked(const struct run *run, const struct boundary_key *key, bool is_from_above) {
  const struct step_tasks *tasks = steps_find(run, key->step);
  const struct task_list *list = key->is_chunk ? &tasks->chunks : &tasks->microbatches;
  bool is_begun = tasks_is_begun(list, key->index);
  return is_from_above ? is_begun : tasks_is_owed(list, key->index) || (key->is_chunk && is_begun);
}

static bool is_in_share(const struct run *run, const struct boundary_key *key) {
  const struct task_range *range = key->is_chunk ? &run->share.chunks : &run->share.microbatches;
  return key->index >= range->begin && key->index < range->end;
}

/* The inbox that the piece is for. NULL: it is for none. */
static struct inbox *inbox_for(struct run *run, const Weir__BoundaryPiece *piece) {
  struct edges *edges = run->edges;
  if (run->part.first > 0 && piece->stage == (uint32_t)run->part.first - 1)
    return piece->evaluation ? &edges->below.evals : &edges->below.train;
  if (run->part.last < run->part.n_stages - 1 && piece->stage == (uint32_t)run->part.last + 1)
    return piece->evaluation ? NULL : &edges->above.train;
  return NULL;
}

static bool is_of_team(const struct run *run, const Weir__BoundaryPiece *piece) {
  return run->phase == RUN_WORKING && run->edges && run->edges->is_open &&
         piece->incarnation == run->mates.incarnation && piece->term == run->mates.term &&
         piece->team == run->mates.number;
}

/* Where a piece goes. to NULL: it is here already, or not wanted any more. */
struct landing {
  struct boundary_key key;
  struct boundary_range range;
  struct inbox *inbox;
  void *to;
};

/* What no neighbour would send. */
static int check_piece(const struct run *run, const Weir__BoundaryPiece *piece, const struct landing *landing,
                       struct err *err) {
  if (landing->inbox && is_in_share(run, &landing->key) && piece->step <= run->loaded.plan.steps &&
      piece->message_bytes == landing->inbox->message_bytes && (piece->execution == 0 || piece->evaluation))
    return ERR_OK;
  return err_set(err, ERR_INVALID, "no such message comes here from stage %u: index %u, %llu bytes",
                 piece->stage, piece->index, (unsigned long long)piece->message_bytes);
}

static int claim_locked(struct run *run, const Weir__BoundaryPiece *piece, struct landing *landing,
                        struct err *err) {
  if (!is_of_team(run, piece))
    return err_set(err, ERR_BUSY, "this worker does not work in team %u of term %llu", piece->team,
                   (unsigned long long)piece->term);
  landing->inbox = inbox_for(run, piece);
  if (check_piece(run, piece, landing, err) || !step_fits_locked(run, piece->step, err) ||
      !step_is_due_locked(run, &landing->key, err) ||
      !is_wanted_locked(run, &landing->key, landing->inbox == &run->edges->above.train))
    return err->code;
  switch (inbox_claim(landing->inbox, &landing->key, &landing->range, &landing->to)) {
  case INBOX_CLAIMED:
    run->is_touched = true;
    run->edges->n_landing++;
    return ERR_OK;
  case INBOX_HAS:
    return ERR_OK;
  case INBOX_FULL:
    return err_set(err, ERR_BUSY, "this worker has no room for the message yet");
  default:
    return err_set(err, ERR_INVALID, "a piece of %zu bytes at %zu is none of the message's",
                   landing->range.size_bytes, landing->range.begin);
  }
}

int edges_take(struct run *run, const Weir__BoundaryPiece *piece, const struct rpc_bytes *bytes,
               struct err *err) {
  struct landing landing = {.key = {piece->evaluation, piece->step, piece->index, piece->execution},
                            .range = {(size_t)piece->offset, rpc_bytes_size(bytes)}};
  pthread_mutex_lock(&run->lock);
  claim_locked(run, piece, &landing, err);
  pthread_mutex_unlock(&run->lock);
  if (err->code || !landing.to)
    return err->code;
  if (bytes)
    rpc_bytes_copy(bytes, landing.to);
  pthread_mutex_lock(&run->lock);
  run->edges->n_landing--;
  if (inbox_land(landing.inbox, &landing.key, landing.range.begin) || !run->edges->is_open)
    pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
  return ERR_OK;
}

bool edges_has_locked(struct run *run, const struct task *task) {
  struct edges *edges = run->edges;
  struct boundary_key key = key_of(task);
  struct inbox *inbox = key.is_chunk ? &edges->below.evals : &edges->above.train;
  if (!inbox_find(inbox, &key))
    return false;
  inbox_take(inbox, &key);
  return true;
}

bool edges_next_locked(struct run *run, struct work *work) {
  struct edges *edges = run->edges;
  struct inbox *inboxes[] = {&edges->below.evals, &edges->below.train};
  struct boundary_key key;
  for (int i = 0; i < 2; i++) {
    if (!inbox_next(inboxes[i], &key) || key.execution > 0)
      continue;
    *work = (struct work){
        .kind = key.is_chunk ? WORK_CHUNK : WORK_MICROBATCH, .index = key.index, .step = key.step};
    work->version = steps_version(run, work->step, work->kind);
    return true;
  }
  return false;
}

void edges_begin_locked(struct run *run, const struct work *work, bool is_begun) {
  struct boundary_key key = {work->kind == WORK_CHUNK, work->step, work->index, 0};
  struct inbox *inbox = key.is_chunk ? &run->edges->below.evals : &run->edges->below.train;
  if (is_begun)
    inbox_take(inbox, &key);
  else
    inbox_release(inbox, &key);
}

void edges_forget_locked(struct run *run, const struct task *task, uint32_t execution) {
  struct edges *edges = run->edges;
  struct boundary_key key = key_of(task);
  if (!edges)
    return;
  key.execution = execution;
  inbox_release(&edges->below.train, &key);
  inbox_release(&edges->below.evals, &key);
  inbox_release(&edges->above.train, &key);
}

bool edges_are_full(const struct run *run) {
  struct sender *sender = run->edges ? run->edges->above.sender : NULL;
  return sender && sender_waiting(sender) >= CHUNKS_WAITING_MAX;
}

static struct edge *edge_of(const struct executor *executor, enum backend_part part, bool is_sent) {
  return (part == BACKEND_FORWARD) == is_sent ? &executor->run->edges->above : &executor->run->edges->below;
}

/* What has come for the task that the executor is at. */
static const unsigned char *message_of(struct executor *executor, enum backend_part part) {
  struct run *run = executor->run;
  struct edge *edge = edge_of(executor, part, false);
  struct boundary_key key = key_of(executor->task);
  const unsigned char *message;
  pthread_mutex_lock(&run->lock);
  message = inbox_find(key.is_chunk ? &edge->evals : &edge->train, &key);
  pthread_mutex_unlock(&run->lock);
  CHECK(message);
  return message;
}

void edges_receive(struct executor *executor, enum backend_part part, const void **pieces) {
  const struct edge *edge = edge_of(executor, part, false);
  bool is_chunk = executor->task->work.kind == WORK_CHUNK;
  message_look(is_chunk ? &edge->eval : &edge->train_in, message_of(executor, part), pieces);
}

/* The pieces of gradients have left then. False: one has not come. */
static bool riders_write(struct task *task, const struct riders *riders, float *to) {
  struct run *run = task->run;
  bool is_whole = true;
  for (int r = 0; r < riders->n && is_whole; r++) {
    const struct rider *rider = &riders->list[r];
    const struct buffer *buffer = rider->param < 0 ? NULL : task->gathers[rider->block].buffer;
    const float *from = rider->param < 0 ? task->row : buffer ? buffer->data : NULL;
    is_whole = from != NULL;
    if (is_whole)
      memcpy(to + rider->at, from + rider->begin, rider->elems * sizeof *to);
  }
  for (int r = 0; r < riders->n && is_whole; r++) {
    uint32_t b = riders->list[r].block;
    if (riders->list[r].param < 0)
      continue;
    block_pool_give(run->pool, b, task->gathers[b].buffer);
    task->gathers[b] = (struct gather){0};
  }
  return is_whole;
}

/* How long the executor's message for the part is, and where it is written: the queue's next buffer, the same
   until the message is queued, since nobody else sends across the edge meanwhile. NULL: there is no memory,
   and the task is dropped. */
static struct buffer *message_open(struct executor *executor, enum backend_part part, size_t *size_bytes) {
  const struct edge *edge = edge_of(executor, part, true);
  bool is_chunk = executor->task->work.kind == WORK_CHUNK;
  struct buffer *buffer;
  *size_bytes = is_chunk ? message_layout_bytes(&edge->eval) : edge->out_bytes;
  buffer = sender_buffer(edge->sender, *size_bytes);
  if (!buffer)
    task_fail_memory(executor->task);
  return buffer;
}

static void message_queue(struct executor *executor, enum backend_part part, size_t size_bytes) {
  struct boundary_key key = key_of(executor->task);
  sender_queue(edge_of(executor, part, true)->sender, &key, size_bytes);
}

void edges_send(struct executor *executor, enum backend_part part, const void *const *pieces) {
  const struct edge *edge = edge_of(executor, part, true);
  bool is_chunk = executor->task->work.kind == WORK_CHUNK;
  struct buffer *buffer;
  size_t size_bytes;
  if (!executor_wait_current(executor))
    return;
  buffer = message_open(executor, part, &size_bytes);
  if (!buffer)
    return;
  message_write(is_chunk ? &edge->eval : &edge->train_out, pieces, buffer->data);
  if (part == BACKEND_FORWARD)
    message_queue(executor, part, size_bytes);
}

void edges_send_riders(struct executor *executor) {
  const struct edge *edge = edge_of(executor, BACKEND_BACKWARD, true);
  struct task *task = executor->task;
  size_t size_bytes;
  struct buffer *buffer = message_open(executor, BACKEND_BACKWARD, &size_bytes);
  if (!buffer)
    return;
  if (task->n_left == 0 &&
      riders_write(task, &edge->riders,
                   (float *)((unsigned char *)buffer->data + message_layout_bytes(&edge->train_out))))
    message_queue(executor, BACKEND_BACKWARD, size_bytes);
  else
    task_fail_err(task, &(struct err){ERR_INTERNAL, "the backend left out a gradient"});
}

void edges_take_riders(struct executor *executor) {
  struct task *task = executor->task;
  const struct edge *edge = &executor->run->edges->above;
  const float *from =
      (const float *)(message_of(executor, BACKEND_BACKWARD) + message_layout_bytes(&edge->train_in));
  for (int r = 0; r < edge->riders.n && !task->is_dropped; r++) {
    const struct rider *rider = &edge->riders.list[r];
    if (rider->param >= 0)
      executor_gather_piece(executor, rider->block, rider->param, from + rider->at);
    else if (sum_is_finite(from + rider->at, rider->elems))
      memcpy(task->row + rider->begin, from + rider->at, rider->elems * sizeof *task->row);
    else
      task_fail(task, "a statistic or the loss");
  }
  executor_deliver_parts(executor);
}

const struct message_layout *edges_train_layout(const struct executor *executor, enum backend_part part,
                                                bool is_sent) {
  const struct edge *edge = edge_of(executor, part, is_sent);
  return is_sent ? &edge->train_out : &edge->train_in;
}
