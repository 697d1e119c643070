/* Clients by name, in a hash table of lists. */
#include "common/door/clients.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/limits.h"
#include "common/base/memory.h"

/* KEPT_MAX: clients without an open call that are remembered, the newest of each bucket, so that a client is
   not a new one with each call. */
enum { BUCKETS = 256, KEPT_MAX = 16 };

struct client {
  char *name;
  int calls;           /* that are open */
  double tokens;       /* calls that it may make at once */
  uint64_t counted_ns; /* when the tokens were */
  struct client *next; /* the one that came before */
};

struct clients {
  pthread_mutex_t lock;
  struct client *buckets[BUCKETS]; /* who came last is first */
};

struct clients *clients_new(void) {
  struct clients *clients = mem_new(sizeof *clients);
  pthread_mutex_init(&clients->lock, NULL);
  return clients;
}

static void client_free(struct client *client) {
  free(client->name);
  free(client);
}

void clients_free(struct clients *clients) {
  if (!clients)
    return;
  for (int i = 0; i < BUCKETS; i++)
    for (struct client *client = clients->buckets[i], *next; client; client = next) {
      next = client->next;
      client_free(client);
    }
  pthread_mutex_destroy(&clients->lock);
  free(clients);
}

/* Forgets who has no call open and came before KEPT_MAX others. */
static void bucket_trim(struct client **place) {
  for (int kept = 0; *place;) {
    struct client *client = *place;
    if (client->calls || kept++ < KEPT_MAX) {
      place = &client->next;
      continue;
    }
    *place = client->next;
    client_free(client);
  }
}

/* Puts it first. */
static struct client *find_locked(struct clients *clients, const char *name, uint64_t now_ns) {
  struct client **bucket = &clients->buckets[hash_bytes(name, strlen(name)) % BUCKETS], **place = bucket;
  struct client *client;
  while (*place && strcmp((*place)->name, name) != 0)
    place = &(*place)->next;
  client = *place;
  if (client) {
    *place = client->next;
  } else {
    client = mem_new(sizeof *client);
    client->name = mem_strdup(name);
    client->tokens = LIMIT_CLIENT_BURST;
    client->counted_ns = now_ns;
  }
  client->next = *bucket;
  *bucket = client;
  bucket_trim(bucket);
  return client;
}

static int count(struct client *client, uint64_t now_ns, struct err *err) {
  client->tokens += (double)(now_ns - client->counted_ns) * 1e-9 * LIMIT_CLIENT_RATE;
  client->counted_ns = now_ns;
  if (client->tokens > LIMIT_CLIENT_BURST)
    client->tokens = LIMIT_CLIENT_BURST;
  if (client->calls >= LIMIT_CLIENT_CALLS)
    return err_set(
        err, ERR_BUSY,
        "%s has %d calls open here, the most that a client may have: try again when some have ended",
        client->name, client->calls);
  if (client->tokens < 1)
    return err_set(
        err, ERR_BUSY,
        "%s makes more than %d calls a second here, the most that a client may: try again, more slowly",
        client->name, LIMIT_CLIENT_RATE);
  client->tokens -= 1;
  client->calls++;
  return ERR_OK;
}

int clients_enter(struct clients *clients, const char *name, uint64_t now_ns, struct client **out,
                  struct err *err) {
  struct client *client;
  pthread_mutex_lock(&clients->lock);
  client = find_locked(clients, name, now_ns);
  *out = count(client, now_ns, err) ? NULL : client;
  pthread_mutex_unlock(&clients->lock);
  return err->code;
}

void clients_leave(struct clients *clients, struct client *client) {
  if (!client)
    return;
  pthread_mutex_lock(&clients->lock);
  client->calls--;
  pthread_mutex_unlock(&clients->lock);
}
