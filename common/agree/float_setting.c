/* The floating-point setting, by the register that holds it. */
#include "common/agree/float_setting.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR: flush to zero (15), rounding to nearest (14, 13), all exceptions masked (12 to 7), subnormal
   operands are zero (6). Below are flags, which come and go. */
enum { SETTING = 0x9fc0, SETTING_BITS = 0xffc0 };

static uint32_t setting_read(void) {
  return _mm_getcsr() & SETTING_BITS;
}

static void setting_write(void) {
  _mm_setcsr(SETTING);
}
#elif defined(__aarch64__)
/* FPCR: flush to zero (24), of operands, too; default NaN (25), rounding (23, 22), half precision's flush
   (19) and traps (15 to 8) are off. */
enum { SETTING = 1 << 24, SETTING_BITS = 0x03c8ff00 };

static uint32_t setting_read(void) {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return (uint32_t)value & SETTING_BITS;
}

static void setting_write(void) {
  uint64_t value = SETTING;
  __asm__ volatile("msr fpcr, %0" : : "r"(value));
}
#else
#error "say here how this processor counts subnormals as zero"
#endif

void float_setting_apply(void) {
  setting_write();
}

bool float_setting_holds(void) {
  return setting_read() == SETTING;
}

void float_setting_require(const char *thread) {
  if (float_setting_holds())
    return;
  fprintf(stderr, "the floating-point setting of thread '%s' is 0x%x, not 0x%x: main() must apply it\n",
          thread, setting_read(), SETTING);
  abort();
}

int float_setting_check(const char *culprit, struct err *err) {
  uint32_t found = setting_read();
  if (found == SETTING)
    return ERR_OK;
  setting_write();
  return err_set(
      err, ERR_UNAVAILABLE,
      "%s changed the floating-point setting from 0x%x to 0x%x: sums would have other bits than on "
      "other machines; use a build of it that leaves the setting alone",
      culprit, SETTING, found);
}
