// SimWorld: the deterministic simulator: virtual time, one thread, one seed.
//
// Everything that happens is a step at one moment of true time: an event (a piece of a copy, a packet, a
// fault) or one RunOnce() of one event loop. The world picks the next step from the earliest moment; among
// steps of the same moment it draws. So all that happened is totally ordered by true time, which is what
// histories are judged by.
//
// How time passes:
//  - The world advances to the next event, or to the next moment at which a loop is runnable, when nothing is
//  left to
//    do now.
//  - A step of a loop occupies that loop's core for a drawn time: it does not run again before. A loop that
//  always has
//    work (a coroutine that yields in a circle) therefore moves time on.
//  - Every read of a clock, and every StorePoint(), during a step moves true time itself on by a few
//  nanoseconds, for
//    everybody; nobody else runs meanwhile. So code that waits for a clock in a plain loop ends, every clock
//    stays a function of true time, and no two readings of the true clock during steps are equal.
//
// When a loop is runnable: it has ready coroutines, a timer is due on its node's clock, its Parker was woken
// (Post, a waking completion), something quiet arrived while it still spun (a drawn time after its last
// work), or its last RunOnce() did something. A parked loop is not run for quiet notifications.
//
// While a world lives, EntropySeed() on its thread draws from the seed. Worlds of one thread nest.
//
// Not thread-safe: one thread. Destroy whatever the processes own (loops, fabrics) before the world.
#ifndef FURROW_RDMA_SIM_SIM_WORLD_H_
#define FURROW_RDMA_SIM_SIM_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/store_point.h"
#include "rdma/sim/sim_clock.h"

namespace furrow::rdma {

struct SimWorldOptions {
  Nanos start = kSecond;  // true time at the beginning
  SimClockOptions clocks;
  Nanos step_min = 100;  // what a RunOnce() costs its loop
  Nanos step_max = 2 * kMicrosecond;
  uint32_t preempt_one_in =
      300;  // now and then a step takes up to preempt_max: the core was taken away; 0: never
  Nanos preempt_max = 50 * kMicrosecond;
  Nanos spin_max = 5 * kMicrosecond;  // an idle loop spins for a drawn time up to this before it is parked
  Nanos clock_read_ns = 20;
  Nanos store_ns = 1;
  uint64_t max_steps = 50'000'000;  // of one RunUntil(): more is taken for a livelock
};

class SimWorld;
class SimParker;

// One life of a node's process: a host's clock, and the event loops of its workers. Owned by the world.
class SimProcess {
 public:
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;
  ~SimProcess();

  enum class State : uint8_t { kRunning, kPaused, kDead };
  NodeId node() const { return node_; }
  uint32_t serial() const { return serial_; }  // unique in the world, from 0
  State state() const { return state_; }
  bool dead() const { return state_ == State::kDead; }
  SimWorld& world() const { return world_; }
  // The clock that the process reads.
  const Clock& clock() const;

  // A parker for one loop of this process; lives as long as the world. Pass it to the EventLoop, then
  // Attach() that.
  SimParker& NewParker();
  // The world runs `loop`, which was made with `parker`, until Detach() or the process' death.
  void Attach(EventLoop& loop, Parker& parker);
  void Detach(EventLoop& loop);

 private:
  friend class SimWorld;
  friend class SimParker;
  struct NodeClock;
  SimProcess(SimWorld& world, NodeId node, uint32_t serial, NodeClock& clock);

  SimWorld& world_;
  const NodeId node_;
  const uint32_t serial_;
  NodeClock& clock_;
  State state_ = State::kRunning;
  std::vector<std::unique_ptr<SimParker>> parkers_;
};

// Parks nothing; its Wake() makes the world run the loop. Also holds what the world knows of that loop.
class SimParker final : public Parker {
 public:
  explicit SimParker(SimProcess& process) : process_(process) {}
  void PrepareToPark() override {}
  void CancelPark() override {}
  void Park(Nanos deadline) override {}
  void Wake() override;
  // Something arrived that does not wake: the loop sees it now if it still spins, otherwise when it next
  // runs.
  void ArrivedQuietly();
  SimProcess& process() const { return process_; }

