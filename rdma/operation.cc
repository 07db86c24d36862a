#include "rdma/operation.h"

namespace furrow::rdma {

bool CompletionPoller::Poll() {
  Completion batch[32];
  size_t count = queue_.Poll(batch);
  for (size_t i = 0; i < count; ++i) {
    const Completion& c = batch[i];
    switch (c.kind) {
      case Completion::Kind::kRequest:
        if (c.id != 0) Operation::Complete(c.id, c.status);
        break;
      case Completion::Kind::kReceived:
        events_.OnReceived(*c.connection, c.id, c.bytes);
        break;
      case Completion::Kind::kNotified:
        events_.OnNotified(*c.connection, c.channel);
        break;
      case Completion::Kind::kConnected:
        events_.OnConnected(*c.connection);
        break;
      case Completion::Kind::kDisconnected:
        events_.OnDisconnected(*c.connection);
        break;
    }
  }
  return count > 0;
}

}  // namespace furrow::rdma
