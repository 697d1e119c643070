/* The simulated NCCL: members that are threads, and members that are processes; a peer that dies. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#ifdef WEIR_SIMULATION
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>

/* More than a pipe holds. */
enum { MEMBERS = 3, ELEMS = 100000 };

struct member {
  ncclUniqueId id;
  int rank, device;
  int failed_at; /* line; 0: well */
};

#define EXPECT(condition)                                                                                    \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      member->failed_at = __LINE__;                                                                          \
      return;                                                                                                \
    }                                                                                                        \
  } while (0)

/* All reduce, then each sends to the next and receives from the one before, then gather. */
static void exchange(struct member *member) {
  int next = (member->rank + 1) % MEMBERS, before = (member->rank + MEMBERS - 1) % MEMBERS;
  float *in, *out, *host;
  ncclComm_t comm;
  cudaStream_t stream;
  EXPECT(!cudaSetDevice(member->device) && !cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT(!cudaMalloc((void **)&in, ELEMS * sizeof *in) &&
         !cudaMalloc((void **)&out, MEMBERS * ELEMS * sizeof *in));
  EXPECT(!cudaMallocHost((void **)&host, MEMBERS * ELEMS * sizeof *host));
  EXPECT(!ncclCommInitRank(&comm, MEMBERS, member->id, member->rank));
  for (int i = 0; i < ELEMS; i++)
    host[i] = (float)(i % 100 + member->rank);
  EXPECT(!cudaMemcpyAsync(in, host, ELEMS * sizeof *in, cudaMemcpyHostToDevice, stream));
  EXPECT(!ncclAllReduce(in, out, ELEMS, ncclFloat32, ncclSum, comm, stream));
  EXPECT(!ncclGroupStart());
  EXPECT(!ncclSend(out, ELEMS, ncclFloat32, next, comm, stream));
  EXPECT(!ncclRecv(in, ELEMS, ncclFloat32, before, comm, stream));
  EXPECT(!ncclGroupEnd());
  EXPECT(!ncclAllGather(in, out, ELEMS, ncclFloat32, comm, stream));
  EXPECT(!cudaMemcpyAsync(host, out, MEMBERS * ELEMS * sizeof *out, cudaMemcpyDeviceToHost, stream));
  EXPECT(!cudaStreamSynchronize(stream) && !ncclCommDestroy(comm));
  for (int i = 0; i < MEMBERS * ELEMS; i++)
    EXPECT(host[i] == (float)(i % ELEMS % 100 * MEMBERS + 3));
}

static void *exchange_in_thread(void *member) {
  exchange(member);
  return NULL;
}

/* In a child, as threads cannot be forked after it. */
static int run_threads(void) {
  struct member members[MEMBERS] = {{.rank = 0}};
  pthread_t threads[MEMBERS];
  int failed_at = ncclGetUniqueId(&members[0].id) ? __LINE__ : 0;
  setenv("WEIR_SIMULATED_DEVICES", "3", 1);
  for (int m = 0; m < MEMBERS; m++) {
    members[m] = (struct member){.id = members[0].id, .rank = m, .device = m};
    if (pthread_create(&threads[m], NULL, exchange_in_thread, &members[m]))
      return __LINE__;
  }
  for (int m = 0; m < MEMBERS; m++) {
    pthread_join(threads[m], NULL);
    failed_at = members[m].failed_at ? members[m].failed_at : failed_at;
  }
  return failed_at;
}

static int status_of(pid_t child) {
  int status;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void threads_with_a_device_each_exchange(void **state) {
  pid_t child = fork();
  (void)state;
  if (child == 0)
    _exit(run_threads() ? 1 : 0);
  assert_int_equal(status_of(child), 0);
}

static void processes_exchange(void **state) {
  struct member member = {.rank = 0};
  pid_t children[MEMBERS];
  (void)state;
  assert_int_equal(ncclGetUniqueId(&member.id), ncclSuccess);
  for (int m = 0; m < MEMBERS; m++) {
    children[m] = fork();
    if (children[m] == 0) {
      member.rank = m;
      exchange(&member);
      _exit(member.failed_at ? 1 : 0);
    }
  }
  for (int m = 0; m < MEMBERS; m++)
    assert_int_equal(status_of(children[m]), 0);
}

/* A communicator whose peer is gone is not done, and ends when it is aborted. */
static void wait_in_vain(struct member *member) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t result = ncclInProgress;
  ncclComm_t comm;
  cudaStream_t stream;
  cudaEvent_t event;
  float *data;
  config.blocking = 0;
  EXPECT(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) && !cudaMalloc((void **)&data, 4));
  EXPECT(!cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  EXPECT(ncclCommInitRankConfig(&comm, 2, member->id, member->rank, &config) == ncclInProgress);
  while (result == ncclInProgress)
    EXPECT(!ncclCommGetAsyncError(comm, &result));
  if (member->rank == 1)
    raise(SIGKILL);
  result = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comm, stream);
  EXPECT(result == ncclSuccess || result == ncclInProgress);
  EXPECT(!cudaEventRecord(event, stream));
  for (int i = 0; i < 50; i++)
    EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  EXPECT(!ncclCommAbort(comm) && !cudaStreamSynchronize(stream));
}

static void a_dead_peer_is_waited_for_until_an_abort(void **state) {
  struct member member = {.rank = 0};
  pid_t children[2];
  (void)state;
  assert_int_equal(ncclGetUniqueId(&member.id), ncclSuccess);
  for (int m = 0; m < 2; m++) {
    children[m] = fork();
    if (children[m] == 0) {
      member.rank = m;
      wait_in_vain(&member);
      _exit(member.failed_at ? 1 : 0);
    }
  }
  assert_int_equal(status_of(children[0]), 0);
  assert_int_equal(status_of(children[1]), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_with_a_device_each_exchange),
      cmocka_unit_test(processes_exchange),
      cmocka_unit_test(a_dead_peer_is_waited_for_until_an_abort),
  };
  alarm(600);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
  printf("1..1\nok 1 - nccl_test # SKIP the headers of CUDA are not here\n");
  return 0;
}

#endif
