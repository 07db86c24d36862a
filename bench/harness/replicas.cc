#include "bench/harness/replicas.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "bench/harness/slots.h"
#include "rdma/operation.h"
#include "storage/region.h"

namespace furrow::bench {
namespace {

constexpr size_t kMaxPiece = 128 << 10;       // of one READ
constexpr uint64_t kBlockTableOffset = 4096;  // storage/region.h

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaReader>> ReplicaReader::Create(txn::Worker& worker) {
  auto reader = std::unique_ptr<ReplicaReader>(new ReplicaReader(worker));
  FURROW_ASSIGN_OR_RETURN(reader->memory_, MemoryFile::Anonymous(2 * storage::kBlockBytes));
  FURROW_ASSIGN_OR_RETURN(reader->registration_,
                          worker.node().fabric.Register(reader->memory_, rdma::Access::kNone));
  return reader;
}

Task<absl::StatusOr<std::span<const std::byte>>> ReplicaReader::Read(const cluster::Replica& replica,
                                                                     RegionId region, uint64_t offset,
                                                                     std::span<std::byte> buffer) {
  if (replica.node == worker_.node().options.id) {
    const storage::Region* local = worker_.node().regions.Find(region);
    if (local == nullptr)
      co_return absl::DataLossError(absl::StrCat("region ", region.value(), " is not here"));
    co_return std::span<const std::byte>(local->base() + offset, buffer.size());
  }
  const Pinned<rdma::OutboundLink> link = worker_.mesh().link(replica.node);
  if (link == nullptr || link->connection == nullptr || link->gone) {
    co_return absl::UnavailableError(absl::StrCat("no connection to node ", replica.node.value()));
  }
  rdma::OperationGroup group(worker_.loop());
  for (size_t done = 0; done < buffer.size(); done += kMaxPiece) {
    rdma::WorkRequest request;
    request.opcode = rdma::Opcode::kRead;
    request.local = buffer.subspan(done, std::min(kMaxPiece, buffer.size() - done));
    request.remote = replica.memory.Plus(offset + done);
    request.id = group.Add();
    const absl::Status posted = link->connection->Post(request);
    if (!posted.ok()) {
      group.Forget();
      (void)co_await group.Wait();
      co_return posted;
    }
  }
  const rdma::CompletionStatus worst = co_await group.Wait();
  if (worst != rdma::CompletionStatus::kOk) {
    co_return absl::UnavailableError(absl::StrCat("reading region ", region.value(), " at node ",
                                                  replica.node.value(),
                                                  " failed: ", Sv(rdma::ToString(worst))));
  }
  co_return std::span<const std::byte>(buffer);
}

Task<absl::StatusOr<std::vector<BlockImage>>> ReplicaReader::ReadBlockTable(
    const cluster::RegionMapping& mapping, size_t replica) {
  const size_t blocks = mapping.bytes / storage::kBlockBytes;
  const std::span<std::byte> buffer = memory_.bytes().first(blocks * sizeof(storage::BlockHeader));
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             co_await Read(mapping.replicas[replica], mapping.id, kBlockTableOffset, buffer));
  std::vector<BlockImage> table(blocks);
  for (size_t i = 1; i < blocks; ++i) {
    storage::BlockHeader header;
    std::memcpy(&header, bytes.data() + i * sizeof(header), sizeof(header));
    table[i].slot_bytes = header.slot_bytes;
    table[i].version = header.version;
  }
  co_return table;
}

Task<absl::Status> ReplicaReader::ReadBlock(const cluster::RegionMapping& mapping, size_t replica,
                                            uint32_t number, int buffer, BlockImage* block) {
  const std::span<std::byte> memory =
      memory_.bytes().subspan(static_cast<size_t>(buffer) * storage::kBlockBytes, storage::kBlockBytes);
  FURROW_CO_ASSIGN_OR_RETURN(block->bytes, co_await Read(mapping.replicas[replica], mapping.id,
                                                         uint64_t{number} * storage::kBlockBytes, memory));
  co_return absl::OkStatus();
}

Task<absl::StatusOr<CheckResult>> CompareReplicas(txn::Worker& worker,
                                                  std::vector<const cluster::RegionMapping*> regions,
                                                  absl::FunctionRef<void(std::span<const std::byte>)> each) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::unique_ptr<ReplicaReader> reader, ReplicaReader::Create(worker));
  CheckResult result{"replicas", true, {}};
  uint64_t differences = 0;
  auto differs = [&](const cluster::RegionMapping& mapping, size_t replica, uint64_t offset,
                     std::string what) {
    if (differences++ == 0) {
      result.detail = absl::StrCat("region ", mapping.id.value(), " offset ", offset, " on nodes ",
                                   mapping.primary().node.value(), " and ",
                                   mapping.replicas[replica].node.value(), ": ", what);
    }
  };
  std::vector<std::byte> payload;
  for (const cluster::RegionMapping* mapping : regions) {
    std::vector<std::vector<BlockImage>> tables;
    for (size_t replica = 0; replica < mapping->replicas.size(); ++replica) {
      FURROW_CO_ASSIGN_OR_RETURN(auto table, co_await reader->ReadBlockTable(*mapping, replica));
      tables.push_back(std::move(table));
    }
    for (uint32_t block = 1; block < tables[0].size(); ++block) {
      BlockImage& primary = tables[0][block];
      const uint64_t base = uint64_t{block} * storage::kBlockBytes;
      if (primary.slot_bytes != 0)
        FURROW_CO_RETURN_IF_ERROR(co_await reader->ReadBlock(*mapping, 0, block, 0, &primary));
      const size_t slots = primary.slot_bytes == 0 ? 0 : storage::kBlockBytes / primary.slot_bytes;
      for (size_t replica = 1; replica < tables.size(); ++replica) {
        BlockImage& backup = tables[replica][block];
        if (backup.slot_bytes != primary.slot_bytes || backup.version != primary.version) {
          differs(*mapping, replica, base, "the block header differs");
          continue;
        }
        if (slots == 0) continue;
        FURROW_CO_RETURN_IF_ERROR(co_await reader->ReadBlock(*mapping, replica, block, 1, &backup));
        for (size_t slot = 0; slot < slots; ++slot) {
          const size_t at = slot * primary.slot_bytes;
          std::string what = CompareSlots(primary.bytes.subspan(at, primary.slot_bytes),
                                          backup.bytes.subspan(at, primary.slot_bytes));
          if (!what.empty()) differs(*mapping, replica, base + at, std::move(what));
        }
      }
      for (size_t slot = 0; slot < slots; ++slot) {
        const auto bytes = primary.bytes.subspan(slot * primary.slot_bytes, primary.slot_bytes);
        if (!StripSlot(bytes, &payload)) continue;
        each(payload);
      }
      co_await worker.loop().Yield();
    }
  }
  result.pass = differences == 0;
  if (!result.pass) absl::StrAppend(&result.detail, " (", differences, " differences)");
  co_return result;
}

}  // namespace furrow::bench
