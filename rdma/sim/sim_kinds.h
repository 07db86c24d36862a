// Kinds of the simulated fabric's events in a world's digest.
#ifndef FURROW_RDMA_SIM_SIM_KINDS_H_
#define FURROW_RDMA_SIM_SIM_KINDS_H_

#include <cstdint>

namespace furrow::rdma {

inline constexpr uint8_t kSimConnect = 0x01;  // runs an acceptor, code of a node
inline constexpr uint8_t kSimPieces = 0x81;
inline constexpr uint8_t kSimPacket = 0x82;
inline constexpr uint8_t kSimTimeout = 0x83;
inline constexpr uint8_t kSimFlush = 0x84;
inline constexpr uint8_t kSimPeerLost = 0x85;

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SIM_SIM_KINDS_H_
