/* The command lines of weir-server and weir-worker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/manager/program_option.h"

enum { KEY_HTTP = PROGRAM_OPTION_KEYS, KEY_HTTP_NAMES, KEY_THREADS, KEY_HELP, WORDS_MAX = 8 };

static const struct program_option options[] = {{"http", "HOST:PORT", KEY_HTTP, "serve pages."},
                                                {"http-names", NULL, KEY_HTTP_NAMES, "with names."},
                                                {"threads", "N", KEY_THREADS, "so many."},
                                                {"help", NULL, KEY_HELP, "this page."},
                                                {0}};

/* words: of the line, as many as are there. */
static struct program_line line_of(char *words[WORDS_MAX]) {
  struct program_line line = {.options = options, .argv = words};
  while (line.argc < WORDS_MAX - 1 && words[line.argc])
    line.argc++;
  return line;
}

static void expect(struct program_line *line, int key, const char *value) {
  struct err err = ERR_NONE;
  assert_int_equal(program_option_read(line, &err), key);
  assert_int_equal(err.code, ERR_OK);
  if (!value)
    assert_null(line->value);
  else
    assert_string_equal(line->value, value);
}

static void a_line_is_read_from_its_begin_to_its_end(void **state) {
  struct program_line line =
      line_of((char *[WORDS_MAX]){"weir", "--threads", "3", "--http=a:1", "--http-names", "--thr=4"});
  (void)state;
  expect(&line, KEY_THREADS, "3");
  expect(&line, KEY_HTTP, "a:1");
  expect(&line, KEY_HTTP_NAMES, NULL);
  expect(&line, KEY_THREADS, "4");
  assert_int_equal(program_option_read(&line, &(struct err){0}), 0);
}

static void a_line_begins_anew_wherever_the_one_before_was_left(void **state) {
  struct program_line left = line_of((char *[WORDS_MAX]){"weir", "--threads", "3", "--help"});
  struct program_line line = line_of((char *[WORDS_MAX]){"weir", "--http-names", "--threads", ""});
  (void)state;
  expect(&left, KEY_THREADS, "3");
  expect(&line, KEY_HTTP_NAMES, NULL);
  expect(&line, KEY_THREADS, "");
  assert_int_equal(program_option_read(&line, &(struct err){0}), 0);
}

static void what_is_wrong_with_a_line_is_said(void **state) {
  static const struct {
    char *words[3];
    const char *text;
  } rows[] = {
      {{"--threads"}, "option '--threads' needs a value: N"},
      {{"--threads", "1", "--http"}, "option '--http' needs a value: HOST:PORT"},
      {{"--help=3"}, "option '--help' takes no value, but got '3'"},
      {{"--help="}, "option '--help' takes no value, but got ''"},
      {{"--thraeds", "2"}, "unknown option '--thraeds'; did you mean '--threads'?"},
      {{"--thraeds=2"}, "unknown option '--thraeds'; did you mean '--threads'?"},
      {{"--htt"}, "unknown option '--htt'; did you mean '--http'?"}, /* or --http-names */
      {{"--zzzzzzzzz=hunter2"}, "unknown option '--zzzzzzzzz'"},
      {{"-h"}, "unknown option '-h'"},
      {{"-xyz", "1"}, "unknown option '-x'"},
      {{"7070"}, "unexpected argument '7070'"},
      {{"--", "--help"}, "unexpected argument '--help'"},
      {{""}, "unexpected argument ''"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *words[WORDS_MAX] = {"weir", rows[i].words[0], rows[i].words[1], rows[i].words[2]};
    struct program_line line = line_of(words);
    struct err err = ERR_NONE;
    int key;
    do
      key = program_option_read(&line, &err);
    while (key > 0);
    assert_int_equal(key, -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.text, rows[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_line_is_read_from_its_begin_to_its_end),
      cmocka_unit_test(a_line_begins_anew_wherever_the_one_before_was_left),
      cmocka_unit_test(what_is_wrong_with_a_line_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
