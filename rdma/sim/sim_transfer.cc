#include <algorithm>
#include <cstring>

#include "rdma/sim/sim_endpoint.h"

namespace furrow::rdma {

namespace {
// A copy of more pieces than this is cut into larger pieces, so that bulk copies stay cheap to simulate.
constexpr uint32_t kMaxPieces = 4096;
}  // namespace

void SimRequest::Detach() {
  local = nullptr;
  if (work.opcode == Opcode::kRead || own_payload) return;
  payload.assign(work.local.begin(), work.local.end());
  own_payload = true;
}

SimTransfer::SimTransfer(SimEnd& from, SimEnd& to, std::shared_ptr<SimRequest> r,
                         std::shared_ptr<SimRegistration> t, uint32_t piece_bytes, Random& random)
    : initiator(from),
      responder(to),
      request(std::move(r)),
      target(std::move(t)),
      remote_(target->bytes.data() + (request->work.remote.address - target->base)),
      piece_bytes_(piece_bytes) {
  size_t size = request->size();
  while (size / piece_bytes_ > kMaxPieces) piece_bytes_ *= 2;
  head_ = static_cast<uint32_t>(
      std::min<uint64_t>(size, (piece_bytes_ - request->work.remote.address % piece_bytes_) % piece_bytes_));
  uint32_t count = static_cast<uint32_t>((head_ > 0) + (size - head_ + piece_bytes_ - 1) / piece_bytes_);
  order_.resize(count);
  for (uint32_t i = 0; i < count; ++i) order_[i] = i;
  if (request->work.opcode == Opcode::kRead) request->payload.resize(size);
  switch (random.Below(4)) {
    case 0:
      break;  // lowest address first
    case 1:
      std::reverse(order_.begin(), order_.end());
      break;
    case 2:
      if (count > 0)
        std::rotate(order_.begin(), order_.begin() + static_cast<long>(random.Below(count)), order_.end());
      break;
    default:
      for (uint32_t i = count; i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  }
}

CompletionStatus SimTransfer::Check() const {
  if (!target->alive) return CompletionStatus::kRemoteAccess;
  if (request->local != nullptr && !request->local->alive) return CompletionStatus::kLocalProtection;
  return CompletionStatus::kOk;
}

void SimTransfer::Move(size_t pieces) {
  for (; pieces > 0 && next_ < order_.size(); --pieces) MovePiece(order_[next_++]);
}

void SimTransfer::MovePiece(uint32_t index) {
  size_t begin;
  size_t end;
  if (head_ > 0 && index == 0) {
    begin = 0;
    end = head_;
  } else {
    begin = head_ + size_t{piece_bytes_} * (index - (head_ > 0));
    end = std::min(begin + piece_bytes_, request->size());
  }
  bool read = request->work.opcode == Opcode::kRead;
  const std::byte* from = read ? remote_ + begin : request->source() + begin;
  std::byte* to = read ? request->payload.data() + begin : remote_ + begin;
  std::memcpy(to, from, end - begin);
  SimWorld& world = responder.network.world();
  for (size_t at = 0; at < end - begin; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, to + at, std::min<size_t>(8, end - begin - at));
    world.Record(word);
  }
}

}  // namespace furrow::rdma
