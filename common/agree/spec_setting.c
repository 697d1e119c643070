/* PATH=VALUE, put into the document of a spec. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/agree/spec_document.h"
#include "common/base/memory.h"

/* libyaml's documents number their nodes from 1; a node that is added may move all others. */
struct setting {
  yaml_document_t *document;
  const char *text;
  size_t line; /* that marks of its nodes have */
  struct err *err;
};

static int setting_fail(const struct setting *setting, const char *problem) {
  return err_set(setting->err, ERR_INVALID, "%s: %s", setting->text, problem);
}

/* Where VALUE begins; NULL where the text is no PATH=VALUE. */
static const char *value_of(const char *text) {
  struct path_step step;
  const char *rest = text;
  if (*text == '.' || *text == '[')
    return NULL;
  while (rest && (*rest != '=' || rest == text))
    rest = *rest == '.' || *rest == '[' || rest == text ? path_next(rest, &step) : NULL;
  return rest ? rest + 1 : NULL;
}

static yaml_mark_t setting_mark(const struct setting *setting) {
  yaml_mark_t mark = {0};
  mark.line = setting->line;
  return mark;
}

static int node_mark(const struct setting *setting, int id, yaml_mark_t mark) {
  CHECK(id);
  yaml_document_get_node(setting->document, id)->start_mark = mark;
  return id;
}

/* A mapping or a list with the same entries: what an alias names elsewhere stays as it is. */
static int node_copy(const struct setting *setting, int id) {
  yaml_document_t *document = setting->document;
  const yaml_node_t was = *yaml_document_get_node(document, id);
  int copy;
  if (was.type == YAML_MAPPING_NODE) {
    copy = yaml_document_add_mapping(document, was.tag, was.data.mapping.style);
    for (yaml_node_pair_t *pair = was.data.mapping.pairs.start; pair < was.data.mapping.pairs.top; pair++)
      CHECK(yaml_document_append_mapping_pair(document, copy, pair->key, pair->value));
  } else if (was.type == YAML_SEQUENCE_NODE) {
    copy = yaml_document_add_sequence(document, was.tag, was.data.sequence.style);
    for (yaml_node_item_t *item = was.data.sequence.items.start; item < was.data.sequence.items.top; item++)
      CHECK(yaml_document_append_sequence_item(document, copy, *item));
  } else
    return id;
  return node_mark(setting, copy, was.start_mark);
}

/* The same node without its entries, at the setting's line. */
static int node_import(const struct setting *setting, const yaml_node_t *node) {
  yaml_document_t *document = setting->document;
  int id = node->type == YAML_MAPPING_NODE
               ? yaml_document_add_mapping(document, node->tag, node->data.mapping.style)
           : node->type == YAML_SEQUENCE_NODE
               ? yaml_document_add_sequence(document, node->tag, node->data.sequence.style)
               : yaml_document_add_scalar(document, node->tag, node->data.scalar.value,
                                          (int)node->data.scalar.length, node->data.scalar.style);
  return node_mark(setting, id, setting_mark(setting));
}

/* All nodes of VALUE's document, whose root comes first. */
static int document_import(const struct setting *setting, yaml_document_t *from) {
  yaml_document_t *to = setting->document;
  int before = (int)(to->nodes.top - to->nodes.start);
  for (yaml_node_t *node = from->nodes.start; node < from->nodes.top; node++)
    node_import(setting, node);
  for (int i = 1; i <= (int)(from->nodes.top - from->nodes.start); i++) {
    const yaml_node_t *node = yaml_document_get_node(from, i);
    if (node->type == YAML_MAPPING_NODE)
      for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
           pair++)
        CHECK(yaml_document_append_mapping_pair(to, before + i, before + pair->key, before + pair->value));
    if (node->type == YAML_SEQUENCE_NODE)
      for (yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top;
           item++)
        CHECK(yaml_document_append_sequence_item(to, before + i, before + *item));
  }
  return before + 1;
}

/* *value: its node, 0 for null. */
static int value_read(const struct setting *setting, const char *text, int *value) {
  yaml_document_t document;
  size_t line;
  *value = 0;
  if (strcmp(text, "null") == 0 || strcmp(text, "~") == 0)
    return ERR_OK;
  if (spec_yaml_load(text, strlen(text), &document, &line, setting->err))
    return err_prefix(setting->err, "%s", setting->text);
  if (yaml_document_get_root_node(&document))
    *value = document_import(setting, &document);
  yaml_document_delete(&document);
  return *value ? ERR_OK
                : setting_fail(setting,
                               "a value is wanted behind '=', as 0.1, [1, 2] or {lr: 0.1}; '\"\"' is an "
                               "empty text");
}

static int key_add(const struct setting *setting, const struct path_step *step) {
  int key = yaml_document_add_scalar(setting->document, NULL, (const yaml_char_t *)step->key,
                                     (int)step->length, YAML_PLAIN_SCALAR_STYLE);
  return node_mark(setting, key, setting_mark(setting));
}

