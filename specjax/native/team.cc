// What team.h says: one team, whose threads take the parts of a job by a ticket.

#include "team.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

namespace {

inline void Rest() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  // The team of this process. It is never destroyed: its threads sleep when it ends.
  static Team& Only() {
    static Team* team = new Team;
    return *team;
  }

  void Run(int threads, int parts, const Call<int>& f) {
    if (parts < 2 || threads < 2 || !busy_.try_lock()) {  // one job at a time
      for (int i = 0; i < parts; ++i) f(i);
      return;
    }
    Grow(threads - 1);
    job_.store(&f, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(number << 32 | uint64_t(parts) << 16, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst)) {
      std::lock_guard<std::mutex> lock(sleep_);
      wake_.notify_all();
    }
    while (TakeOne()) {
    }
    for (int turns = 0; done_.load(std::memory_order_acquire) < parts; ++turns) {
      if (turns < 2048) Rest();
      else std::this_thread::yield();
    }
    busy_.unlock();
  }

 private:
  void Grow(int helpers) {
    try {
      for (; helpers_ < helpers; ++helpers_) std::thread([this] { Help(); }).detach();
    } catch (const std::system_error&) {  // fewer do as well
    }
  }

  // A ticket: the number of the job, how many parts it has, and how many are taken.
  static bool Open(uint64_t ticket) {
    return (ticket & 0xffff) < (ticket >> 16 & 0xffff);
  }

  // Computes a part of the job; returns false if none is left. The job of a ticket is
  // there until all of its parts are done, so it may be called once one is taken.
  bool TakeOne() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (Open(ticket)) {
      const Call<int>* job = job_.load(std::memory_order_relaxed);
      if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
        (*job)(ticket & 0xffff);
        done_.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  void Help() {
    using Clock = std::chrono::steady_clock;
    constexpr auto kBusy = std::chrono::microseconds(900);
    auto last = Clock::now();
    for (int turns = 1;; ++turns) {
      if (TakeOne()) {
        last = Clock::now();
        turns = 0;
      } else if (turns % 64) {
        Rest();
      } else if (Clock::now() - last < kBusy) {
        std::this_thread::yield();  // to whoever has work
      } else {
        std::unique_lock<std::mutex> lock(sleep_);
        asleep_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [this] { return Open(ticket_.load()); });
        asleep_.fetch_sub(1, std::memory_order_seq_cst);
        last = Clock::now();
      }
    }
  }

  std::mutex busy_, sleep_;
  std::condition_variable wake_;
  int helpers_ = 0;
  alignas(64) std::atomic<uint64_t> ticket_{0};
  std::atomic<const Call<int>*> job_{nullptr};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<int> asleep_{0};
};

}  // namespace

void RunTeam(int threads, int parts, Call<int> f) { Team::Only().Run(threads, parts, f); }
