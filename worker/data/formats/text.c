/* text: plain text as numbers. Bytes are what they are, mapped. Characters are numbered by the order of their
   code points among those that data.train has: Python's sorted(set(text)). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "worker/data/formats/windows.h"

enum { CODE_POINTS = 0x110000, PAGE = 256 };

/* Which number each code point has, -1: none, and how many have one. Texts use few pages of all. */
struct vocabulary {
  int32_t *pages[CODE_POINTS / PAGE]; /* [PAGE], or NULL */
  int size;
};

static int32_t number_of(const struct vocabulary *vocabulary, int32_t code) {
  const int32_t *page = vocabulary->pages[code / PAGE];
  return page ? page[code % PAGE] : -1;
}

static void vocabulary_mark(struct vocabulary *vocabulary, int32_t code) {
  int32_t **page = &vocabulary->pages[code / PAGE];
  if (!*page) {
    *page = mem_new(PAGE * sizeof **page);
    memset(*page, 0xff, PAGE * sizeof **page);
  }
  (*page)[code % PAGE] = 0;
}

/* Numbers those that are marked. */
static void vocabulary_number(struct vocabulary *vocabulary) {
  for (int p = 0; p < CODE_POINTS / PAGE; p++)
    for (int i = 0; vocabulary->pages[p] && i < PAGE; i++)
      if (vocabulary->pages[p][i] == 0)
        vocabulary->pages[p][i] = vocabulary->size++;
}

static void vocabulary_free(struct vocabulary *vocabulary) {
  for (int p = 0; vocabulary && p < CODE_POINTS / PAGE; p++)
    free(vocabulary->pages[p]);
  free(vocabulary);
}

/* The code point at `at`, which is moved behind it; -1: it is no UTF-8 (RFC 3629: no longer than needed, no
   surrogate, at most U+10FFFF). */
static int32_t read_character(const unsigned char **at, const unsigned char *end) {
  static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *from = *at;
  int length = from[0] < 0x80       ? 1
               : from[0] >> 5 == 6  ? 2
               : from[0] >> 4 == 14 ? 3
               : from[0] >> 3 == 30 ? 4
                                    : 0;
  int32_t code = length == 1 ? from[0] : from[0] & (0x7f >> length);
  if (length == 0 || end - from < length)
    return -1;
  for (int i = 1; i < length; i++) {
    if (from[i] >> 6 != 2)
      return -1;
    code = code << 6 | (from[i] & 0x3f);
  }
  if (code < least[length] || code >= CODE_POINTS || (code >= 0xd800 && code < 0xe000))
    return -1;
  *at += length;
  return code;
}

/* Counts the characters; of a vocabulary, marks those that occur. */
static int text_scan(const char *path, const struct mapping *mapping, struct vocabulary *vocabulary,
                     uint64_t *n, struct err *err) {
  const unsigned char *begin = mapping_data(mapping), *at = begin, *end = begin + mapping_size(mapping);
  for (*n = 0; at < end; ++*n) {
    int32_t code = read_character(&at, end);
    if (code < 0)
      return err_set(err, ERR_INVALID, "%s: byte %llu begins no UTF-8 character; 'unit: bytes' takes any",
                     path, (unsigned long long)(at - begin));
    if (vocabulary)
      vocabulary_mark(vocabulary, code);
  }
  return mapping_check(mapping, err);
}

/* The characters of data.train. */
static int make_vocabulary(const struct format_source *source, struct vocabulary *vocabulary,
                           struct err *err) {
  const Weir__DataSource *train = source->train;
  const char *unit = train->unit ? train->unit : "characters";
  struct mapping *mapping;
  char path[PATH_MAX];
  uint64_t n;
  if (!train->format || strcmp(train->format, "text") != 0 || strcmp(unit, "characters") != 0 || !train->file)
    return err_set(err, ERR_INVALID,
                   "%s.unit: characters are numbered as those of data.train, which has none", source->key);
  if (format_map(source, train->file, path, &mapping, err))
    return err->code;
  if (!text_scan(path, mapping, vocabulary, &n, err))
    vocabulary_number(vocabulary);
  mapping_close(mapping);
  return err->code;
}

