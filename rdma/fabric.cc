#include "rdma/fabric.h"

namespace furrow::rdma {

std::string_view ToString(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kOk:
      return "ok";
    case CompletionStatus::kLocalProtection:
      return "local memory is not registered";
    case CompletionStatus::kRemoteAccess:
      return "remote access refused (key, bounds or right)";
    case CompletionStatus::kPeerGone:
      return "peer is gone";
    case CompletionStatus::kReceiverNotReady:
      return "receiver not ready";
    case CompletionStatus::kFlushed:
      return "flushed after an earlier error";
  }
  return "invalid completion status";
}

}  // namespace furrow::rdma
