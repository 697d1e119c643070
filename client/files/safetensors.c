/* Reading safetensors files (https://github.com/huggingface/safetensors: eight bytes of header length,
   little-endian; a JSON header that gives each tensor's type, shape and place; then the bytes). */
#include "client/files/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/model_file.h"

enum { HEADER_BYTES_MAX = 100000000, LENGTH_BYTES = 8 }; /* the format's own limit */

static const struct dtype_row {
  const char *name;
  int bytes;
} dtypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
              {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
              {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

/* One tensor of the header. */
struct entry {
  const char *name;
  const struct dtype_row *dtype;
  struct shape shape;
  uint64_t elems, begin, end; /* bytes from the header's end */
};

/* What a file's header says. */
struct listing {
  const char *name; /* the file's, for messages */
  uint64_t data_bytes;
  struct entry *entries;
  int n;
};

static int listing_read(struct listing *listing, const json_t *header, struct err *err);
static int entry_read(const struct listing *listing, const char *key, const json_t *value,
                      struct entry *entry, struct err *err);
static int shape_read(const json_t *list, struct shape *shape, uint64_t *elems);
static int listing_check_places(struct listing *listing, struct err *err);
static int tensors_make(const struct listing *listing, const uint8_t *data, struct safetensors *out,
                        struct err *err);
static void floats_convert(const struct dtype_row *dtype, const uint8_t *from, uint64_t elems, float *to);

int safetensors_read(const char *path, struct safetensors *out, struct err *err) {
  void *bytes = NULL;
  size_t size;
  *out = (struct safetensors){0};
  if (model_file_read_bytes(path, &bytes, &size, err) == 0)
    safetensors_parse(path, bytes, size, out, err);
  free(bytes);
  return err->code;
}

int safetensors_parse(const char *name, const void *bytes, size_t size, struct safetensors *out,
                      struct err *err) {
  const uint8_t *data = bytes;
  struct listing listing = {.name = name};
  json_t *header = NULL;
  json_error_t json_err;
  uint64_t header_bytes = 0;
  *out = (struct safetensors){0};
  if (size < LENGTH_BYTES)
    return err_set(err, ERR_INVALID, "%s: not a safetensors file: %zu bytes", name, size);
  memcpy(&header_bytes, data, LENGTH_BYTES);
  if (header_bytes > HEADER_BYTES_MAX || header_bytes > size - LENGTH_BYTES)
    return err_set(err, ERR_INVALID,
                   "%s: not a safetensors file, or cut short: a header of %llu bytes in a file of %zu", name,
                   (unsigned long long)header_bytes, size);
  listing.data_bytes = size - LENGTH_BYTES - header_bytes;
  header = json_loadb((const char *)data + LENGTH_BYTES, header_bytes, JSON_REJECT_DUPLICATES, &json_err);
  if (!json_is_object(header))
    err_set(err, ERR_INVALID, "%s: not a safetensors file: its header: %s", name,
            header ? "not an object" : json_err.text);
  else if (listing_read(&listing, header, err) == 0 && listing_check_places(&listing, err) == 0 &&
           tensors_make(&listing, data + LENGTH_BYTES + header_bytes, out, err))
    err_prefix(err, "%s", name);
  free(listing.entries);
  json_decref(header);
  return err->code;
}

static int listing_read(struct listing *listing, const json_t *header, struct err *err) {
  const char *key;
  json_t *value;
  listing->entries = malloc((json_object_size(header) + 1) * sizeof *listing->entries);
  if (!listing->entries)
    return err_set(err, ERR_NO_MEMORY, "%s: no memory for its header", listing->name);
  json_object_foreach((json_t *)header, key, value) {
    if (strcmp(key, "__metadata__") == 0)
      continue;
    if (entry_read(listing, key, value, &listing->entries[listing->n], err))
      return err->code;
    listing->n++;
  }
  return ERR_OK;
}

static int entry_read(const struct listing *listing, const char *key, const json_t *value,
                      struct entry *entry, struct err *err) {
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  const json_t *offsets = json_object_get(value, "data_offsets");
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  *entry = (struct entry){.name = key};
  for (size_t i = 0; dtype && i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtypes[i].name, dtype) == 0)
      entry->dtype = &dtypes[i];
  if (!entry->dtype)
    return err_set(err, ERR_INVALID, "%s: tensor '%s' has the unknown type '%s'", listing->name, key,
                   dtype ? dtype : "");
  if (shape_read(json_object_get(value, "shape"), &entry->shape, &entry->elems))
    return err_set(err, ERR_INVALID, "%s: tensor '%s' has no shape of at most %d dimensions", listing->name,
                   key, RANK_MAX);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
      (uint64_t)json_integer_value(end) > listing->data_bytes)
    return err_set(err, ERR_INVALID, "%s: tensor '%s' does not lie within the file's %llu bytes of data",
                   listing->name, key, (unsigned long long)listing->data_bytes);
  entry->begin = (uint64_t)json_integer_value(begin);
  entry->end = (uint64_t)json_integer_value(end);
  /* elems * bytes cannot overflow: shape_read bounds elems by 2^56 */
  if (entry->elems * (uint64_t)entry->dtype->bytes != entry->end - entry->begin)
    return err_set(err, ERR_INVALID, "%s: tensor '%s' has %llu bytes, its shape needs %llu", listing->name,
                   key, (unsigned long long)(entry->end - entry->begin),
                   (unsigned long long)(entry->elems * (uint64_t)entry->dtype->bytes));
  return ERR_OK;
}

