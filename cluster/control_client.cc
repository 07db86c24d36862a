#include "cluster/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "cluster/proto/cluster.grpc.pb.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/secret.h"

namespace furrow::cluster {
namespace {

absl::Status FromGrpc(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());  // the numbers are the same
  if (code == absl::StatusCode::kUnavailable && status.error_details().empty()) {
    return absl::UnavailableError(
        absl::StrCat("no Furrow member answers at ", address, " (", status.error_message(), ")"));
  }
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError(absl::StrCat("the member at ", address, " did not answer in time"));
  }
  if (code == absl::StatusCode::kUnimplemented) {
    return absl::UnimplementedError(
        absl::StrCat("what answers at ", address, " is no Furrow member of this version"));
  }
  return absl::Status(code, status.error_message());
}

std::string Bytes(const google::protobuf::MessageLite& message) { return message.SerializeAsString(); }

}  // namespace

class ControlClient::Impl {
 public:
  explicit Impl(std::string secret) : secret_(std::move(secret)) {}

  template <class Request, class Reply, class Invoke>
  void Start(const std::string& address, const char* method, const Request& request, Reply* reply,
             Nanos timeout_ns, Done done, bool wait, Invoke invoke) {
    struct Flight {
      grpc::ClientContext context;
      Request request;
    };
    auto flight = std::make_shared<Flight>();
    flight->request = request;
    flight->context.AddMetadata("furrow-proof", Proof(secret_, absl::StrCat(method, "\n", Bytes(request))));
    flight->context.set_deadline(gpr_time_from_nanos(timeout_ns, GPR_TIMESPAN));
    flight->context.set_wait_for_ready(wait);
    pb::Control::Stub* stub = nullptr;
    {
      MutexLock lock(&mutex_);
      if (!stopped_) {
        stub = StubOf(address);
        contexts_[&flight->context] = std::shared_ptr<grpc::ClientContext>(flight, &flight->context);
      }
    }
    if (stub == nullptr) return done(absl::CancelledError("this member is stopping"));
    invoke(*stub, &flight->context, &flight->request, reply,
           [this, flight, address, done = std::move(done)](grpc::Status status) {
             done(FromGrpc(address, status));
             MutexLock lock(&mutex_);
             contexts_.erase(&flight->context);
             landed_.SignalAll();
           });
  }

  void Shutdown() {
    std::vector<std::shared_ptr<grpc::ClientContext>> flying;
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      for (const auto& [key, context] : contexts_) flying.push_back(context);
    }
    for (const auto& context : flying) context->TryCancel();  // may end the call on this thread
    MutexLock lock(&mutex_);
    while (!contexts_.empty()) landed_.Wait(&mutex_);
  }

 private:
  pb::Control::Stub* StubOf(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::unique_ptr<pb::Control::Stub>& stub = stubs_[address];
    if (stub == nullptr) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
      arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
      arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
      // Each client has connections of its own, which end with it.
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      stub = pb::Control::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    }
    return stub.get();
  }

  const std::string secret_;
  Mutex mutex_;
  CondVar landed_;  // a call has ended
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, std::unique_ptr<pb::Control::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<grpc::ClientContext*, std::shared_ptr<grpc::ClientContext>> contexts_
      ABSL_GUARDED_BY(mutex_);
};

ControlClient::ControlClient(std::string secret) : impl_(std::make_unique<Impl>(std::move(secret))) {}

ControlClient::~ControlClient() { Shutdown(); }

void ControlClient::Shutdown() { impl_->Shutdown(); }

#define FURROW_DEFINE(name)                                                                            \
  void ControlClient::Start(const std::string& address, const pb::name##Request& request,              \
                            pb::name##Reply* reply, Nanos timeout_ns, Done done, bool wait) {          \
    impl_->Start(address, #name, request, reply, timeout_ns, std::move(done), wait,                    \
                 [](pb::Control::Stub& stub, grpc::ClientContext* context, const pb::name##Request* q, \
                    pb::name##Reply* r, std::function<void(grpc::Status)> ended) {                     \
                   stub.async()->name(context, q, r, std::move(ended));                                \
                 });                                                                                   \
  }
FURROW_CONTROL_METHODS(FURROW_DEFINE)
#undef FURROW_DEFINE

}  // namespace furrow::cluster