 private:
  friend class SimWorld;
  friend class SimProcess;
  SimProcess& process_;
  EventLoop* loop_ = nullptr;
  uint32_t index_ = 0;  // among all loops of the world
  bool poked_ = true;   // to be run as soon as its core is free
  Nanos busy_until_ = 0;
  Nanos spins_until_ = 0;
  Nanos next_run_ = 0;  // true time; kNever: nothing to do
};

// Told of the fates of processes; the simulated network is one.
class SimProcessObserver {
 public:
  virtual ~SimProcessObserver() = default;
  virtual void OnKilled(SimProcess& process) = 0;
  virtual void OnPaused(SimProcess& process) = 0;
  virtual void OnResumed(SimProcess& process) = 0;
  // Code of `running` (null: none) is between two stores.
  virtual void OnStorePointOf(SimProcess* running) = 0;
};

class SimWorld final : private StoreObserver {
 public:
  explicit SimWorld(uint64_t seed, SimWorldOptions options = {});
  ~SimWorld() override;
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  uint64_t seed() const { return seed_; }
  Nanos now() const { return now_; }
  // True time, for histories. A read during a step moves time on, so that no two are equal.
  const Clock& true_clock() const;
  // Of everything that happened: time, kind, process, bytes. Equal seeds and programs have equal digests.
  uint64_t digest() const { return digest_; }
  uint64_t steps() const { return steps_; }
  // An independent generator that depends on the seed and the number of earlier calls.
  Random NewRandom() { return random_.Fork(); }
  // "seed 17 at virtual time 1.002345678 s".
  std::string Where() const;

  // A process of `node`. After a Kill() another one may be started: it reads the same clock.
  SimProcess& StartProcess(NodeId node);
  // The process does nothing more, and nothing that it had begun to copy is finished but by chance.
  void Kill(SimProcess& process);
  // SIGSTOP and SIGCONT: its code does not run; its memory can be read and written.
  void Pause(SimProcess& process);
  void Resume(SimProcess& process);
  void AddObserver(SimProcessObserver* observer) { observers_.push_back(observer); }
  void RemoveObserver(SimProcessObserver* observer);

  // Runs `fn` outside every loop at true time `when` (now, if that has passed). `kind` and `process` go into
  // the digest. An event of kind kFirstInternalKind or above touches loops through their parkers only.
  static constexpr uint8_t kFirstInternalKind = 0x80;
  void At(Nanos when, std::function<void()> fn, uint8_t kind = 0, uint32_t process = UINT32_MAX);
  void After(Nanos ns, std::function<void()> fn, uint8_t kind = 0, uint32_t process = UINT32_MAX) {
    At(now_ + ns, std::move(fn), kind, process);
  }
  // Code of a process takes its core for this long: true time moves on, if it is called within a step.
  void Elapse(Nanos ns) { OnClockRead(ns); }
  // Adds bytes to the digest.
  void Record(uint64_t value) { digest_ = (digest_ ^ value) * 0x9fb21c651e98df25 + (digest_ >> 29); }

  // Steps until `done`, asked after every step, is true. DeadlineExceeded: true time `limit` came first.
  // FailedPrecondition: nothing is left that could ever happen. ResourceExhausted: livelock (max_steps). Each
  // message names seed and time.
  absl::Status RunUntil(const std::function<bool()>& done, Nanos limit = kNever);
  // Steps until `ns` have passed. ResourceExhausted: livelock.
  absl::Status RunFor(Nanos ns);

 private:
  friend class SimProcess;
  friend class SimParker;
  struct TrueClock;
  struct EventKey {
    Nanos when;
    uint64_t tie;
    uint32_t slot;
  };
  struct EventBody {
    std::function<void()> fn;
    uint8_t kind = 0;
    uint32_t process = 0;
  };

  void OnStorePoint() override;
  void OnClockRead(Nanos ns) {
    if (running_ != nullptr) now_ += ns;
  }
  void StartSegment(SimProcess::NodeClock& clock);
  // When `parker`'s loop runs next, by what it has to do.
  void UpdateNextRun(SimParker& parker);
  void UpdateAll();
  Nanos EarliestLoop();
  void RunEvent();
  void RunLoop();
  // One step at a time up to `limit`; false when there is none.
  bool Step(Nanos limit);

  const uint64_t seed_;
  const SimWorldOptions options_;
  Random random_;  // only forked
  Random schedule_random_;
  Random entropy_;
  Random* const outer_entropy_;
  Nanos now_;
  uint64_t digest_;
  uint64_t steps_ = 0;
  std::unique_ptr<TrueClock> true_clock_;
  std::vector<std::unique_ptr<SimProcess::NodeClock>> clocks_;
  std::vector<std::unique_ptr<SimProcess>> processes_;
  std::vector<SimParker*> loops_;  // attached ones
  uint32_t next_loop_index_ = 0;
  Nanos earliest_loop_ = kNever;
  bool earliest_known_ = false;
  SimProcess* running_ = nullptr;
  std::vector<SimProcessObserver*> observers_;

  std::vector<EventKey> heap_;  // earliest first
  std::vector<EventBody> events_;
  std::vector<uint32_t> free_events_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SIM_SIM_WORLD_H_
