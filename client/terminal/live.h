/* A part of the terminal that is redrawn in place: the last lines that a program has printed. */
#ifndef WEIR_CLIENT_TERMINAL_LIVE_H
#define WEIR_CLIENT_TERMINAL_LIVE_H

#include <stdbool.h>
#include <stdio.h>

enum { LIVE_LINES_MAX = 200 };

/* How text is written to a terminal. */
struct live_style {
  int width; /* columns; a line never takes the last one */
  bool is_unicode, is_coloured;
};

struct live {
  FILE *file;
  bool is_terminal; /* one whose cursor moves: elsewhere nothing is drawn */
  struct live_style style;
  int lines;                   /* of the terminal, as of the newest live_measure, as is style.width */
  int columns[LIVE_LINES_MAX]; /* of each line that was drawn */
  int n_drawn;                 /* lines; the cursor is at the end of the last one */
};

/* file: stdout or stderr. With TERM=dumb it is not a terminal whose cursor moves; NO_COLOR turns the colours
   off. */
void live_init(struct live *live, FILE *file);

/* Looks at how large the terminal is now; 24 lines of 80 columns where it does not say. */
void live_measure(struct live *live);

/* Draws the text's lines over what was drawn before. What the terminal has no room for is cut. */
void live_draw(struct live *live, const char *text);

/* Takes away what was drawn: the cursor is where its first line began, and what is printed next stays. */
void live_erase(struct live *live);

/* The text's first lines, each cut to so many columns; colour escapes take none, and end with their line. */
void live_print_cut(FILE *file, const char *text, int lines, int columns);

#endif
