/* The scripts that make shells complete. */
#include "client/completion/scripts.h"

#include <stddef.h>
#include <string.h>

/* Bash parts words at '=', too. */
static const char bash[] =
    "# bash completion for weir, printed by `weir complete bash`\n"
    "_weir() {\n"
    "  local word line words=()\n"
    "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
    "    [[ $word == '=' ]] || words+=(\"$word\")\n"
    "  done\n"
    "  word=${COMP_WORDS[COMP_CWORD]}\n"
    "  [[ $word != '=' ]] || words+=('') word=''\n"
    "  COMPREPLY=()\n"
    "  while IFS= read -r line; do\n"
    "    if [[ $line == ':files' ]]; then\n"
    "      compopt -o filenames\n"
    "      while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -f -- \"$word\")\n"
    "    else\n"
    "      COMPREPLY+=(\"${line%%$'\\t'*}\")\n"
    "    fi\n"
    "  done < <(\"${COMP_WORDS[0]}\" complete words -- \"${words[@]}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _weir weir\n";

static const char zsh[] =
    "#compdef weir\n"
    "# zsh completion for weir, printed by `weir complete zsh`\n"
    "_weir() {\n"
    "  local line\n"
    "  local -a found files\n"
    "  while IFS= read -r line; do\n"
    "    if [[ $line == ':files' ]]; then\n"
    "      files=(yes)\n"
    "    else\n"
    "      found+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
    "    fi\n"
    "  done < <(\"$words[1]\" complete words -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
    "  (( $#found )) && _describe -t weir weir found\n"
    "  (( $#files )) && _files\n"
    "}\n"
    "if [[ $funcstack[1] == _weir ]]; then _weir \"$@\"; else compdef _weir weir; fi\n";

static const char fish[] =
    "# fish completion for weir, printed by `weir complete fish`\n"
    "function __weir_complete\n"
    "    set -l words (commandline --tokenize --current-process --cut-at-cursor)\n"
    "    for line in ($words[1] complete words -- $words[2..-1] (commandline --current-token) 2>/dev/null)\n"
    "        if test $line = :files\n"
    "            __fish_complete_path (commandline --current-token)\n"
    "        else\n"
    "            echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete --command weir --no-files --arguments '(__weir_complete)'\n";

const char *shell_script(const char *shell) {
  static const struct {
    const char *name, *script;
  } scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
    if (strcmp(scripts[i].name, shell) == 0)
      return scripts[i].script;
  return NULL;
}
