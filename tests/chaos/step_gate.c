/* A library to preload into workers: what they push of a step stays with them until a test lets the run go
   on to that step.

   So a run stands still where a test wants it to, however fast or slow the machine is, while all its
   processes go on: they answer, beat, join, leave and compute. To them it looks like a link that has taken
   their pushes and does not move them on. The library puts off the batches that send PushRequests: the
   messages of calls of Push, whose first slice has the fields, whether the tensor's bytes follow or are
   named.

   Environment: WEIR_GATE  a file of three numbers of eight bytes, in the machine's order: how many steps
                           the run may make, which the test changes; the latest step whose push is put
                           off, which workers raise if they may, and the test sets back to 0; and, one
                           more than its number, a block that the run may not make the next step in,
                           while it may in the others; 0: there is none */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/chaos/push_fields.h"

enum { OPS_MAX = 3, PAUSE_US = 1000 };
enum { GATE_STEPS, GATE_PUT_OFF, GATE_TORN, GATE_NUMBERS };

/* The function that this one stands before. */
#define REAL(name)                                                                                           \
  ({                                                                                                         \
    static __typeof__(&name) real_;                                                                          \
    real_ ? real_ : (real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name));                                    \
  })

/* A batch that is put off. */
struct held {
  struct held *next;
  grpc_call *call;
  grpc_op ops[OPS_MAX];
  size_t n_ops;
  void *tag;
  grpc_byte_buffer *message; /* a copy: the caller lets go of its own */
  uint64_t step, block;
};

static struct {
  uint64_t *numbers; /* GATE_; NULL: there is no gate in this process */
  bool is_told;      /* of what is put off */
  struct held *first, **end;
  pthread_mutex_t lock;
  pthread_cond_t is_there; /* one that is put off */
} gate = {.end = &gate.first, .lock = PTHREAD_MUTEX_INITIALIZER, .is_there = PTHREAD_COND_INITIALIZER};

static void held_start(struct held *held) {
  if (REAL(grpc_call_start_batch)(held->call, held->ops, held->n_ops, held->tag, NULL) != GRPC_CALL_OK)
    abort();
  grpc_byte_buffer_destroy(held->message);
  grpc_call_unref(held->call);
  free(held);
}

/* With the lock. */
static void gate_tell(void) {
  uint64_t *put_off = &gate.numbers[GATE_PUT_OFF], latest = 0,
           told = __atomic_load_n(put_off, __ATOMIC_SEQ_CST);
  for (const struct held *held = gate.first; held; held = held->next)
    if (held->step > latest)
      latest = held->step;
  while (latest > told &&
         !__atomic_compare_exchange_n(put_off, &told, latest, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    ;
}

static bool held_may_go(const struct held *held) {
  uint64_t steps = __atomic_load_n(&gate.numbers[GATE_STEPS], __ATOMIC_SEQ_CST);
  uint64_t torn = __atomic_load_n(&gate.numbers[GATE_TORN], __ATOMIC_SEQ_CST);
  return held->step < steps || (torn && held->step == steps && held->block + 1 != torn);
}

/* Starts what was put off and is of this call, or, without one, of steps that the run may make: in order. */
static void gate_let_through(const grpc_call *call) {
  struct held *through = NULL, **end = &through, *held;
  pthread_mutex_lock(&gate.lock);
  for (struct held **at = &gate.first; (held = *at);) {
    if (call ? held->call != call : !held_may_go(held)) {
      at = &held->next;
      continue;
    }
    *at = held->next;
    held->next = NULL;
    *end = held;
    end = &held->next;
  }
  gate.end = &gate.first;
  while (*gate.end)
    gate.end = &(*gate.end)->next;
  if (gate.is_told)
    gate_tell();
  pthread_mutex_unlock(&gate.lock);
  while ((held = through)) {
    through = held->next;
    held_start(held);
  }
}

static void *gate_watch(void *unused) {
  for (;;) {
    pthread_mutex_lock(&gate.lock);
    while (!gate.first)
      pthread_cond_wait(&gate.is_there, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    gate_let_through(NULL);
    usleep(PAUSE_US);
  }
  return unused;
}

static void gate_open(void) {
  pthread_t thread;
  int fd = open(getenv("WEIR_GATE"), O_RDWR | O_CLOEXEC), rights = PROT_READ;
  void *map;
  gate.is_told = fd >= 0;
  if (gate.is_told)
    rights |= PROT_WRITE;
  else
    fd = open(getenv("WEIR_GATE"), O_RDONLY | O_CLOEXEC);
  map = fd < 0 ? MAP_FAILED : mmap(NULL, GATE_NUMBERS * sizeof *gate.numbers, rights, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED)
    abort();
  close(fd);
  gate.numbers = map;
  if (pthread_create(&thread, NULL, gate_watch, NULL) || pthread_detach(thread))
    abort();
}

/* In the worker alone: other programs that inherit the environment answer with two slices, too. */
static bool gate_is_here(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!getenv("WEIR_GATE") || strcmp(program_invocation_short_name, "weir-worker"))
    return false;
  pthread_once(&once, gate_open);
  return true;
}

static bool is_push(const grpc_byte_buffer *message) {
  const grpc_slice_buffer *slices = &message->data.raw.slice_buffer;
  return message->type == GRPC_BB_RAW &&
         (slices->count == 2 || (slices->count == 1 && push_names_bytes(slices->slices[0])));
}

/* The op that sends a push; NULL: the batch sends none. */
static const grpc_op *push_of(const grpc_op *ops, size_t n_ops) {
  for (size_t i = 0; i < n_ops; i++)
    if (ops[i].op == GRPC_OP_SEND_MESSAGE && is_push(ops[i].data.send_message.send_message))
      return &ops[i];
  return NULL;
}

grpc_call_error grpc_call_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, void *tag,
                                      void *reserved) {
  const grpc_op *push = gate_is_here() && n_ops <= OPS_MAX ? push_of(ops, n_ops) : NULL;
  struct held *held;
  if (!push)
    return REAL(grpc_call_start_batch)(call, ops, n_ops, tag, reserved);
  held = calloc(1, sizeof *held);
  if (!held)
    abort();
  *held = (struct held){.call = call, .n_ops = n_ops, .tag = tag};
  held->message = grpc_byte_buffer_copy(push->data.send_message.send_message);
  held->step = push_step_of(held->message->data.raw.slice_buffer.slices[0]);
  held->block = push_block_of(held->message->data.raw.slice_buffer.slices[0]);
  memcpy(held->ops, ops, n_ops * sizeof *ops);
  held->ops[push - ops].data.send_message.send_message = held->message;
  grpc_call_ref(call);
  pthread_mutex_lock(&gate.lock);
  *gate.end = held;
  gate.end = &held->next;
  pthread_cond_signal(&gate.is_there);
  pthread_mutex_unlock(&gate.lock);
  gate_let_through(NULL);
  return GRPC_CALL_OK;
}

/* A call that is cancelled ends also where it was put off. */
grpc_call_error grpc_call_cancel(grpc_call *call, void *reserved) {
  grpc_call_error error = REAL(grpc_call_cancel)(call, reserved);
  if (gate.numbers)
    gate_let_through(call);
  return error;
}
