/* Labels of workers. */
#include "common/agree/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

static bool is_word(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
  size_t length = strnlen(text, LABEL_BYTES_MAX + 1);
  return length > 0 && length <= LABEL_BYTES_MAX && strspn(text, letters) == length;
}

static int check_label(const Weir__Label *label, struct err *err) {
  if (is_word(label->key) && is_word(label->value))
    return 0;
  return err_set(
      err, ERR_INVALID,
      "'%.80s=%.80s' is no label: key and value have 1 to %d letters, digits, '.', '_', '-' or '/'",
      label->key, label->value, LABEL_BYTES_MAX);
}

int labels_check(struct labels labels, struct err *err) {
  if (labels.n > LABELS_MAX)
    return err_set(err, ERR_INVALID, "%zu labels: at most %d are known", labels.n, LABELS_MAX);
  for (size_t i = 0; i < labels.n; i++) {
    if (check_label(labels.list[i], err))
      return err->code;
    if (labels_find((struct labels){labels.list, i}, labels.list[i]->key))
      return err_set(err, ERR_INVALID, "label '%s' is given twice", labels.list[i]->key);
  }
  return 0;
}

/* The caller's until it is in a list. */
static Weir__Label *label_new(char *key, char *value) {
  Weir__Label *label = mem_new(sizeof *label);
  weir__label__init(label);
  label->key = key;
  label->value = value;
  return label;
}

static void append(struct labels *labels, Weir__Label *label) {
  labels->list = mem_resize(labels->list, (labels->n + 1) * sizeof(Weir__Label *));
  labels->list[labels->n++] = label;
}

/* text: of `length` bytes. */
static int read_one(struct labels *labels, const char *text, size_t length, struct err *err) {
  const char *equals = memchr(text, '=', length);
  size_t key_length = equals ? (size_t)(equals - text) : length;
  if (!equals)
    return err_set(err, ERR_INVALID, "'%.*s' is no label: KEY=VALUE is wanted, as gpu=h200",
                   length < 80 ? (int)length : 80, text);
  append(labels, label_new(mem_printf("%.*s", (int)key_length, text),
                           mem_printf("%.*s", (int)(length - key_length - 1), equals + 1)));
  return labels_check(*labels, err);
}

int labels_read(struct labels *labels, const char *text, struct err *err) {
  for (;;) {
    size_t length = strcspn(text, ",");
    if (read_one(labels, text, length, err))
      return err->code;
    if (!text[length])
      return 0;
    text += length + 1;
  }
}

int labels_read_usual(struct labels *labels, struct err *err) {
  const char *usual = getenv("WEIR_LABELS");
  if (labels->n || !usual || !*usual || labels_read(labels, usual, err) == 0)
    return 0;
  return err_prefix(err, "WEIR_LABELS");
}

char *labels_write(struct labels labels, char out[LABELS_TEXT_MAX]) {
  size_t at = 0;
  *out = 0;
  for (size_t i = 0; i < labels.n && at < LABELS_TEXT_MAX; i++)
    at += (size_t)snprintf(out + at, LABELS_TEXT_MAX - at, "%s%s=%s", i ? ", " : "", labels.list[i]->key,
                           labels.list[i]->value);
  return out;
}

const char *labels_find(struct labels labels, const char *key) {
  for (size_t i = 0; i < labels.n; i++)
    if (strcmp(labels.list[i]->key, key) == 0)
      return labels.list[i]->value;
  return NULL;
}

bool labels_include(struct labels labels, struct labels required) {
  for (size_t i = 0; i < required.n; i++) {
    const char *value = labels_find(labels, required.list[i]->key);
    if (!value || strcmp(value, required.list[i]->value) != 0)
      return false;
  }
  return true;
}

struct labels labels_copy(struct labels labels) {
  struct labels copy = {0};
  for (size_t i = 0; i < labels.n; i++)
    append(&copy, label_new(mem_strdup(labels.list[i]->key), mem_strdup(labels.list[i]->value)));
  return copy;
}

void labels_free(struct labels *labels) {
  for (size_t i = 0; i < labels->n; i++)
    weir__label__free_unpacked(labels->list[i], NULL);
  free(labels->list);
  *labels = (struct labels){0};
}
