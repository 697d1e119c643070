/* Leading a store for a moment. */
#include "client/cluster/store_lease.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cluster/stop.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint.h"

enum { LOOK_MS = 1500, RENEWAL_MS = 1000 };
static const char term_name[] = "coordinator/epoch", lease_name[] = "coordinator/lease";

struct store_lease {
  struct store *store;
  char term[32]; /* decimal: the content of its record */
  struct store_record guard;
  Weir__Lease record;
  char holder[320];
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool is_renewed, is_over;
};

static int lease_look(struct store *store, struct err *err);
static int lease_read(struct store *store, Weir__Lease **lease, struct err *err);
static int lease_take_term(struct store_lease *lease, struct err *err);
static void *lease_renew(void *arg);

int store_lease_take(struct store *store, struct store_lease **out, struct err *err) {
  struct store_lease *lease;
  char host[256] = "unknown";
  if (lease_look(store, err))
    return err->code;
  lease = mem_new(sizeof *lease);
  lease->store = store;
  pthread_mutex_init(&lease->lock, NULL);
  clock_condition_init(&lease->wake);
  gethostname(host, sizeof host - 1);
  snprintf(lease->holder, sizeof lease->holder, "weir gc, process %d on %s", (int)getpid(), host);
  if (lease_take_term(lease, err) ||
      checkpoint_write_record(store, lease_name, &lease->record, &lease->guard, err)) {
    store_lease_release(lease);
    return err->code;
  }
  CHECK(pthread_create(&lease->thread, NULL, lease_renew, lease) == 0);
  lease->is_renewed = true;
  *out = lease;
  return ERR_OK;
}

/* EXISTS if somebody renews the lease. */
static int lease_look(struct store *store, struct err *err) {
  Weir__Lease *before = NULL, *after = NULL;
  if (lease_read(store, &before, err) == 0 && before) {
    if (stop_wait(LOOK_MS))
      err_set(err, ERR_CANCELLED, "interrupted");
    else
      lease_read(store, &after, err);
  }
  if (before && after &&
      (before->beat != after->beat || before->term != after->term || strcmp(before->holder, after->holder)))
    err_set(err, ERR_EXISTS,
            "a coordinator leads this store, at %s: pass --coordinator %s instead of --store",
            after->address[0] ? after->address : after->holder, after->address);
  message_free(before);
  message_free(after);
  return err->code;
}

/* *lease = NULL when there is none. */
static int lease_read(struct store *store, Weir__Lease **lease, struct err *err) {
  *lease = NULL;
  if (checkpoint_read_record(store, lease_name, &weir__lease__descriptor, (void **)lease, err) ==
      ERR_NOT_FOUND)
    *err = ERR_NONE;
  return err->code;
}

static int lease_take_term(struct store_lease *lease, struct err *err) {
  struct store_record was = {.name = term_name};
  void *data = NULL;
  size_t size = 0;
  uint64_t term = 0;
  if (store_get_record(lease->store, term_name, &data, &size, err) == ERR_NOT_FOUND)
    *err = ERR_NONE;
  if (err->code)
    return err->code;
  if (data) {
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)(size < sizeof text ? size : sizeof text - 1), (char *)data);
    term = strtoull(text, NULL, 10);
    was.data = data;
    was.size = size;
  }
  snprintf(lease->term, sizeof lease->term, "%" PRIu64, term + 1);
  if (store_put_record(lease->store,
                       &(struct store_record){term_name, lease->term, strlen(lease->term), &was},
                       err) == ERR_STALE)
    err_set(err, ERR_EXISTS, "another process took the lead of this store in the same moment: try again");
  free(data);
  lease->guard = (struct store_record){.name = term_name, .data = lease->term, .size = strlen(lease->term)};
  weir__lease__init(&lease->record);
  lease->record.term = term + 1;
  lease->record.holder = lease->holder;
  return err->code;
}

/* The thread. A renewal that fails is no matter: what is deleted is guarded by the term. */
static void *lease_renew(void *arg) {
  struct store_lease *lease = arg;
  pthread_mutex_lock(&lease->lock);
  while (!lease->is_over) {
    const struct timespec until = clock_after_ms(RENEWAL_MS);
    struct err err = ERR_NONE;
    if (pthread_cond_timedwait(&lease->wake, &lease->lock, &until) != ETIMEDOUT)
      continue;
    lease->record.beat++;
    checkpoint_write_record(lease->store, lease_name, &lease->record, &lease->guard, &err);
  }
  pthread_mutex_unlock(&lease->lock);
  return NULL;
}

const struct store_record *store_lease_guard(const struct store_lease *lease) {
  return &lease->guard;
}

void store_lease_release(struct store_lease *lease) {
  struct err err = ERR_NONE;
  if (!lease)
    return;
  if (lease->is_renewed) {
    pthread_mutex_lock(&lease->lock);
    lease->is_over = true;
    pthread_cond_signal(&lease->wake);
    pthread_mutex_unlock(&lease->lock);
    pthread_join(lease->thread, NULL);
    store_delete_record(lease->store, lease_name, &lease->guard, &err); /* else it runs out */
  }
  pthread_mutex_destroy(&lease->lock);
  pthread_cond_destroy(&lease->wake);
  free(lease);
}
