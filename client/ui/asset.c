/* Files by name. */
#include "client/ui/asset.h"

#include <string.h>

const struct asset *asset_find(const char *name) {
  for (const struct asset *asset = assets; asset->name; asset++)
    if (strcmp(asset->name, name) == 0)
      return asset;
  return NULL;
}

const char *asset_type(const struct asset *asset) {
  static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                         {".css", "text/css; charset=utf-8"},
                                         {".js", "text/javascript; charset=utf-8"},
                                         {".svg", "image/svg+xml"}};
  const char *end = strrchr(asset->name, '.');
  for (size_t i = 0; end && i < sizeof types / sizeof *types; i++)
    if (strcmp(end, types[i][0]) == 0)
      return types[i][1];
  return "application/octet-stream";
}
