/* The guard of a port or of a client. */
#include "common/rpc/guard.h"

#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/certs/denied.h"

/* KNOWN_MAX: certificates that are not parsed again for each call. */
enum { LOOK_MS = 1000, KNOWN_MAX = 64, OWN_LOOKS = 60, WARN_AGAIN_S = 24 * 3600 };

struct rpc_guest {
  int refs; /* atomic */
  char *pem;
  size_t pem_size;
  bool is_named;
  struct cert_facts facts;

  /* the guard's lock is held */
  bool is_denied, is_logged;
  unsigned edition; /* of the list by which is_denied was set */
};

struct rpc_guard {
  int refs; /* atomic */
  char *folder;
  bool is_of_port;
  pthread_mutex_t lock; /* what follows */
  struct rpc_guest *known[KNOWN_MAX];
  int newest; /* of known */
  struct cert_denied denied;
  unsigned edition;
  struct err refused; /* why the file that is there now is not taken; OK if it is */
  uint64_t look_ns;   /* when to look again */
  int looks;
  int64_t warned_s, warned_of; /* when, and of which last second */
};

struct rpc_guard *rpc_guard_new(const struct rpc_tls *tls, bool is_of_port) {
  struct rpc_guard *guard;
  if (!tls)
    return NULL;
  guard = mem_new(sizeof *guard);
  guard->refs = 1;
  guard->folder = mem_strdup(tls->folder);
  guard->is_of_port = is_of_port;
  guard->edition = 1;
  pthread_mutex_init(&guard->lock, NULL);
  rpc_guard_look(guard);
  return guard;
}

struct rpc_guard *rpc_guard_get(struct rpc_guard *guard) {
  __atomic_fetch_add(&guard->refs, 1, __ATOMIC_RELAXED);
  return guard;
}

void rpc_guard_put(struct rpc_guard *guard) {
  if (!guard || __atomic_sub_fetch(&guard->refs, 1, __ATOMIC_ACQ_REL))
    return;
  for (int i = 0; i < KNOWN_MAX; i++)
    rpc_guest_put(guard->known[i]);
  cert_denied_free(&guard->denied);
  pthread_mutex_destroy(&guard->lock);
  free(guard->folder);
  free(guard);
}

static struct rpc_guest *guest_new(const char *pem, size_t size) {
  struct rpc_guest *guest = mem_new(sizeof *guest);
  struct err err = ERR_NONE;
  guest->refs = 1;
  guest->pem = mem_printf("%.*s", (int)size, pem);
  guest->pem_size = size;
  guest->is_named = cert_facts_parse(guest->pem, "the certificate", &guest->facts, &err) == 0;
  return guest;
}

static struct rpc_guest *meet_locked(struct rpc_guard *guard, const char *pem, size_t size) {
  struct rpc_guest *guest = NULL;
  for (int i = 0; i < KNOWN_MAX && !guest; i++) {
    struct rpc_guest *known = guard->known[(guard->newest + KNOWN_MAX - i) % KNOWN_MAX];
    if (known && known->pem_size == size && memcmp(known->pem, pem, size) == 0)
      guest = known;
  }
  if (!guest) {
    guard->newest = (guard->newest + 1) % KNOWN_MAX;
    rpc_guest_put(guard->known[guard->newest]);
    guest = guard->known[guard->newest] = guest_new(pem, size);
  }
  __atomic_fetch_add(&guest->refs, 1, __ATOMIC_RELAXED);
  return guest;
}

struct rpc_guest *rpc_guard_meet(struct rpc_guard *guard, grpc_call *call) {
  grpc_auth_context *context = grpc_call_auth_context(call);
  grpc_auth_property_iterator properties =
      grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const grpc_auth_property *pem = context ? grpc_auth_property_iterator_next(&properties) : NULL;
  struct rpc_guest *guest = rpc_guard_meet_pem(guard, pem ? pem->value : "", pem ? pem->value_length : 0);
  grpc_auth_context_release(context);
  return guest;
}

struct rpc_guest *rpc_guard_meet_pem(struct rpc_guard *guard, const char *pem, size_t size) {
  struct rpc_guest *guest;
  pthread_mutex_lock(&guard->lock);
  guest = meet_locked(guard, pem, size);
  pthread_mutex_unlock(&guard->lock);
  return guest;
}

