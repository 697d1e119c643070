/* Executors by run, sampled. */
#include "server/coordinator/overview/executors.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"

struct sample {
  uint64_t number;
  int64_t unix_ms;
  uint32_t all, shared; /* executors of all workers, and of those that are for all tenants */
};

/* A run that had executors within the samples that are kept. */
struct track {
  char *run, *tenant;
  uint64_t newest; /* sample in which it had some */
  uint32_t executors[EXECUTORS_SAMPLES];
};

struct executors {
  uint64_t n_samples; /* so far */
  uint64_t sampled_ms;
  struct sample samples[EXECUTORS_SAMPLES]; /* a ring, as those of tracks */
  struct track *tracks[EXECUTORS_RUNS_MAX];
  int n_tracks;
};

struct executors *executors_new(void) {
  return mem_new(sizeof(struct executors));
}

static void track_free(struct track *track) {
  free(track->run);
  free(track->tenant);
  free(track);
}

void executors_free(struct executors *executors) {
  if (!executors)
    return;
  for (int i = 0; i < executors->n_tracks; i++)
    track_free(executors->tracks[i]);
  free(executors);
}

static uint32_t executors_of(const struct run *run) {
  uint32_t count = 0;
  for (int i = 0; i < run->n_seats; i++)
    count += run->seats[i]->state == SEAT_READY ? run->seats[i]->executors : 0;
  return count;
}

/* NULL: there are too many. */
static struct track *find_track(struct executors *executors, const struct run *run) {
  struct track *track;
  for (int i = 0; i < executors->n_tracks; i++)
    if (strcmp(executors->tracks[i]->run, run->id) == 0)
      return executors->tracks[i];
  if (executors->n_tracks == EXECUTORS_RUNS_MAX)
    return NULL;
  track = executors->tracks[executors->n_tracks++] = mem_new(sizeof *track);
  track->run = mem_strdup(run->id);
  track->tenant = mem_strdup(run->tenant);
  return track;
}

/* Also those that had none for so long. */
static void clear_slot(struct executors *executors) {
  uint64_t slot = executors->n_samples % EXECUTORS_SAMPLES;
  int kept = 0;
  for (int i = 0; i < executors->n_tracks; i++) {
    struct track *track = executors->tracks[i];
    track->executors[slot] = 0;
    if (executors->n_samples - track->newest >= EXECUTORS_SAMPLES)
      track_free(track);
    else
      executors->tracks[kept++] = track;
  }
  executors->n_tracks = kept;
}

void executors_tick(struct executors *executors, const struct coordinator *coordinator, uint64_t now_ms,
                    int64_t now_unix_ms, uint64_t *counter) {
  uint64_t slot = executors->n_samples % EXECUTORS_SAMPLES;
  struct sample *sample = &executors->samples[slot];
  if (executors->n_samples && now_ms - executors->sampled_ms < EXECUTORS_EVERY_MS)
    return;
  clear_slot(executors);
  *sample = (struct sample){.number = ++*counter, .unix_ms = now_unix_ms};
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (member->role != WEIR__ROLE__WORKER)
      continue;
    sample->all += member->executors;
    sample->shared += *member->tenant ? 0 : member->executors;
  }
  for (int i = 0; i < coordinator->n_runs; i++) {
    uint32_t count = executors_of(coordinator->runs[i]);
    struct track *track = count ? find_track(executors, coordinator->runs[i]) : NULL;
    if (!track)
      continue;
    track->executors[slot] = count;
    track->newest = executors->n_samples;
  }
  executors->sampled_ms = now_ms;
  executors->n_samples++;
}

static void list_track(const struct track *track, uint64_t first, size_t n, struct arena *arena,
                       Weir__ExecutorHistory *history) {
  Weir__ExecutorTrack *row = arena_new(arena, sizeof *row);
  weir__executor_track__init(row);
  row->run = track->run;
  row->n_executors = n;
  row->executors = arena_new(arena, n * sizeof *row->executors);
  for (size_t i = 0; i < n; i++)
    row->executors[i] = track->executors[(first + i) % EXECUTORS_SAMPLES];
  history->tracks[history->n_tracks++] = row;
}

void executors_list(const struct executors *executors, const struct viewer *viewer,
                    struct executors_span span, struct arena *arena, Weir__ExecutorHistory *history) {
  uint64_t end = executors->n_samples, first = end;
  weir__executor_history__init(history);
  while (end > 0 && executors->samples[(end - 1) % EXECUTORS_SAMPLES].number > span.upto)
    end--;
  for (first = end; first > 0 && executors->n_samples - first < EXECUTORS_SAMPLES &&
                    executors->samples[(first - 1) % EXECUTORS_SAMPLES].number > span.since;)
    first--;
  history->unix_ms = arena_new(arena, (size_t)(end - first) * sizeof *history->unix_ms);
  history->executors = arena_new(arena, (size_t)(end - first) * sizeof *history->executors);
  for (uint64_t i = first; i < end; i++) {
    const struct sample *sample = &executors->samples[i % EXECUTORS_SAMPLES];
    history->unix_ms[history->n_unix_ms++] = sample->unix_ms;
    history->executors[history->n_executors++] = viewer->sees_all ? sample->all : sample->shared;
  }
  history->tracks = arena_new(arena, (size_t)executors->n_tracks * sizeof *history->tracks);
  for (int i = 0; i < executors->n_tracks; i++) {
    const struct track *track = executors->tracks[i];
    if (end > first && track->newest >= first && viewer_sees(viewer, track->tenant))
      list_track(track, first, (size_t)(end - first), arena, history);
  }
}
