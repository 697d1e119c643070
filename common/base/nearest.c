/* The known word nearest to one that somebody mistyped. */
#include "common/base/nearest.h"

#include <stddef.h>
#include <string.h>

enum { WORD_MAX = 64, BEGINNING_LEAST = 2 };

/* Levenshtein's distance, one row at a time. Both at most WORD_MAX letters. */
static int edit_distance(const char *a, const char *b) {
  int row[WORD_MAX + 1];
  int n = (int)strlen(b);
  for (int j = 0; j <= n; j++)
    row[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      int best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      if (row[j] + 1 < best)
        best = row[j] + 1;
      if (row[j - 1] + 1 < best)
        best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  return row[n];
}

/* NULL: none begins with the word. */
static const char *find_longer(const char *word, const char *const *words, int n) {
  size_t length = strlen(word);
  for (int i = 0; i < n && length >= BEGINNING_LEAST; i++)
    if (strncmp(words[i], word, length) == 0)
      return words[i];
  return NULL;
}

const char *nearest_word(const char *word, const char *const *words, int n) {
  const char *best = NULL;
  int least = 0;
  if (strlen(word) > WORD_MAX)
    return NULL;
  for (int i = 0; i < n; i++) {
    size_t longer = strlen(words[i]) > strlen(word) ? strlen(words[i]) : strlen(word);
    int allowed = longer / 3 < 2 ? 2 : (int)(longer / 3), d;
    if (longer > WORD_MAX)
      continue;
    d = edit_distance(word, words[i]);
    if (d <= allowed && (size_t)d < longer && (!best || d < least)) {
      best = words[i];
      least = d;
    }
  }
  return best ? best : find_longer(word, words, n);
}
