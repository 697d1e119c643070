/* Command lines, read through a command's table of options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/option.h"

static const struct option_def options[] = {
    {.name = "out", .letter = 'o', .kind = OPTION_TEXT, .value = "DIR"},
    {.name = "workers", .kind = OPTION_COUNT, .value = "N", .fallback = "2", .least = 1, .most = 8},
    {.name = "force", .kind = OPTION_FLAG},
    {.name = "widths", .kind = OPTION_LIST, .value = "WIDTHS", .fallback = "3,4", .least = 1, .most = 8},
    {.name = "dropout", .kind = OPTION_SHARE, .value = "SHARE"},
    {.name = "label", .kind = OPTION_TEXTS, .value = "KEY=VALUE"},
    {.name = "scale", .kind = OPTION_RATIO, .value = "RATIO", .fallback = "1", .least = 0, .most = 4},
    {0}};

static struct args args;
static struct err err;

#define PARSE(...) parse((char *[]){__VA_ARGS__, NULL})
static int parse(char **argv) {
  int argc = 0;
  while (argv[argc])
    argc++;
  err = ERR_NONE;
  return args_parse(&args, &(struct command_syntax){.options = options, .takes_coordinator = true}, argc,
                    argv, &err);
}

static void values_come_behind_a_blank_or_an_equals_sign(void **state) {
  (void)state;
  assert_int_equal(PARSE("spec.yaml", "--out", "a", "--workers=3", "--force"), ERR_OK);
  assert_string_equal(args_text(&args, "out"), "a");
  assert_int_equal(args_count(&args, "workers"), 3);
  assert_true(args_flag(&args, "force"));
  assert_int_equal(args.n_arguments, 1);
  assert_string_equal(args.arguments[0], "spec.yaml");
  assert_int_equal(PARSE("-o", "b"), ERR_OK);
  assert_string_equal(args_text(&args, "out"), "b");
}

static void what_is_not_given_falls_back(void **state) {
  (void)state;
  unsetenv("WEIR_COORDINATOR");
  assert_int_equal(PARSE("x"), ERR_OK);
  assert_null(args_text(&args, "out"));
  assert_int_equal(args_count(&args, "workers"), 2);
  assert_false(args_flag(&args, "force"));
  assert_string_equal(args.coordinator, "127.0.0.1:7070");
  setenv("WEIR_COORDINATOR", "a:1", 1);
  assert_int_equal(PARSE("x"), ERR_OK);
  assert_string_equal(args.coordinator, "a:1");
  assert_int_equal(PARSE("x", "--coordinator", "b:2"), ERR_OK);
  assert_string_equal(args.coordinator, "b:2");
}

static void two_dashes_end_the_options(void **state) {
  (void)state;
  assert_int_equal(PARSE("--", "--force"), ERR_OK);
  assert_false(args_flag(&args, "force"));
  assert_string_equal(args.arguments[0], "--force");
}

static void an_unknown_option_is_refused_with_the_nearest(void **state) {
  (void)state;
  assert_int_equal(PARSE("--wrokers", "3"), ERR_INVALID);
  assert_string_equal(err.text, "unknown option '--wrokers'; did you mean '--workers'?");
  assert_int_equal(PARSE("--forc=1"), ERR_INVALID);
  assert_string_equal(err.text, "unknown option '--forc'; did you mean '--force'?");
  assert_int_equal(PARSE("--wor=1"), ERR_INVALID);
  assert_string_equal(err.text, "unknown option '--wor'; did you mean '--workers'?");
  assert_int_equal(PARSE("-x"), ERR_INVALID);
  assert_int_equal(PARSE("--out-of-every-range"), ERR_INVALID);
}

static void missing_and_superfluous_values_are_refused(void **state) {
  (void)state;
  assert_int_equal(PARSE("--out"), ERR_INVALID);
  assert_int_equal(PARSE("--force=yes"), ERR_INVALID);
}

static void more_arguments_than_fit_are_refused(void **state) {
  char *argv[ARGUMENTS_MAX + 1];
  (void)state;
  for (int i = 0; i <= ARGUMENTS_MAX; i++)
    argv[i] = (char *)"a";
  err = ERR_NONE;
  assert_int_equal(args_parse(&args, &(struct command_syntax){.options = NULL}, ARGUMENTS_MAX, argv, &err),
                   ERR_OK);
  assert_int_equal(
      args_parse(&args, &(struct command_syntax){.options = NULL}, ARGUMENTS_MAX + 1, argv, &err),
      ERR_INVALID);
}

static void a_count_must_be_a_number_in_its_range(void **state) {
  (void)state;
  assert_int_equal(PARSE("--workers", "0"), ERR_INVALID);
  assert_int_equal(PARSE("--workers", "9"), ERR_INVALID);
  assert_int_equal(PARSE("--workers", "2x"), ERR_INVALID);
  assert_int_equal(PARSE("--workers", ""), ERR_INVALID);
  assert_int_equal(PARSE("--workers", "99999999999999999999"), ERR_INVALID);
  assert_int_equal(PARSE("--workers", "8"), ERR_OK);
}

static void some_may_be_given_again_and_again(void **state) {
  char *many[OPTION_TEXTS_MAX + 2] = {NULL};
  const char *const *texts;
  (void)state;
  assert_int_equal(PARSE("x"), ERR_OK);
  assert_int_equal(args_texts(&args, "label", &texts), 0);
  assert_int_equal(PARSE("--label", "a=1", "x", "--label=b=2"), ERR_OK);
  assert_int_equal(args_texts(&args, "label", &texts), 2);
  assert_string_equal(texts[0], "a=1");
  assert_string_equal(texts[1], "b=2");
  assert_int_equal(PARSE("--label"), ERR_INVALID);
  for (int i = 0; i < OPTION_TEXTS_MAX; i++)
    many[i] = "--label=a";
  assert_int_equal(parse(many), ERR_OK);
  many[OPTION_TEXTS_MAX] = "--label=a";
  assert_int_equal(parse(many), ERR_INVALID);
}

static void a_list_may_repeat_its_numbers(void **state) {
  int64_t list[OPTION_LIST_MAX];
  (void)state;
  assert_int_equal(PARSE("x"), ERR_OK);
  assert_int_equal(args_list(&args, "widths", list), 2);
  assert_int_equal(list[1], 4);
  assert_int_equal(PARSE("--widths", "8,2x3,1"), ERR_OK);
  assert_int_equal(args_list(&args, "widths", list), 5);
  assert_int_equal(list[0] * 1000 + list[1] * 100 + list[3] * 10 + list[4], 8221);
  assert_int_equal(PARSE("--widths", ""), ERR_OK);
  assert_int_equal(args_list(&args, "widths", list), 0);
  assert_int_equal(PARSE("--widths", "1x64"), ERR_OK);
}

static void a_list_with_anything_else_is_refused(void **state) {
  static char *const lists[] = {"0",
                                "9",
                                "2,",
                                ",2",
                                "2,,3",
                                "2;3",
                                "2x0",
                                "2x-1",
                                "2x65",
                                "2x3x",
                                "1x63,2,3",
                                "2x",
                                "99999999999999999999",
                                "2 ,3"};
  (void)state;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    assert_int_equal(PARSE("--widths", lists[i]), ERR_INVALID);
}

static void a_number_must_be_one_in_its_range(void **state) {
  (void)state;
  assert_int_equal(PARSE("--dropout", "0.5", "--scale=4"), ERR_OK);
  assert_true(args_number(&args, "dropout") == 0.5 && args_number(&args, "scale") == 4);
  assert_int_equal(PARSE("--dropout", "1"), ERR_INVALID);
  assert_int_equal(PARSE("--dropout", "-0.1"), ERR_INVALID);
  assert_int_equal(PARSE("--dropout", "nan"), ERR_INVALID);
  assert_int_equal(PARSE("--dropout", "0.5x"), ERR_INVALID);
  assert_int_equal(PARSE("--scale", "4.1"), ERR_INVALID);
  assert_int_equal(PARSE("--scale", "inf"), ERR_INVALID);
}

static void help_is_known_to_every_command(void **state) {
  (void)state;
  assert_int_equal(PARSE("--help"), ERR_OK);
  assert_true(args.wants_help);
  assert_int_equal(PARSE("-h"), ERR_OK);
  assert_true(args.wants_help);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_come_behind_a_blank_or_an_equals_sign),
      cmocka_unit_test(what_is_not_given_falls_back),
      cmocka_unit_test(two_dashes_end_the_options),
      cmocka_unit_test(an_unknown_option_is_refused_with_the_nearest),
      cmocka_unit_test(missing_and_superfluous_values_are_refused),
      cmocka_unit_test(more_arguments_than_fit_are_refused),
      cmocka_unit_test(a_count_must_be_a_number_in_its_range),
      cmocka_unit_test(some_may_be_given_again_and_again),
      cmocka_unit_test(a_list_may_repeat_its_numbers),
      cmocka_unit_test(a_list_with_anything_else_is_refused),
      cmocka_unit_test(a_number_must_be_one_in_its_range),
      cmocka_unit_test(help_is_known_to_every_command),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
