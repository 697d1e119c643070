/* Following a run, until there is work. */
#include "worker/train/run/follow.h"

#include "common/base/log.h"

/* Whether the present version is all that this worker has to do with. An execution of an older one, which
   hangs perhaps, would keep it from the next. */
static bool is_at_rest(const struct run *run) {
  const struct weights *weights = run->weights;
  return weights->current->is_open && !weights_are_read(weights) && !weights_next_is_complete(weights);
}

void follow_begin(struct run *run) {
  run->follow.is_told = false;
  follow_look(run);
}

/* What a version took to come may be many steps of the run: its blocks may have been sent at once, and the
   link be slow. So the servers are asked when it is here. */
void follow_look(struct run *run) {
  uint32_t servers;
  if (!run->share.follows || run->phase != RUN_WORKING || run->follow.is_told ||
      run->follow.n_unanswered > 0 || !is_at_rest(run))
    return;
  servers = (uint32_t)run->applied->n_servers;
  run->follow = (struct follow){.n_unanswered = servers};
  for (uint32_t s = 0; s < servers; s++)
    transfers_start(run->transfers, &(struct transfer_item){.kind = TRANSFER_VERSIONS, .server = s}, 1);
}

static void follow_tell(struct run *run) {
  Weir__Ready ready = WEIR__READY__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  ready.run = run->load->run;
  ready.incarnation = run->incarnation;
  ready.version = run->weights->current->version;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_READY;
  message.ready = &ready;
  run->follow.is_told = true;
  log_event(LOG_INFO, "worker", "ready", "run=%s version=%llu", run->load->run,
            (unsigned long long)ready.version);
  if (!run->is_muted)
    run->options.send(run->options.user, &message);
}

void follow_answered(struct run *run, uint64_t version) {
  struct follow *follow = &run->follow;
  if (follow->n_unanswered == 0) /* nobody was asked */
    return;
  follow->newest = version > follow->newest ? version : follow->newest;
  if (--follow->n_unanswered > 0 || !run->share.follows || !is_at_rest(run))
    return;
  if (follow->newest <= mode_next(&run->mode, run->weights->current->version))
    follow_tell(run);
}
