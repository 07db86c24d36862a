// Slots for allocations: leased in batches from the primary of the locality group; blocks are cut, and the
// group grown by a region, as they run out.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "storage/size_class.h"
#include "txn/coordinator.h"

namespace furrow::txn {
namespace {

// Blocks of an object size close to a block hold few slots: no use in asking for more than a block has.
uint32_t BatchOf(uint32_t wanted, storage::SizeClass size_class) {
  uint32_t per_block = static_cast<uint32_t>(storage::kBlockBytes / storage::SlotBytes(size_class));
  return std::max<uint32_t>(1, std::min(wanted, per_block / 2 + 1));
}

// What a primary's refusal means to who has asked.
absl::Status LeaseRefused(const MessageHeader& header, std::span<const std::byte> answer, NodeId primary,
                          RegionId locality, storage::SizeClass size_class) {
  answer = answer.subspan(sizeof header);
  const absl::string_view text(reinterpret_cast<const char*>(answer.data()),
                               std::min<size_t>(answer.size(), header.count));
  const std::string what =
      absl::StrCat("node ", primary.value(), " has leased no slots of ", storage::SlotBytes(size_class),
                   " bytes near region ", locality.value(), ": ", text);
  switch (header.code) {
    case AnswerCode::kNoMemory:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ". Delete data, or give the storage nodes more memory"));
    case AnswerCode::kNotPrimary:
      return absl::FailedPreconditionError(absl::StrCat(
          what, ". No member is known to be its primary now: try again when the cluster has settled"));
    case AnswerCode::kUnavailable:
      return absl::UnavailableError(absl::StrCat(what, ". Try again when all members answer"));
    case AnswerCode::kFailed:
      return absl::InternalError(absl::StrCat(what, ". The log of that node says more"));
    default:
      return absl::InternalError(
          absl::StrCat(what, "it does not understand the request. Do both run the same version?"));
  }
}

}  // namespace

void Coordinator::GiveLease(const storage::SlotLease& lease, ConfigId began_in) {
  const cluster::RegionMapping* mapping = node_.directory.Find(lease.address.region());
  FURROW_CHECK(mapping != nullptr);
  if (node_.recovery != nullptr && mapping->last_primary_change > began_in) return;
  leases_.Give(mapping->locality, storage::ClassForPayload(storage::PayloadCapacity(lease.slot_bytes)),
               lease);
}

Task<absl::Status> Coordinator::RefillLeases(RegionId locality, storage::SizeClass size_class,
                                             Nanos deadline) {
  EventLoop& loop = worker_.loop();
  bool late = loop.Now() > deadline;
  if (!late) {
    std::shared_ptr<Refill>& under_way = refills_[LeaseCache::Key(locality, size_class)];
    if (under_way == nullptr) {
      under_way = std::make_shared<Refill>();
      loop.Spawn(FillLeases(locality, size_class, under_way));
    }
    const std::shared_ptr<Refill> refill = under_way;
    struct Awaiter {
      std::vector<std::coroutine_handle<>>& waiters;
      std::coroutine_handle<>& self;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> h) const {
        self = h;
        waiters.push_back(h);
      }
      void await_resume() const noexcept {}
    };
    std::coroutine_handle<> self;
    const EventLoop::TimerId timer = loop.CallAt(deadline, [&loop, &late, &self, refill] {
      if (std::erase(refill->waiters, self) == 0) return;  // it is awake
      late = true;
      loop.Schedule(self);
    });
    co_await Awaiter{refill->waiters, self};
    loop.Cancel(timer);
    if (!late) co_return refill->status;
  }
  co_return absl::DeadlineExceededError(
      absl::StrCat("no slot near region ", locality.value(),
                   " came before the transaction's deadline: its primary, a replica or the configuration "
                   "manager is slow to answer"));
}

Task<void> Coordinator::FillLeases(RegionId locality, storage::SizeClass size_class,
                                   std::shared_ptr<Refill> refill) {
  refill->status = co_await FetchLeases(locality, size_class);
  refills_.erase(LeaseCache::Key(locality, size_class));
  for (std::coroutine_handle<> waiter : std::exchange(refill->waiters, {})) worker_.loop().Schedule(waiter);
}

