/* The versions of a block before the newest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/parameters/block/older.h"

enum { BYTES = 16 };

static void versions_are_found_until_they_are_taken_out_from_the_oldest_on(void **state) {
  struct buffer *buffers[10], *taken;
  struct older older;
  (void)state;
  older_init(&older, 3);
  for (uint64_t version = 4; version < 7; version++) {
    buffers[version] = buffer_new(BYTES);
    older_add(&older, version, buffers[version]);
  }
  for (uint64_t version = 0; version < 10; version++)
    assert_ptr_equal(older_find(&older, 7, version), version >= 4 && version < 7 ? buffers[version] : NULL);
  assert_null(older_take(&older, 7, 4));
  taken = older_take(&older, 7, 6);
  assert_ptr_equal(taken, buffers[4]);
  buffer_put(taken);
  assert_null(older_find(&older, 7, 4));
  buffers[7] = buffer_new(BYTES);
  older_add(&older, 7, buffers[7]);
  assert_ptr_equal(older_find(&older, 8, 7), buffers[7]);
  assert_ptr_equal(older_find(&older, 8, 5), buffers[5]);
  while ((taken = older_take(&older, 8, UINT64_MAX)))
    buffer_put(taken);
  assert_int_equal(older.n, 0);
  older_fini(&older);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(versions_are_found_until_they_are_taken_out_from_the_oldest_on),
  };
  return cmocka_run_group_tests_name("older", tests, NULL, NULL);
}
