/* Timelines collected. */
#include "server/coordinator/tracing/tracing.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

/* ASKED: how often a member of another machine is asked for its clock. */
enum { ASKED_MAX = 8, STEPS_MS = 60000, ANSWER_MS = 10000 };

struct traced_member {
  uint64_t key;
  char *id, *host;
  bool has_answered, is_done; /* has_answered: in this phase */
  int asked;
  int64_t ahead_ns;  /* of the quickest answer, */
  uint64_t error_ns; /* give or take */
};

/* BEGINNING: members are asked to begin; SETTLING: they are asked once more, for what a server has reported
   before it began has come when it answers that; COUNTING: steps are made; ENDING: members send. */
enum phase { BEGINNING, SETTLING, COUNTING, ENDING };

struct tracing {
  struct tracing_options options;
  char *run, *boot;
  struct traced_member *members;
  enum phase phase;
  uint64_t since_ns;   /* when the phase began */
  uint64_t first, end; /* versions, as of struct TraceChunk */
};

static void ask(struct tracing *tracing, const struct traced_member *member, bool stop, uint64_t now_ns) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__Trace trace = WEIR__TRACE__INIT;
  order.body_case = WEIR__ORDER__BODY_TRACE;
  order.trace = &trace;
  trace.number = tracing->options.number;
  trace.run = tracing->run;
  trace.stop = stop;
  trace.asked_ns = now_ns;
  tracing->options.order(tracing->options.user, member->key, &order);
}

struct tracing *tracing_new(const struct tracing_options *options, const struct tracing_now *now) {
  struct tracing *tracing = mem_new(sizeof *tracing);
  tracing->options = *options;
  tracing->run = mem_strdup(options->run);
  tracing->boot = mem_strdup(options->boot);
  tracing->since_ns = now->now_ns;
  tracing->members = mem_new((size_t)options->n_members * sizeof *tracing->members);
  for (int i = 0; i < options->n_members; i++) {
    const struct tracing_member *member = &options->members[i];
    tracing->members[i] = (struct traced_member){.key = member->key,
                                                 .id = mem_strdup(member->id),
                                                 .host = mem_strdup(member->host),
                                                 .error_ns = UINT64_MAX};
    ask(tracing, &tracing->members[i], false, now->now_ns);
  }
  return tracing;
}

void tracing_free(struct tracing *tracing) {
  if (!tracing)
    return;
  for (int i = 0; i < tracing->options.n_members; i++) {
    struct traced_member *member = &tracing->members[i];
    if (tracing->phase != ENDING)
      ask(tracing, member, true, 0);
    free(member->id);
    free(member->host);
  }
  free(tracing->members);
  free(tracing->run);
  free(tracing->boot);
  free(tracing);
}

static struct traced_member *find(struct tracing *tracing, uint64_t key) {
  for (int i = 0; i < tracing->options.n_members; i++)
    if (tracing->members[i].key == key)
      return &tracing->members[i];
  return NULL;
}

static void send(struct tracing *tracing, const struct traced_member *member, const Weir__Traced *traced) {
  Weir__TraceChunk chunk = WEIR__TRACE_CHUNK__INIT;
  chunk.member = member->id;
  chunk.host = member->host;
  chunk.ahead_ns = member->ahead_ns;
  chunk.error_ns = member->error_ns;
  chunk.events = traced->events;
  chunk.first = tracing->first;
  chunk.end = tracing->end;
  tracing->options.send(tracing->options.user, &chunk);
}

/* The middle between question and answer is when the member read its clock, give or take half of that.
   Processes of one machine have one clock. */
static void learn_clock(struct tracing *tracing, struct traced_member *member, const Weir__Traced *traced,
                        uint64_t now_ns) {
  uint64_t half_ns = now_ns > traced->asked_ns ? (now_ns - traced->asked_ns) / 2 : 0;
  bool is_ours = *traced->boot && strcmp(traced->boot, tracing->boot) == 0;
  member->has_answered |= traced->asked_ns >= tracing->since_ns;
  if (is_ours) {
    member->ahead_ns = 0;
    member->error_ns = 0;
    return;
  }
  if (half_ns < member->error_ns) {
    member->error_ns = half_ns;
    member->ahead_ns = (int64_t)(traced->now_ns - (traced->asked_ns + half_ns));
  }
  if (tracing->phase != ENDING && ++member->asked < ASKED_MAX)
    ask(tracing, member, false, now_ns);
}

void tracing_take(struct tracing *tracing, uint64_t key, const Weir__Traced *traced,
                  const struct tracing_now *now) {
  struct traced_member *member = find(tracing, key);
  if (!member || member->is_done || traced->number != tracing->options.number)
    return;
  if (tracing->phase != ENDING) {
    learn_clock(tracing, member, traced, now->now_ns);
    return;
  }
  if (traced->events.len > 0)
    send(tracing, member, traced);
  member->is_done = traced->last;
}

void tracing_left(struct tracing *tracing, uint64_t key) {
  struct traced_member *member = find(tracing, key);
  if (member)
    member->is_done = true;
}

static bool have_answered(const struct tracing *tracing) {
  bool all = true;
  for (int i = 0; i < tracing->options.n_members; i++)
    all &= tracing->members[i].has_answered || tracing->members[i].is_done;
  return all;
}

static bool are_done(const struct tracing *tracing) {
  bool all = true;
  for (int i = 0; i < tracing->options.n_members; i++)
    all &= tracing->members[i].is_done;
  return all;
}

static bool has_passed(const struct tracing *tracing, const struct tracing_now *now, uint64_t ms) {
  return now->now_ns - tracing->since_ns >= ms * 1000000;
}

static void ask_all(struct tracing *tracing, bool stop, uint64_t now_ns) {
  for (int i = 0; i < tracing->options.n_members; i++) {
    tracing->members[i].has_answered = false;
    if (!tracing->members[i].is_done)
      ask(tracing, &tracing->members[i], stop, now_ns);
  }
}

static void enter(struct tracing *tracing, enum phase phase, const struct tracing_now *now) {
  tracing->phase = phase;
  tracing->since_ns = now->now_ns;
}

/* Some block may lack the newest version that was reported; the one before is complete everywhere. */
static void count(struct tracing *tracing, const struct tracing_now *now) {
  if (now->is_running && now->step <= tracing->first + tracing->options.steps &&
      !has_passed(tracing, now, STEPS_MS))
    return;
  tracing->end = now->step > tracing->first ? now->step : tracing->first;
  if (tracing->end > tracing->first + tracing->options.steps)
    tracing->end = tracing->first + tracing->options.steps;
  enter(tracing, ENDING, now);
  ask_all(tracing, true, now->now_ns);
}

bool tracing_turn(struct tracing *tracing, const struct tracing_now *now) {
  if (tracing->phase == BEGINNING && (have_answered(tracing) || has_passed(tracing, now, ANSWER_MS))) {
    enter(tracing, SETTLING, now);
    ask_all(tracing, false, now->now_ns);
  } else if (tracing->phase == SETTLING && (have_answered(tracing) || has_passed(tracing, now, ANSWER_MS))) {
    tracing->first =
        now->step + 2; /* of the step under way and of the next one tasks may have begun before */
    enter(tracing, COUNTING, now);
  }
  if (tracing->phase == COUNTING)
    count(tracing, now);
  return tracing->phase == ENDING && (are_done(tracing) || has_passed(tracing, now, ANSWER_MS));
}
