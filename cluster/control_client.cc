#include "cluster/control_client.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/grpc_library.h"
#include "cluster/proto/cluster.grpc.pb.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/secret.h"

namespace furrow::cluster {
namespace {

// Marks what IsNoAnswer() tells apart.
constexpr char kNoAnswer[] = "furrow/no-answer";

absl::Status NoAnswer(absl::Status status) {
  status.SetPayload(kNoAnswer, absl::Cord());
  return status;
}

absl::Status FromGrpc(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());  // the numbers are the same
  if (code == absl::StatusCode::kUnavailable && status.error_details().empty()) {
    return NoAnswer(absl::UnavailableError(absl::StrCat("no Furrow member answers at ", address,
                                                        ": does it run? (", status.error_message(), ")")));
  }
  if (code == absl::StatusCode::kDeadlineExceeded && status.error_details().empty()) {
    return NoAnswer(
        absl::DeadlineExceededError(absl::StrCat("the member at ", address, " did not answer in time")));
  }
  if (code == absl::StatusCode::kUnimplemented) {
    return absl::UnimplementedError(
        absl::StrCat("what answers at ", address, " is no Furrow member of this version"));
  }
  return absl::Status(code, status.error_message());
}

std::string Bytes(const google::protobuf::MessageLite& message) { return message.SerializeAsString(); }

// One call under way; the tag of its completion.
struct Flight {
  virtual ~Flight() = default;
  std::string address;
  ControlClient::Done done;
  grpc::ClientContext context;
  grpc::Status status;
};

template <class Request, class Reply>
struct FlightOf final : Flight {
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
};

}  // namespace

// A completion queue and thread of its own, and not gRPC's callback interface: in gRPC 1.51 the queue behind
// that is freed under its thread when the last channel of the process goes.
//
// Lifetimes, each within the next: reader and context of a call; the call as one of calls_under_way_;
// channel; completion queue; the gRPC library, which stays. Shutdown() returns when the last call is
// destroyed.
class ControlClient::Impl {
 public:
  explicit Impl(std::string secret) : secret_(std::move(secret)) {
    KeepGrpcInitialised();
    thread_ = Thread({.name = "control-client", .realtime_priority = 0, .cpu = {}}, [this] { Run(); });
  }
  ~Impl() {
    Shutdown();
    queue_.Shutdown();
    thread_.Join();
  }

  template <class Request, class Reply, class Prepare>
  void Start(const std::string& address, const char* method, const Request& request, Reply* reply,
             Nanos timeout_ns, Done done, bool wait, Prepare prepare) {
    auto flight = std::make_unique<FlightOf<Request, Reply>>();
    flight->address = address;
    flight->done = std::move(done);
    flight->context.AddMetadata("furrow-proof", Proof(secret_, absl::StrCat(method, "\n", Bytes(request))));
    flight->context.set_deadline(gpr_time_from_nanos(timeout_ns, GPR_TIMESPAN));
    flight->context.set_wait_for_ready(wait);
    pb::Control::Stub* stub = nullptr;
    {
      MutexLock lock(&mutex_);
      if (!stopped_) {
        stub = StubOf(address);
        flights_.insert(flight.get());
        ++calls_under_way_;
      }
    }
    if (stub == nullptr) return flight->done(absl::CancelledError("this member is stopping"));
    auto* raw = flight.release();  // Run() takes it back
    raw->reader = prepare(*stub, &raw->context, request, &queue_);
    raw->reader->StartCall();
    raw->reader->Finish(reply, &raw->status, static_cast<Flight*>(raw));
  }

  void Shutdown() {
    MutexLock lock(&mutex_);
    stopped_ = true;
    // A flight is among flights_ only while its context lives, and cannot leave while we hold the lock.
    // Cancelling completes nothing on this thread.
    for (Flight* flight : flights_) flight->context.TryCancel();
    while (calls_under_way_ > 0) landed_.Wait(&mutex_);
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
      stub = pb::Control::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    }
    return stub.get();
  }

  void Run() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      std::unique_ptr<Flight> flight(static_cast<Flight*>(tag));
      flight->done(FromGrpc(flight->address, flight->status));
      {
        MutexLock lock(&mutex_);
        flights_.erase(flight.get());
      }
      flight.reset();
      MutexLock lock(&mutex_);
      --calls_under_way_;
      landed_.SignalAll();
    }
  }

  const std::string secret_;
  grpc::CompletionQueue queue_;
  Thread thread_;
  Mutex mutex_;
  CondVar landed_;  // a call is destroyed
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, std::unique_ptr<pb::Control::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Flight*> flights_ ABSL_GUARDED_BY(mutex_);  // that may be cancelled
  size_t calls_under_way_ ABSL_GUARDED_BY(mutex_) = 0;            // begun and not yet destroyed
};

bool IsNoAnswer(const absl::Status& status) { return status.GetPayload(kNoAnswer).has_value(); }

ControlClient::ControlClient(std::string secret) : impl_(std::make_unique<Impl>(std::move(secret))) {}

ControlClient::~ControlClient() { Shutdown(); }

void ControlClient::Shutdown() { impl_->Shutdown(); }

#define FURROW_DEFINE(name)                                                                                \
  void ControlClient::Start(const std::string& address, const pb::name##Request& request,                  \
                            pb::name##Reply* reply, Nanos timeout_ns, Done done, bool wait) {              \
    impl_->Start(address, #name, request, reply, timeout_ns, std::move(done), wait,                        \
                 [](pb::Control::Stub& stub, grpc::ClientContext* context, const pb::name##Request& q,     \
                    grpc::CompletionQueue* queue) { return stub.PrepareAsync##name(context, q, queue); }); \
  }
FURROW_CONTROL_METHODS(FURROW_DEFINE)
#undef FURROW_DEFINE

}  // namespace furrow::cluster