void rpc_guest_put(struct rpc_guest *guest) {
  if (!guest || __atomic_sub_fetch(&guest->refs, 1, __ATOMIC_ACQ_REL))
    return;
  free(guest->pem);
  free(guest);
}

const struct cert_holder *rpc_guest_holder(const struct rpc_guest *guest) {
  return guest->is_named ? &guest->facts.holder : NULL;
}

/* A file that cannot be used leaves the list as it was. */
static void read_denied_locked(struct rpc_guard *guard) {
  struct cert_denied denied;
  struct err err = ERR_NONE;
  if (cert_denied_read(guard->folder, &denied, &err) == 0) {
    if (cert_denied_same(&denied, &guard->denied)) {
      cert_denied_free(&denied);
    } else {
      if (guard->is_of_port)
        log_event(LOG_INFO, "tls", "denied_names", "folder=\"%s\" count=%d", guard->folder, denied.count);
      cert_denied_free(&guard->denied);
      guard->denied = denied;
      guard->edition++;
    }
  }
  if (err.code && strcmp(guard->refused.text, err.text) != 0)
    log_event(LOG_WARN, "tls", "denied_names_not_taken", "reason=\"%s\"", err.text);
  guard->refused = err;
}

/* At the start, and once a day until there is another. */
static void warn_locked(struct rpc_guard *guard) {
  char *file = mem_printf("%s/cert.pem", guard->folder);
  int64_t now_s = clock_unix_ms() / 1000;
  struct cert_facts facts;
  struct err err = ERR_NONE;
  char date[CERT_DATE_SIZE];
  if (cert_facts_read(file, &facts, &err) == 0 && facts.ends - now_s < CERT_WARN_S &&
      (facts.ends != guard->warned_of || now_s - guard->warned_s >= WARN_AGAIN_S)) {
    log_event(LOG_WARN, "tls", now_s < facts.ends ? "certificate_ends" : "certificate_ended",
              "file=\"%s\" valid_until=\"%s\" remedy=\"%s\"", file, cert_date(facts.ends, date),
              "renew it by `weir certs renew`");
    guard->warned_of = facts.ends;
    guard->warned_s = now_s;
  }
  free(file);
}

static void look_locked(struct rpc_guard *guard) {
  uint64_t now_ns = clock_now_ns();
  if (now_ns < guard->look_ns)
    return;
  guard->look_ns = now_ns + LOOK_MS * UINT64_C(1000000);
  read_denied_locked(guard);
  if (guard->is_of_port && guard->looks++ % OWN_LOOKS == 0)
    warn_locked(guard);
}

void rpc_guard_look(struct rpc_guard *guard) {
  pthread_mutex_lock(&guard->lock);
  look_locked(guard);
  pthread_mutex_unlock(&guard->lock);
}

static int check_locked(struct rpc_guard *guard, struct rpc_guest *guest, struct err *err) {
  char uri[CERT_TEXT_SIZE], date[CERT_DATE_SIZE];
  if (!guest->is_named)
    return err_set(err, ERR_DENIED, "the certificate names no member or client of Weir");
  if (guest->edition != guard->edition)
    guest->is_denied = cert_denied_has(&guard->denied, &guest->facts.holder);
  guest->edition = guard->edition;
  if (!guest->is_denied && clock_unix_ms() / 1000 < guest->facts.ends)
    return 0;
  cert_holder_uri(&guest->facts.holder, uri);
  if (guest->is_denied)
    return err_set(err, ERR_DENIED, "the certificate of %s is denied: its name is in denied.txt here", uri);
  return err_set(err, ERR_EXPIRED, "the certificate of %s was valid until %s", uri,
                 cert_date(guest->facts.ends, date));
}

int rpc_guard_check(struct rpc_guard *guard, struct rpc_guest *guest, struct err *err) {
  bool is_new;
  pthread_mutex_lock(&guard->lock);
  look_locked(guard);
  is_new = check_locked(guard, guest, err) && !guest->is_logged;
  guest->is_logged = err->code;
  pthread_mutex_unlock(&guard->lock);
  if (is_new && guard->is_of_port)
    log_event(LOG_WARN, "tls", "certificate_refused", "serial=%s reason=\"%s\"", guest->facts.serial,
              err->text);
  return err->code;
}
