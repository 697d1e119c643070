/* The lease of the coordinator that leads. */
#include "server/coordinator/shell/threads/lease.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "storage/checkpoint/checkpoint.h"

enum { LEASE_MS = 3000, RENEWALS_A_LEASE = 3, LOOKS_A_LEASE = 12, ADDRESS_MAX = 255 };

#define TERM_MAX (UINT32_MAX - 1) /* views and events are numbered from term << 32 on */
#define JUMP_MAX 1000000          /* nobody's word uses up all terms */

static const char term_name[] = "coordinator/epoch", lease_name[] = "coordinator/lease";

struct lease {
  struct lease_options options;
  char *holder, *address;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_stopping;
  bool is_doubted;   /* since the last renewal */
  uint64_t outlived; /* the highest term that a member obeys; 0: none above ours */

  /* the thread's own */
  bool is_leading, is_deposed, is_in_trouble;
  uint64_t term, beat;
  char *why;          /* told last; NULL: nothing */
  uint64_t seen_term; /* the lease of another, as it was looked at last */
  uint64_t seen_beat;
  uint64_t quiet_ns, looked_ns; /* for how long it has not changed; when that was */
};

/* The record coordinator/epoch as it is. */
struct term_record {
  char *text; /* NULL: absent */
  size_t size;
  uint64_t number; /* 0: absent */
};

static void *thread_main(void *argument);
static bool wait_ms(struct lease *lease, int ms);
static void try_to_take(struct lease *lease);
static int lease_look(struct lease *lease, bool *is_free, uint64_t *last_term, struct err *err);
static int lease_take(struct lease *lease, const struct term_record *old, uint64_t last_term,
                      struct err *err);
static void lease_renew(struct lease *lease);
static void find_out(struct lease *lease);
static void tell_deposed(struct lease *lease, uint64_t term);
static void set_free(struct lease *lease);
static int write_lease(struct lease *lease, struct err *err);
static int read_term(struct lease *lease, struct term_record *record, struct err *err);
static int write_term(struct lease *lease, uint64_t number, const struct term_record *old, struct err *err);
static void tell_waiting(struct lease *lease, const char *why);
static void tell_trouble(struct lease *lease, const struct err *err);

struct lease *lease_start(const struct lease_options *options) {
  struct lease *lease = mem_new(sizeof *lease);
  lease->options = *options;
  if (lease->options.lease_ms <= 0)
    lease->options.lease_ms = LEASE_MS;
  lease->holder = mem_strdup(options->holder);
  lease->address = mem_strdup(options->address);
  pthread_mutex_init(&lease->lock, NULL);
  clock_condition_init(&lease->changed);
  CHECK(pthread_create(&lease->thread, NULL, thread_main, lease) == 0);
  return lease;
}

void lease_stop(struct lease *lease) {
  if (!lease)
    return;
  pthread_mutex_lock(&lease->lock);
  lease->is_stopping = true;
  pthread_cond_signal(&lease->changed);
  pthread_mutex_unlock(&lease->lock);
  pthread_join(lease->thread, NULL);
  pthread_cond_destroy(&lease->changed);
  pthread_mutex_destroy(&lease->lock);
  free(lease->holder);
  free(lease->address);
  free(lease->why);
  free(lease);
}

void lease_outlived(struct lease *lease, uint64_t term) {
  if (!lease)
    return;
  pthread_mutex_lock(&lease->lock);
  if (term > lease->outlived)
    lease->outlived = term;
  pthread_mutex_unlock(&lease->lock);
}

void lease_doubt(struct lease *lease) {
  if (!lease)
    return;
  pthread_mutex_lock(&lease->lock);
  lease->is_doubted = true;
  pthread_mutex_unlock(&lease->lock);
}

struct store_record lease_guard(uint64_t term_number, char term[LEASE_TERM_SIZE]) {
  int length = snprintf(term, LEASE_TERM_SIZE, "%" PRIu64, term_number);
  return (struct store_record){.name = term_name, .data = term, .size = (size_t)length};
}

static void *thread_main(void *argument) {
  struct lease *lease = argument;
  bool goes_on = true;
  while (goes_on && !lease->is_leading) {
    try_to_take(lease);
    goes_on = lease->is_leading || wait_ms(lease, lease->options.lease_ms / LOOKS_A_LEASE);
  }
  while (goes_on && !lease->is_deposed) {
    goes_on = wait_ms(lease, lease->options.lease_ms / RENEWALS_A_LEASE);
    if (goes_on)
      lease_renew(lease);
  }
  if (lease->is_leading && !lease->is_deposed && !lease->is_in_trouble)
    set_free(lease);
  return NULL;
}

