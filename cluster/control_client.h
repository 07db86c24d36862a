// ControlClient: sends control messages to members by their address. Thread-safe. Each call has a deadline
// and bears the proof that the caller holds the cluster's secret. Calls under way at once are few (members
// times one change at a time, and one per worker coroutine that allocates or looks up), so they have no
// maximum of their own.
#ifndef FURROW_CLUSTER_CONTROL_CLIENT_H_
#define FURROW_CLUSTER_CONTROL_CLIENT_H_

#include <functional>
#include <latch>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "cluster/control_messages.h"

namespace furrow::cluster {

// True for an error of the client's own: the request may have been carried out, or not. False for one with
// which the peer has answered.
bool IsNoAnswer(const absl::Status& status);

class ControlClient {
 public:
  using Done = std::function<void(absl::Status)>;
  explicit ControlClient(std::string secret);
  ~ControlClient();  // as Shutdown()

  // Sends `request`; `done` is called once, on the client's own thread, which it must not block, when
  // `*reply` (which outlives the call) is filled or there is none. Errors are the handler's own, or
  // Unavailable (nobody there) or DeadlineExceeded, with the address. With `wait` a peer that is not there
  // yet is waited for until the deadline.
#define FURROW_DECLARE(name)                                                                       \
  void Start(const std::string& address, const pb::name##Request& request, pb::name##Reply* reply, \
             Nanos timeout_ns, Done done, bool wait = false);
  FURROW_CONTROL_METHODS(FURROW_DECLARE)
#undef FURROW_DECLARE

  // The same, waiting for the end. Not on a worker.
  template <class Request, class Reply>
  absl::Status Call(const std::string& address, const Request& request, Reply* reply, Nanos timeout_ns,
                    bool wait = false) {
    absl::Status result;
    std::latch ended(1);
    Start(
        address, request, reply, timeout_ns,
        [&](absl::Status status) {
          result = std::move(status);
          ended.count_down();
        },
        wait);
    ended.wait();
    return result;
  }

  // Cancels all calls and waits for their ends. Later calls fail at once with Cancelled.
  void Shutdown();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CONTROL_CLIENT_H_
