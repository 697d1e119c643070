/* Which servers of the run are reached and which are not, for the coordinator. */
#include "worker/train/reach.h"

#include "common/base/log.h"

static void run_tell_unreached_locked(struct run *run, const struct transfers_unreached *unreached) {
  Weir__Unreached told = WEIR__UNREACHED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  told.run = run->load->run;
  told.incarnation = unreached->incarnation;
  told.servers = (char **)unreached->servers;
  told.n_servers = unreached->n;
  told.message = (char *)unreached->error;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_UNREACHED;
  message.unreached = &told;
  run->is_unreached_told = unreached->n > 0;
  if (!run->is_muted)
    run->options.send(run->options.user, &message);
}

void run_on_unreached(void *user, const struct transfers_unreached *unreached) {
  struct run *run = user;
  pthread_mutex_lock(&run->lock);
  if (unreached->n == 0)
    run_tell_reached_locked(run);
  else {
    log_event(run->is_unreached_told ? LOG_DEBUG : LOG_WARN, "worker", "servers_unreached",
              "run=%s servers=%zu first=%s error=\"%s\"", run->load->run, unreached->n, unreached->servers[0],
              unreached->error);
    run_tell_unreached_locked(run, unreached);
  }
  pthread_mutex_unlock(&run->lock);
}

void run_tell_reached_locked(struct run *run) {
  struct transfers_unreached none = {.incarnation = run->incarnation, .error = ""};
  if (!run->is_unreached_told)
    return;
  log_event(LOG_INFO, "worker", "servers_reached", "run=%s", run->load->run);
  run_tell_unreached_locked(run, &none);
}

/* In other phases the transfers may be on their way out, without the lock. */
void run_fill_reached_locked(struct run *run, Weir__RunCounters *counters, struct arena *arena) {
  const char **ids;
  size_t n;
  if (!run->transfers || (run->phase != RUN_JOINING && run->phase != RUN_WORKING))
    return;
  ids = arena_new(arena, run->applied->n_servers * sizeof *ids);
  n = transfers_reached(run->transfers, ids);
  for (size_t i = 0; i < n; i++)
    ids[i] = arena_strdup(arena, ids[i]);
  counters->reached = (char **)ids;
  counters->n_reached = n;
}
