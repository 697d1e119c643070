/* The reason to stop early. */
#include "client/cluster/stop.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "common/base/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stopped = PTHREAD_COND_INITIALIZER;
static enum stop_cause cause_;
static struct rpc_reader *reader_;

static void *wait_for_signals(void *arg);

/* A signal that is blocked comes to who waits for it even where it is ignored. */
static bool is_ignored(int signal_number) {
  struct sigaction action;
  return sigaction(signal_number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void stop_signals(sigset_t *signals) {
  sigemptyset(signals);
  sigaddset(signals, SIGINT);
  sigaddset(signals, SIGTERM);
  if (!is_ignored(SIGHUP))
    sigaddset(signals, SIGHUP);
}

void stop_on_signals(void) {
  pthread_t thread;
  sigset_t signals;
  stop_signals(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  CHECK(pthread_create(&thread, NULL, wait_for_signals, NULL) == 0);
  pthread_detach(thread);
}

static void *wait_for_signals(void *arg) {
  sigset_t signals;
  int signal_number;
  stop_signals(&signals);
  for (;;)
    if (sigwait(&signals, &signal_number) == 0)
      stop_request(STOP_SIGNAL);
  return arg;
}

void stop_request(enum stop_cause cause) {
  pthread_mutex_lock(&lock);
  if (cause_ == STOP_NONE) {
    cause_ = cause;
    if (reader_)
      rpc_reader_cancel(reader_);
    pthread_cond_broadcast(&stopped);
  }
  pthread_mutex_unlock(&lock);
}

enum stop_cause stop_cause(void) {
  enum stop_cause cause;
  pthread_mutex_lock(&lock);
  cause = cause_;
  pthread_mutex_unlock(&lock);
  return cause;
}

void stop_forget_signal(void) {
  pthread_mutex_lock(&lock);
  if (cause_ == STOP_SIGNAL)
    cause_ = STOP_NONE;
  pthread_mutex_unlock(&lock);
}

bool stop_wait(int ms) {
  const struct timespec until = clock_after_ms(ms);
  bool is_stopped;
  int rc = 0;
  pthread_mutex_lock(&lock);
  while (cause_ == STOP_NONE && rc == 0)
    rc = pthread_cond_clockwait(&stopped, &lock, CLOCK_MONOTONIC, &until);
  is_stopped = cause_ != STOP_NONE;
  pthread_mutex_unlock(&lock);
  return is_stopped;
}

void stop_cancels(struct rpc_reader *reader) {
  pthread_mutex_lock(&lock);
  reader_ = reader;
  if (reader && cause_ != STOP_NONE)
    rpc_reader_cancel(reader);
  pthread_mutex_unlock(&lock);
}