/* False when the lease is to stop. */
static bool wait_ms(struct lease *lease, int ms) {
  struct timespec until;
  uint64_t until_ns = clock_now_ns() + (uint64_t)ms * 1000000;
  bool goes_on;
  until.tv_sec = (time_t)(until_ns / 1000000000);
  until.tv_nsec = (long)(until_ns % 1000000000);
  pthread_mutex_lock(&lease->lock);
  while (!lease->is_stopping && clock_now_ns() < until_ns)
    pthread_cond_timedwait(&lease->changed, &lease->lock, &until);
  goes_on = !lease->is_stopping;
  pthread_mutex_unlock(&lease->lock);
  return goes_on;
}

/* The term is read before the lease is looked at: whoever takes the lease in between makes it another one,
   and ours is not written over it. */
static void try_to_take(struct lease *lease) {
  struct err err = ERR_NONE, term_err = ERR_NONE;
  struct term_record term;
  uint64_t last_term = 0;
  bool is_free;
  int rc;
  read_term(lease, &term, &term_err);
  rc = lease_look(lease, &is_free, &last_term, &err);
  if (!rc && is_free && term_err.code) {
    err = term_err;
    rc = term_err.code;
  } else if (!rc && is_free)
    rc = lease_take(lease, &term, last_term, &err);
  free(term.text);
  if (rc && rc != ERR_STALE) /* else another was faster */
    tell_waiting(lease, err.text);
}

/* Tells who leads, where another does. */
static int lease_look(struct lease *lease, bool *is_free, uint64_t *last_term, struct err *err) {
  const uint64_t lease_ns = (uint64_t)lease->options.lease_ms * 1000000,
                 seen_most_ns = 2 * lease_ns / LOOKS_A_LEASE;
  uint64_t now_ns = clock_now_ns(), passed_ns = now_ns - lease->looked_ns;
  Weir__Lease *found = NULL;
  int rc = checkpoint_read_record(lease->options.store, lease_name, &weir__lease__descriptor, (void **)&found,
                                  err);
  *is_free = true;
  if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT) {
    *err = ERR_NONE;
    return 0;
  }
  if (rc)
    return rc;
  *last_term = found->term < TERM_MAX ? found->term : 0;
  if (strcmp(found->holder, lease->holder)) {
    bool is_same = lease->looked_ns && found->term == lease->seen_term && found->beat == lease->seen_beat;
    /* We may have been frozen, with the other: only time that we saw passing counts. */
    if (passed_ns > seen_most_ns)
      passed_ns = seen_most_ns;
    lease->quiet_ns = is_same ? lease->quiet_ns + passed_ns : 0;
    *is_free = lease->quiet_ns >= lease_ns;
  }
  lease->seen_term = found->term;
  lease->seen_beat = found->beat;
  lease->looked_ns = now_ns;
  if (!*is_free) {
    char *address = text_copy_clean(found->address, ADDRESS_MAX);
    char *why = mem_printf("this coordinator is a standby of %s", address);
    tell_waiting(lease, why);
    free(why);
    free(address);
  }
  message_free(found);
  return 0;
}

static int lease_take(struct lease *lease, const struct term_record *old, uint64_t last_term,
                      struct err *err) {
  uint64_t term = (old->number > last_term ? old->number : last_term) + 1;
  if (write_term(lease, term, old, err) == 0) {
    lease->term = term;
    write_lease(lease, err); /* it may fail: the term is ours, and the next renewal writes it */
    lease->is_leading = err->code != ERR_STALE;
  }
  if (!lease->is_leading)
    return err->code;
  log_event(LOG_INFO, "coordinator", "leading", "term=%" PRIu64 " holder=\"%s\"", term, lease->holder);
  lease->options.on_leading(lease->options.user, term);
  *err = ERR_NONE;
  return 0;
}

static void lease_renew(struct lease *lease) {
  struct err err = ERR_NONE;
  bool is_doubted;
  int rc;
  pthread_mutex_lock(&lease->lock);
  is_doubted = lease->is_doubted;
  lease->is_doubted = false;
  pthread_mutex_unlock(&lease->lock);
  rc = write_lease(lease, &err);
  if (rc == ERR_STALE)
    find_out(lease);
  else if (rc && is_doubted) {
    lease->is_deposed = true;
    lease->options.on_deposed(lease->options.user,
                              "a member obeys a higher term, and the store does not answer who leads");
  } else if (rc)
    tell_trouble(lease, &err);
  else if (lease->is_in_trouble) {
    lease->is_in_trouble = false;
    lease->options.on_store(lease->options.user, "");
  }
}

