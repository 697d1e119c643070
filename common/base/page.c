/* A page of help. */
#include "common/base/page.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/err.h"

enum { PAGE_WIDTH = 80, ITEM_INDENT = 6 };

static void print_wrapped(FILE *file, const char *text, int indent);
static void print_man(FILE *file, const char *text, const char *paragraph);
static void man_words(FILE *file, const char *text, size_t length);

void page_title(const struct page *page, const char *name, const char *summary) {
  if (page->style == PAGE_TEXT) {
    fprintf(page->file, "%s - %s\n", name, summary);
    return;
  }
  fputs(".TH \"", page->file);
  for (const char *at = name; *at; at++)
    fputc(*at == ' ' ? '-' : toupper((unsigned char)*at), page->file);
  fprintf(page->file, "\" 1 \"%s\" \"%s\" \"Weir\"\n.SH NAME\n", page->date, page->build);
  for (const char *at = name; *at; at++)
    fprintf(page->file, *at == ' ' || *at == '-' ? "\\-" : "%c", *at);
  fputs(" \\- ", page->file);
  man_words(page->file, summary, strlen(summary));
  fputc('\n', page->file);
}

void page_usage(const struct page *page, const char *usage) {
  if (page->style == PAGE_TEXT) {
    fprintf(page->file, "\nusage: %s\n", usage);
    return;
  }
  fputs(".SH SYNOPSIS\n.nf\n", page->file);
  man_words(page->file, usage, strlen(usage));
  fputs("\n.fi\n", page->file);
}

void page_description(const struct page *page, const char *text) {
  if (page->style == PAGE_TEXT)
    fputc('\n', page->file);
  else
    page_heading(page, "description");
  page_text(page, text);
}

void page_heading(const struct page *page, const char *heading) {
  if (page->style == PAGE_TEXT) {
    fprintf(page->file, "\n%s:\n", heading);
    return;
  }
  fputs(".SH \"", page->file);
  for (const char *at = heading; *at; at++)
    fputc(toupper((unsigned char)*at), page->file);
  fputs("\"\n", page->file);
}

void page_text(const struct page *page, const char *text) {
  if (page->style == PAGE_TEXT)
    print_wrapped(page->file, text, 0);
  else
    print_man(page->file, text, ".PP");
}

void page_item(const struct page *page, const char *term, const char *text) {
  if (page->style == PAGE_TEXT) {
    fprintf(page->file, "  %s\n", term);
    print_wrapped(page->file, text, ITEM_INDENT);
    return;
  }
  fputs(".TP\n\\fB", page->file);
  man_words(page->file, term, strlen(term));
  fputs("\\fP\n", page->file);
  print_man(page->file, text, ".IP");
}

void page_row(const struct page *page, const char *term, int columns, const char *text) {
  if (page->style == PAGE_TEXT)
    fprintf(page->file, "  %-*s %s\n", columns, term, text);
  else
    page_item(page, term, text);
}

void page_lines(const struct page *page, const char *lines) {
  if (page->style == PAGE_MAN)
    fputs(".nf\n", page->file);
  for (const char *line = lines; *line; line += strcspn(line, "\n") + 1) {
    size_t length = strcspn(line, "\n");
    if (page->style == PAGE_TEXT)
      fprintf(page->file, "  %.*s", (int)length, line);
    else
      man_words(page->file, line, length);
    fputc('\n', page->file);
  }
  if (page->style == PAGE_MAN)
    fputs(".fi\n", page->file);
}

/* Fills lines of PAGE_WIDTH columns. */
static void print_wrapped(FILE *file, const char *text, int indent) {
  int column = 0;
  while (*text) {
    size_t length = strcspn(text, " \n");
    if (text[0] == '\n' && (text[1] == '\n' || text[1] == ' ')) {
      size_t line = strcspn(text + 1, "\n");
      fprintf(file, "%s%.*s", column ? "\n" : "", (int)line, text + 1);
      column = line > 0 ? PAGE_WIDTH : 0;
      if (line == 0)
        fputc('\n', file);
      text += line > 0 ? line + 1 : 1; /* the second line end may begin a line that is printed as it is */
      continue;
    }
    if (length == 0) {
      text++;
      continue;
    }
    if (column > 0 && column + 1 + (int)length > PAGE_WIDTH) {
      fputc('\n', file);
      column = 0;
    }
    if (column == 0)
      column = fprintf(file, "%*s%.*s", indent, "", (int)length, text);
    else
      column += fprintf(file, " %.*s", (int)length, text);
    text += length;
  }
  if (column > 0)
    fputc('\n', file);
}

/* Roff does the filling. An empty line becomes the macro. */
static void print_man(FILE *file, const char *text, const char *paragraph) {
  bool is_literal = false;
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    if (length > 0 && is_literal != (line[0] == ' ')) {
      is_literal = line[0] == ' ';
      fputs(is_literal ? ".nf\n" : ".fi\n", file);
    }
    if (length > 0) {
      man_words(file, line, length);
      fputc('\n', file);
    } else if (line[1] && line[1] != ' ' && line[1] != '\n') {
      fprintf(file, "%s%s\n", is_literal ? ".fi\n" : "", paragraph);
      is_literal = false;
    }
    line += length + (line[length] == '\n');
  }
  if (is_literal)
    fputs(".fi\n", file);
}

/* Escaped; a pair of backquotes makes what is between them bold. A sentence's end ends its line, as roff
 * wants it. */
static void man_words(FILE *file, const char *text, size_t length) {
  bool is_bold = false, is_start = true;
  for (size_t i = 0; i < length; i++) {
    char byte = text[i];
    if (is_start && (byte == '.' || byte == '\''))
      fputs("\\&", file);
    is_start = false;
    if (byte == '`') {
      is_bold = !is_bold;
      fputs(is_bold ? "\\fB" : "\\fP", file);
    } else if (byte == '\\' || byte == '-' || byte == '\'' || byte == '~' || byte == '^') {
      fputs(byte == '\\'   ? "\\e"
            : byte == '-'  ? "\\-"
            : byte == '\'' ? "\\(aq"
            : byte == '~'  ? "\\(ti"
                           : "\\(ha",
            file);
    } else if (byte == '\n' || (byte == ' ' && i > 0 && strchr(".;:", text[i - 1]) && text[i + 1] != ' ')) {
      fputc('\n', file);
      is_start = true;
    } else {
      fputc(byte, file);
    }
  }
}
