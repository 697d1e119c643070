/* Texts that others wrote, and numbers as texts. */
#include "common/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

size_t text_character_size(const char *at) {
  static const uint32_t least[] = {' ', 0x80, 0x800, 0x10000};
  uint32_t code = (unsigned char)*at;
  int more = code < 0x80 ? 0 : code < 0xc0 ? -1 : code < 0xe0 ? 1 : code < 0xf0 ? 2 : code < 0xf8 ? 3 : -1;
  if (more < 0)
    return 0;
  if (more > 0)
    code &= 0x3fu >> more;
  for (int i = 1; i <= more; i++) {
    if ((at[i] & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (at[i] & 0x3fu);
  }
  if (code < least[more] || code == 127 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
    return 0;
  return 1 + (size_t)more;
}

bool text_is_clean(const char *text) {
  for (size_t size; *text; text += size)
    if ((size = text_character_size(text)) == 0)
      return false;
  return true;
}

char *text_copy_clean(const char *text, size_t max_bytes) {
  char *copy = mem_new(strnlen(text, max_bytes) + 1);
  memcpy(copy, text, strnlen(text, max_bytes));
  for (char *at = copy; *at;) {
    size_t size = text_character_size(at);
    if (size == 0)
      *at = '?';
    at += size ? size : 1;
  }
  return copy;
}

const char *text_number(double value, char text[TEXT_NUMBER_SIZE]) {
  for (int digits = 6; digits <= 17; digits++) {
    double read;
    snprintf(text, TEXT_NUMBER_SIZE, "%.*g", digits, value);
    read = strtod(text, NULL);
    if (memcmp(&read, &value, sizeof read) == 0) /* a comparison counts subnormals as zero */
      break;
  }
  return text;
}