Task<absl::Status> Coordinator::FetchLeases(RegionId locality, storage::SizeClass size_class) {
  const cluster::RegionMapping* mapping = node_.directory.Find(locality);
  if (mapping == nullptr) {
    if (node_.control == nullptr) co_return absl::NotFoundError("no such locality group");
    FURROW_CO_ASSIGN_OR_RETURN(mapping, co_await node_.control->LookupRegion(locality));
  }
  const uint32_t count = BatchOf(node_.options.lease_batch, size_class);
  std::vector<storage::SlotLease> slots;
  absl::Status leased = co_await LeaseFrom(*mapping, locality, size_class, count, &slots);
  if (absl::IsFailedPrecondition(leased) && node_.control != nullptr) {
    // What is known here of the region may be out of date.
    FURROW_CO_ASSIGN_OR_RETURN(mapping, co_await node_.control->LookupRegion(locality));
    leased = co_await LeaseFrom(*mapping, locality, size_class, count, &slots);
  }
  FURROW_CO_RETURN_IF_ERROR(leased);
  if (slots.empty()) {
    co_return absl::ResourceExhaustedError(absl::StrCat("node ", mapping->primary().node.value(),
                                                        " leased no slots near region ", locality.value(),
                                                        "; it may be out of memory"));
  }
  for (auto it = slots.rbegin(); it != slots.rend(); ++it) {
    if (node_.directory.Find(it->address.region()) == nullptr) {
      if (node_.control == nullptr) co_return absl::NotFoundError("a leased slot lies in an unknown region");
      FURROW_CO_RETURN_IF_ERROR((co_await node_.control->LookupRegion(it->address.region())).status());
    }
    leases_.Give(locality, size_class, *it);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Coordinator::LeaseFrom(const cluster::RegionMapping& mapping, RegionId locality,
                                          storage::SizeClass size_class, uint32_t count,
                                          std::vector<storage::SlotLease>* slots) {
  const NodeId primary = mapping.primary().node;
  if (primary == node_.options.id) {
    FURROW_CO_RETURN_IF_ERROR(
        co_await LeaseHere(locality, size_class, count, NodeId(), worker_.loop().Now() + kLeaseNs, slots));
  } else {
    LeaseRequest request{locality.value(), size_class.value(), static_cast<uint16_t>(count)};
    FURROW_CO_ASSIGN_OR_RETURN(
        std::vector<std::byte> answer,
        co_await Call(primary, MessageType::kLease, 1, std::as_bytes(std::span(&request, 1)),
                      std::max(count * sizeof(LeasedSlot), kMaxRefusalText)));
    MessageHeader header;
    if (!ReadAt(answer, 0, &header)) co_return absl::InternalError("a malformed answer to a lease request");
    if (header.code != AnswerCode::kOk) {
      co_return LeaseRefused(header, answer, primary, locality, size_class);
    }
    for (uint32_t i = 0; i < header.count; ++i) {
      LeasedSlot slot;
      if (i >= count || !ReadAt(answer, sizeof header + i * sizeof slot, &slot) ||
          slot.slot_bytes != storage::SlotBytes(size_class)) {
        co_return absl::InternalError(
            absl::StrCat("node ", primary.value(), " leased slots that nobody asked for"));
      }
      slots->push_back(
          {Address::FromBits(slot.address), storage::ObjectWord::FromBits(slot.expected), slot.slot_bytes});
    }
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Coordinator::LeaseHere(RegionId locality, storage::SizeClass size_class, uint32_t count,
                                          NodeId holder, Nanos deadline,
                                          std::vector<storage::SlotLease>* out) {
  while (true) {
    if (worker_.loop().Now() > deadline) {
      co_return absl::DeadlineExceededError(absl::StrCat("no slot near region ", locality.value(),
                                                         " has become free before the deadline: a replica "
                                                         "or the configuration manager is slow to answer"));
    }
    if (node_.allocator.Lease(locality, size_class, count, holder, out) > 0) {
      if (node_.allocator.WantsBlock(locality, size_class))
        worker_.loop().Spawn(CutAhead(locality, size_class));
      co_return absl::OkStatus();
    }
    bool under_way = false;
    std::optional<storage::BlockCut> cut = node_.allocator.BeginCut(locality, size_class, &under_way);
    if (cut.has_value()) {
      FURROW_CO_RETURN_IF_ERROR(co_await CutBlock(*cut));
      continue;
    }
    if (under_way) {
      co_await worker_.loop().SleepFor(20 * kMicrosecond);
      continue;
    }
    RegionId newest = node_.allocator.NewestRegion(locality);
    if (newest == RegionId()) {
      co_return absl::FailedPreconditionError(absl::StrCat(
          "this node, ", node_.options.id.value(), ", is not the primary of region ", locality.value()));
    }
    // The group is full. Emptied blocks may have become free meanwhile; otherwise it grows.
    if (node_.allocator.Reclaim(node_.safe_point.safe_point()) > 0) continue;
    if (node_.control == nullptr) {
      co_return absl::ResourceExhaustedError(
          absl::StrCat("the regions near region ", locality.value(), " are full"));
    }
    FURROW_CO_RETURN_IF_ERROR((co_await node_.control->AllocateRegion(
                                   {.near = locality, .newest_known = newest, .deadline = deadline}))
                                  .status());
  }
}

Task<void> Coordinator::CutAhead(RegionId locality, storage::SizeClass size_class) {
  bool under_way = false;
  std::optional<storage::BlockCut> cut = node_.allocator.BeginCut(locality, size_class, &under_way);
  if (!cut.has_value()) co_return;
  absl::Status status = co_await CutBlock(*cut);
  if (!status.ok())
    FURROW_LOG_EVERY(WARNING, kSecond) << "a block could not be cut ahead: " << status.ToString();
}

// Every replica zeroes the block and acknowledges its header before a slot is handed out; the primary's copy
// last.
Task<absl::Status> Coordinator::CutBlock(storage::BlockCut cut) {
  const cluster::RegionMapping* mapping = node_.directory.Find(cut.region);
  FURROW_CHECK(mapping != nullptr);
  CutRequest request{.config = node_.current_view()->id().value(),
                     .version = cut.version,
                     .region = cut.region.value(),
                     .block = cut.block,
                     .slot_bytes = cut.slot_bytes};
  absl::Status status;
  for (size_t i = 1; i < mapping->replicas.size() && status.ok(); ++i) {
    absl::StatusOr<std::vector<std::byte>> answer = co_await Call(
        mapping->replicas[i].node, MessageType::kCutBlock, 1, std::as_bytes(std::span(&request, 1)), 0);
    MessageHeader header;
    if (!answer.ok()) {
      status = answer.status();
    } else if (!ReadAt(*answer, 0, &header) || header.code != AnswerCode::kOk) {
      status = absl::UnavailableError(
          absl::StrCat("member ", mapping->replicas[i].node.value(), " refused to cut a block"));
    }
  }
  if (status.ok()) status = node_.regions.Find(cut.region)->CutBlock(cut.block, cut.slot_bytes, cut.version);
  if (status.ok()) {
    node_.allocator.BlockReady(cut);
    if (node_.control != nullptr && node_.allocator.RunsLow(mapping->locality))
      worker_.loop().Spawn(GrowAhead());
  } else {
    node_.allocator.BlockFailed(cut);
  }
  co_return status;
}

Task<void> Coordinator::GrowAhead() {
  // Emptied blocks may do.
  node_.allocator.Reclaim(node_.safe_point.safe_point());
  while (std::optional<NodeAllocator::Growth> growth = node_.allocator.BeginGrowth(worker_.loop().Now())) {
    // Also when the worker ends meanwhile.
    absl::Status status = absl::CancelledError();
    absl::Cleanup end = [&] { node_.allocator.EndGrowth(*growth, status.ok(), worker_.loop().Now()); };
    status = (co_await node_.control->AllocateRegion(
                  {.near = growth->locality, .newest_known = growth->newest, .ahead = true}))
                 .status();
    if (!status.ok()) {
      FURROW_LOG_EVERY(INFO, 10 * kSecond)
          << "group " << growth->locality.value() << " gets its next region when it is full: " << status;
    }
  }
}

void Coordinator::ReturnLeases() {
  std::vector<storage::SlotLease> all;
  leases_.TakeAll(&all);
  for (const storage::SlotLease& lease : all) {
    const cluster::RegionMapping* mapping = node_.directory.Find(lease.address.region());
    if (mapping->primary().node == node_.options.id) {
      node_.allocator.Unlease(lease, NodeId());
      continue;
    }
    LeasedSlot slot{lease.address.bits(), lease.expected.bits(), lease.slot_bytes, 0};
    // If it cannot be sent, the slot stays leased until this node is no member any more.
    Send(mapping->primary().node, MessageType::kUnlease, 1, std::as_bytes(std::span(&slot, 1))).IgnoreError();
  }
}

}  // namespace furrow::txn
