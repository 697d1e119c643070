/* The known word that is nearest to a mistyped one. */
#ifndef WEIR_COMMON_BASE_NEAREST_H
#define WEIR_COMMON_BASE_NEAREST_H

/* Of words[0..n), the one with the least edit distance to `word`, unless more than a third of the longer
   word's letters differ, and more than two; else the first that begins with `word`; NULL when there is none,
   either. */
const char *nearest_word(const char *word, const char *const *words, int n);

#endif
