/* A map from names to value indices: open addressing, at most half full. */
#include "model/graph/names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

struct names_slot {
  const char *name; /* NULL: free */
  uint64_t hash;
  int index;
};

void names_init(struct names *names) {
  *names = (struct names){0};
}

void names_fini(struct names *names) {
  free(names->slots);
  *names = (struct names){0};
}

/* FNV-1a, 64 bits. */
static uint64_t name_hash(const char *name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++)
    hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

/* The slot that holds the name, or the free one where it belongs. */
static struct names_slot *slot_of(struct names_slot *slots, int capacity, const char *name, uint64_t hash) {
  uint64_t at = hash & (uint64_t)(capacity - 1);
  while (slots[at].name && (slots[at].hash != hash || strcmp(slots[at].name, name) != 0))
    at = (at + 1) & (uint64_t)(capacity - 1);
  return &slots[at];
}

static void names_grow(struct names *names) {
  int capacity = names->capacity ? 2 * names->capacity : 64;
  struct names_slot *slots = mem_new((size_t)capacity * sizeof *slots);
  for (int i = 0; i < names->capacity; i++)
    if (names->slots[i].name)
      *slot_of(slots, capacity, names->slots[i].name, names->slots[i].hash) = names->slots[i];
  free(names->slots);
  names->slots = slots;
  names->capacity = capacity;
}

bool names_add(struct names *names, const char *name, int index) {
  struct names_slot *slot;
  uint64_t hash = name_hash(name);
  if (2 * names->count >= names->capacity)
    names_grow(names);
  slot = slot_of(names->slots, names->capacity, name, hash);
  if (slot->name)
    return false;
  *slot = (struct names_slot){name, hash, index};
  names->count++;
  return true;
}

int names_find(const struct names *names, const char *name) {
  const struct names_slot *slot;
  if (names->capacity == 0)
    return -1;
  slot = slot_of(names->slots, names->capacity, name, name_hash(name));
  return slot->name ? slot->index : -1;
}
