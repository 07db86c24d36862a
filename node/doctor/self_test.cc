#include "node/doctor/self_test.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/histogram.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace furrow::node {
namespace {

using rdma::Opcode;
using rdma::RemoteAddress;
using rdma::WorkRequest;

constexpr uint64_t kSeed = 20'000;
// Of one request: many packets of any MTU. Not more: a slow software device resends a long message from its
// beginning whenever the acknowledgement is late, and sends the answer to a READ without a pause, more than
// the 1,000 packets that Linux queues for a processor.
constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kPiecesUnderWay = 4;  // of a bandwidth figure: more than 100 Gb/s carry in a round trip
constexpr size_t kDepth = 16;          // rounds under way
constexpr uint64_t kMinRounds = 1000;
constexpr uint64_t kMinMeasured = 100;  // operations
constexpr uint64_t kMaxMeasured = 1'000'000;

// Our own memory: the payload that goes, the one that comes back, the blocks of rounds under way.
constexpr size_t kOutAt = 0;
constexpr size_t kBackAt = kOutAt + kPayloadBytes;
constexpr size_t kBlocksAt = kBackAt + kPayloadBytes;
static_assert(kPayloadBytes % kPieceBytes == 0);
constexpr size_t kLocalBytes = kBlocksAt + kDepth * kBlockBytes;

class Tester {
 public:
  Tester(std::unique_ptr<PeerLink> link, const SelfTestOptions& options)
      : link_(std::move(link)), options_(options) {}

  absl::Status Connect(const rdma::Endpoint& endpoint, Findings* findings);
  absl::Status Payload(Findings* findings);
  absl::Status Order(Findings* findings);
  absl::Status Latency(Findings* findings);
  absl::Status Bandwidth(Findings* findings);

 private:
  std::span<std::byte> Local(size_t at, size_t bytes) { return link_->memory().subspan(at, bytes); }
  WorkRequest Request(Opcode opcode, size_t local_at, size_t remote_at, size_t bytes) {
    WorkRequest request;
    request.opcode = opcode;
    request.local = Local(local_at, bytes);
    request.remote = remote_.Plus(remote_at);
    return request;
  }
  absl::Status Run(const WorkRequest& request) {
    return link_->Run(std::span(&request, 1), options_.timeout_ns);
  }
  absl::StatusOr<PeerMessage> Ask(PeerMessage::Kind kind, uint64_t a, uint64_t b) {
    return link_->Ask({kind, 0, a, b}, options_.timeout_ns);
  }
  absl::Status PostRound(uint64_t round);
  absl::Status ReadsBehindWrites(uint64_t* wrong);
  template <class F>
  absl::StatusOr<Histogram> Measure(F&& once);
  absl::StatusOr<double> MegabytesPerSecond(Opcode opcode);

