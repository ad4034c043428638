#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace mvprune {
namespace {

using Clock = std::chrono::steady_clock;

// How long an idle thread looks for work before it sleeps: about the time between two products of a model.
constexpr auto kSpin = std::chrono::microseconds(100);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Work {
  void (*task)(void*, int64_t);
  void* context;
  int64_t count;
  int wanted;  // threads that may still join; under the pool's mutex, as is `inside`
  int inside = 0;
  std::atomic<int64_t> next{0};

  void run() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(context, i);
  }
};

class Pool {
 public:
  void run(Work& work) {
    {
      const std::lock_guard lock(mutex_);
      grow(work.wanted);
      queue_.push_back(&work);
      waiting_.fetch_add(1, std::memory_order_release);
    }
    work_came_.notify_all();
    work.run();
    std::unique_lock lock(mutex_);
    leave_queue(work);
    while (work.inside > 0) thread_left_.wait(lock);
  }

 private:
  void grow(int threads) {
    for (; threads_ < threads; ++threads_) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (const std::system_error&) {
        return;  // the caller's own thread does the work
      }
    }
  }

  void leave_queue(const Work& work) {
    for (auto place = queue_.begin(); place != queue_.end(); ++place) {
      if (*place == &work) {
        queue_.erase(place);
        waiting_.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.empty()) {
        lock.unlock();
        spin();
        lock.lock();
        work_came_.wait(lock, [this] { return !queue_.empty(); });
      }
      Work& work = *queue_.front();
      ++work.inside;
      if (--work.wanted == 0) leave_queue(work);
      lock.unlock();
      work.run();
      lock.lock();
      leave_queue(work);
      if (--work.inside == 0) thread_left_.notify_all();
    }
  }

  void spin() const {
    const auto end = Clock::now() + kSpin;
    while (waiting_.load(std::memory_order_acquire) == 0 && Clock::now() < end) pause();
  }

  std::mutex mutex_;
  std::condition_variable work_came_, thread_left_;
  std::deque<Work*> queue_;
  std::atomic<int> waiting_{0};
  int threads_ = 0;
};

std::atomic<Pool*> pool{nullptr};

// Never deleted: its threads outlive every destructor. A forked child has none of them, and gets a pool of its own.
Pool& the_pool() {
  static const int registered = [] {
    pool = new Pool;
    return pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
  }();
  (void)registered;
  return *pool;
}

}  // namespace

void parallel(int64_t count, int threads, void (*task)(void*, int64_t), void* context) {
  Work work{task, context, count, static_cast<int>(count < threads ? count : threads) - 1};
  if (work.wanted <= 0) {
    work.run();
  } else {
    the_pool().run(work);
  }
}

}  // namespace mvprune