/* Not 0: not a shape. */
static int shape_read(const json_t *list, struct shape *shape, uint64_t *elems) {
  static const uint64_t elems_max = UINT64_C(1) << 56;
  size_t rank = json_array_size(list);
  if (!json_is_array(list) || rank > RANK_MAX)
    return -1;
  *elems = 1;
  for (size_t d = 0; d < rank; d++) {
    const json_t *dim = json_array_get(list, d);
    int64_t length = json_integer_value(dim);
    if (!json_is_integer(dim) || length < 0 || (length > 0 && *elems > elems_max / (uint64_t)length))
      return -1;
    shape->dim[d] = length;
    *elems *= (uint64_t)length;
  }
  shape->rank = (int)rank;
  return 0;
}

static int compare_places(const void *a, const void *b) {
  const struct entry *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* Side by side, from the data's first byte to its last. */
static int listing_check_places(struct listing *listing, struct err *err) {
  const struct entry *entries = listing->entries;
  uint64_t end = 0;
  qsort(listing->entries, (size_t)listing->n, sizeof *entries, compare_places);
  for (int i = 0; i < listing->n; i++) {
    if (entries[i].begin != end)
      return err_set(err, ERR_INVALID, "%s: tensor '%s' %s", listing->name, entries[i].name,
                     entries[i].begin < end ? "overlaps another" : "lies behind a gap");
    end = entries[i].end;
  }
  if (end != listing->data_bytes)
    return err_set(err, ERR_INVALID, "%s: %llu bytes behind its last tensor", listing->name,
                   (unsigned long long)(listing->data_bytes - end));
  return ERR_OK;
}

static bool is_float(const struct dtype_row *dtype) {
  return dtype - dtypes < 3;
}

static int tensors_make(const struct listing *listing, const uint8_t *data, struct safetensors *out,
                        struct err *err) {
  const struct entry *entries = listing->entries;
  uint64_t floats = 0;
  int n = listing->n;
  float *next;
  for (int i = 0; i < n; i++)
    floats += is_float(entries[i].dtype) ? entries[i].elems : 0;
  out->floats = malloc(floats > 0 ? floats * sizeof(float) : 1);
  out->tensors = malloc(((size_t)n + 1) * sizeof *out->tensors);
  out->dtypes = malloc(((size_t)n + 1) * sizeof *out->dtypes);
  if (!out->floats || !out->tensors || !out->dtypes)
    return err_set(err, ERR_NO_MEMORY, "no memory for %llu values", (unsigned long long)floats);
  next = out->floats;
  for (int i = 0; i < n; i++) {
    const struct entry *entry = &entries[i];
    struct trained_tensor *tensor = &out->tensors[out->n];
    *tensor = (struct trained_tensor){
        .name = arena_strdup(&out->arena, entry->name),
        .shape = arena_copy(&out->arena, &entry->shape, sizeof entry->shape),
        .elems = entry->elems,
    };
    out->dtypes[out->n++] = entry->dtype->name;
    if (!is_float(entry->dtype))
      continue;
    floats_convert(entry->dtype, data + entry->begin, entry->elems, next);
    tensor->data = next;
    next += entry->elems;
  }
  return ERR_OK;
}

/* IEEE 754 binary16 as binary32, which holds every value of it. */
static uint32_t f32_of_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31)
    return sign | 0x7f800000 | fraction << 13;
  if (exponent > 0)
    return sign | (exponent + 112) << 23 | fraction << 13;
  if (fraction == 0)
    return sign;
  exponent = 113; /* subnormal: shifted until it has its leading one */
  while (!(fraction & 1024)) {
    fraction <<= 1;
    exponent--;
  }
  return sign | exponent << 23 | (fraction & 1023) << 13;
}

static void floats_convert(const struct dtype_row *dtype, const uint8_t *from, uint64_t elems, float *to) {
  bool is_bf16 = strcmp(dtype->name, "BF16") == 0;
  if (dtype->bytes == sizeof(float)) {
    memcpy(to, from, elems * sizeof(float));
    return;
  }
  for (uint64_t i = 0; i < elems; i++) {
    uint16_t half;
    uint32_t bits;
    memcpy(&half, from + i * sizeof half, sizeof half);
    bits = is_bf16 ? (uint32_t)half << 16 : f32_of_f16(half);
    memcpy(&to[i], &bits, sizeof bits);
  }
}

void safetensors_fini(struct safetensors *file) {
  arena_fini(&file->arena);
  free(file->tensors);
  free(file->dtypes);
  free(file->floats);
  *file = (struct safetensors){0};
}
