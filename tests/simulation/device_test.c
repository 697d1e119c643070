/* The simulated device itself: that it computes, and that it finds what it is there to find. Each test is a
   process of its own, as a device that has failed stays so. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#ifdef WEIR_SIMULATION
#include "tests/simulation/device_test.cuh"

enum { N = 1000, SEEDS = 24, CRASHED = 99 };

#define GOOD(call) assert_int_equal(call, cudaSuccess)

struct setting {
  const char *name, *value;
};

/* Runs it in a child. Returns what it returns; CRASHED when a signal or a sanitizer ended it. */
static int in_child(int (*part)(void), const struct setting *settings, int n) {
  int status;
  pid_t child;
  fflush(NULL);
  child = fork();
  if (child == 0) {
    for (int i = 0; i < n; i++)
      setenv(settings[i].name, settings[i].value, 1);
    signal(SIGSEGV, SIG_DFL);               /* not the test's */
    if (!freopen("/dev/null", "w", stderr)) /* what it complains of is expected */
      _exit(61);
    _exit(part());
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) < 64 ? WEXITSTATUS(status) : CRASHED;
}

/* How many of the seeds it returns 1 with; the others must return 0. */
static int in_children(int (*part)(void)) {
  int n = 0;
  for (int seed = 1; seed <= SEEDS; seed++) {
    char text[16];
    struct setting setting = {"WEIR_SIMULATED_SEED", text};
    int result;
    snprintf(text, sizeof text, "%d", seed);
    result = in_child(part, &setting, 1);
    assert_in_range(result, 0, 1);
    n += result;
  }
  return n;
}

/* What the tests work with. */
struct world {
  cudaStream_t stream, other;
  cudaEvent_t event, joint;
  float *host, *a, *b; /* N each: pinned, device, device */
};

static struct world world_new(void) {
  struct world it;
  if (cudaStreamCreateWithFlags(&it.stream, cudaStreamNonBlocking) ||
      cudaStreamCreateWithFlags(&it.other, cudaStreamNonBlocking) ||
      cudaEventCreateWithFlags(&it.event, cudaEventDisableTiming) ||
      cudaEventCreateWithFlags(&it.joint, cudaEventDisableTiming) ||
      cudaMallocHost((void **)&it.host, N * sizeof(float)) || cudaMalloc((void **)&it.a, N * sizeof(float)) ||
      cudaMalloc((void **)&it.b, N * sizeof(float)))
    _exit(60);
  for (int i = 0; i < N; i++)
    it.host[i] = (float)i;
  return it;
}

static cudaError_t up(const struct world *it, float *to) {
  return cudaMemcpyAsync(to, it->host, N * sizeof(float), cudaMemcpyHostToDevice, it->stream);
}

static cudaError_t down(const struct world *it, const float *from, cudaStream_t stream) {
  return cudaMemcpyAsync(it->host, from, N * sizeof(float), cudaMemcpyDeviceToHost, stream);
}

static int computes(void) {
  struct world it = world_new();
  float sums[10];
  int count;
  up(&it, it.a);
  test_add_launch(it.b, it.a, 0.5f, N, it.stream);
  down(&it, it.b, it.stream);
  if (it.host[1] != 1.0f) /* nothing is done before somebody waits */
    return 2;
  if (cudaStreamSynchronize(it.stream) || it.host[999] != 999.5f)
    return 3;
  test_sum_launch(it.b, it.a, 10, 100, it.stream);
  cudaMemcpyAsync(sums, it.b, sizeof sums, cudaMemcpyDeviceToHost, it.stream); /* pageable: waits */
  for (int b = 0; b < 10; b++)
    if (sums[b] != 4950.0f + 10000.0f * (float)b)
      return 4;
  cudaMemsetAsync(it.b, 0, sizeof count, it.stream);
  test_count_launch((int *)it.b, N, it.stream);
  cudaMemcpyAsync(&count, it.b, sizeof count, cudaMemcpyDeviceToHost, it.stream);
  return count != 334 || cudaGetLastError();
}