static int fail_unknown(const char *path, const unsigned char *begin, const unsigned char *at,
                        struct err *err) {
  unsigned long long line = 1;
  for (const unsigned char *before = begin; before < at; before++)
    line += *before == '\n';
  return err_set(err, ERR_INVALID, "%s: line %llu, byte %llu: the character is not in data.train", path, line,
                 (unsigned long long)(at - begin));
}

/* The numbers of a text's characters, each in as many bytes. */
struct numbers {
  void *data;
  uint64_t n;
  int bytes; /* 1, 2 or 4: as few as the vocabulary needs */
};

static int text_encode(const char *path, const struct mapping *mapping, const struct vocabulary *vocabulary,
                       const struct numbers *numbers, struct err *err) {
  const unsigned char *begin = mapping_data(mapping), *at = begin, *end = begin + mapping_size(mapping);
  for (uint64_t i = 0; i < numbers->n && at < end; i++) {
    const unsigned char *from = at;
    int32_t code = read_character(&at, end), number = code < 0 ? -1 : number_of(vocabulary, code);
    if (code < 0)
      return err_set(err, ERR_CORRUPT, "%s: changed while it was read", path);
    if (number < 0)
      return fail_unknown(path, begin, from, err);
    if (numbers->bytes == 1)
      ((uint8_t *)numbers->data)[i] = (uint8_t)number;
    else if (numbers->bytes == 2)
      ((uint16_t *)numbers->data)[i] = (uint16_t)number;
    else
      ((int32_t *)numbers->data)[i] = number;
  }
  return mapping_check(mapping, err);
}

/* The sequence's path is there, the rest is set. *memory: what it lies in, the caller's to free. */
static int read_characters(const struct format_source *source, const struct mapping *mapping,
                           struct sequence *sequence, void **memory, struct err *err) {
  const char *path = sequence->path;
  struct vocabulary *vocabulary = mem_new(sizeof *vocabulary);
  int bytes;
  if (make_vocabulary(source, vocabulary, err) || text_scan(path, mapping, NULL, &sequence->n, err))
    goto out;
  bytes = vocabulary->size <= 1 << 8 ? 1 : vocabulary->size <= 1 << 16 ? 2 : 4;
  if (format_resize(path, 0, sequence->n * (uint64_t)bytes, memory, err))
    goto out;
  memset(*memory, 0, sequence->n * (size_t)bytes);
  sequence->data = *memory;
  sequence->dtype = bytes == 1 ? DTYPE_U8 : DTYPE_I32;
  sequence->packed_bytes = bytes == 2 ? 2 : 0;
  text_encode(path, mapping, vocabulary, &(struct numbers){*memory, sequence->n, bytes}, err);
out:
  vocabulary_free(vocabulary);
  return err->code;
}

static int text_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  const char *unit = source->spec->unit ? source->spec->unit : "characters";
  bool is_bytes = strcmp(unit, "bytes") == 0;
  struct column *first = &columns[*n];
  char path[PATH_MAX];
  struct sequence sequence = {.path = path, .units = unit, .dtype = DTYPE_U8};
  *first = (struct column){0};
  if (!is_bytes && strcmp(unit, "characters") != 0)
    return err_set(err, ERR_INVALID, "%s.unit: '%.20s' is not known (known: characters, bytes)", source->key,
                   unit);
  if (format_map(source, source->spec->file, path, &first->mapping, err))
    return err->code;
  sequence.data = mapping_data(first->mapping);
  sequence.n = mapping_size(first->mapping);
  if (!is_bytes && !read_characters(source, first->mapping, &sequence, &first->memory, err)) {
    mapping_close(first->mapping);
    first->mapping = NULL;
  }
  if (err->code || windows_add(source, &sequence, columns, n, err))
    column_release(first);
  return err->code;
}

const struct format_def format_text = {
    .name = "text",
    .required = (const char *const[]){"file", "context", NULL},
    .optional = (const char *const[]){"unit", "stride", NULL},
    .open = text_open,
};
