/* A page of help, as text for a terminal or as a man page: one function of a program writes both. */
#ifndef WEIR_COMMON_BASE_PAGE_H
#define WEIR_COMMON_BASE_PAGE_H

#include <stdio.h>

enum page_style { PAGE_TEXT, PAGE_MAN };

struct page {
  FILE *file;
  enum page_style style;
  const char *build; /* of a man page: "weir 1.2" */
  const char *date;  /* likewise: "2026-01-31" */
};

/* In the order of the page. Texts are sentences: an empty line parts paragraphs, other line ends are blanks,
   and a line that begins with a blank stays as it is. What stands in `backquotes` is bold in a man page. */
void page_title(const struct page *page, const char *name,
                const char *summary);                             /* "weir sweep best", "show ..." */
void page_usage(const struct page *page, const char *usage);      /* lines, the first behind "usage:" */
void page_description(const struct page *page, const char *text); /* behind the usage */
void page_heading(const struct page *page, const char *heading);  /* "options" */
void page_text(const struct page *page, const char *text);
/* A term ("--out DIR") and what it means, below it. */
void page_item(const struct page *page, const char *term, const char *text);
/* The same in one line, the terms as wide as `columns`. */
void page_row(const struct page *page, const char *term, int columns, const char *text);
/* Lines as they are, each with its line end. */
void page_lines(const struct page *page, const char *lines);

#endif
