/* Windows of a sequence. */
#include "worker/data/formats/windows.h"

int windows_add(const struct format_source *source, const struct sequence *sequence, struct column *columns,
                int *n, struct err *err) {
  uint64_t context = source->spec->context;
  uint64_t stride = source->spec->has_stride ? source->spec->stride : context;
  size_t elem_bytes = sequence->packed_bytes ? (size_t)sequence->packed_bytes : dtype_size(sequence->dtype);
  if (context == 0)
    return err_set(err, ERR_INVALID, "%s.context: must be at least 1", source->key);
  if (stride == 0)
    return err_set(err, ERR_INVALID, "%s.stride: must be at least 1", source->key);
  if (sequence->n <= context)
    return err_set(
        err, ERR_INVALID, "%s: has %llu %s; a sample of %llu and the one after it need more (context)",
        sequence->path, (unsigned long long)sequence->n, sequence->units, (unsigned long long)context);
  for (int c = 0; c < 2; c++) {
    struct column *column = &columns[*n + c];
    column->name = c == 0 ? "tokens" : "labels";
    column->dtype = sequence->dtype;
    column->packed_bytes = sequence->packed_bytes;
    column->sample = (struct shape){1, {(int64_t)context}};
    column->samples = (sequence->n - 1 - context) / stride + 1;
    column->stride = stride;
    column->data = (const char *)sequence->data + (c == 0 ? 0 : elem_bytes);
  }
  *n += 2;
  return 0;
}
