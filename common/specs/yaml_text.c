/* Writing YAML scalars. */
#include "common/specs/yaml_text.h"

#include <ctype.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/base/text.h"

static bool is_control(unsigned char byte) {
  return byte < ' ' || byte == 127;
}

void yaml_write(FILE *out, const char *text) {
  fputc('"', out);
  for (const char *c = text; *c; c++)
    fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : is_control((unsigned char)*c) ? "\\x%02x" : "%c", *c);
  fputc('"', out);
}

bool yaml_can_say(const char *text) {
  for (size_t size; *text; text += size) {
    size = is_control((unsigned char)*text) ? 1 : text_character_size(text);
    if (size == 0)
      return false;
  }
  return true;
}

static bool is_plain(const char *text) {
  if (!isalpha((unsigned char)*text))
    return false;
  while (isalnum((unsigned char)*text) || (*text && strchr("_./-", *text)))
    text++;
  return !*text;
}

char *yaml_quoted(const char *text) {
  return is_plain(text) ? mem_strdup(text) : yaml_in_quotes(text);
}

char *yaml_in_quotes(const char *text) {
  char *quoted = NULL;
  size_t size;
  FILE *out = open_memstream(&quoted, &size);
  CHECK(out);
  yaml_write(out, text);
  fclose(out);
  return quoted;
}
