/* The scripts that make shells complete by `weir complete words`. */
#ifndef WEIR_CLIENT_COMPLETION_SCRIPTS_H
#define WEIR_CLIENT_COMPLETION_SCRIPTS_H

/* Of bash, zsh or fish; NULL: there is none of that name. */
const char *shell_script(const char *shell);

#endif
