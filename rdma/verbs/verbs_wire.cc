#include "rdma/verbs/verbs_wire.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/strings.h"

namespace furrow::rdma {
namespace {

absl::Status OtherVersion(uint16_t theirs) {
  return absl::FailedPreconditionError(absl::StrCat("the verbs fabric of one node speaks version ",
                                                    kVerbsVersion, ", that of the other version ", theirs,
                                                    ": run the same release of Furrow on both"));
}

}  // namespace

void VerbsMessage::SetText(std::string_view from) {
  text_bytes = static_cast<uint16_t>(std::min(from.size(), kMaxText));
  std::memcpy(text, from.data(), text_bytes);
}

void VerbsMessage::SetStatus(const absl::Status& status) {
  code = static_cast<uint32_t>(status.code());
  SetText(Sv(status.message()));
}

std::string VerbsProtocol() { return absl::StrCat("verbs ", kVerbsVersion); }

VerbsHello MakeHello(NodeId node, uint64_t cluster_tag, std::string_view nonce) {
  FURROW_CHECK(nonce.size() == kNonceBytes);
  VerbsHello hello = {.magic = kVerbsMagic,
                      .version = kVerbsVersion,
                      .zero0 = 0,
                      .node = node.value(),
                      .zero1 = 0,
                      .cluster_tag = cluster_tag,
                      .nonce = {}};
  std::memcpy(hello.nonce, nonce.data(), kNonceBytes);
  return hello;
}

absl::Status ParseHello(std::span<const std::byte> bytes, VerbsHello* hello) {
  // The connection manager pads with zero bytes.
  if (bytes.size() >= sizeof(VerbsHello)) std::memcpy(hello, bytes.data(), sizeof(VerbsHello));
  if (bytes.size() < sizeof(VerbsHello) || hello->magic != kVerbsMagic) {
    return absl::FailedPreconditionError(
        "the peer is no verbs fabric of Furrow: check the address and the port");
  }
  if (hello->version != kVerbsVersion) return OtherVersion(hello->version);
  if (hello->zero0 != 0 || hello->zero1 != 0) {
    return absl::FailedPreconditionError("the peer's greeting is malformed");
  }
  return absl::OkStatus();
}

std::string NonceOf(const VerbsHello& hello) {
  return std::string(reinterpret_cast<const char*>(hello.nonce), kNonceBytes);
}

VerbsTicket MakeTicket(NodeId initiator, uint32_t connection, std::string_view ticket) {
  FURROW_CHECK(ticket.size() == kNonceBytes);
  VerbsTicket made = {.magic = kTicketMagic,
                      .version = kVerbsVersion,
                      .zero = 0,
                      .node = initiator.value(),
                      .connection = connection,
                      .ticket = {}};
  std::memcpy(made.ticket, ticket.data(), kNonceBytes);
  return made;
}

bool IsTicket(std::span<const std::byte> bytes) {
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(VerbsTicket)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  return magic == kTicketMagic;
}

absl::Status ParseTicket(std::span<const std::byte> bytes, VerbsTicket* ticket) {
  FURROW_CHECK(bytes.size() >= sizeof(VerbsTicket));
  std::memcpy(ticket, bytes.data(), sizeof(VerbsTicket));
  if (ticket->version != kVerbsVersion) return OtherVersion(ticket->version);
  return absl::OkStatus();
}

VerbsRefusal MakeRefusal(const absl::Status& status) {
  VerbsRefusal refusal = {.magic = kVerbsMagic,
                          .version = kVerbsVersion,
                          .code = static_cast<uint16_t>(status.code()),
                          .sentence = {}};
  const std::string_view sentence = Sv(status.message());
  std::memcpy(refusal.sentence, sentence.data(), std::min(sentence.size(), sizeof(refusal.sentence) - 1));
  return refusal;
}

bool ParseRefusal(std::span<const std::byte> bytes, absl::Status* status) {
  VerbsRefusal refusal;
  if (bytes.size() < sizeof(refusal)) return false;
  std::memcpy(&refusal, bytes.data(), sizeof(refusal));
  if (refusal.magic != kVerbsMagic) return false;
  *status =
      StatusFromWire(refusal.code, {refusal.sentence, strnlen(refusal.sentence, sizeof(refusal.sentence))});
  return true;
}

bool ParseMessage(std::span<const std::byte> bytes, VerbsMessage* message) {
  if (bytes.size() != sizeof(VerbsMessage)) return false;
  std::memcpy(static_cast<void*>(message), bytes.data(), sizeof(VerbsMessage));
  const auto zero = [](uint8_t byte) { return byte == 0; };
  return message->magic == kVerbsMagic && message->text_bytes <= VerbsMessage::kMaxText &&
         message->type >= VerbsMessageType::kProof && message->type <= VerbsMessageType::kClose &&
         message->urgent <= 1 && std::all_of(std::begin(message->zero), std::end(message->zero), zero) &&
         std::all_of(std::begin(message->end.zero), std::end(message->end.zero), zero);
}

}  // namespace furrow::rdma