/* The last step: another value, or a new entry. */
static void entry_set(const struct setting *setting, int in, const struct path_step *step, int value) {
  struct spec_entry entry;
  if (!spec_entry_find(setting->document, in, step, &entry)) {
    CHECK(yaml_document_append_mapping_pair(setting->document, in, key_add(setting, step), value));
    return;
  }
  *entry.value = value;
  if (entry.pair)
    entry.pair->key = key_add(setting, step);
}

static int entry_remove(const struct setting *setting, int in, const struct path_step *step) {
  struct spec_entry entry;
  yaml_node_t *node = yaml_document_get_node(setting->document, in);
  if (!spec_entry_find(setting->document, in, step, &entry))
    return setting_fail(setting, "the spec has no such key that could be taken away");
  if (!entry.pair)
    return setting_fail(setting, "an entry of a list cannot be taken away: give the list anew");
  node->data.mapping.pairs.top--;
  memmove(entry.pair, entry.pair + 1,
          (size_t)(node->data.mapping.pairs.top - entry.pair) * sizeof *entry.pair);
  return ERR_OK;
}

/* A step before the last one: the entry's value, copied, or a mapping that is added. */
static int entry_descend(const struct setting *setting, int in, const struct path_step *step) {
  yaml_document_t *document = setting->document;
  struct spec_entry entry;
  int next;
  if (spec_entry_find(document, in, step, &entry)) {
    next = node_copy(setting, *entry.value);
    *entry.value = next;
  } else {
    next = node_mark(setting, yaml_document_add_mapping(document, NULL, YAML_ANY_MAPPING_STYLE),
                     setting_mark(setting));
    CHECK(yaml_document_append_mapping_pair(document, in, key_add(setting, step), next));
  }
  return next;
}

/* Whether the node may have an entry there. */
static int step_check(const struct setting *setting, int in, const struct path_step *step) {
  const yaml_node_t *node = yaml_document_get_node(setting->document, in);
  char problem[128];
  struct spec_entry entry;
  bool is_list = node->type == YAML_SEQUENCE_NODE, is_mapping = node->type == YAML_MAPPING_NODE;
  if (is_mapping && step->length)
    return ERR_OK;
  if (is_list && spec_entry_find(setting->document, in, step, &entry))
    return ERR_OK;
  if (is_list && !step->length)
    snprintf(problem, sizeof problem, "there is no [%zu]: the list has %td entries, from [0] on", step->index,
             node->data.sequence.items.top - node->data.sequence.items.start);
  else if (step->length)
    snprintf(problem, sizeof problem, "'%.*s' is looked for in a %s",
             (int)(step->length < 64 ? step->length : 64), step->key,
             is_list ? "list, whose entries are [0], [1] and so on" : "single value");
  else
    snprintf(problem, sizeof problem, "[%zu] is looked for in what is no list", step->index);
  return setting_fail(setting, problem);
}

int spec_setting_apply(yaml_document_t *document, const char *setting_text, size_t line, struct err *err) {
  const struct setting setting = {.document = document, .text = setting_text, .line = line, .err = err};
  const char *value_text = value_of(setting_text), *rest = setting_text;
  struct path_step step;
  int value, in = SPEC_ROOT;
  if (!value_text)
    return err_set(err, ERR_INVALID, "'%s' is no PATH=VALUE, as train.optimizer.lr=0.1", setting_text);
  if (value_read(&setting, value_text, &value))
    return err->code;
  for (;;) {
    rest = path_next(rest, &step);
    CHECK(rest);
    if (step_check(&setting, in, &step))
      return err->code;
    if (rest + 1 == value_text && !value)
      return entry_remove(&setting, in, &step);
    if (rest + 1 == value_text) {
      entry_set(&setting, in, &step, value);
      return ERR_OK;
    }
    in = entry_descend(&setting, in, &step);
  }
}

int spec_source_write(const struct spec_source *source, const char *path, struct err *err) {
  struct spec_document document;
  yaml_emitter_t emitter;
  FILE *file;
  if (spec_document_open(source, &document, err))
    return err->code;
  file = fopen(path, "wb");
  if (!file) {
    spec_document_fini(&document);
    return err_errno(err, errno, "cannot write '%s'", path);
  }
  CHECK(yaml_emitter_initialize(&emitter));
  yaml_emitter_set_output_file(&emitter, file);
  yaml_emitter_set_unicode(&emitter, 1);
  errno = 0;
  CHECK(yaml_emitter_open(&emitter)); /* writes nothing yet */
  if (!yaml_emitter_dump(&emitter, &document.yaml) || !yaml_emitter_close(&emitter))
    err_errno(err, errno ? errno : EIO, "cannot write '%s'", path);
  yaml_emitter_delete(&emitter);
  if (fclose(file) && !err->code)
    err_errno(err, errno, "cannot write '%s'", path);
  return err->code;
}
