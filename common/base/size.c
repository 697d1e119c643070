/* Amounts of memory as people write them. */
#include "common/base/size.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* How many bytes the unit is; 0: there is none of that name. */
static double unit_bytes(const char *unit) {
  static const char letters[] = "KMGT";
  double bytes = 1;
  if (!*unit || strcmp(unit, "B") == 0)
    return 1;
  const char *letter = strchr(letters, *unit);
  bool is_binary = strcmp(unit + 1, "iB") == 0;
  if (!letter || (!is_binary && strcmp(unit + 1, "B") != 0))
    return 0;
  for (const char *l = letters; l <= letter; l++)
    bytes *= is_binary ? 1024 : 1000;
  return bytes;
}

bool size_parse(const char *text, uint64_t *bytes) {
  char *end;
  if (!isdigit((unsigned char)*text)) /* strtod knows signs, spaces and names */
    return false;
  double size = strtod(text, &end);
  size *= unit_bytes(end + strspn(end, " "));
  if (!(size >= 1) || !(size < 18446744073709551616.0))
    return false;
  *bytes = (uint64_t)size;
  return true;
}
