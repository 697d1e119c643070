/* Whose part was wrong: the worker that pushed it or, since of a part that a group pushed no one member can
   be told, all of the group. */
#include "server/coordinator/quarantine/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/tree.h"
#include "common/base/log.h"
#include "common/settle/spec_collective.h"
#include "server/coordinator/quarantine/quarantine.h"
#include "server/coordinator/state/groups_past.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { TEXT_MAX = 500 };

/* Texts that grow, and are cut where they would be too long. */
struct words {
  char text[TEXT_MAX];
};

/* One sender's changed parts of a block. */
struct accusation {
  const Weir__Judged *judged;
  uint32_t worker; /* number */
  uint64_t view;
  const uint32_t *accused; /* numbers: the worker, or all of its group */
  int n_accused;
  struct words microbatches, anew; /* which; who computed them anew */
};

static void accuse(struct coordinator *coordinator, struct run *run, struct accusation *accusation);
static void say_microbatches(const struct run *run, struct accusation *accusation);
static void say_anew(const struct coordinator *coordinator, struct accusation *accusation);
static const char *why_ambiguous(const struct coordinator *coordinator, const struct accusation *accusation,
                                 bool is_known);
static void suspect(const struct coordinator *coordinator, struct run *run,
                    const struct accusation *accusation, const char *why);

static void say(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct words *words, const char *format, ...) {
  size_t length = strlen(words->text);
  va_list args;
  va_start(args, format);
  vsnprintf(words->text + length, sizeof words->text - length, format, args);
  va_end(args);
}

void coordinator_convict(struct coordinator *coordinator, struct run *run, const Weir__Judged *judged) {
  for (size_t i = 0; i < judged->n_changed && i < SENDERS_MAX; i++) {
    struct accusation accusation = {
        .judged = judged, .worker = judged->changed[i]->worker, .view = judged->changed[i]->view};
    bool is_first = true;
    for (size_t before = 0; before < i; before++)
      is_first &= judged->changed[before]->worker != accusation.worker ||
                  judged->changed[before]->view != accusation.view;
    if (is_first)
      accuse(coordinator, run, &accusation);
  }
}

static void accuse(struct coordinator *coordinator, struct run *run, struct accusation *accusation) {
  bool is_known, may_be_group = strcmp(spec_collective(run->spec), "none") != 0;
  const struct group_past *group =
      coordinator_group_in_view(run, accusation->worker, accusation->view, &is_known);
  struct words reason = {""};
  const char *why;
  accusation->accused = group ? group->workers : &accusation->worker;
  accusation->n_accused = group ? group->n_workers : 1;
  say_microbatches(run, accusation);
  say_anew(coordinator, accusation);
  why = why_ambiguous(coordinator, accusation, is_known || !may_be_group);
  if (why) {
    suspect(coordinator, run, accusation, why);
    return;
  }
  say(&reason, "run %.64s, step %llu: microbatches %s, which %s pushed, had other bits when %s computed them",
      run->id, (unsigned long long)accusation->judged->step, accusation->microbatches.text,
      group ? "its group" : "it", accusation->anew.text);
  for (int i = 0; i < accusation->n_accused; i++) {
    struct worker_identity identity;
    if (coordinator_identify(coordinator, accusation->accused[i], &identity))
      coordinator_quarantine(coordinator, &identity, run, reason.text);
  }
}

/* "0 to 3, 8" */
static void say_microbatches(const struct run *run, struct accusation *accusation) {
  const Weir__Judged *judged = accusation->judged;
  for (size_t i = 0; i < judged->n_changed && i < SENDERS_MAX; i++) {
    const Weir__PushedPart *part = judged->changed[i];
    struct tree_node node = {part->first, part->level};
    uint32_t end;
    if (part->worker != accusation->worker || part->view != accusation->view ||
        !tree_node_is_valid(node, plan_units(&run->plan)))
      continue;
    end = tree_node_end(node, plan_units(&run->plan));
    say(&accusation->microbatches, "%s%u", *accusation->microbatches.text ? ", " : "", node.first);
    if (end > node.first + 1)
      say(&accusation->microbatches, " to %u", end - 1);
  }
}

static void say_anew(const struct coordinator *coordinator, struct accusation *accusation) {
  const Weir__Judged *judged = accusation->judged;
  for (size_t i = 0; i < judged->n_computed_by && i < SENDERS_MAX; i++) {
    struct worker_identity identity;
    if (coordinator_identify(coordinator, judged->computed_by[i], &identity))
      say(&accusation->anew, "%s%.64s", *accusation->anew.text ? ", " : "", identity.id);
  }
}

/* NULL: the accused are wrong. Else it may be another; what several computed anew is not told apart. */
static const char *why_ambiguous(const struct coordinator *coordinator, const struct accusation *accusation,
                                 bool is_known) {
  const Weir__Judged *judged = accusation->judged;
  struct worker_identity accused, other;
  if (!coordinator_identify(coordinator, accusation->worker, &accused))
    return "a client that is no worker, or has left long ago";
  if (!is_known)
    return "with whom it was in a group is not known any more";
  if (judged->n_computed_by == 0 || judged->n_computed_by > SENDERS_MAX)
    return "who computed them anew is not known";
  for (size_t i = 0; i < judged->n_computed_by; i++) {
    if (!coordinator_identify(coordinator, judged->computed_by[i], &other))
      return "who computed them anew is not known";
    for (int at = 0; at < accusation->n_accused; at++)
      if (coordinator_identify(coordinator, accusation->accused[at], &accused) &&
          coordinator_is_same_device(&accused, &other))
        return "no other device has computed them anew";
  }
  return NULL;
}

static void suspect(const struct coordinator *coordinator, struct run *run,
                    const struct accusation *accusation, const char *why) {
  struct worker_identity identity = {"a client", "", "", ""};
  struct words words = {""};
  if (coordinator_identify(coordinator, accusation->worker, &identity))
    say(&words, "%.64s (%.128s, %.64s)", identity.id, identity.host, identity.device);
  else
    say(&words, "worker %u", accusation->worker);
  say(&words,
      " may compute wrongly: at step %llu microbatches %s had other bits the second time; not in quarantine: "
      "%s",
      (unsigned long long)accusation->judged->step, accusation->microbatches.text, why);
  log_event(LOG_WARN, "coordinator", "suspected", "run=%s message=\"%s\"", run->id, words.text);
  free(run->suspicion);
  run->suspicion = mem_strdup(words.text);
}