static void it_computes_when_the_host_waits(void **state) {
  (void)state;
  assert_int_equal(in_children(computes), 0);
}

static int sets_a_fault(void) {
  struct world it = world_new();
  struct cuda_fault faults[2];
  cudaMemsetAsync(it.b, 0, sizeof faults, it.stream);
  test_fault_launch((struct cuda_fault *)(void *)it.b, 6, it.stream);
  cudaMemcpyAsync(faults, it.b, sizeof faults, cudaMemcpyDeviceToHost, it.stream);
  if (faults[0].node != 7 || faults[0].value + 100 != faults[0].place)
    return 2;
  return faults[1].node != 0 || faults[1].value != faults[0].value || faults[1].place != faults[0].place;
}

static void a_fault_names_its_node_when_it_is_whole(void **state) {
  (void)state;
  assert_int_equal(in_children(sets_a_fault), 0);
}

static int crosses(bool has_wait) {
  struct world it = world_new();
  up(&it, it.a);
  test_add_launch(it.b, it.a, 1.0f, N, it.stream);
  cudaEventRecord(it.event, it.stream);
  if (has_wait)
    cudaStreamWaitEvent(it.other, it.event, 0);
  down(&it, it.b, it.other);
  if (cudaStreamSynchronize(it.other))
    return 2;
  return it.host[5] != 6.0f;
}

static int crosses_with_a_wait(void) {
  return crosses(true);
}

static int crosses_without_a_wait(void) {
  return crosses(false);
}

static void a_missing_wait_between_streams_shows(void **state) {
  (void)state;
  assert_int_equal(in_children(crosses_with_a_wait), 0);
  assert_in_range(in_children(crosses_without_a_wait), SEEDS / 4, SEEDS);
}

static int reverses(int has_barrier) {
  struct world it = world_new();
  up(&it, it.a);
  test_reverse_launch(it.b, it.a, 256, has_barrier, it.stream);
  down(&it, it.b, it.stream);
  if (cudaStreamSynchronize(it.stream))
    return 2;
  for (int i = 0; i < 256; i++)
    if (it.host[i] != (float)(255 - i))
      return 1;
  return 0;
}

static int reverses_with_a_barrier(void) {
  return reverses(1);
}

static int reverses_without_a_barrier(void) {
  return reverses(0);
}

static void a_missing_barrier_shows(void **state) {
  (void)state;
  assert_int_equal(in_children(reverses_with_a_barrier), 0);
  assert_int_equal(in_children(reverses_without_a_barrier), SEEDS);
}

static int diverges(int by_shuffle) {
  struct world it = world_new();
  test_diverge_launch(it.a, by_shuffle, it.stream);
  if (cudaStreamSynchronize(it.stream) != cudaErrorLaunchFailure)
    return 2;
  return cudaMalloc((void **)&it.b, 4) == cudaErrorLaunchFailure ? 0 : 3; /* for good */
}

static int diverges_at_a_barrier(void) {
  return diverges(0);
}

static int diverges_at_a_shuffle(void) {
  return diverges(1);
}

static void divergence_fails_the_device(void **state) {
  (void)state;
  assert_int_equal(in_child(diverges_at_a_barrier, NULL, 0), 0);
  assert_int_equal(in_child(diverges_at_a_shuffle, NULL, 0), 0);
}

static int follows_a_device_pointer(void) {
  struct world it = world_new();
  up(&it, it.a);
  cudaStreamSynchronize(it.stream);
  return (int)*(volatile float *)it.a;
}

static int works_on_freed_memory(void) {
  struct world it = world_new();
  cudaFree(it.a);
  test_add_launch(it.b, it.a, 1.0f, N, it.stream);
  cudaStreamSynchronize(it.stream);
  return 0;
}

