/* Snapshots by tenant, and what has changed in them. */
#include "server/coordinator/overview/overview.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "server/coordinator/overview/changes.h"
#include "server/coordinator/overview/executors.h"
#include "server/coordinator/overview/rows.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* Numbers of changes stay exact in a double, and those of another term are others. */
enum { NUMBER_BITS = 40, TERMS = 8192 };

struct snapshot {
  struct viewer viewer;
  uint64_t made_ms, asked_ms;
  struct changes *runs, *members;
  Weir__FleetInfo *fleet; /* from message_copy; NULL before the first time */
  struct snapshot *next;
};

struct overview {
  uint64_t counter; /* of changes: the last number */
  uint64_t first;   /* numbers are above */
  int64_t unix_offset_ms;
  struct executors *executors;
  struct snapshot *snapshots;
  int n_snapshots;
};

struct overview *overview_new(const struct coordinator *coordinator, int64_t unix_offset_ms) {
  struct overview *overview = mem_new(sizeof *overview);
  overview->counter = overview->first = (coordinator->options.term % TERMS) << NUMBER_BITS;
  overview->unix_offset_ms = unix_offset_ms;
  overview->executors = executors_new();
  return overview;
}

static void snapshot_free(struct snapshot *snapshot) {
  changes_free(snapshot->runs);
  changes_free(snapshot->members);
  message_free(snapshot->fleet);
  free(snapshot);
}

void overview_free(struct overview *overview) {
  struct snapshot *next;
  if (!overview)
    return;
  for (struct snapshot *snapshot = overview->snapshots; snapshot; snapshot = next) {
    next = snapshot->next;
    snapshot_free(snapshot);
  }
  executors_free(overview->executors);
  free(overview);
}

void overview_tick(struct overview *overview, const struct coordinator *coordinator, uint64_t now_ms) {
  executors_tick(overview->executors, coordinator, now_ms, overview->unix_offset_ms + (int64_t)now_ms,
                 &overview->counter);
}

static void drop_oldest(struct overview *overview) {
  struct snapshot **oldest = &overview->snapshots, *dropped;
  for (struct snapshot **at = &overview->snapshots; *at; at = &(*at)->next)
    if ((*at)->asked_ms < (*oldest)->asked_ms)
      oldest = at;
  dropped = *oldest;
  *oldest = dropped->next;
  snapshot_free(dropped);
  overview->n_snapshots--;
}

static struct snapshot *find_snapshot(struct overview *overview, const struct viewer *viewer) {
  struct snapshot *snapshot;
  for (snapshot = overview->snapshots; snapshot; snapshot = snapshot->next)
    if (snapshot->viewer.sees_all == viewer->sees_all && strcmp(snapshot->viewer.tenant, viewer->tenant) == 0)
      return snapshot;
  if (overview->n_snapshots == OVERVIEW_SNAPSHOTS_MAX)
    drop_oldest(overview);
  snapshot = mem_new(sizeof *snapshot);
  snapshot->viewer = *viewer;
  snapshot->runs = changes_new(&overview->counter);
  snapshot->members = changes_new(&overview->counter);
  snapshot->next = overview->snapshots;
  overview->snapshots = snapshot;
  overview->n_snapshots++;
  return snapshot;
}

static void put_rows(struct snapshot *snapshot, const struct sight *sight) {
  const struct coordinator *coordinator = sight->coordinator;
  changes_begin(snapshot->runs);
  for (int i = 0; i < coordinator->n_runs; i++)
    if (viewer_sees_run(sight->viewer, coordinator->runs[i]))
      changes_put(snapshot->runs, coordinator->runs[i]->id, &run_row(sight, coordinator->runs[i])->base);
  changes_end(snapshot->runs);
  changes_begin(snapshot->members);
  for (int i = 0; i < coordinator->n_members; i++)
    if (viewer_sees_member(sight->viewer, coordinator->members[i]))
      changes_put(snapshot->members, coordinator->members[i]->id,
                  &member_row(sight, coordinator->members[i])->base);
  changes_end(snapshot->members);
}