/* Our term is not in the store: either another leads, or the store has lost what it had. */
static void find_out(struct lease *lease) {
  struct term_record record;
  struct err err = ERR_NONE;
  int rc = read_term(lease, &record, &err);
  if (rc) {
    tell_trouble(lease, &err);
    return;
  }
  if (record.number > lease->term) {
    lease->is_deposed = true;
    tell_deposed(lease, record.number);
  } else if (record.number < lease->term) {
    rc = write_term(lease, lease->term, &record, &err);
    if (!rc) {
      log_event(LOG_WARN, "coordinator", "store_emptied", "term=%" PRIu64 " found=%" PRIu64, lease->term,
                record.number);
      write_lease(lease, &err);
      lease->options.on_emptied(lease->options.user);
    } else if (rc != ERR_STALE)
      tell_trouble(lease, &err);
  }
  free(record.text);
}

/* It names the other, where that has written who it is by now. */
static void tell_deposed(struct lease *lease, uint64_t term) {
  struct err err = ERR_NONE;
  Weir__Lease *found = NULL;
  char *address, *reason;
  checkpoint_read_record(lease->options.store, lease_name, &weir__lease__descriptor, (void **)&found, &err);
  address = text_copy_clean(found && found->term == term ? found->address : "", ADDRESS_MAX);
  reason = mem_printf("another coordinator leads%s%s: it has term %" PRIu64 ", this one %" PRIu64,
                      *address ? ", at " : "", address, term, lease->term);
  lease->options.on_deposed(lease->options.user, reason);
  free(reason);
  free(address);
  message_free(found);
}

static void set_free(struct lease *lease) {
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(lease->term, term);
  struct err err = ERR_NONE;
  if (lease->outlived > lease->term && lease->outlived - lease->term <= JUMP_MAX) {
    struct term_record own = {.text = term, .size = guard.size, .number = lease->term};
    if (write_term(lease, lease->outlived, &own, &err) == 0) {
      log_event(LOG_WARN, "coordinator", "term_raised", "from=%" PRIu64 " to=%" PRIu64, lease->term,
                lease->outlived);
      guard = lease_guard(lease->outlived, term);
    }
  }
  err = ERR_NONE;
  if (store_delete_record(lease->options.store, lease_name, &guard, &err))
    log_event(LOG_INFO, "coordinator", "lease_kept", "reason=\"%s\"", err.text); /* it runs out by itself */
}

static int write_lease(struct lease *lease, struct err *err) {
  Weir__Lease record = WEIR__LEASE__INIT;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(lease->term, term);
  record.term = lease->term;
  record.beat = ++lease->beat;
  record.holder = lease->holder;
  record.address = lease->address;
  return checkpoint_write_record(lease->options.store, lease_name, &record, &guard, err);
}

static int read_term(struct lease *lease, struct term_record *record, struct err *err) {
  void *data;
  size_t size;
  int rc = store_get_record(lease->options.store, term_name, &data, &size, err);
  char text[LEASE_TERM_SIZE] = "";
  *record = (struct term_record){0};
  if (rc == ERR_NOT_FOUND) {
    *err = ERR_NONE;
    return 0;
  }
  if (rc)
    return rc;
  if (size < sizeof text)
    memcpy(text, data, size);
  if (size == 0 || strspn(text, "0123456789") != size || strtoull(text, NULL, 10) > TERM_MAX) {
    free(data);
    return err_set(err, ERR_CORRUPT, "store: record %s holds no term: delete it if no coordinator runs",
                   term_name);
  }
  *record = (struct term_record){.text = data, .size = size, .number = strtoull(text, NULL, 10)};
  return 0;
}

static int write_term(struct lease *lease, uint64_t number, const struct term_record *old, struct err *err) {
  char text[LEASE_TERM_SIZE];
  struct store_record was = {.name = term_name, .data = old->text, .size = old->size};
  int length = snprintf(text, sizeof text, "%" PRIu64, number);
  return store_put_record(lease->options.store, &(struct store_record){term_name, text, (size_t)length, &was},
                          err);
}

static void tell_waiting(struct lease *lease, const char *why) {
  if (lease->why && strcmp(lease->why, why) == 0)
    return;
  free(lease->why);
  lease->why = mem_strdup(why);
  log_event(LOG_INFO, "coordinator", "waiting", "reason=\"%s\"", why);
  lease->options.on_waiting(lease->options.user, why);
}

static void tell_trouble(struct lease *lease, const struct err *err) {
  lease->is_in_trouble = true;
  lease->options.on_store(lease->options.user, err->text);
}
