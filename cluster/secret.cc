#include "cluster/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace furrow::cluster {
namespace {
constexpr size_t kHexDigits = 64;
}

absl::Status WriteSecret(const std::string& path, std::string_view random_hex) {
  FURROW_CHECK(random_hex.size() == kHexDigits);
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    if (errno == EEXIST)
      return absl::AlreadyExistsError(absl::StrCat("there is a secret in ", path, " already"));
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write the cluster's secret to ", path));
  }
  std::string line = std::string(random_hex) + "\n";
  bool ok = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(fd) == 0;
  int error = errno;
  close(fd);
  if (ok) return absl::OkStatus();
  unlink(path.c_str());
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write the cluster's secret to ", path));
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the cluster's secret from ", path,
                                                   ": name the file with MemberOptions::secret_file"));
  }
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat st;
  if (fstat(fd, &st) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  if ((st.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the secret in ", path, " can be read by others than its owner: chmod 600 ", path));
  }
  char text[kHexDigits];
  if (read(fd, text, sizeof(text)) != static_cast<ssize_t>(sizeof(text))) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds no secret: it must be ", kHexDigits, " hexadecimal digits"));
  }
  return std::string(text, sizeof(text));
}

std::string Proof(std::string_view secret, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &length);
  FURROW_CHECK(done != nullptr && length == 32);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), length));
}

bool ProofMatches(std::string_view secret, std::string_view text, std::string_view proof) {
  std::string right = Proof(secret, text);
  return proof.size() == right.size() && CRYPTO_memcmp(right.data(), proof.data(), right.size()) == 0;
}

}  // namespace furrow::cluster
