// POSIX threads, not those of the C++ library: the kernel then holds no copy of it, and asks for no new glibc.
#include "pool.h"

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "glibc.h"

namespace mvprune {
namespace {

// How long an idle thread looks for work before it sleeps: about the time between two products of a model.
constexpr int64_t kSpinNanoseconds = 100'000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Work {
  void (*task)(void*, int64_t);
  void* context;
  int64_t count;
  int wanted;  // threads that may still join; under the pool's mutex, as are `inside` and `behind`
  int inside = 0;
  Work* behind = nullptr;  // the next in the queue
  std::atomic<int64_t> next{0};

  void run() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(context, i);
  }
};

class Pool {
 public:
  // Null when there is no memory.
  static Pool* make() {
    void* memory = std::malloc(sizeof(Pool));
    return memory ? new (memory) Pool : nullptr;
  }

  void run(Work& work) {
    lock();
    grow(work.wanted);
    join_queue(work);
    unlock();
    pthread_cond_broadcast(&work_came_);
    work.run();
    lock();
    leave_queue(work);
    while (work.inside > 0) pthread_cond_wait(&thread_left_, &mutex_);
    unlock();
  }

 private:
  void lock() { pthread_mutex_lock(&mutex_); }

  void unlock() { pthread_mutex_unlock(&mutex_); }

  void grow(int threads) {
    for (; threads_ < threads; ++threads_) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, [](void* pool) -> void* { static_cast<Pool*>(pool)->serve(); }, this)) {
        return;  // the caller's own thread does the work
      }
      pthread_detach(thread);
    }
  }

  void join_queue(Work& work) {
    Work** end = &queue_;
    while (*end) end = &(*end)->behind;
    *end = &work;
    waiting_.fetch_add(1, std::memory_order_release);
  }

  void leave_queue(const Work& work) {
    for (Work** place = &queue_; *place; place = &(*place)->behind) {
      if (*place == &work) {
        *place = work.behind;
        waiting_.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
    }
  }

  [[noreturn]] void serve() {
    lock();
    for (;;) {
      if (!queue_) {
        unlock();
        spin();
        lock();
        while (!queue_) pthread_cond_wait(&work_came_, &mutex_);
      }
      Work& work = *queue_;
      ++work.inside;
      if (--work.wanted == 0) leave_queue(work);
      unlock();
      work.run();
      lock();
      leave_queue(work);
      if (--work.inside == 0) pthread_cond_broadcast(&thread_left_);
    }
  }

  void spin() const {
    const int64_t end = nanoseconds() + kSpinNanoseconds;
    while (waiting_.load(std::memory_order_acquire) == 0 && nanoseconds() < end) pause();
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work_came_ = PTHREAD_COND_INITIALIZER, thread_left_ = PTHREAD_COND_INITIALIZER;
  Work* queue_ = nullptr;
  std::atomic<int> waiting_{0};
  int threads_ = 0;
};

std::atomic<Pool*> pool{nullptr};
std::atomic<OpenMpParallel> openmp{nullptr};
std::atomic<bool> openmp_is_busy{false};
pthread_once_t once = PTHREAD_ONCE_INIT;

void renew() { pool = Pool::make(); }

// Never deleted: its threads outlive every destructor. A forked child has none of them, and gets a pool of its own. Nor has
// it the threads of OpenMP, which would wait for them for ever.
Pool* the_pool() {
  pthread_once(&once, [] {
    renew();
    pthread_atfork(nullptr, nullptr, [] {
      renew();
      openmp = nullptr;
    });
  });
  return pool;
}

}  // namespace

void use_openmp(OpenMpParallel parallel) {
  the_pool();  // a child that is forked before the first call must not use OpenMP either
  openmp = parallel;
}

void parallel(int64_t count, int threads, void (*task)(void*, int64_t), void* context) {
  Work work{task, context, count, static_cast<int>(count < threads ? count : threads) - 1};
  if (work.wanted <= 0) return work.run();
  Pool* const own = the_pool();
  const OpenMpParallel shared = openmp;
  if (shared && !openmp_is_busy.exchange(true)) {
    // As many threads as others ask for: a team of another size would be started anew.
    shared([](void* work) { static_cast<Work*>(work)->run(); }, &work, static_cast<unsigned>(threads), 0);
    openmp_is_busy = false;
  } else if (own) {
    own->run(work);
  } else {
    work.run();
  }
}

}  // namespace mvprune
