#include "tests/sim/workload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "tests/sim/object_codec.h"

namespace furrow::sim {

using checker::Function;
using checker::ProcessLog;
using txn::Transaction;

namespace {

constexpr uint32_t kListWords = 44;      // count and elements: several lines, so that a copy can tear
constexpr uint32_t kRegisterWords = 20;  // the value, repeated
constexpr uint32_t kCounterWords = 12;
constexpr uint32_t kSlotWords = 2;  // of the directory: address and id of an object
constexpr uint32_t kItemWords = 30;

uint32_t WordsOf(Workload workload) {
  switch (workload) {
    case Workload::kListAppend:
      return kListWords;
    case Workload::kRegister:
      return kRegisterWords;
    case Workload::kAllocation:
      return kSlotWords;
    default:
      return kCounterWords;
  }
}

constexpr uint32_t PayloadOf(uint32_t words) { return (words + 1) * 8; }

// One attempt of a client: a transaction, with the reading and writing of whole objects.
class Attempt {
 public:
  Attempt(Shared& s, txn::Worker& worker, ProcessLog& l, bool read_only)
      : shared(s), log(l), tx(worker, {.read_only = read_only, .deadline_ns = 2 * kSecond}) {}

  // The object's words at the snapshot, own writes included.
  Task<absl::StatusOr<std::vector<int64_t>>> Read(Address address, uint32_t bytes) {
    txn::ReadResult result = co_await tx.Read(address, bytes);
    if (!result.ok()) co_return result.status();
    std::vector<int64_t> words;
    if (!Decode(*result, &words)) {
      shared.Violated(absl::StrCat("a transaction at ", tx.read_timestamp().value(),
                                   " read a torn or foreign object at ", ToString(address)));
      co_return absl::DataLossError("torn");
    }
    co_return words;
  }
  Task<absl::StatusOr<std::vector<int64_t>>> ReadKey(uint32_t key) {
    absl::StatusOr<std::vector<int64_t>> words = co_await Read(shared.objects[key], shared.payload_bytes);
    if (absl::IsNotFound(words.status())) {
      shared.Violated(
          absl::StrCat("object ", ToString(shared.objects[key]), " of key ", key, " was not found"));
    }
    co_return words;
  }
  absl::Status Write(Address address, uint32_t bytes, std::vector<int64_t> words) {
    FURROW_ASSIGN_OR_RETURN(std::span<std::byte> payload, tx.OpenForWrite(address, bytes));
    Encode(std::move(words), payload);
    return absl::OkStatus();
  }
  absl::Status WriteKey(uint32_t key, std::vector<int64_t> words) {
    return Write(shared.objects[key], shared.payload_bytes, std::move(words));
  }

  Shared& shared;
  ProcessLog& log;
  Transaction tx;
};

Task<absl::Status> ListAppend(Attempt& a, Random& random, bool read_only) {
  uint32_t keys = static_cast<uint32_t>(a.shared.objects.size());
  for (int64_t i = random.Between(1, read_only ? 5 : 4); i > 0; --i) {
    uint32_t key = static_cast<uint32_t>(random.Below(keys));
    FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> words, co_await a.ReadKey(key));
    bool append = !read_only && random.OneIn(2) && words[0] + 1 < kListWords;
    if (!append || random.OneIn(2)) {
      a.log.ReadList(key, std::span(words).subspan(1, static_cast<size_t>(words[0])));
    }
    if (!append) continue;
    int64_t value = a.shared.next_value++;
    words[static_cast<size_t>(++words[0])] = value;
    a.log.Append(key, value);
    FURROW_CO_RETURN_IF_ERROR(a.WriteKey(key, std::move(words)));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Registers(Attempt& a, Random& random, bool read_only) {
  uint32_t keys = static_cast<uint32_t>(a.shared.objects.size());
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    uint32_t key = static_cast<uint32_t>(random.Below(keys));
    FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> words, co_await a.ReadKey(key));
    a.log.ReadRegister(key, words[0] == 0 ? std::nullopt : std::optional<int64_t>(words[0]));
    if (read_only || random.OneIn(2)) continue;
    int64_t value = a.shared.next_value++;
    a.log.Write(key, value);
    FURROW_CO_RETURN_IF_ERROR(a.WriteKey(key, std::vector<int64_t>(kRegisterWords, value)));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Bank(Attempt& a, Random& random, bool read_only) {
  uint32_t keys = static_cast<uint32_t>(a.shared.objects.size());
  if (read_only) {
    for (uint32_t key = 0; key < keys; ++key) {
      FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> words, co_await a.ReadKey(key));
      a.log.ReadAccount(key, words[0]);
    }
    co_return absl::OkStatus();
  }
  uint32_t from = static_cast<uint32_t>(random.Below(keys));
  uint32_t to = static_cast<uint32_t>((from + random.Between(1, keys - 1)) % keys);
  int64_t amount = random.Between(1, 20);
  FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> source, co_await a.ReadKey(from));
  FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> target, co_await a.ReadKey(to));
  source[0] -= amount;
  target[0] += amount;
  a.log.Transfer(from, to, amount);
  FURROW_CO_RETURN_IF_ERROR(a.WriteKey(from, std::move(source)));
  co_return a.WriteKey(to, std::move(target));
}

