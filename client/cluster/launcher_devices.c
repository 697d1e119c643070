/* Devices dealt out to the workers of a private cluster. */
#include <stdlib.h>
#include <string.h>

#include "client/cluster/launcher.h"
#include "common/base/memory.h"

char *launcher_deal_device(const char *device, int worker, int workers) {
  static const char prefix[] = "cuda:";
  const char *list = device + strlen(prefix);
  char *copy, *rest, *word, *dealt = NULL;
  int n = 1, at = 0;
  if (workers == 1 || strncmp(device, prefix, strlen(prefix)) != 0)
    return mem_strdup(device);
  for (const char *c = list; *c; c++)
    n += *c == ',';
  copy = rest = mem_strdup(list);
  while ((word = strsep(&rest, ","))) {
    char *before = dealt;
    if (n > workers ? at % workers == worker : at == worker % n)
      dealt = before ? mem_printf("%s,%s", before, word) : mem_printf("%s%s", prefix, word);
    if (dealt != before)
      free(before);
    at++;
  }
  free(copy);
  return dealt;
}
