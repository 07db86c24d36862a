#include "cluster/remote_control_plane.h"

#include <algorithm>
#include <coroutine>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/event_loop.h"
#include "base/status_macros.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/wire.h"

namespace furrow::cluster {
namespace {

constexpr Nanos kShortestCallNs = 1 * kMillisecond;

// One call under way. Shared by the awaiting frame and the call, since the frame may be destroyed first.
template <class Request, class Reply>
struct PendingCall {
  Request request;
  Reply reply;
  absl::Status status;
  std::coroutine_handle<> waiter;  // owner's loop only; null: nobody waits any more
};

template <class Request, class Reply>
class CallAwaiter {
 public:
  CallAwaiter(ControlClient& client, std::string address, Request request, Nanos timeout_ns)
      : client_(client),
        address_(std::move(address)),
        timeout_ns_(timeout_ns),
        call_(std::make_shared<PendingCall<Request, Reply>>()) {
    call_->request = std::move(request);
  }
  CallAwaiter(const CallAwaiter&) = delete;
  ~CallAwaiter() { call_->waiter = {}; }

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) {
    EventLoop* loop = EventLoop::Current();
    FURROW_CHECK(loop != nullptr);
    call_->waiter = h;
    client_.Start(address_, call_->request, &call_->reply, timeout_ns_,
                  [call = call_, loop](absl::Status status) {
                    call->status = std::move(status);
                    loop->Post([call] {
                      if (call->waiter) std::exchange(call->waiter, {}).resume();
                    });
                  });
  }
  absl::StatusOr<Reply> await_resume() {
    // The client was shut down: nobody answers this member any more.
    if (absl::IsCancelled(call_->status)) {
      return absl::UnavailableError("the cluster has ended for this member, or it is stopping");
    }
    if (!call_->status.ok()) return call_->status;
    return std::move(call_->reply);
  }

 private:
  ControlClient& client_;
  const std::string address_;
  const Nanos timeout_ns_;
  std::shared_ptr<PendingCall<Request, Reply>> call_;
};

}  // namespace

void RemoteControlPlane::SetManager(std::string address) {
  MutexLock lock(&mutex_);
  manager_ = std::move(address);
}

std::string RemoteControlPlane::manager() const {
  MutexLock lock(&mutex_);
  return manager_;
}

Task<absl::StatusOr<const RegionMapping*>> RemoteControlPlane::AllocateRegion(AllocateRegionRequest request) {
  pb::AllocateRegionRequest message;
  message.set_near(request.near.value());
  message.set_newest_known(request.newest_known.value());
  message.set_preferred_primary(request.preferred_primary.value());
  message.set_name(request.name);
  message.set_ahead(request.ahead);
  const bool repeatable = request.near != RegionId() || request.name != 0;
  EventLoop* const loop = EventLoop::Current();
  FURROW_CHECK(loop != nullptr);
  Nanos deadline = loop->Now() + options_.allocate_timeout_ns;
  if (request.deadline != 0) deadline = std::min(deadline, request.deadline);
  absl::StatusOr<pb::AllocateRegionReply> reply = absl::UnknownError("not asked");
  while (true) {
    const Nanos left = std::max(deadline - loop->Now(), kShortestCallNs);
    CallAwaiter<pb::AllocateRegionRequest, pb::AllocateRegionReply> call(
        client_, manager(), message, repeatable ? std::min(left, options_.attempt_timeout_ns) : left);
    reply = co_await call;
    if (reply.ok() || !repeatable || !IsNoAnswer(reply.status())) break;
    if (loop->Now() + options_.retry_ns >= deadline) break;
    co_await loop->SleepFor(options_.retry_ns);
  }
  FURROW_CO_RETURN_IF_ERROR(reply.status());
  absl::StatusOr<RegionMapping> mapping = FromProto(reply->region());
  FURROW_CO_RETURN_IF_ERROR(mapping.status());
  co_return directory_.Put(*std::move(mapping));
}

Task<absl::StatusOr<const RegionMapping*>> RemoteControlPlane::LookupRegion(RegionId id) {
  pb::LookupRegionRequest message;
  message.set_id(id.value());
  CallAwaiter<pb::LookupRegionRequest, pb::LookupRegionReply> call(client_, manager(), std::move(message),
                                                                   options_.lookup_timeout_ns);
  absl::StatusOr<pb::LookupRegionReply> reply = co_await call;
  FURROW_CO_RETURN_IF_ERROR(reply.status());
  for (const pb::Region& region : reply->regions()) {
    absl::StatusOr<RegionMapping> mapping = FromProto(region);
    FURROW_CO_RETURN_IF_ERROR(mapping.status());
    directory_.Put(*std::move(mapping));
  }
  const RegionMapping* found = directory_.Find(id);
  if (found == nullptr) co_return absl::NotFoundError(absl::StrCat("there is no region ", id.value()));
  co_return found;
}

}  // namespace furrow::cluster