  std::unique_ptr<PeerLink> link_;
  const SelfTestOptions& options_;
  RemoteAddress remote_;
};

absl::Status Tester::Connect(const rdma::Endpoint& endpoint, Findings* findings) {
  const Nanos start = link_->loop().Now();
  FURROW_ASSIGN_OR_RETURN(const PeerHello hello, link_->Connect(endpoint, options_.timeout_ns));
  remote_ = {hello.address, rdma::RemoteKey(hello.key)};
  // A SEND that finds no receive posted fails, so ask the memory first.
  const Nanos deadline = link_->loop().Now() + options_.timeout_ns;
  do {
    if (link_->loop().Now() > deadline) return absl::DeadlineExceededError("the other doctor does not begin");
    FURROW_RETURN_IF_ERROR(Run(Request(Opcode::kRead, kBackAt, kReadyAt, 8)));
  } while (LoadWord(link_->memory(), kBackAt) != 1);
  FURROW_RETURN_IF_ERROR(Ask(PeerMessage::kEcho, 1, 2).status());
  findings->Ok(absl::StrFormat("connected to %s and answered in %.1f ms", endpoint,
                               static_cast<double>(link_->loop().Now() - start) / kMillisecond));
  return absl::OkStatus();
}

absl::Status Tester::Payload(Findings* findings) {
  for (size_t i = 0; i < kPayloadBytes; ++i) link_->memory()[kOutAt + i] = PatternByte(kSeed, i);
  // Pieces that are smaller than a packet, one by one larger, and many packets long.
  for (size_t at = 0, bytes = 1; at < kPayloadBytes;
       at += bytes, bytes = std::min<size_t>(bytes * 3, kPieceBytes)) {
    const size_t piece = std::min(bytes, kPayloadBytes - at);
    FURROW_RETURN_IF_ERROR(Run(Request(Opcode::kWrite, kOutAt + at, kPayloadAt + at, piece)));
  }
  FURROW_ASSIGN_OR_RETURN(const PeerMessage seen, Ask(PeerMessage::kPattern, kSeed, kPayloadBytes));
  for (size_t at = 0; at < kPayloadBytes; at += kPieceBytes) {
    FURROW_RETURN_IF_ERROR(Run(Request(Opcode::kRead, kBackAt + at, kPayloadAt + at, kPieceBytes)));
  }
  uint64_t wrong = 0;
  for (size_t i = 0; i < kPayloadBytes; ++i)
    wrong += link_->memory()[kOutAt + i] != link_->memory()[kBackAt + i];
  if (seen.a + wrong > 0) {
    findings->Error(
        absl::StrCat("of ", kPayloadBytes, " bytes, ", seen.a, " arrived wrong and ", wrong,
                     " came back wrong"),
        "do not run Furrow over this path: look for the same MTU on both hosts and all switches, and for "
        "errors of the ports (furrow doctor on both)");
  } else {
    findings->Ok(
        absl::StrCat(kPayloadBytes >> 20, " MB written and read back, in pieces of 1 byte to 64 KB"));
  }
  return absl::OkStatus();
}

// All words of the block, then the flag that says so.
absl::Status Tester::PostRound(uint64_t round) {
  const size_t at = kBlocksAt + (round % kDepth) * kBlockBytes;
  for (size_t word = 0; word < kBlockBytes; word += 8) StoreWord(link_->memory(), at + word, round);
  uint64_t flag = round;
  WorkRequest pair[2] = {Request(Opcode::kWrite, at, kBlockAt, kBlockBytes), {}};
  pair[0].signaled = false;
  pair[1].opcode = Opcode::kWrite;
  pair[1].local = std::as_writable_bytes(std::span(&flag, 1));
  pair[1].inlined = true;
  pair[1].remote = remote_.Plus(kFlagAt);
  return link_->connection()->Post(pair);
}

// A READ sees what the WRITE before it has written, though neither was waited for.
absl::Status Tester::ReadsBehindWrites(uint64_t* wrong) {
  for (uint64_t i = 1; i <= options_.order_rounds / 100; ++i) {
    uint64_t value = i;
    WorkRequest pair[2] = {Request(Opcode::kWrite, kOutAt, kPayloadAt, 8),
                           Request(Opcode::kRead, kBackAt, kPayloadAt, 8)};
    pair[0].signaled = false;
    pair[0].local = std::as_writable_bytes(std::span(&value, 1));
    pair[0].inlined = true;
    FURROW_RETURN_IF_ERROR(link_->Run(pair, options_.timeout_ns));
    *wrong += LoadWord(link_->memory(), kBackAt) != i;
  }
  return absl::OkStatus();
}

absl::Status Tester::Order(Findings* findings) {
  FURROW_RETURN_IF_ERROR(Ask(PeerMessage::kWatch, 0, 0).status());
  const uint64_t before = link_->ended();
  const Nanos enough = link_->loop().Now() + options_.order_ns;
  uint64_t round = 0;
  while (round < options_.order_rounds && (round < kMinRounds || link_->loop().Now() < enough)) {
    ++round;
    // The block of this round was that of the round kDepth before: its WRITE must have ended.
    const auto free = [&] { return round - 1 - (link_->ended() - before) < kDepth; };
    FURROW_RETURN_IF_ERROR(link_->PollUntil(free, options_.timeout_ns, "the end of a WRITE"));
    FURROW_RETURN_IF_ERROR(PostRound(round));
  }
  const auto all = [&] { return link_->ended() - before == round; };
  FURROW_RETURN_IF_ERROR(link_->PollUntil(all, options_.timeout_ns, "the end of a WRITE"));
  FURROW_ASSIGN_OR_RETURN(const PeerMessage seen, Ask(PeerMessage::kWatched, 0, 0));
  uint64_t wrong = 0;
  FURROW_RETURN_IF_ERROR(ReadsBehindWrites(&wrong));
  const std::string counts = absl::StrCat(
      "in ", options_.order_rounds, " rounds of a block and its flag the other host looked ", seen.a,
      " times and saw ", seen.b, " flags before their block; ", wrong, " READs overtook a WRITE");
  if (seen.b + wrong > 0) {
    findings->Error(counts,
                    "do not run Furrow over this path: is adaptive routing or relaxed ordering forced by the "
                    "driver or the BIOS? Tell us the card and its firmware");
  } else {
    findings->Ok(counts);
  }
  return absl::OkStatus();
}

template <class F>
absl::StatusOr<Histogram> Tester::Measure(F&& once) {
  Histogram times;
  const Nanos end = link_->loop().Now() + options_.measure_ns;
  for (Nanos now = link_->loop().Now();
       times.count() < kMinMeasured || (now < end && times.count() < kMaxMeasured);) {
    FURROW_RETURN_IF_ERROR(once());
    const Nanos after = link_->loop().Now();
    times.Record(after - now);
    now = after;
  }
  return times;
}

absl::Status Tester::Latency(Findings* findings) {
  const auto report = [&](const char* what, const Histogram& times) {
    findings->Ok(absl::StrFormat("%s: p50 %.1f us, p99 %.1f us, best %.1f us of %d", what,
                                 static_cast<double>(times.Percentile(50)) / kMicrosecond,
                                 static_cast<double>(times.Percentile(99)) / kMicrosecond,
                                 static_cast<double>(times.min()) / kMicrosecond, times.count()));
  };
  FURROW_ASSIGN_OR_RETURN(const Histogram reads,
                          Measure([&] { return Run(Request(Opcode::kRead, kBackAt, kPayloadAt, 8)); }));
  report("READ of 8 bytes", reads);
  FURROW_ASSIGN_OR_RETURN(const Histogram writes,
                          Measure([&] { return Run(Request(Opcode::kWrite, kOutAt, kPayloadAt, 8)); }));
  report("WRITE of 8 bytes", writes);
  FURROW_ASSIGN_OR_RETURN(const Histogram echoes,
                          Measure([&] { return Ask(PeerMessage::kEcho, 0, 0).status(); }));
  report("SEND and answer", echoes);
  return absl::OkStatus();
}

absl::StatusOr<double> Tester::MegabytesPerSecond(Opcode opcode) {
  const uint64_t before = link_->ended();
  uint64_t posted = 0;
  const Nanos start = link_->loop().Now();
  while (posted < kMinMeasured ||
         (link_->loop().Now() - start < options_.measure_ns && posted < kMaxMeasured)) {
    const auto free = [&] { return posted - (link_->ended() - before) < kPiecesUnderWay; };
    FURROW_RETURN_IF_ERROR(link_->PollUntil(free, options_.timeout_ns, "the end of a request"));
    const size_t at = (posted % kPiecesUnderWay) * kPieceBytes;
    FURROW_RETURN_IF_ERROR(link_->connection()->Post(
        Request(opcode, opcode == Opcode::kRead ? kBackAt + at : kOutAt + at, at, kPieceBytes)));
    ++posted;
  }
  const auto all = [&] { return link_->ended() - before == posted; };
  FURROW_RETURN_IF_ERROR(link_->PollUntil(all, options_.timeout_ns, "the end of a request"));
  const double seconds = static_cast<double>(link_->loop().Now() - start) / kSecond;
  return static_cast<double>(posted * kPieceBytes) / 1e6 / seconds;
}

absl::Status Tester::Bandwidth(Findings* findings) {
  FURROW_ASSIGN_OR_RETURN(const double reads, MegabytesPerSecond(Opcode::kRead));
  FURROW_ASSIGN_OR_RETURN(const double writes, MegabytesPerSecond(Opcode::kWrite));
  findings->Ok(absl::StrFormat("READ %.0f MB/s, WRITE %.0f MB/s, with %d requests of 64 KB under way", reads,
                               writes, kPiecesUnderWay));
  return absl::OkStatus();
}

}  // namespace

