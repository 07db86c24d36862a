// SecretProof: how two fabrics prove to each other that they know the cluster's secret, and say whom they
// take each other for, before anything else is said. The secret itself never travels. Providers carry the
// messages:
//
//   initiator  --hello: version, cluster, node, nonce-->             acceptor
//              <--challenge: node, nonce--                (or a refusal: version or cluster differ)
//              --proof: ProveSecret(by_initiator)-->                 (the initiator proves itself first, so
//                                                                     that a stranger gets no proof of ours)
//              <--welcome: ProveSecret(!by_initiator)--   (or a refusal: wrong secret)
#ifndef FURROW_RDMA_SECRET_PROOF_H_
#define FURROW_RDMA_SECRET_PROOF_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/ids.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// What both sides sign.
struct HandshakeTranscript {
  std::string protocol;  // name and version of the provider's messages
  std::string cluster_id;
  NodeId initiator_node{};
  NodeId acceptor_node{};
  uint64_t initiator_instance = 0, acceptor_instance = 0;  // 0 where the provider tells none
  std::string initiator_nonce{};                           // kNonceBytes
  std::string acceptor_nonce{};
};

std::string MakeNonce();
// HMAC-SHA256 under the secret, kProofBytes; `by_initiator` separates the two proofs.
std::string ProveSecret(std::string_view secret, const HandshakeTranscript& transcript, bool by_initiator);
// In time that does not depend on where they differ.
bool SameProof(std::string_view a, std::string_view b);
// Tells clusters apart where there is no room for the name; no proof of anything.
uint64_t ClusterTag(std::string_view cluster_id);

// The refusals that every provider has.
absl::Status OtherCluster(NodeId peer, std::string_view their_cluster, NodeId self);
absl::Status OtherSecret(NodeId initiator, NodeId acceptor);
absl::Status NotOfThisCluster(std::string_view endpoint);

// A status as the peer has put it into a message. A code that is none becomes kUnknown; of the sentence, what
// can be printed on a line, kMaxPeerSentence bytes at most.
inline constexpr size_t kMaxPeerSentence = 512;
absl::Status StatusFromWire(uint64_t code, std::string_view sentence);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SECRET_PROOF_H_
