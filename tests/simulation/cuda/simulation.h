/* The simulated device, within itself: what its files share. It stands in for the CUDA runtime, cuBLASLt,
   cuDNN and NCCL, so that the cuda backend runs on a machine without a GPU: the same C and CUDA C files,
   linked with these functions in place of NVIDIA's.

   It shows that our side is right: arguments and shapes, order between streams, lives of buffers, barriers,
   what is legal while a graph is captured, what happens when a device fails; and that nobody uses CUDA in a
   process whose parent has used it before the fork. It does not show speed, NVIDIA's
   own numbers, races between blocks or warps that no barrier orders, reads of device memory beyond an
   allocation by less than a page, or the resource limits of a GPU
   (registers, shared memory: tests/gpu/test_kernels.py).

   Environment: WEIR_SIMULATED_DEVICES=N (1), WEIR_SIMULATED_MEMORY=bytes of each (16 GiB),
   WEIR_SIMULATED_SEED=N (1) of every order that CUDA leaves open, WEIR_SIMULATED_FAIL=N: the N-th kernel or
   copy of the process makes its device fail for good, WEIR_SIMULATED_DRIVER=none|old,
   WEIR_SIMULATED_TELL=1: the process says at its end what it has copied,
   WEIR_SIMULATED_ATTENTION=none|wrong: cuDNN has no engines for it, or wrong ones. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_SIMULATION_H
#define WEIR_TESTS_SIMULATION_CUDA_SIMULATION_H

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/simulation/cuda/launch.h"

enum { SIM_DEVICES_MAX = 64 };

/* What an attempt at an operation came to. BLOCKED: nothing can be done now; others may go on. */
enum sim_progress { SIM_DONE, SIM_PROGRESS, SIM_BLOCKED };

/* Something that a stream does. It does not change by being done, as a captured graph does it again. */
struct sim_op {
  const char *name;
  /* Does it, or a part. *state is of this one execution: NULL at first. Any thread, one at a time. */
  enum sim_progress (*run)(struct sim_op *op, void **state, int device);
  void (*fini)(struct sim_op *op); /* what it holds; the op is freed by the caller. NULL: nothing */
  void (*drop)(struct sim_op *op,
               void *state); /* ends an execution that its device does not complete. NULL */
  bool is_work;              /* a kernel or a copy: what a device that is lost does not do */
  atomic_int refs;
};

/* A zeroed op of `size` bytes, whose first member is a struct sim_op; one reference. */
void *sim_op_new(size_t size, const char *name,
                 enum sim_progress (*run)(struct sim_op *op, void **state, int device));
struct sim_op *sim_op_get(struct sim_op *op);
void sim_op_put(struct sim_op *op);

/* A moment in a stream's work, which others wait for. */
struct sim_moment {
  atomic_bool is_past;
  atomic_uint_least64_t time_ns;
  atomic_int refs;
};

struct sim_moment *sim_moment_new(void);
struct sim_moment *sim_moment_get(struct sim_moment *moment);
void sim_moment_put(struct sim_moment *moment); /* NULL is ignored */
void sim_moment_pass(struct sim_moment *moment);
struct sim_op *sim_pass_new(struct sim_moment *moment); /* passes the moment */
struct sim_op *sim_wait_new(struct sim_moment *moment); /* is done when the moment is past */

struct sim_capture; /* capture.c */

struct CUstream_st {
  int device;
  unsigned flags;
  struct sim_item *head, **tail;    /* work that is not done, in order */
  bool is_busy;                     /* a thread is at the head */
  uint64_t rank, tried;             /* for the choice of who goes on */
  struct sim_capture *capture;      /* NULL: none under way */
  int *ends, n_ends, ends_capacity; /* nodes after which the next captured one comes */
  struct CUstream_st *next;
};

struct CUevent_st {
  int device;
  unsigned flags;
  struct sim_moment *moment;   /* the latest record; NULL: never */
  struct sim_capture *capture; /* the record was captured */
  int *ends, n_ends;
};

/* schedule.c: queues. */
cudaStream_t sim_stream_of(cudaStream_t stream); /* the legacy stream of the current device for 0 */
void sim_stream_add(cudaStream_t stream);
void sim_stream_remove(cudaStream_t stream);
void sim_streams_each(void (*call)(cudaStream_t stream, void *user), void *user);
/* Appends it (the reference is taken), or adds it to the graph that the stream captures. */
cudaError_t sim_enqueue(cudaStream_t stream, struct sim_op *op);
void sim_enqueue_now(cudaStream_t stream, struct sim_op *op); /* not captured */
/* Does work until the moment is past, all of the stream or device (-1: of all) is done. */
void sim_run_until(struct sim_moment *moment);
void sim_run_stream(cudaStream_t stream);
void sim_run_device(int device);
void sim_run_some(void); /* a random part */
uint64_t sim_random(void);
/* Before an op is run that may be work: false when the device is lost (then it is not run). */
bool sim_may_run(const struct sim_op *op, int device);

/* capture.c, graph.c */
cudaError_t sim_capture_add(cudaStream_t stream, struct sim_op *op);
cudaError_t sim_capture_event(cudaStream_t stream, cudaEvent_t event);
cudaError_t sim_capture_wait(cudaStream_t stream, cudaEvent_t event);
/* Of a call that no thread may make while it captures a graph (synchronises, allocates). */
cudaError_t sim_capture_forbids(void);
cudaError_t sim_capture_spoil(struct sim_capture *capture, cudaError_t error); /* returns error */
struct sim_capture *sim_capture_get(struct sim_capture *capture);
void sim_capture_put(struct sim_capture *capture); /* NULL is ignored */
struct CUgraph_st *sim_graph_new(void);
int sim_graph_add(struct CUgraph_st *graph, struct sim_op *op, const int *ends, int n_ends);
/* Whether each node comes before one of `ends`, or is one. */
bool sim_graph_is_joined(const struct CUgraph_st *graph, const int *ends, int n_ends);

/* memory.c */
void sim_memory_open(void); /* device memory may be touched, until as many close */
void sim_memory_close(void);
bool sim_is_device(const void *at, size_t size_bytes); /* within one allocation */
bool sim_is_any_device(const void *at);                /* in the range of device addresses */
bool sim_is_pinned(const void *at, size_t size_bytes);
/* Some of it is and some is not, or it is two pinned ranges: CUDA copies neither. */
bool sim_is_partly_pinned(const void *at, size_t size_bytes);

/* transfer.c: copies that were done, and their bytes: from host memory, to it, and among devices. */
enum sim_direction { SIM_UP, SIM_DOWN, SIM_WITHIN, SIM_DIRECTIONS };
uint64_t sim_copied(enum sim_direction direction, uint64_t *size_bytes);

/* runtime.c */
int sim_devices(void);
int sim_device(void); /* the calling thread's */
uint64_t sim_memory_bytes(void);
uint64_t sim_seed(void);
uint64_t sim_setting(const char *name, uint64_t otherwise);
/* Keeps an error for cudaGetLastError, and returns it. */
cudaError_t sim_return(cudaError_t error);
cudaError_t sim_device_error(int device); /* of a device that is lost, for good */
void sim_device_lose(int device, cudaError_t error, const char *why);
/* Tells on stderr what a program of ours did wrong. */
void sim_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* block.c: every thread of every block. False: reported (divergence). */
bool sim_launch_run(const struct sim_launch *launch, uint64_t seed);

#endif
