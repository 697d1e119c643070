/* What the store makes of many blocks before a backend gets them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/sha256.h"
#include "tests/support/storage/store_double.h"

enum { N = 19, MOST = 8 };

static const char text[] = "what is written in many blocks of different sizes";

/* Block i: i letters, then three. */
static void make_blocks(struct store_block blocks[N]) {
  for (int i = 0; i < N; i++)
    blocks[i] =
        (struct store_block){.parts = {{(void *)text, (size_t)i}, {(void *)(text + 20), 3}}, .n_parts = 2};
}

static void assert_key(const char *found, int i) {
  char *content = mem_printf("%.*s%.3s", i, text, text + 20), key[STORE_KEY_SIZE];
  sha256_hex(content, strlen(content), key);
  assert_string_equal(found, key);
  free(content);
}

/* All have their keys, odd ones and the last batch's among them. */
static void a_store_gets_as_many_blocks_at_a_time_as_it_wants(void **state) {
  struct store_block blocks[N];
  struct store_double d;
  struct store_def def;
  struct err err = ERR_NONE;
  uint64_t written_bytes = 0;
  (void)state;
  double_init(&d);
  def = *d.base.def;
  def.put_blocks_max = MOST;
  d.base.def = &def;
  make_blocks(blocks);
  assert_int_equal(store_put_blocks(&d.base, blocks, N, &written_bytes, &err), 0);
  assert_int_equal(d.n_puts, (N + MOST - 1) / MOST);
  assert_int_equal(written_bytes, N * (N - 1) / 2 + 3 * N);
  for (int i = 0; i < N; i++)
    assert_key(blocks[i].sha256, i);
  double_fini(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_store_gets_as_many_blocks_at_a_time_as_it_wants),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
