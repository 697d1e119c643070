/* The tickets that open a run. */
#include "server/parameters/run/tickets.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

void run_tickets_init(struct run_tickets *tickets) {
  pthread_mutex_init(&tickets->lock, NULL);
}

void run_tickets_fini(struct run_tickets *tickets) {
  for (int i = 0; i < TICKETS_KNOWN; i++)
    free(tickets->known[i].holder);
  pthread_mutex_destroy(&tickets->lock);
}

int run_tickets_set_key(struct run_tickets *tickets, const ProtobufCBinaryData *key, struct err *err) {
  if (key->len != 0 && key->len != TICKET_KEY_BYTES)
    return err_set(err, ERR_INVALID, "the run's key has %zu bytes, not %d", key->len, TICKET_KEY_BYTES);
  if (key->len)
    memcpy(tickets->key, key->data, TICKET_KEY_BYTES);
  tickets->has_key = key->len > 0;
  return 0;
}

static const struct known_ticket *known_locked(struct run_tickets *tickets,
                                               const struct ticket_owner *owner) {
  struct known_ticket *known;
  for (int i = 0; i < TICKETS_KNOWN && tickets->known[i].holder; i++)
    if (tickets->known[i].worker == owner->worker && strcmp(tickets->known[i].holder, owner->holder) == 0)
      return &tickets->known[i];
  known = &tickets->known[tickets->turn++ % TICKETS_KNOWN];
  free(known->holder);
  known->holder = mem_strdup(owner->holder);
  known->worker = owner->worker;
  ticket_mac(tickets->key, owner, known->mac);
  return known;
}

int run_tickets_refuse(const struct ticket *ticket, const char *holder, struct err *err) {
  return err_set(err, ERR_DENIED, "the call's ticket for run '%s' is not one of %s", ticket->run,
                 *holder ? holder : "its coordinator's");
}

int run_tickets_check(struct run_tickets *tickets, uint64_t incarnation, const struct ticket *ticket,
                      const char *holder, struct err *err) {
  struct ticket_owner owner = {ticket->run, incarnation, holder, ticket->worker};
  bool is_genuine;
  if (!tickets->has_key)
    return 0;
  if (ticket->incarnation == incarnation) {
    pthread_mutex_lock(&tickets->lock);
    is_genuine = ticket_has_mac(ticket, known_locked(tickets, &owner)->mac);
    pthread_mutex_unlock(&tickets->lock);
  } else
    is_genuine = ticket_is_genuine(ticket, tickets->key, holder);
  if (!is_genuine)
    return run_tickets_refuse(ticket, holder, err);
  if (ticket->incarnation == incarnation)
    return 0;
  return err_set(err, ERR_STALE, "run '%s' is in incarnation %llu here, the call's ticket is for %llu",
                 ticket->run, (unsigned long long)incarnation, (unsigned long long)ticket->incarnation);
}
