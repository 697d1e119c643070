/* The YAML document of a spec. Private to spec*.c. */
#ifndef WEIR_COMMON_AGREE_SPEC_DOCUMENT_H
#define WEIR_COMMON_AGREE_SPEC_DOCUMENT_H

#include <yaml.h>

#include "common/agree/spec.h"

/* The file's text, on the heap, at most one byte more than a spec may have. NULL with an error: NOT_FOUND
   where it cannot be opened, else the one of reading it. */
char *spec_text(const char *path, size_t *size, struct err *err);

/* Parses text. The caller deletes *out where there was no error. Errors: INVALID, "FILE:LINE: ...". */
int spec_document_load(const char *file, const char *text, size_t size, yaml_document_t *out,
                       struct err *err);

#endif