static int frees_what_is_in_use(void) {
  struct world it = world_new();
  up(&it, it.a);
  test_add_launch(it.b, it.a, 1.0f, N, it.stream);
  down(&it, it.b, it.stream);
  if (cudaFree(it.a)) /* waits, as CUDA does */
    return 1;
  return it.host[5] != 6.0f;
}

static void wild_accesses_crash(void **state) {
  (void)state;
  assert_int_equal(in_child(follows_a_device_pointer, NULL, 0), CRASHED);
  assert_int_equal(in_child(works_on_freed_memory, NULL, 0), CRASHED);
  assert_int_equal(in_child(frees_what_is_in_use, NULL, 0), 0);
}

/* b = a + 1 on one stream, host = b on another, which joins. */
static int captures(void) {
  struct world it = world_new();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  float x = 1.0f;
  if (cudaStreamBeginCapture(it.stream, cudaStreamCaptureModeThreadLocal))
    return 2;
  up(&it, it.a);
  test_add_launch(it.b, it.a, x, N, it.stream);
  cudaEventRecord(it.event, it.stream);
  cudaStreamWaitEvent(it.other, it.event, 0);
  down(&it, it.b, it.other);
  test_add_launch(it.a, it.b, x, N, it.stream); /* beside the copy */
  cudaEventRecord(it.joint, it.other);
  cudaStreamWaitEvent(it.stream, it.joint, 0);
  x = 7.0f;
  if (cudaStreamEndCapture(it.stream, &graph) || cudaGraphInstantiate(&exec, graph, 0) ||
      cudaGraphDestroy(graph))
    return 3;
  if (it.host[5] != 5.0f)
    return 4;
  for (int i = 0; i < 3; i++)
    if (cudaGraphLaunch(exec, it.stream))
      return 5;
  if (cudaStreamSynchronize(it.stream) || cudaGraphExecDestroy(exec))
    return 6;
  return it.host[5] != 8.0f;
}

