/* Texts as YAML scalars, and what YAML cannot say. */
#ifndef WEIR_COMMON_SPECS_YAML_TEXT_H
#define WEIR_COMMON_SPECS_YAML_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/* False for what is not UTF-8. */
bool yaml_can_say(const char *text);

/* In quotes. */
void yaml_write(FILE *out, const char *text);

/* In quotes where YAML would read it otherwise, or always; freed by the caller. */
char *yaml_quoted(const char *text);
char *yaml_in_quotes(const char *text);

#endif
