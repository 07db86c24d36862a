#include "rdma/secret_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"

namespace furrow::rdma {
namespace {

template <class T>
void AppendRaw(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& to, std::string_view text) {
  AppendRaw(to, static_cast<uint64_t>(text.size()));
  to += text;
}

}  // namespace

std::string MakeNonce() {
  std::string nonce;
  while (nonce.size() < kNonceBytes) AppendRaw(nonce, EntropySeed());
  return nonce;
}

std::string ProveSecret(std::string_view secret, const HandshakeTranscript& transcript, bool by_initiator) {
  std::string text =
      absl::StrCat("furrow fabric, proof of the ", by_initiator ? "initiator" : "acceptor", ", ");
  AppendText(text, transcript.protocol);
  AppendText(text, transcript.cluster_id);
  AppendRaw(text, transcript.initiator_node.value());
  AppendRaw(text, transcript.acceptor_node.value());
  AppendRaw(text, transcript.initiator_instance);
  AppendRaw(text, transcript.acceptor_instance);
  AppendText(text, transcript.initiator_nonce);
  AppendText(text, transcript.acceptor_nonce);
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  FURROW_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac,
                    &bytes) != nullptr);
  FURROW_CHECK(bytes == kProofBytes);
  return std::string(reinterpret_cast<const char*>(mac), bytes);
}

bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

uint64_t ClusterTag(std::string_view cluster_id) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  FURROW_CHECK(EVP_Digest(cluster_id.data(), cluster_id.size(), digest, &bytes, EVP_sha256(), nullptr) == 1);
  uint64_t tag;
  std::memcpy(&tag, digest, sizeof(tag));
  return tag;
}

absl::Status OtherCluster(NodeId peer, std::string_view their_cluster, NodeId self) {
  return absl::FailedPreconditionError(absl::StrCat(
      "node ", peer.value(), " is of ", their_cluster.empty() ? "another cluster than" : "cluster \"",
      Sv(their_cluster.substr(0, 200)), their_cluster.empty() ? "" : "\", of another than", " node ",
      self.value(), ": check the cluster id and the address"));
}

absl::Status OtherSecret(NodeId initiator, NodeId acceptor) {
  return absl::PermissionDeniedError(absl::StrCat("nodes ", initiator.value(), " and ", acceptor.value(),
                                                  " have different cluster secrets: give both the same "
                                                  "secret file"));
}

absl::Status NotOfThisCluster(std::string_view endpoint) {
  return absl::PermissionDeniedError(absl::StrCat(
      "the process at ", Sv(endpoint), " does not know the secret of this cluster: check the endpoint"));
}

absl::Status StatusFromWire(uint64_t code, std::string_view sentence) {
  if (code < 1 || code > 16) code = static_cast<uint64_t>(absl::StatusCode::kUnknown);
  std::string clean(sentence.substr(0, kMaxPeerSentence));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return absl::Status(static_cast<absl::StatusCode>(code), clean);
}

}  // namespace furrow::rdma