static int captures_what_it_must_not(void) {
  struct world it = world_new();
  cudaGraph_t graph;
  float pageable[4];
  cudaStreamBeginCapture(it.stream, cudaStreamCaptureModeThreadLocal);
  if (cudaMalloc((void **)&it.b, 4) != cudaErrorStreamCaptureUnsupported)
    return 2;
  if (cudaStreamEndCapture(it.stream, &graph) != cudaErrorStreamCaptureInvalidated)
    return 3;
  cudaStreamBeginCapture(it.stream, cudaStreamCaptureModeThreadLocal);
  if (cudaStreamSynchronize(it.stream) != cudaErrorStreamCaptureUnsupported)
    return 4;
  cudaStreamEndCapture(it.stream, &graph);
  cudaStreamBeginCapture(it.stream, cudaStreamCaptureModeThreadLocal);
  if (cudaMemcpyAsync(pageable, it.a, sizeof pageable, cudaMemcpyDeviceToHost, it.stream) !=
      cudaErrorStreamCaptureUnsupported)
    return 5;
  cudaStreamEndCapture(it.stream, &graph);
  cudaStreamBeginCapture(it.stream, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(it.event, it.stream);
  cudaStreamWaitEvent(it.other, it.event, 0);
  test_add_launch(it.b, it.a, 1.0f, N, it.other);
  if (cudaStreamEndCapture(it.stream, &graph) != cudaErrorStreamCaptureUnjoined)
    return 6;
  test_add_launch(it.b, it.a, 1.0f, N, it.stream); /* all is over */
  return cudaStreamSynchronize(it.stream) != cudaSuccess;
}

static void a_captured_graph_is_replayed(void **state) {
  (void)state;
  assert_int_equal(in_children(captures), 0);
  assert_int_equal(in_child(captures_what_it_must_not, NULL, 0), 0);
}

static int fails_in_the_midst(void) {
  struct world it = world_new();
  up(&it, it.a);
  test_add_launch(it.b, it.a, 1.0f, N, it.stream);
  down(&it, it.b, it.stream);
  if (cudaStreamSynchronize(it.stream) != cudaErrorIllegalAddress ||
      cudaGetLastError() != cudaErrorIllegalAddress)
    return 2;
  return it.host[5] == 5.0f && cudaSetDevice(1) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0
                                                                                                         : 3;
}

/* Of four pages the second is pinned. */
static int pins_a_page(void) {
  struct world it = world_new();
  char *bytes = aligned_alloc(4096, 4 * 4096);
  if (!bytes || cudaHostRegister(bytes + 4096, 4096, cudaHostRegisterPortable))
    return 2;
  if (cudaMemcpyAsync(it.a, bytes, 4000, cudaMemcpyHostToDevice, it.stream) ||
      cudaMemcpyAsync(it.a, bytes + 5000, 3000, cudaMemcpyHostToDevice, it.stream) ||
      cudaStreamSynchronize(it.stream))
    return 3;
  if (cudaMemcpyAsync(it.a, bytes + 4000, 200, cudaMemcpyHostToDevice, it.stream) != cudaErrorInvalidValue ||
      cudaMemcpyAsync(bytes + 8000, it.a, 200, cudaMemcpyDeviceToHost, it.stream) != cudaErrorInvalidValue)
    return 4;
  return cudaHostRegister(bytes + 8192, 100, 0) ||
         cudaHostRegister(bytes + 8292, 100, 0) != cudaErrorHostMemoryAlreadyRegistered;
}

static void a_copy_of_memory_that_is_pinned_in_part_is_refused(void **state) {
  (void)state;
  assert_int_equal(in_child(pins_a_page, NULL, 0), 0);
}

static int fills_the_memory(void) {
  void *at;
  size_t free_bytes, total;
  if (cudaMalloc(&at, 600 << 10) || cudaMalloc(&at, 600 << 10) != cudaErrorMemoryAllocation)
    return 2;
  cudaGetLastError();
  return cudaMemGetInfo(&free_bytes, &total) || total != 1 << 20 || free_bytes != 424 << 10;
}

static int counts_devices(void) {
  int n;
  cudaError_t error = cudaGetDeviceCount(&n);
  return error ? n == 0 && error == cudaErrorNoDevice ? 0 : error == cudaErrorInsufficientDriver ? 1 : 2 : 3;
}

static void failures_are_injected(void **state) {
  struct setting fail[] = {{"WEIR_SIMULATED_FAIL", "2"}, {"WEIR_SIMULATED_DEVICES", "2"}};
  struct setting memory = {"WEIR_SIMULATED_MEMORY", "1048576"};
  struct setting none = {"WEIR_SIMULATED_DEVICES", "0"}, no_driver = {"WEIR_SIMULATED_DRIVER", "none"};
  (void)state;
  assert_int_equal(in_child(fails_in_the_midst, fail, 2), 0);
  assert_int_equal(in_child(fills_the_memory, &memory, 1), 0);
  assert_int_equal(in_child(counts_devices, &none, 1), 0);
  assert_int_equal(in_child(counts_devices, &no_driver, 1), 1);
  assert_int_equal(in_child(counts_devices, NULL, 0), 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_computes_when_the_host_waits),
      cmocka_unit_test(a_fault_names_its_node_when_it_is_whole),
      cmocka_unit_test(a_missing_wait_between_streams_shows),
      cmocka_unit_test(a_missing_barrier_shows),
      cmocka_unit_test(divergence_fails_the_device),
      cmocka_unit_test(wild_accesses_crash),
      cmocka_unit_test(a_captured_graph_is_replayed),
      cmocka_unit_test(a_copy_of_memory_that_is_pinned_in_part_is_refused),
      cmocka_unit_test(failures_are_injected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
  printf("1..1\nok 1 - device_test # SKIP the headers of CUDA are not here\n");
  return 0;
}

#endif
