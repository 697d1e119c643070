/* The links of a run, and the timer that looks after them. */
#include "worker/train/transfer/transfers.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "worker/train/transfer/server_link.h"

/* TELL_MS: how often what is not reached is told. AWAY_MS: how late the timer may be before it was we who
   were away. */
enum { TELL_MS = 2000, AWAY_MS = 1000 };

struct transfers {
  struct transfers_options options;
  char *ticket;
  struct server_link *links;
  pthread_t timer;
  pthread_mutex_t lock; /* what follows; taken inside a link's */
  pthread_cond_t changed;
  struct transfers_sender sender;
  uint64_t due_ns; /* when the timer is to look after the links */
  bool is_stopping;
  const char **unreached; /* [n_servers] the timer's own, as what follows: what was told last, and when */
  size_t n_unreached;
  uint64_t told_ns;
};

static void *timer_main(void *argument);
static void timer_note(struct transfers *transfers, uint64_t due_ns);

struct transfers *transfers_new(const struct transfers_options *options) {
  struct transfers *transfers = mem_new(sizeof *transfers);
  transfers->options = *options;
  transfers->options.servers = NULL;
  transfers->options.ticket = transfers->ticket = mem_strdup(options->ticket ? options->ticket : "");
  transfers->sender = options->sender;
  transfers->due_ns = clock_now_ns();
  pthread_mutex_init(&transfers->lock, NULL); /* links use them at once */
  clock_condition_init(&transfers->changed);
  transfers->links = mem_new(options->n_servers * sizeof *transfers->links);
  for (uint32_t s = 0; s < options->n_servers; s++) {
    struct server_link *link = &transfers->links[s];
    link->options = &transfers->options;
    link->note = timer_note;
    link->transfers = transfers;
    server_link_init(link, options->servers[s]);
  }
  for (uint32_t s = 0; s < options->n_servers; s++)
    server_link_begin(&transfers->links[s]);
  transfers->unreached = mem_new(options->n_servers * sizeof *transfers->unreached);
  CHECK(pthread_create(&transfers->timer, NULL, timer_main, transfers) == 0);
  return transfers;
}

void transfers_free(struct transfers *transfers) {
  if (!transfers)
    return;
  pthread_mutex_lock(&transfers->lock);
  transfers->is_stopping = true;
  pthread_cond_signal(&transfers->changed);
  pthread_mutex_unlock(&transfers->lock);
  pthread_join(transfers->timer, NULL);
  for (uint32_t s = 0; s < transfers->options.n_servers; s++)
    server_link_fini(&transfers->links[s]);
  pthread_cond_destroy(&transfers->changed);
  pthread_mutex_destroy(&transfers->lock);
  free(transfers->unreached);
  free(transfers->links);
  free(transfers->ticket);
  free(transfers);
}

void transfers_start(struct transfers *transfers, const struct transfer_item *items, int n) {
  struct transfers_sender sender;
  pthread_mutex_lock(&transfers->lock);
  sender = transfers->sender;
  pthread_mutex_unlock(&transfers->lock);
  for (int i = 0; i < n; i++) {
    bool is_first = true;
    for (int before = 0; before < i; before++)
      is_first &= items[before].server != items[i].server;
    if (is_first)
      server_link_start(&transfers->links[items[i].server], items[i].server, &items[i], n - i, &sender);
  }
}

void transfers_set_sender(struct transfers *transfers, const struct transfers_sender *sender) {
  pthread_mutex_lock(&transfers->lock);
  transfers->sender = *sender;
  pthread_mutex_unlock(&transfers->lock);
}

static void timer_note(struct transfers *transfers, uint64_t due_ns) {
  pthread_mutex_lock(&transfers->lock);
  if (due_ns < transfers->due_ns) {
    transfers->due_ns = due_ns;
    pthread_cond_signal(&transfers->changed);
  }
  pthread_mutex_unlock(&transfers->lock);
}

/* When the set of them changes, and again and again while there are some. */
static void tell_unreached(struct transfers *transfers, uint64_t now_ns) {
  struct transfers_options *options = &transfers->options;
  struct transfers_unreached unreached = {options->incarnation, transfers->unreached, 0, ""};
  bool has_changed = false;
  struct err first, failure;
  for (uint32_t s = 0; s < options->n_servers; s++) {
    struct server_link *link = &transfers->links[s];
    if (!server_link_is_unreached(link, &failure))
      continue;
    if (unreached.n == 0) {
      first = failure;
      unreached.error = first.text;
    }
    has_changed |= unreached.n >= transfers->n_unreached || unreached.servers[unreached.n] != link->id;
    unreached.servers[unreached.n++] = link->id;
  }
  has_changed |= unreached.n != transfers->n_unreached;
  if (!has_changed && (unreached.n == 0 || now_ns - transfers->told_ns < TELL_MS * 1000000ull))
    return;
  transfers->n_unreached = unreached.n;
  transfers->told_ns = now_ns;
  options->unreached(options->user, &unreached);
}

/* Looks after all links; when to do so again. */
static uint64_t step_links(struct transfers *transfers, uint64_t now_ns, uint64_t late_ns) {
  uint64_t away_ns = late_ns > AWAY_MS * 1000000ull ? late_ns : 0, due_ns = UINT64_MAX;
  for (uint32_t s = 0; s < transfers->options.n_servers; s++) {
    uint64_t link_due_ns = server_link_step(&transfers->links[s], now_ns, away_ns);
    due_ns = link_due_ns < due_ns ? link_due_ns : due_ns;
  }
  tell_unreached(transfers, now_ns);
  return due_ns;
}

static void *timer_main(void *argument) {
  struct transfers *transfers = argument;
  pthread_mutex_lock(&transfers->lock);
  while (!transfers->is_stopping) {
    uint64_t due_ns = transfers->due_ns, now_ns = clock_now_ns();
    struct timespec until = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)};
    if (due_ns > now_ns) {
      pthread_cond_timedwait(&transfers->changed, &transfers->lock, &until);
      continue;
    }
    transfers->due_ns = UINT64_MAX;
    pthread_mutex_unlock(&transfers->lock);
    due_ns = step_links(transfers, now_ns, now_ns - due_ns);
    pthread_mutex_lock(&transfers->lock);
    transfers->due_ns = due_ns < transfers->due_ns ? due_ns : transfers->due_ns;
  }
  pthread_mutex_unlock(&transfers->lock);
  return NULL;
}

const char *transfers_address(const struct transfers *transfers, uint32_t server) {
  return transfers->links[server].address;
}

size_t transfers_reached(struct transfers *transfers, const char **ids) {
  size_t n = 0;
  for (uint32_t s = 0; s < transfers->options.n_servers; s++)
    if (server_link_is_reached(&transfers->links[s]))
      ids[n++] = transfers->links[s].id;
  return n;
}
