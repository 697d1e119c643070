/* The YAML document of a spec: its file's text, and then the settings. */
#include "common/agree/spec_document.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum { SPEC_BYTES_MAX = 1 << 20, DEPTH_MAX = 100 };

/* libyaml has no bound of its own on nesting; its parser recurses into the composer for each level. */
static bool is_nested_too_deep(const char *text, size_t size) {
  int depth = 0;
  for (size_t i = 0; i < size; i++) {
    depth += (text[i] == '[' || text[i] == '{') - (text[i] == ']' || text[i] == '}');
    if (depth > DEPTH_MAX)
      return true;
  }
  return false;
}

static int parser_load(yaml_parser_t *parser, yaml_document_t *out, size_t *line, struct err *err) {
  if (yaml_parser_load(parser, out))
    return ERR_OK;
  *line = parser->problem_mark.line + 1;
  return err_set(err, ERR_INVALID, "not valid YAML: %s%s%s",
                 parser->problem ? parser->problem : "cannot be read", parser->context ? " " : "",
                 parser->context ? parser->context : "");
}

static int check_end(yaml_parser_t *parser, size_t *line, struct err *err) {
  yaml_document_t next;
  if (parser_load(parser, &next, line, err))
    return err->code;
  if (yaml_document_get_root_node(&next)) {
    *line = next.start_mark.line + 1;
    err_set(err, ERR_INVALID, "another document begins here, and one is read: take the line '---' away");
  }
  yaml_document_delete(&next);
  return err->code;
}

int spec_yaml_load(const char *text, size_t size, yaml_document_t *out, size_t *line, struct err *err) {
  yaml_parser_t parser;
  int code;
  *line = 0;
  if (size > SPEC_BYTES_MAX)
    return err_set(err, ERR_INVALID, "a spec of %zu bytes; at most %d are read", size, SPEC_BYTES_MAX);
  if (is_nested_too_deep(text, size))
    return err_set(err, ERR_INVALID, "brackets are nested more than %d deep", DEPTH_MAX);
  CHECK(yaml_parser_initialize(&parser));
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  code = parser_load(&parser, out, line, err);
  if (!code && (code = check_end(&parser, line, err)))
    yaml_document_delete(out);
  yaml_parser_delete(&parser);
  return code;
}

int spec_document_load(const struct spec_source *source, const char *text, size_t size,
                       struct spec_document *out, struct err *err) {
  size_t line;
  int code = ERR_OK;
  *out = (struct spec_document){.source = source, .settings_line = size + 1};
  if (spec_yaml_load(text, size, &out->yaml, &line, err))
    return line ? err_prefix(err, "%s:%zu", source->file, line) : err_prefix(err, "%s", source->file);
  if (!yaml_document_get_root_node(&out->yaml))
    code = err_set(err, ERR_INVALID, "%s: the spec is empty", source->file);
  for (int i = 0; i < source->n_settings && !code; i++)
    code = spec_setting_apply(&out->yaml, source->settings[i], out->settings_line + (size_t)i, err);
  if (code)
    yaml_document_delete(&out->yaml);
  return code;
}

/* The file's text, on the heap, at most one byte more than a spec may have; NULL with an error. */
static char *spec_text(const char *path, size_t *size, struct err *err) {
  char *text;
  FILE *file = fopen(path, "rb");
  if (!file) {
    err_errno(err, errno, "%s", path);
    err->code = ERR_NOT_FOUND;
    return NULL;
  }
  text = mem_new(SPEC_BYTES_MAX + 1);
  *size = fread(text, 1, SPEC_BYTES_MAX + 1, file);
  if (ferror(file)) {
    err_errno(err, errno, "%s", path);
    free(text);
    text = NULL;
  }
  fclose(file);
  return text;
}

int spec_document_open(const struct spec_source *source, struct spec_document *out, struct err *err) {
  size_t size;
  char *text = spec_text(source->file, &size, err);
  int code = text ? spec_document_load(source, text, size, out, err) : (int)err->code;
  free(text);
  return code;
}

void spec_document_fini(struct spec_document *document) {
  yaml_document_delete(&document->yaml);
}

const char *spec_document_place(const struct spec_document *document, size_t line, char out[SPEC_PLACE_MAX]) {
  const struct spec_source *source = document->source;
  if (line < document->settings_line)
    snprintf(out, SPEC_PLACE_MAX, "%s:%zu", source->file, line + 1);
  else
    snprintf(out, SPEC_PLACE_MAX, "%s", source->settings[line - document->settings_line]);
  return out;
}

static bool is_word(const yaml_node_t *node, const struct path_step *step) {
  return node->type == YAML_SCALAR_NODE && node->data.scalar.length == step->length &&
         memcmp(node->data.scalar.value, step->key, step->length) == 0;
}

bool spec_entry_find(yaml_document_t *document, int in, const struct path_step *step,
                     struct spec_entry *out) {
  const yaml_node_t *node = yaml_document_get_node(document, in);
  *out = (struct spec_entry){0};
  if (node->type == YAML_MAPPING_NODE && step->length)
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++)
      if (is_word(yaml_document_get_node(document, pair->key), step))
        *out = (struct spec_entry){.pair = pair, .value = &pair->value};
  if (node->type == YAML_SEQUENCE_NODE && !step->length &&
      step->index < (size_t)(node->data.sequence.items.top - node->data.sequence.items.start))
    out->value = &node->data.sequence.items.start[step->index];
  return out->value;
}