Task<absl::Status> LongFork(Attempt& a, Random& random, bool read_only) {
  uint32_t keys = static_cast<uint32_t>(a.shared.objects.size());
  if (read_only) {
    uint32_t first = static_cast<uint32_t>(random.Below(keys));
    for (uint32_t i = 0; i < keys; ++i) {
      uint32_t key = (first + i) % keys;
      FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> words, co_await a.ReadKey(key));
      a.log.ReadCounter(key, words[0]);
    }
    co_return absl::OkStatus();
  }
  uint32_t key = static_cast<uint32_t>(random.Below(keys));
  FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> words, co_await a.ReadKey(key));
  ++words[0];
  a.log.Increment(key, 1);
  co_return a.WriteKey(key, std::move(words));
}

// Directory slot `key` holds the address and the id of an item, or zeros. Each item begins with its own id.
// Recorded as a register: the id, 0 being "never written" as far as reads go.
Task<absl::Status> Allocation(Attempt& a, Random& random, bool read_only) {
  uint32_t keys = static_cast<uint32_t>(a.shared.objects.size());
  for (int64_t i = random.Between(1, 3); i > 0; --i) {
    uint32_t key = static_cast<uint32_t>(random.Below(keys));
    FURROW_CO_ASSIGN_OR_RETURN(std::vector<int64_t> slot, co_await a.ReadKey(key));
    Address address = Address::FromBits(static_cast<uint64_t>(slot[0]));
    if (!address.is_null()) {
      absl::StatusOr<std::vector<int64_t>> item = co_await a.Read(address, PayloadOf(kItemWords));
      if (absl::IsNotFound(item.status()) || (item.ok() && (*item)[0] != slot[1])) {
        a.shared.Violated(absl::StrCat("slot ", key, " says that item ", slot[1], " lies at ",
                                       ToString(address), "; there is ",
                                       item.ok() ? absl::StrCat("item ", (*item)[0]) : "nothing",
                                       " at the same snapshot ", a.tx.read_timestamp().value()));
      }
      FURROW_CO_RETURN_IF_ERROR(item.status());
    }
    a.log.ReadRegister(key, slot[1] == 0 ? std::nullopt : std::optional<int64_t>(slot[1]));
    if (read_only) continue;
    int64_t id = a.shared.next_value++;
    if (!address.is_null()) FURROW_CO_RETURN_IF_ERROR(a.tx.Free(address));
    if (address.is_null() || !random.OneIn(3)) {
      RegionId near = a.shared.objects[random.Below(keys)].region();
      absl::StatusOr<Transaction::Allocation> made = co_await a.tx.Alloc(near, PayloadOf(kItemWords));
      FURROW_CO_RETURN_IF_ERROR(made.status());
      Encode(std::vector<int64_t>(kItemWords, id), made->payload);
      slot = {static_cast<int64_t>(made->address.bits()), id};
    } else {
      slot = {0, id};  // empty, but written: the id stays unique
    }
    a.log.Write(key, id);
    FURROW_CO_RETURN_IF_ERROR(a.WriteKey(key, slot));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Body(Workload workload, Attempt& a, Random& random, bool read_only) {
  switch (workload) {
    case Workload::kListAppend:
      return ListAppend(a, random, read_only);
    case Workload::kRegister:
      return Registers(a, random, read_only);
    case Workload::kBank:
      return Bank(a, random, read_only);
    case Workload::kLongFork:
      return LongFork(a, random, read_only);
    case Workload::kAllocation:
      return Allocation(a, random, read_only);
  }
  FURROW_CHECK(false);
}

Function FunctionOf(Workload workload, bool read_only) {
  if (workload != Workload::kBank) return Function::kTxn;
  return read_only ? Function::kReadAll : Function::kTransfer;
}

}  // namespace

std::string_view Name(Workload workload) {
  switch (workload) {
    case Workload::kListAppend:
      return "list-append";
    case Workload::kRegister:
      return "register";
    case Workload::kBank:
      return "bank";
    case Workload::kLongFork:
      return "long-fork";
    case Workload::kAllocation:
      return "allocation";
  }
  return "?";
}

std::optional<Workload> ParseWorkload(std::string_view name) {
  for (Workload workload : kAllWorkloads) {
    if (Name(workload) == name) return workload;
  }
  return std::nullopt;
}

void Shared::Violated(std::string what) {
  if (violation.ok()) violation = absl::InternalError(absl::StrCat(what, " (", cluster.world().Where(), ")"));
}

Task<absl::Status> Populate(Workload workload, uint32_t keys, Shared& shared, txn::Worker& worker,
                            Random random) {
  shared.payload_bytes = PayloadOf(WordsOf(workload));
  std::vector<RegionId> regions;
  for (uint32_t node = 0; node < shared.cluster.nodes(); ++node) {
    FURROW_CO_ASSIGN_OR_RETURN(RegionId region, shared.cluster.AddRegion(node));
    regions.push_back(region);
  }
  for (uint32_t key = 0; key < keys; ++key) {
    RegionId region = regions[random.Below(regions.size())];
    std::vector<int64_t> words;
    if (workload == Workload::kBank) words.push_back(kOpeningBalance);
    Address address;
    txn::CommitResult result =
        co_await worker.Run([&shared, &address, region, words](Transaction& tx) -> Task<absl::Status> {
          // The closure lives in Run()'s frame for as long as this coroutine runs.
          absl::StatusOr<Transaction::Allocation> made = co_await tx.Alloc(region, shared.payload_bytes);
          FURROW_CO_RETURN_IF_ERROR(made.status());
          Encode(words, made->payload);
          address = made->address;
          co_return absl::OkStatus();
        });
    FURROW_CO_RETURN_IF_ERROR(result.status);
    shared.objects.push_back(address);
  }
  co_return absl::OkStatus();
}

Task<void> RunClient(Workload workload, Shared& shared, txn::Worker& worker, ProcessLog& log, Random random,
                     uint32_t transactions) {
  const Clock& clock = shared.cluster.world().true_clock();
  ++shared.running;
  for (uint32_t i = 0; i < transactions && shared.violation.ok(); ++i) {
    if (random.OneIn(3)) co_await worker.loop().SleepFor(random.Between(0, 60 * kMicrosecond));
    bool read_only = random.OneIn(3);
    log.Invoke(clock.Now(), FunctionOf(workload, read_only));
    Attempt attempt(shared, worker, log, read_only);
    absl::Status status = co_await attempt.tx.Begin();
    if (status.ok()) status = co_await Body(workload, attempt, random, read_only);
    if (!status.ok() || random.OneIn(40)) {
      attempt.tx.Abort();
      log.Complete(checker::Outcome::kFail, clock.Now());
      ++shared.aborted;
    } else {
      txn::CommitResult result = co_await attempt.tx.Commit();
      status = result.status;
      checker::Outcome outcome = result.outcome == txn::Outcome::kCommitted ? checker::Outcome::kOk
                                 : result.outcome == txn::Outcome::kAborted ? checker::Outcome::kFail
                                                                            : checker::Outcome::kUnknown;
      log.Complete(outcome, clock.Now());
      ++(outcome == checker::Outcome::kOk     ? shared.committed
         : outcome == checker::Outcome::kFail ? shared.aborted
                                              : shared.unknown);
    }
    // Where members are lost, so are leases, and outcomes to those who have none.
    const bool loss =
        shared.cluster.options().recovery && (absl::IsUnavailable(status) || absl::IsUnknown(status));
    if (!status.ok() && !absl::IsAborted(status) && !absl::IsDeadlineExceeded(status) &&
        !absl::IsDataLoss(status) && !loss) {
      shared.Violated(absl::StrCat("a transaction ended with ", status.ToString()));
    }
    // After a conflict the same objects are often still locked.
    if (!status.ok()) co_await worker.loop().SleepFor(random.Between(0, 200 * kMicrosecond));
  }
  --shared.running;
}

}  // namespace furrow::sim
