/* The variables of a case (struct op_case's draw): drawn by a seed, put into the texts of inputs and attrs.
 */
#ifndef WEIR_TESTS_CONFORMANCE_OP_DRAW_H
#define WEIR_TESTS_CONFORMANCE_OP_DRAW_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"
#include "common/base/memory.h"

/* What each letter stands for in one trial. */
struct op_draw {
  char *text[26]; /* of variable 'a' + i, owned; NULL where it is not declared */
};

static inline void op_draw_fini(struct op_draw *draw) {
  for (int i = 0; i < 26; i++)
    free(draw->text[i]);
}

/* What a letter that stands alone is drawn as; NULL for other letters. text: where the word begins. */
static inline const char *draw_find(const struct op_draw *draw, const char *text, const char *at) {
  if (!islower((unsigned char)*at) || isalnum((unsigned char)at[1]) || at[1] == '_')
    return NULL;
  if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
    return NULL;
  return draw->text[*at - 'a'];
}

/* A number or a variable, behind *at. */
static inline long long draw_operand(const struct op_draw *draw, const char *text, const char **at) {
  const char *drawn = draw_find(draw, text, *at);
  char *end;
  long long value = strtoll(drawn ? drawn : *at, &end, 10);
  if (drawn ? *end != '\0' : end == *at)
    check_failed(text, __FILE__, __LINE__);
  *at = drawn ? *at + 1 : end;
  return value;
}

/* "c*g", "h+4", "2*p+1", from left to right. */
static inline long long draw_evaluate(const struct op_draw *draw, const char *text) {
  const char *at = text;
  long long value = *at == '-' ? 0 : draw_operand(draw, text, &at);
  while (*at) {
    char sign = *at++;
    long long operand = draw_operand(draw, text, &at);
    if (sign == '*')
      value *= operand;
    else if (sign == '+' || sign == '-')
      value += sign == '+' ? operand : -operand;
    else
      check_failed(text, __FILE__, __LINE__);
  }
  return value;
}

/* What stands between two delimiters: a variable, an expression of them, or the text as it is. */
static inline void draw_expand_part(const struct op_draw *draw, const char *part, size_t length, FILE *out) {
  char *text = mem_printf("%.*s", (int)length, part);
  const char *drawn = NULL;
  for (size_t i = 0; i < length && !drawn; i++)
    drawn = draw_find(draw, text, &text[i]);
  if (drawn && length > 1)
    fprintf(out, "%lld", draw_evaluate(draw, text));
  else
    fputs(drawn ? drawn : text, out);
  free(text);
}

/* Numbers and words with what stands between them. */
static inline void draw_expand_values(const struct op_draw *draw, const char *text, FILE *out) {
  while (*text) {
    size_t length = strspn(text, "[]{}=,;.|");
    const char *range;
    fwrite(text, 1, length, out);
    text += length;
    length = strcspn(text, "[]{}=,;|");
    range = strstr(text, "..");
    if (range && range < text + length)
      length = (size_t)(range - text);
    draw_expand_part(draw, text, length, out);
    text += length;
  }
}

/* A word's head - the name of a type or an attribute - stays as it is. */
static inline void draw_expand_word(const struct op_draw *draw, const char *word, FILE *out) {
  size_t head = strcspn(word, "[{=");
  fwrite(word, 1, head, out);
  draw_expand_values(draw, word + head, out);
}

/* "1..4" or "x|y|z" -> one of them, in which variables declared before may appear. */
static inline char *draw_one(const struct op_draw *draw, const char *choices, uint64_t key) {
  char *expanded, *at, *chosen;
  long long low, high;
  int length = 0;
  size_t size, n = 1;
  FILE *out = open_memstream(&expanded, &size);
  CHECK(out);
  if (strpbrk(choices, "[{=")) /* words of their own: expanded where they are used */
    fputs(choices, out);
  else
    draw_expand_values(draw, choices, out);
  fclose(out);
  if (sscanf(expanded, "%lld..%lld%n", &low, &high, &length) == 2 && expanded[length] == '\0') {
    CHECK(low <= high);
    chosen = mem_printf("%lld", low + (long long)(random_bits(key, 0) % (uint64_t)(high - low + 1)));
  } else {
    for (at = expanded; *at; at++)
      n += *at == '|';
    at = expanded;
    for (n = random_bits(key, 0) % n; n > 0; n--)
      at = strchr(at, '|') + 1;
    chosen = mem_printf("%.*s", (int)strcspn(at, "|"), at);
  }
  free(expanded);
  return chosen;
}

/* draws: "n=1..4 g=1|2"; NULL declares nothing. */
static inline void op_draw_init(struct op_draw *draw, const char *draws, uint64_t key) {
  char *text = mem_strdup(draws ? draws : ""), *rest;
  *draw = (struct op_draw){{NULL}};
  for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char **drawn = islower((unsigned char)*word) ? &draw->text[*word - 'a'] : NULL;
    if (!drawn || *drawn || word[1] != '=')
      check_failed(draws, __FILE__, __LINE__);
    *drawn = draw_one(draw, word + 2, random_key(key, (uint64_t)*word, 0, 0));
  }
  free(text);
}

/* The words of text (NULL: none) with their variables put in. A word that is a variable becomes what was
   drawn for it, in which the others may appear. Freed by the caller. */
static inline char *op_draw_expand(const struct op_draw *draw, const char *text) {
  char *words = mem_strdup(text ? text : ""), *rest, *expanded;
  size_t size;
  FILE *out = open_memstream(&expanded, &size);
  CHECK(out);
  for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    const char *drawn = word[1] ? NULL : draw_find(draw, word, word);
    draw_expand_word(draw, drawn ? drawn : word, out);
    fputc(' ', out);
  }
  fclose(out);
  free(words);
  return expanded;
}

#endif
