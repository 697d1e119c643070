/* The threads of a block: fibers that change at barriers and exchanges alone. A fiber takes one thread after
   the other, so that kernels without barriers cost a call for each thread. The order of blocks, and of
   threads between two barriers, is drawn: nothing may depend on it. A barrier or exchange that some threads
   never reach ends the launch with a report. */
#include "tests/simulation/cuda/simulation.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/agree/random.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "tests/simulation/cuda/fiber.h"

enum { THREADS_MAX = 1024, LANES = 32, WARPS_MAX = THREADS_MAX / LANES };

struct sim_here {
  struct uint3 thread, block;
  struct dim3 threads, blocks;
};
__thread struct sim_here sim_here __attribute__((visibility("hidden")));

void sim_block_barrier(void);
const uint64_t *sim_warp_exchange(unsigned mask, uint64_t value);

struct lane_fiber {
  struct fiber fiber;
  unsigned thread; /* that it is in the midst of */
};

struct warp {
  unsigned mask, arrived, alive; /* lanes: that the exchange is of; at it; not ended */
  int side;                      /* of slots: the exchange before may still be read */
  uint64_t slots[2][LANES];
};

/* One host thread's, for the block that it is at. */
struct block {
  const struct sim_launch *launch;
  struct fiber host;
  struct lane_fiber *fibers[THREADS_MAX], *current;
  int n_fibers;
  struct lane_fiber *idle[THREADS_MAX], *ready[THREADS_MAX];
  int n_idle, n_ready, first_ready; /* ready is a ring */
  struct lane_fiber *at_barrier[THREADS_MAX];
  struct lane_fiber *at_exchange[WARPS_MAX][LANES];
  unsigned n_at_barrier, n_begun, n_ended;
  bool is_divergent, is_newest_first;
  uint64_t order; /* of threads */
  struct warp warps[WARPS_MAX];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct block *block;

static void fiber_main(void);
static void change_to_next(void);

static void block_free(void *memory) {
  struct block *it = memory;
  for (int i = 0; i < it->n_fibers; i++) {
    fiber_fini(&it->fibers[i]->fiber);
    free(it->fibers[i]);
  }
  free(it);
}

static void key_init(void) {
  CHECK(pthread_key_create(&key, block_free) == 0);
}

static struct block *block_of_thread(void) {
  pthread_attr_t attr;
  void *stack;
  if (block)
    return block;
  pthread_once(&once, key_init);
  block = mem_new(sizeof *block);
  pthread_setspecific(key, block);
  CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
  pthread_attr_getstack(&attr, &stack, &block->host.size);
  pthread_attr_destroy(&attr);
  block->host.stack = stack;
  return block;
}

static void block_reset(const struct sim_launch *launch, uint64_t order) {
  block->launch = launch;
  block->n_ready = block->first_ready = 0;
  block->n_at_barrier = block->n_begun = block->n_ended = 0;
  block->is_divergent = false;
  block->is_newest_first = order >> 63;
  block->order = order;
  for (unsigned w = 0; w * LANES < launch->threads; w++) {
    unsigned lanes = launch->threads - w * LANES;
    block->warps[w].arrived = 0;
    block->warps[w].alive = lanes >= LANES ? 0xffffffffu : (1u << lanes) - 1;
  }
}

/* All fibers stand at their beginning: where a launch was left is forgotten. */
static void fibers_reset(void) {
  block->n_idle = block->n_fibers;
  for (int i = 0; i < block->n_fibers; i++) {
    fiber_reset(&block->fibers[i]->fiber, fiber_main);
    block->idle[i] = block->fibers[i];
  }
}

static void report_divergence(void) {
  unsigned at_exchange = block->n_begun - block->n_ended - block->n_at_barrier;
  sim_complain("kernel %s, block %u: its threads wait for one another in vain: %u at a barrier of the block, "
               "%u at an exchange of a warp, %u have ended",
               block->launch->name, sim_here.block.x, block->n_at_barrier, at_exchange, block->n_ended);
}

bool sim_launch_run(const struct sim_launch *launch, uint64_t seed) {
  CHECK(launch->threads >= 1 && launch->threads <= THREADS_MAX);
  block_of_thread();
  sim_here.threads = (struct dim3){launch->threads, 1, 1};
  sim_here.blocks = (struct dim3){launch->blocks, 1, 1};
  for (unsigned i = 0; i < launch->blocks; i++) {
    sim_here.block = (struct uint3){(unsigned)random_permute(seed, i, launch->blocks), 0, 0};
    block_reset(launch, random_bits(seed, i));
    block->current = NULL;
    change_to_next();
    if (block->is_divergent) {
      report_divergence();
      fibers_reset();
      return false;
    }
  }
  return true;
}

/* The fiber that goes on: one that was released, or one that takes a new thread. NULL: all threads have
   ended, or wait for one that never comes. */
static struct lane_fiber *next_fiber(void) {
  if (block->n_ready > 0) {
    int at = block->first_ready;
    block->n_ready--;
    if (block->is_newest_first)
      return block->ready[(at + block->n_ready) % THREADS_MAX];
    block->first_ready = (at + 1) % THREADS_MAX;
    return block->ready[at];
  }
  if (block->n_begun == block->launch->threads)
    return NULL;
  if (block->n_idle == 0) {
    struct lane_fiber *made = mem_new(sizeof *made);
    fiber_init(&made->fiber);
    fiber_reset(&made->fiber, fiber_main);
    block->fibers[block->n_fibers++] = made;
    return made;
  }
  return block->idle[--block->n_idle];
}

static void change_to_next(void) {
  struct lane_fiber *from = block->current, *to = next_fiber();
  if (!to && block->n_ended < block->launch->threads)
    block->is_divergent = true;
  if (to == from)
    return;
  block->current = to;
  if (to)
    sim_here.thread = (struct uint3){to->thread, 0, 0};
  fiber_change(from ? &from->fiber : &block->host, to ? &to->fiber : &block->host);
}

/* The n-th thread to begin. */
static unsigned drawn_thread(unsigned n) {
  unsigned threads = block->launch->threads;
  switch (block->order & 3) {
  case 0:
    return n;
  case 1:
    return threads - 1 - n;
  case 2:
    return (n + (unsigned)(block->order >> 8) % threads) % threads;
  default:
    return (unsigned)random_permute(block->order, n, threads);
  }
}

static void fiber_main(void) {
  fiber_begin(&block->current->fiber);
  for (;;) {
    while (block->n_ready == 0 && block->n_begun < block->launch->threads) {
      unsigned thread = drawn_thread(block->n_begun++);
      block->current->thread = thread;
      sim_here.thread = (struct uint3){thread, 0, 0};
      block->launch->call(block->launch->arguments);
      block->warps[thread / LANES].alive &= ~(1u << thread % LANES);
      block->n_ended++;
    }
    block->idle[block->n_idle++] = block->current;
    change_to_next();
  }
}

static void make_ready(struct lane_fiber *fiber) {
  block->ready[(block->first_ready + block->n_ready++) % THREADS_MAX] = fiber;
}

/* __syncthreads: all threads of the block, none of which has ended. */
void sim_block_barrier(void) {
  struct lane_fiber *self = block->current;
  if (block->n_at_barrier + 1 < block->launch->threads) {
    block->at_barrier[block->n_at_barrier++] = self;
    change_to_next();
    return;
  }
  for (unsigned i = 0; i < block->n_at_barrier; i++)
    make_ready(block->at_barrier[i]);
  block->n_at_barrier = 0;
  make_ready(self);
  change_to_next();
}

/* All lanes in the mask, which must be the same for them. */
const uint64_t *sim_warp_exchange(unsigned mask, uint64_t value) {
  unsigned thread = block->current->thread, lane = thread % LANES;
  struct warp *warp = &block->warps[thread / LANES];
  struct lane_fiber **waiting = block->at_exchange[thread / LANES];
  int side = warp->side;
  if (warp->arrived == 0)
    warp->mask = mask;
  warp->slots[side][lane] = value;
  waiting[lane] = block->current;
  warp->arrived |= 1u << lane;
  if (warp->mask != mask || !(mask >> lane & 1) || (mask & ~warp->alive))
    warp->mask = 0; /* nothing satisfies it: reported as divergence */
  if (warp->arrived == warp->mask) {
    for (unsigned i = 0; i < LANES; i++)
      if (warp->arrived >> i & 1 && i != lane)
        make_ready(waiting[i]);
    warp->arrived = 0;
    warp->side = !side;
    return warp->slots[side];
  }
  change_to_next();
  return warp->slots[side];
}
