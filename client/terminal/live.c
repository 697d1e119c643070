/* Lines that are redrawn in place. */
#include "client/terminal/live.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/terminal/output.h"
#include "common/base/err.h"

void live_init(struct live *live, FILE *file) {
  const char *term = getenv("TERM");
  *live = (struct live){.file = file};
  live->is_terminal = isatty(fileno(file)) && !(term && strcmp(term, "dumb") == 0);
  setlocale(LC_CTYPE, "");
  live->style.is_unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  live->style.is_coloured = live->is_terminal && !getenv("NO_COLOR");
  live_measure(live);
}

void live_measure(struct live *live) {
  struct winsize size = {0};
  bool is_known = ioctl(fileno(live->file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  live->style.width = is_known ? size.ws_col : 80;
  live->lines = is_known ? size.ws_row : 24;
}

/* To where the first line begins. A terminal that was made narrower has wrapped the lines meanwhile; what it
   has pushed out at its top is out of reach. */
static void go_back(struct live *live, FILE *out) {
  int up = live->n_drawn - 1;
  for (int i = 0; i < live->n_drawn; i++)
    up += live->columns[i] > live->style.width ? (live->columns[i] - 1) / live->style.width : 0;
  if (up >= live->lines)
    up = live->lines - 1;
  if (up > 0)
    fprintf(out, "\r\033[%dA", up);
  else if (live->n_drawn > 0)
    fputc('\r', out);
  live->n_drawn = 0;
}

/* Notes how wide the lines are that will stand there. */
static void remember(struct live *live, const char *text) {
  while (*text && live->n_drawn < LIVE_LINES_MAX) {
    size_t length = strcspn(text, "\n");
    char *line = strndup(text, length);
    CHECK(line);
    live->columns[live->n_drawn++] = output_columns(line);
    free(line);
    text += length + (text[length] == '\n');
  }
}

/* Each line over the one before it, so that nothing flickers. */
void live_draw(struct live *live, const char *text) {
  char *cut = NULL, *frame = NULL;
  size_t cut_bytes, frame_bytes;
  FILE *out;
  if (!live->is_terminal)
    return;
  live_measure(live);
  out = open_memstream(&cut, &cut_bytes);
  CHECK(out);
  live_print_cut(out, text, live->lines < LIVE_LINES_MAX ? live->lines : LIVE_LINES_MAX,
                 live->style.width - 1);
  fclose(out);
  out = open_memstream(&frame, &frame_bytes);
  CHECK(out);
  go_back(live, out);
  remember(live, cut);
  for (const char *at = cut; *at; at += strcspn(at, "\n"), at += *at == '\n')
    fprintf(out, "%.*s\033[K%s", (int)strcspn(at, "\n"), at, at[strcspn(at, "\n")] ? "\n" : "");
  fputs("\033[J", out);
  fclose(out);
  fwrite(frame, 1, frame_bytes, live->file);
  fflush(live->file);
  free(frame);
  free(cut);
}

void live_erase(struct live *live) {
  if (!live->is_terminal || live->n_drawn == 0)
    return;
  live_measure(live);
  go_back(live, live->file);
  fputs("\033[J", live->file);
  fflush(live->file);
}

/* Bytes of the line within so many columns, and whether a colour is among them. */
static size_t bytes_within(const char *line, size_t length, int columns, bool *has_colour) {
  size_t at = 0;
  *has_colour = false;
  while (at < length) {
    if (line[at] == '\033') {
      *has_colour = true;
      at += strcspn(line + at, "m") + 1;
    } else if (((unsigned char)line[at] & 0xc0) != 0x80 && columns-- <= 0) {
      break;
    } else {
      at++;
    }
  }
  return at < length ? at : length;
}

void live_print_cut(FILE *file, const char *text, int lines, int columns) {
  while (*text && lines-- > 0) {
    size_t length = strcspn(text, "\n");
    bool has_colour, is_last = !text[length] || !text[length + 1];
    size_t kept = bytes_within(text, length, columns, &has_colour);
    fprintf(file, "%.*s%s%s", (int)kept, text, has_colour && kept < length ? "\033[0m" : "",
            !is_last && lines > 0 ? "\n" : "");
    text += length + (text[length] == '\n');
  }
}