static void snapshot_make(struct overview *overview, struct snapshot *snapshot,
                          const struct coordinator *coordinator, uint64_t now_ms) {
  struct sight sight = {coordinator, &snapshot->viewer, now_ms, overview->unix_offset_ms, NULL};
  struct arena arena;
  if (snapshot->fleet && now_ms - snapshot->made_ms < OVERVIEW_EVERY_MS)
    return;
  snapshot->made_ms = now_ms;
  arena_init(&arena);
  sight.arena = &arena;
  put_rows(snapshot, &sight);
  message_free(snapshot->fleet);
  snapshot->fleet = message_copy(fleet_info(&sight));
  arena_fini(&arena);
}

static int compare_changes(const void *a, const void *b) {
  const struct change *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

static int sort_list(struct change *list, int n) {
  if (n > 0)
    qsort(list, (size_t)n, sizeof *list, compare_changes);
  return n;
}

/* Those of the list up to the cursor. */
static void fill_rows(const struct change *list, int n, Weir__Overview *answer) {
  for (int i = 0; i < n; i++)
    if (!list[i].message)
      answer->gone[answer->n_gone++] = list[i].key;
    else if (list[i].message->descriptor == &weir__run_row__descriptor)
      answer->runs[answer->n_runs++] = (Weir__RunRow *)list[i].message;
    else
      answer->members[answer->n_members++] = (Weir__MemberRow *)list[i].message;
}

/* Of those that have changed, the ones that changed first. */
static void fill_changes(const struct snapshot *snapshot, uint64_t since, uint32_t max_rows,
                         struct arena *arena, Weir__Overview *answer) {
  int max = changes_max(snapshot->runs) + changes_max(snapshot->members), n;
  struct change *list = arena_new(arena, (size_t)max * sizeof *list);
  n = changes_list(snapshot->runs, since, list);
  n = sort_list(list, n + changes_list(snapshot->members, since, list + n));
  answer->has_more = n > (int)max_rows;
  if (answer->has_more) {
    n = (int)max_rows;
    answer->cursor = list[n - 1].number;
  }
  answer->runs = arena_new(arena, (size_t)n * sizeof *answer->runs);
  answer->members = arena_new(arena, (size_t)n * sizeof *answer->members);
  answer->gone = arena_new(arena, (size_t)n * sizeof *answer->gone);
  fill_rows(list, n, answer);
}

/* What the client has of this snapshot; 0: nothing that could be told the changes of. */
static uint64_t known_since(const struct overview *overview, const struct snapshot *snapshot,
                            uint64_t since) {
  bool is_known = since > overview->first && since <= overview->counter &&
                  changes_reach(snapshot->runs, since) && changes_reach(snapshot->members, since);
  return is_known ? since : 0;
}

int overview_answer(struct overview *overview, const struct overview_question *question,
                    const Weir__OverviewRequest *request, Weir__Overview *answer, struct err *err) {
  uint32_t max_rows = request->max_rows ? request->max_rows : OVERVIEW_ROWS;
  struct snapshot *snapshot;
  uint64_t since;
  weir__overview__init(answer);
  if (max_rows > OVERVIEW_ROWS_MAX)
    return err_set(err, ERR_INVALID, "max_rows: %u: at most %d rows are sent at a time", max_rows,
                   OVERVIEW_ROWS_MAX);
  snapshot = find_snapshot(overview, question->viewer);
  snapshot->asked_ms = question->now_ms;
  since = known_since(overview, snapshot, request->since);
  snapshot_make(overview, snapshot, question->coordinator, question->now_ms);
  since = known_since(overview, snapshot, since); /* too many rows may have gone meanwhile */
  answer->is_whole = since == 0;
  answer->cursor = overview->counter;
  fill_changes(snapshot, since, max_rows, question->arena, answer);
  answer->now_unix_ms = overview->unix_offset_ms + (int64_t)question->now_ms;
  answer->fleet = snapshot->fleet;
  answer->history = arena_new(question->arena, sizeof *answer->history);
  executors_list(overview->executors, question->viewer, (struct executors_span){since, answer->cursor},
                 question->arena, answer->history);
  return 0;
}
