/* Fibers for x86-64: a change stores the registers that a callee keeps, and takes those of the other stack.
 */
#include "tests/simulation/cuda/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/err.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 128 << 10, PAGE_BYTES = 4096 };

void sim_fiber_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden sim_fiber_switch\n"
        ".globl sim_fiber_switch\n"
        ".type sim_fiber_switch, @function\n"
        "sim_fiber_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size sim_fiber_switch, .-sim_fiber_switch\n");

void fiber_init(struct fiber *fiber) {
  char *memory = mmap(NULL, STACK_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(mprotect(memory, PAGE_BYTES, PROT_NONE) == 0);
  *fiber = (struct fiber){.stack = memory + PAGE_BYTES, .size = STACK_BYTES};
}

void fiber_fini(struct fiber *fiber) {
  if (fiber->stack)
    munmap(fiber->stack - PAGE_BYTES, STACK_BYTES + PAGE_BYTES);
}

void fiber_reset(struct fiber *fiber, void (*entry)(void)) {
  /* As sim_fiber_switch leaves it: six registers, where to return to; at entry, 8 bytes past a multiple of
     16 as after a call. */
  void **top = (void **)(fiber->stack + fiber->size) - 8;
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(fiber->stack, fiber->size); /* what it was left in the midst of */
#endif
  memset(top, 0, 8 * sizeof *top);
  top[6] = (void *)entry;
  fiber->at = top;
  fiber->shadow = NULL;
}

void fiber_change(struct fiber *from, struct fiber *to) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from->shadow, to->stack, to->size);
#endif
  sim_fiber_switch(&from->at, to->at);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from->shadow, NULL, NULL);
#endif
}

void fiber_begin(struct fiber *fiber) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fiber->shadow, NULL, NULL);
#endif
  (void)fiber;
}