std::vector<Finding> SelfTest(rdma::Fabric& fabric, const rdma::Endpoint& endpoint,
                              const SelfTestOptions& options) {
  constexpr char kUnreached[] =
      "start \"furrow doctor --serve\" on the other host, and examine both with furrow doctor: address, GID, "
      "firewall, secret";
  constexpr char kBroken[] =
      "the connection works and then fails: run furrow doctor on both hosts, and look at MTU, cables, "
      "counters";
  std::vector<Finding> all;
  const auto step = [&](const char* name, const char* advice, const auto& run) {
    Findings findings(name);
    const absl::Status status = run(&findings);
    if (!status.ok()) findings.Error(std::string(status.message()), advice);
    std::vector<Finding> more = findings.Take();
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    return status.ok();
  };
  std::unique_ptr<Tester> tester;
  const auto connect = [&](Findings* findings) -> absl::Status {
    FURROW_ASSIGN_OR_RETURN(std::unique_ptr<PeerLink> link, PeerLink::Make(fabric, kLocalBytes, false));
    tester = std::make_unique<Tester>(std::move(link), options);
    return tester->Connect(endpoint, findings);
  };
  if (!step("peer.connect", kUnreached, connect)) return all;
  constexpr struct {
    const char* name;
    absl::Status (Tester::*run)(Findings*);
  } kSteps[] = {{"peer.payload", &Tester::Payload},
                {"peer.order", &Tester::Order},
                {"peer.latency", &Tester::Latency},
                {"peer.bandwidth", &Tester::Bandwidth}};
  for (const auto& [name, run] : kSteps) {
    const auto call = [&, method = run](Findings* findings) { return (tester.get()->*method)(findings); };
    // Each needs the connection that the one before has left whole.
    if (!step(name, kBroken, call)) break;
  }
  return all;
}

}  // namespace furrow::node
