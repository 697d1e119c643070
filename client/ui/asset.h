/* The dashboard's files, which the build puts into the program, each compressed by gzip. */
#ifndef WEIR_CLIENT_UI_ASSET_H
#define WEIR_CLIENT_UI_ASSET_H

#include <stddef.h>

struct asset {
  const char *name; /* "main.js" */
  const unsigned char *bytes;
  size_t size_bytes;
};

extern const struct asset assets[]; /* ends with one that has no name; written by the Makefile */

/* NULL: there is none of that name. */
const struct asset *asset_find(const char *name);

/* By the end of its name: "text/css; charset=utf-8". */
const char *asset_type(const struct asset *asset);

#endif
