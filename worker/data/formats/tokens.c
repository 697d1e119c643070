/* tokens: a file of token numbers, one after the other, little-endian u16 or u32, as tokenizers' users write
   them (numpy's tofile, nanoGPT's .bin). Mapped, not copied. */
#include <limits.h>
#include <string.h>

#include "worker/data/formats/windows.h"

static int tokens_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  const char *dtype = source->spec->dtype;
  char path[PATH_MAX];
  struct sequence sequence = {.path = path, .units = "tokens"};
  struct mapping *mapping;
  if (strcmp(dtype, "u16") == 0) {
    sequence.dtype = DTYPE_I32;
    sequence.packed_bytes = 2;
  } else if (strcmp(dtype, "u32") == 0) {
    sequence.dtype = DTYPE_I64;
    sequence.packed_bytes = 4;
  } else
    return err_set(err, ERR_INVALID, "%s.dtype: '%.20s' is not known (known: u16, u32)", source->key, dtype);
  if (format_map(source, source->spec->file, path, &mapping, err))
    return err->code;
  columns[*n] = (struct column){.mapping = mapping};
  sequence.data = mapping_data(mapping);
  sequence.n = mapping_size(mapping) / (size_t)sequence.packed_bytes;
  if (mapping_size(mapping) % (size_t)sequence.packed_bytes)
    err_set(err, ERR_CORRUPT, "%s: ends within a token: its %zu bytes are no whole number of %d", path,
            mapping_size(mapping), sequence.packed_bytes);
  if (!err->code && !windows_add(source, &sequence, columns, n, err))
    return 0;
  column_release(&columns[*n]);
  return err->code;
}

const struct format_def format_tokens = {
    .name = "tokens",
    .required = (const char *const[]){"file", "dtype", "context", NULL},
    .optional = (const char *const[]){"stride", NULL},
    .open = tokens_open,
};
