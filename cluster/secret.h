// The cluster's secret: 32 random bytes in a file that only its owner may read. It never travels; who holds
// it proves so with HMAC-SHA256.
#ifndef FURROW_CLUSTER_SECRET_H_
#define FURROW_CLUSTER_SECRET_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace furrow::cluster {

// Makes a new secret in `path` (mode 0600). AlreadyExists if the file is there. `random_hex` is 64
// hexadecimal digits of entropy, handed in because only base/ reads it.
absl::Status WriteSecret(const std::string& path, std::string_view random_hex);
// The secret in `path`. NotFound; PermissionDenied: not readable, or others may read it too.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// Proves that the caller holds `secret`: 64 hexadecimal digits over `text`.
std::string Proof(std::string_view secret, std::string_view text);
// Takes the same time whatever differs.
bool ProofMatches(std::string_view secret, std::string_view text, std::string_view proof);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_SECRET_H_
