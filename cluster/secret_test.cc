#include "cluster/secret.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

TEST(SecretTest, ProofIsHmacSha256) {
  // RFC 4231, test case 2.
  EXPECT_EQ(Proof("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(SecretTest, ProofOfAnotherTextOrSecretDoesNotMatch) {
  std::string proof = Proof("secret", "text");
  EXPECT_TRUE(ProofMatches("secret", "text", proof));
  EXPECT_FALSE(ProofMatches("secret", "texT", proof));
  EXPECT_FALSE(ProofMatches("other", "text", proof));
  EXPECT_FALSE(ProofMatches("secret", "text", ""));
}

TEST(SecretTest, FileIsForItsOwnerOnly) {
  char name[] = "/tmp/furrow-secret-XXXXXX";
  std::string directory = mkdtemp(name);
  const std::string path = directory + "/secret";
  EXPECT_TRUE(absl::IsNotFound(ReadSecret(path).status()));
  const std::string hex(64, 'a');
  ASSERT_TRUE(WriteSecret(path, hex).ok());
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(*ReadSecret(path), hex);
  EXPECT_TRUE(absl::IsAlreadyExists(WriteSecret(path, hex)));
  chmod(path.c_str(), 0644);
  EXPECT_TRUE(absl::IsPermissionDenied(ReadSecret(path).status()));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace furrow::cluster
