#include "tests/support/coordinator/core_labels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/labels.h"

static struct labels labels_of(const char *text) {
  struct labels labels = {0};
  struct err err = ERR_NONE;
  assert_int_equal(labels_read(&labels, text, &err), 0);
  return labels;
}

void labelled_joins(struct core_fixture *f, uint64_t key, const char *text) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct labels labels = labels_of(text);
  hello.role = WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.holder = (char *)(f->holder ? f->holder : "");
  hello.labels = labels.list;
  hello.n_labels = labels.n;
  says_hello(f, key, &hello);
  labels_free(&labels);
}

void user_submits_for(struct core_fixture *f, const char *id, const char *required, uint32_t min,
                      uint32_t max) {
  struct labels labels = labels_of(required);
  f->required = labels;
  user_submits(f, id, min, max);
  f->required = (struct labels){0};
  labels_free(&labels);
}
