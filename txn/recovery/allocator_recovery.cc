// Allocator recovery (SOSP'15 section 5.5): a new primary makes the block headers alike at all replicas, then
// finds the free slots by a scan.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "txn/coordinator.h"
#include "txn/recovery/worker_recovery.h"
#include "txn/worker.h"

namespace furrow::txn {

Task<absl::Status> WorkerRecovery::ReadBlocks(const cluster::Replica& replica, uint32_t blocks,
                                              std::vector<storage::BlockHeader>* headers) {
  const Pinned<LinkState> link = worker_.coordinator().LinkTo(replica.node);
  if (link == nullptr || link->link->gone || link->link->connection == nullptr) {
    co_return absl::UnavailableError(absl::StrCat("member ", replica.node.value(), " is gone"));
  }
  headers->resize(blocks);
  constexpr uint32_t kAtOnce = 512;  // 32 KB
  for (uint32_t first = 0; first < blocks; first += kAtOnce) {
    const size_t bytes = std::min(kAtOnce, blocks - first) * sizeof(storage::BlockHeader);
    const rdma::RemoteAddress from =
        replica.memory.Plus(storage::kRegionHeaderBytes + size_t{first} * sizeof(storage::BlockHeader));
    while (true) {
      ScratchBuffer buffer(worker_.coordinator().scratch(), bytes);
      rdma::OperationGroup group(worker_.loop());
      if (!buffer.empty()) {
        const rdma::WorkRequest read{.opcode = rdma::Opcode::kRead,
                                     .signaled = true,
                                     .id = group.Add(),
                                     .local = buffer.bytes(),
                                     .remote = from};
        if (link->link->connection->Post(read).ok()) {
          if (link->link->connection->completes_at_once()) worker_.mesh().PollCompletions();
          if (co_await group.Wait() != rdma::CompletionStatus::kOk) {
            co_return absl::UnavailableError(
                absl::StrCat("member ", replica.node.value(), " does not answer"));
          }
          std::memcpy(headers->data() + first, buffer.bytes().data(), bytes);
          break;
        }
        group.Forget();
      }
      co_await worker_.loop().Yield();  // everything is in use: completions will free some
    }
  }
  co_return absl::OkStatus();
}

// The newest cut of each block wins: what was cut at some replicas only was free at all, and nobody got a
// slot.
Task<absl::Status> WorkerRecovery::RecoverAllocator(ConfigId config, RegionId id) {
  Node& node = worker_.node();
  const cluster::RegionMapping mapping = *node.directory.Find(id);
  storage::Region* region = node.regions.Find(id);
  if (region == nullptr) co_return absl::NotFoundError("there is no copy of it here");
  const uint32_t blocks = region->blocks();
  std::vector<std::vector<storage::BlockHeader>> copies(mapping.replicas.size());
  for (uint32_t b = 0; b < blocks; ++b) copies[0].push_back(region->ReadBlock(b));
  for (size_t i = 1; i < copies.size(); ++i) {
    FURROW_CO_RETURN_IF_ERROR(co_await ReadBlocks(mapping.replicas[i], blocks, &copies[i]));
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    storage::BlockHeader newest = copies[0][b];
    for (const auto& copy : copies) newest = copy[b].version > newest.version ? copy[b] : newest;
    for (size_t i = 0; i < copies.size(); ++i) {
      if (copies[i][b].version == newest.version) continue;
      FURROW_CO_RETURN_IF_ERROR(co_await CutAt(mapping, i, b, newest));
    }
  }
  if (node.current_view()->id() != config) co_return absl::CancelledError("the configuration has changed");
  node.allocator.AddRegion(*region, mapping.locality);
  co_return absl::OkStatus();
}

Task<absl::Status> WorkerRecovery::CutAt(const cluster::RegionMapping& mapping, size_t replica,
                                         uint32_t block, const storage::BlockHeader& header) {
  Node& node = worker_.node();
  if (replica == 0) {
    absl::Status cut;
    do {  // somebody applies a write in it at this moment
      cut = node.regions.Find(mapping.id)->CutBlock(block, header.slot_bytes, header.version);
      if (absl::IsUnavailable(cut)) co_await worker_.loop().Yield();
    } while (absl::IsUnavailable(cut));
    co_return cut;
  }
  const CutRequest request{.config = node.current_view()->id().value(),
                           .version = header.version,
                           .region = mapping.id.value(),
                           .block = block,
                           .slot_bytes = header.slot_bytes};
  FURROW_CO_ASSIGN_OR_RETURN(
      std::vector<std::byte> answer,
      co_await worker_.coordinator().Call(mapping.replicas[replica].node, MessageType::kCutBlock, 1,
                                          std::as_bytes(std::span(&request, 1)), 0));
  MessageHeader answered;
  if (!ReadAt(answer, 0, &answered) || answered.code != AnswerCode::kOk) {
    co_return absl::InternalError(
        absl::StrCat("member ", mapping.replicas[replica].node.value(), " refused to cut block ", block));
  }
  co_return absl::OkStatus();
}

}  // namespace furrow::txn
