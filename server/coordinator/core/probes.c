/* The hashes of a run's probe. */
#include "server/coordinator/core/probes.h"

#include <stdio.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/text.h"

enum { PREFIX_MAX = 32, HASH_MAX = 128 };

static void prefix_of(struct range stages, char prefix[PREFIX_MAX]) {
  prefix[0] = 0;
  if (stages.begin < stages.end)
    snprintf(prefix, PREFIX_MAX, "%u-%u:", stages.begin, stages.end);
}

char *probes_find(const char *probes, struct range stages) {
  char prefix[PREFIX_MAX];
  size_t prefix_length;
  prefix_of(stages, prefix);
  prefix_length = strlen(prefix);
  while (probes && *probes) {
    size_t length = strcspn(probes, " ");
    bool has_stages = memchr(probes, ':', length) != NULL;
    if (has_stages == (prefix_length > 0) && length > prefix_length &&
        strncmp(probes, prefix, prefix_length) == 0)
      return mem_printf("%.*s", (int)(length - prefix_length), probes + prefix_length);
    probes += length + (probes[length] == ' ');
  }
  return NULL;
}

char *probes_add(const char *probes, struct range stages, const char *hash) {
  char prefix[PREFIX_MAX];
  prefix_of(stages, prefix);
  return probes && *probes ? mem_printf("%s %s%s", probes, prefix, hash) : mem_printf("%s%s", prefix, hash);
}

char *probes_clean(const char *hash) {
  char *copy = text_copy_clean(hash, HASH_MAX);
  for (char *c = copy; *c; c++)
    if (*c == ' ' || *c == ':')
      *c = '_';
  return copy;
}
