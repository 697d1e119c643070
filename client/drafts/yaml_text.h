/* Texts as YAML scalars, and what YAML cannot say. */
#ifndef WEIR_CLIENT_DRAFTS_YAML_TEXT_H
#define WEIR_CLIENT_DRAFTS_YAML_TEXT_H

#include <stdbool.h>

/* False for what is not UTF-8, or has such a control character as YAML has no escape for here. */
bool yaml_can_say(const char *text);

/* In quotes where YAML would read it otherwise, or always; freed by the caller. */
char *yaml_quoted(const char *text);
char *yaml_in_quotes(const char *text);

#endif
