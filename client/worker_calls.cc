#include "client/worker_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace furrow::client {
namespace {

absl::Status Destroyed() {
  return absl::UnknownError(
      "the database was closed while this ran: whether its last transaction has committed is not known");
}

}  // namespace

// What a caller and a worker share about one call.
struct WorkerCalls::Call {
  enum class State : uint8_t { kQueued, kRunning, kEnded, kAbandoned };

  bool waited = false;  // somebody waits for its end; const after construction
  Mutex mutex;
  CondVar changed;
  State state ABSL_GUARDED_BY(mutex) = State::kQueued;
  Coroutine coroutine ABSL_GUARDED_BY(mutex);  // while it is queued
  absl::Status status ABSL_GUARDED_BY(mutex) = Destroyed();
  std::exception_ptr exception ABSL_GUARDED_BY(mutex);
};

struct WorkerCalls::Shared {
  mutable Mutex mutex;
  CondVar changed;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  uint64_t calls ABSL_GUARDED_BY(mutex) = 0;  // tickets that live
};

struct WorkerCalls::Slot {
  EventLoop* loop;
  txn::Worker* worker;
  const Options* options;
  // Any thread: calls that were submitted and have not ended.
  std::atomic<uint32_t> load{0};
  // Owner thread; after the loop has stopped, who destroys.
  uint32_t running = 0;
  std::deque<std::shared_ptr<Ticket>> waiting;
};

// The worker's side of a call: dies when the call has ended, wherever that happens, and releases the caller.
class WorkerCalls::Ticket {
 public:
  Ticket(std::shared_ptr<Shared> shared, Slot* slot, std::shared_ptr<Call> the_call)
      : call(std::move(the_call)), shared_(std::move(shared)), slot_(slot) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    coroutine = nullptr;
    {
      MutexLock lock(&call->mutex);
      call->coroutine = nullptr;
      if (call->state == Call::State::kQueued) {
        call->status = absl::CancelledError("the database was closed before a worker came to this call");
      }
      if (call->state != Call::State::kAbandoned) call->state = Call::State::kEnded;
      call->changed.SignalAll();
    }
    slot_->load.fetch_sub(1, std::memory_order_relaxed);
    MutexLock lock(&shared_->mutex);
    if (--shared_->calls == 0) shared_->changed.SignalAll();
  }

  const std::shared_ptr<Call> call;
  Coroutine coroutine;  // once it runs

 private:
  const std::shared_ptr<Shared> shared_;
  Slot* const slot_;
};

WorkerCalls::WorkerCalls(std::vector<txn::Worker*> workers, Options options)
    : options_(std::move(options)), shared_(std::make_shared<Shared>()) {
  for (txn::Worker* worker : workers) {
    slots_.push_back(std::make_unique<Slot>(&worker->loop(), worker, &options_));
  }
}

WorkerCalls::~WorkerCalls() { DestroyQueued(); }

absl::Status WorkerCalls::Submit(size_t worker, std::shared_ptr<Call> call) {
  Slot* slot = slots_[worker].get();
  std::shared_ptr<Ticket> ticket;
  {
    MutexLock lock(&shared_->mutex);
    if (shared_->closed) return absl::UnavailableError("the database is closed");
    const uint32_t load = slot->load.load(std::memory_order_relaxed);
    if (load >= uint64_t{options_.max_in_flight} + kMaxWaiting) {
      return absl::ResourceExhaustedError(
          absl::StrCat("worker ", worker, " has ", load,
                       " calls before this one: it is overloaded, or code that runs on it ",
                       "blocks; nothing has happened"));
    }
    if (!call->waited && load >= options_.max_in_flight) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "worker ", worker, " runs ", load, " coroutines already: wait for some of them, or raise ",
          "DatabaseOptions::max_in_flight, which is ", options_.max_in_flight));
    }
    slot->load.fetch_add(1, std::memory_order_relaxed);
    ++shared_->calls;
    ticket = std::make_shared<Ticket>(shared_, slot, std::move(call));
    // Under the lock: whoever finds `closed` set knows that nothing is posted any more.
    slot->loop->Post([slot, ticket] { Take(slot, ticket); });
  }
  return absl::OkStatus();
}

void WorkerCalls::Take(Slot* slot, std::shared_ptr<Ticket> ticket) {
  if (slot->running >= slot->options->max_in_flight) {
    slot->waiting.push_back(std::move(ticket));
    return;
  }
  {
    MutexLock lock(&ticket->call->mutex);
    if (ticket->call->state != Call::State::kQueued) return;
    ticket->call->state = Call::State::kRunning;
    ticket->coroutine = std::move(ticket->call->coroutine);
  }
  ++slot->running;
  slot->loop->Spawn(RunOne(slot, std::move(ticket)));
}

Task<void> WorkerCalls::RunOne(Slot* slot, std::shared_ptr<Ticket> ticket) {
  absl::Status status;
  std::exception_ptr exception;
  try {
    status = co_await ticket->coroutine(*slot->worker);
  } catch (...) {
    exception = std::current_exception();
  }
  if (!ticket->call->waited) {
    if (exception != nullptr) slot->options->on_exception(exception);
    if (!status.ok()) FURROW_LOG(WARNING) << "a spawned coroutine ended with " << status;
  }
  {
    MutexLock lock(&ticket->call->mutex);
    ticket->call->status = std::move(status);
    ticket->call->exception = std::move(exception);
  }
  --slot->running;
  while (!slot->waiting.empty() && slot->running < slot->options->max_in_flight) {
    std::shared_ptr<Ticket> next = std::move(slot->waiting.front());
    slot->waiting.pop_front();
    Take(slot, std::move(next));
  }
}

absl::Status WorkerCalls::Start(size_t worker, Coroutine coroutine) {
  auto call = std::make_shared<Call>();
  {
    MutexLock lock(&call->mutex);
    call->coroutine = std::move(coroutine);
  }
  return Submit(worker, std::move(call));
}

absl::Status WorkerCalls::Wait(size_t worker, Coroutine coroutine, Nanos deadline) {
  auto call = std::make_shared<Call>();
  call->waited = true;
  {
    MutexLock lock(&call->mutex);
    call->coroutine = std::move(coroutine);
  }
  if (absl::Status submitted = Submit(worker, call); !submitted.ok()) return submitted;
  MutexLock lock(&call->mutex);
  while (call->state != Call::State::kEnded) {
    if (call->state == Call::State::kRunning) {
      call->changed.Wait(&call->mutex);
    } else if (!call->changed.WaitUntil(&call->mutex, deadline) && call->state == Call::State::kQueued) {
      call->state = Call::State::kAbandoned;
      call->coroutine = nullptr;
      return absl::DeadlineExceededError(
          absl::StrCat("worker ", worker,
                       " has not come to this call within its deadline: it is overloaded, or code that ",
                       "runs on it blocks; nothing has happened"));
    }
  }
  if (call->exception != nullptr) std::rethrow_exception(std::exchange(call->exception, nullptr));
  return std::move(call->status);
}

void WorkerCalls::Close() {
  MutexLock lock(&shared_->mutex);
  shared_->closed = true;
}

bool WorkerCalls::Drain(Nanos deadline) {
  MutexLock lock(&shared_->mutex);
  while (shared_->calls > 0) {
    if (!shared_->changed.WaitUntil(&shared_->mutex, deadline)) return shared_->calls == 0;
  }
  return true;
}

void WorkerCalls::DestroyQueued() {
  for (const auto& slot : slots_) slot->waiting.clear();
}

}  // namespace furrow::client
