// Reads of objects whose primary is another node, with one-sided READs.
#include "base/check.h"
#include "storage/object.h"
#include "txn/coordinator.h"
#include "txn/lock_wait.h"
#include "txn/remote_read.h"
#include "txn/transaction.h"

namespace furrow::txn {
namespace {

// A READ that took longer may have met line versions that wrapped (design, section 4).
constexpr Nanos kMaxReadNs = 1 * kMillisecond;

bool CopiesWholeLines(const rdma::Fabric& fabric) { return fabric.read_piece_bytes() >= storage::kLineBytes; }

// Posts the READs of a look with one doorbell; the group ends with the last of them.
absl::Status PostReads(rdma::Connection& connection, std::span<const rdma::Connection::NowRead> reads,
                       rdma::OperationGroup& group) {
  rdma::WorkRequest requests[RemoteRead::kMaxReads];
  for (size_t i = 0; i < reads.size(); ++i) {
    requests[i] = rdma::WorkRequest{
        .opcode = rdma::Opcode::kRead, .signaled = false, .local = reads[i].into, .remote = reads[i].remote};
  }
  // If an earlier one fails, the last one is flushed: its completion tells of any failure.
  requests[reads.size() - 1].signaled = true;
  requests[reads.size() - 1].id = group.Add();
  absl::Status posted = connection.Post(std::span(requests, reads.size()));
  if (!posted.ok()) group.Forget();
  return posted;
}

}  // namespace

void Coordinator::PrefetchRemote(const cluster::RegionMapping& mapping, Address address, size_t bytes) {
  LinkState* link = LinkTo(mapping.primary().node);
  if (link == nullptr || link->link->gone || link->link->connection == nullptr) return;
  link->link->connection->Prefetch(mapping.primary().memory.Plus(address.offset()), bytes);
}

bool Coordinator::TryReadRemote(Transaction& tx, const cluster::RegionMapping& mapping, Address address,
                                uint32_t bytes, bool hint, ReadResult* result) {
  // Copies in pieces of whole lines are a NIC's: its READs end later.
  if (CopiesWholeLines(node_.fabric)) return false;
  LinkState* link = LinkTo(mapping.primary().node);
  if (link == nullptr || link->link->gone || link->link->connection == nullptr) return false;
  RemoteRead read(tx, address, bytes, hint, /*whole_lines=*/false);
  if (!read.Aim(mapping, *node_.current_view(), result)) return true;
  const size_t buffer_bytes = RemoteRead::BufferBytes(bytes);
  if (read_now_.size() < buffer_bytes) read_now_.resize(buffer_bytes);
  const std::span<std::byte> buffer = std::span(read_now_).first(buffer_bytes);
  for (int busy = 0; busy < kTornRetries;) {
    rdma::Connection::NowRead reads[RemoteRead::kMaxReads];
    const size_t count = read.Plan(buffer, reads);
    if (!link->link->connection->ReadNow(std::span(reads, count)) || !node_.lease.valid()) return false;
    ++tx.remote_reads_;
    switch (read.Judge(buffer, result)) {
      case RemoteRead::Verdict::kDone:
        return true;
      case RemoteRead::Verdict::kAgain:
        if (!read.Aim(mapping, *node_.current_view(), result)) return true;
        break;
      case RemoteRead::Verdict::kBusy:
        ++busy;
        break;
    }
  }
  return false;
}

Task<ReadResult> Coordinator::ReadRemote(Transaction& tx, Address address, uint32_t bytes, bool hint) {
  const bool whole_lines = CopiesWholeLines(node_.fabric);
  EventLoop& loop = worker_.loop();
  const Nanos started = loop.Now();
  const Nanos give_up = started + node_.options.locked_read_wait_ns;
  RemoteRead read(tx, address, bytes, hint, whole_lines);
  ReadResult result{std::span<const std::byte>()};
  while (true) {
    const cluster::RegionMapping* mapping = node_.directory.Find(address.region());
    if (!mapping->active) co_return tx.Fail({.reason = AbortReason::kReconfigured, .address = address});
    if (!read.Aim(*mapping, *node_.current_view(), &result)) co_return std::move(result);
    if (loop.Now() > tx.deadline_) co_return tx.Fail({.reason = AbortReason::kDeadline, .address = address});
    const Pinned<LinkState> link = LinkTo(mapping->primary().node);
    if (link == nullptr || link->link->gone || link->link->connection == nullptr) {
      co_return tx.Fail({.reason = LossReason(), .address = address});
    }
    ScratchBuffer buffer(scratch_, RemoteRead::BufferBytes(bytes));
    rdma::OperationGroup group(loop);
    const Nanos posted_at = loop.Now();
    rdma::Connection::NowRead reads[RemoteRead::kMaxReads];
    if (buffer.empty() ||
        !PostReads(*link->link->connection, std::span(reads, read.Plan(buffer.bytes(), reads)), group).ok()) {
      co_await loop.Yield();  // everything is in use: completions will free some
      continue;
    }
    if (link->link->connection->completes_at_once()) worker_.mesh().PollCompletions();
    const bool read_it = co_await group.Wait() == rdma::CompletionStatus::kOk;
    // Who is gone may have answered; it is no member any more.
    if (!read_it || link->link->gone || !node_.lease.valid()) {
      if (!read_it && node_.lease.valid()) OnLinkLost(*link->link);  // a failed connection does not come back
      co_return tx.Fail({.reason = LossReason(), .address = address});
    }
    ++tx.remote_reads_;
    // Where word 0 was the same before and after the copy, nothing was installed meanwhile.
    if (whole_lines && loop.Now() - posted_at > kMaxReadNs) continue;
    switch (read.Judge(buffer.bytes(), &result)) {
      case RemoteRead::Verdict::kDone:
        co_return std::move(result);
      case RemoteRead::Verdict::kAgain:
        break;
      case RemoteRead::Verdict::kBusy:
        if (loop.Now() > give_up) {
          if (read.GiveUp(&result) == RemoteRead::Verdict::kDone) co_return std::move(result);
          break;
        }
        co_await LookAway(loop, loop.Now() - started);
        break;
    }
  }
}

}  // namespace furrow::txn
