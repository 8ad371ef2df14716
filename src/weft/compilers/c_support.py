"""C text that is linked into shared libraries: what kernels call that runtimes have elsewhere."""

from __future__ import annotations

from typing import Final

__all__ = ["OPENMP", "SUPPORT"]

# What has to compile and link for a compiler to have OpenMP.
OPENMP: Final = """\
extern int omp_get_thread_num(void), omp_get_num_threads(void);
#ifndef _OPENMP
#error there is no OpenMP
#endif
int weft_threads(int n) {
  int most = 0;
#pragma omp parallel num_threads(n) reduction(max : most)
  most = omp_get_thread_num() < omp_get_num_threads() ? omp_get_num_threads() : 0;
  return most;
}
"""

# Parallel loops: a run of iterations for each thread, the same results for any number of threads.
# Interrupts: see `weft.runtimes.cpu.interrupts`, whose code is LLVM's; a library has its own.
SUPPORT: Final = """\
#include <signal.h>
#include <string.h>

typedef __INT64_TYPE__ i64;
typedef void body_function(void *env, i64 begin, i64 end);

#ifdef _OPENMP
extern int omp_get_thread_num(void), omp_get_num_threads(void), omp_get_max_threads(void);
extern int omp_in_parallel(void);

void weft_parallel_for(body_function *body, void *env, i64 count) {
  const i64 most = omp_in_parallel() ? 1 : omp_get_max_threads();
  const int threads = (int)(count < most ? count : most);
  if (threads <= 1) {
    if (count > 0) body(env, 0, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const i64 all = omp_get_num_threads(), own = omp_get_thread_num();
    const i64 each = count / all, rest = count % all;
    const i64 begin = own * each + (own < rest ? own : rest);
    const i64 end = begin + each + (own < rest);
    if (begin < end) body(env, begin, end);
  }
}
#else
void weft_parallel_for(body_function *body, void *env, i64 count) {
  if (count > 0) body(env, 0, count);
}
#endif

#ifndef _WIN32
i64 weft_stop;  // how many interrupts there were
static i64 watching, changing;
static struct sigaction before;

static void interrupted(int number, siginfo_t *info, void *context) {
  __atomic_fetch_add(&weft_stop, 1, __ATOMIC_RELAXED);
  if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
}

static void lock(void) { while (__atomic_exchange_n(&changing, 1, __ATOMIC_ACQUIRE)) {} }
static void unlock(void) { __atomic_store_n(&changing, 0, __ATOMIC_RELEASE); }

// Whether a launch is to end: an interrupt came since it began. The first that asks puts a handler
// before that of the program, which is called behind it.
i64 weft_turns(i64 *launch) {
  if (!__atomic_exchange_n(&launch[1], 1, __ATOMIC_RELAXED)) {
    lock();
    if (watching++ == 0) {
      struct sigaction now, ours;
      if (sigaction(SIGINT, 0, &now) == 0 && now.sa_handler != SIG_DFL
          && now.sa_handler != SIG_IGN && now.sa_sigaction != interrupted) {
        before = ours = now;
        ours.sa_sigaction = interrupted;
        ours.sa_flags |= SA_SIGINFO;
        sigaction(SIGINT, &ours, 0);
      }
    }
    unlock();
  }
  return launch[0] != __atomic_load_n(&weft_stop, __ATOMIC_RELAXED);
}

void weft_turned(i64 *launch) {
  struct sigaction now;
  lock();
  if (--watching <= 0) {
    watching = 0;
    if (sigaction(SIGINT, 0, &now) == 0 && now.sa_sigaction == interrupted) {
      sigaction(SIGINT, &before, 0);
    }
  }
  unlock();
}
#else
i64 weft_stop;
i64 weft_turns(i64 *launch) { return 0; }
void weft_turned(i64 *launch) {}
#endif
"""
