/* Addresses with connections: a hash table of lists. */
#include "common/door/visitors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/limits.h"
#include "common/base/memory.h"

enum { BUCKETS = 1024, KEY_BYTES = 8 };

/* An IPv4 address, or the first half of an IPv6 one: who has one of these has all that begin with it. */
struct visitor {
  uint8_t key[KEY_BYTES];
  size_t connections;
  struct visitor *next;
};

struct visitors {
  struct visitor *buckets[BUCKETS];
  size_t connections, connections_max, address_max;
};

struct visitors *visitors_new(size_t descriptors) {
  struct visitors *visitors = mem_new(sizeof *visitors);
  size_t most = descriptors - descriptors / 4;
  visitors->connections_max = most < LIMIT_CONNECTIONS ? most : LIMIT_CONNECTIONS;
  visitors->address_max = visitors->connections_max / 2 < LIMIT_ADDRESS_CONNECTIONS
                              ? visitors->connections_max / 2
                              : LIMIT_ADDRESS_CONNECTIONS;
  return visitors;
}

void visitors_free(struct visitors *visitors) {
  for (int i = 0; i < BUCKETS; i++)
    for (struct visitor *visitor = visitors->buckets[i], *next; visitor; visitor = next) {
      next = visitor->next;
      free(visitor);
    }
  free(visitors);
}

/* False: it is no address of the Internet. */
static bool key_of(const struct sockaddr *address, uint8_t key[KEY_BYTES]) {
  const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
  memset(key, 0, KEY_BYTES);
  if (address->sa_family == AF_INET)
    memcpy(key + 4, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
  else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
    memcpy(key + 4, six->s6_addr + 12, 4);
  else if (address->sa_family == AF_INET6)
    memcpy(key, six->s6_addr, KEY_BYTES);
  return address->sa_family == AF_INET || address->sa_family == AF_INET6;
}

void visitor_name(const struct sockaddr *address, char name[VISITOR_NAME_SIZE]) {
  const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
  snprintf(name, VISITOR_NAME_SIZE, "unix");
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, name,
              VISITOR_NAME_SIZE);
  else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
    inet_ntop(AF_INET, six->s6_addr + 12, name, VISITOR_NAME_SIZE);
  else if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, six, name, VISITOR_NAME_SIZE);
}

static struct visitor **place_of(struct visitors *visitors, const uint8_t key[KEY_BYTES]) {
  struct visitor **place = &visitors->buckets[hash_bytes(key, KEY_BYTES) % BUCKETS];
  while (*place && memcmp((*place)->key, key, KEY_BYTES) != 0)
    place = &(*place)->next;
  return place;
}

int visitors_enter(struct visitors *visitors, const struct sockaddr *address, struct visitor **out,
                   struct err *err) {
  uint8_t key[KEY_BYTES];
  char name[VISITOR_NAME_SIZE];
  struct visitor **place;
  *out = NULL;
  visitor_name(address, name);
  if (visitors->connections >= visitors->connections_max)
    return err_set(err, ERR_BUSY,
                   "a connection of %s: %zu are open, the most that there may be by `ulimit -n`", name,
                   visitors->connections);
  if (key_of(address, key)) {
    place = place_of(visitors, key);
    if (*place && (*place)->connections >= visitors->address_max)
      return err_set(err, ERR_BUSY, "a connection of %s: it has %zu open, the most that one address may have",
                     name, (*place)->connections);
    if (!*place) {
      *place = mem_new(sizeof **place);
      memcpy((*place)->key, key, KEY_BYTES);
    }
    (*place)->connections++;
    *out = *place;
  }
  visitors->connections++;
  return ERR_OK;
}

void visitors_leave(struct visitors *visitors, struct visitor *visitor) {
  struct visitor **place;
  visitors->connections--;
  if (!visitor || --visitor->connections)
    return;
  place = place_of(visitors, visitor->key);
  *place = visitor->next;
  free(visitor);
}

size_t visitors_count(const struct visitors *visitors) {
  return visitors->connections;
}
