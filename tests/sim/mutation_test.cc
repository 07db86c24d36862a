// Each protocol step that can be turned off: without it a simulated run must fail within some seeds, with it
// those seeds must pass. Runs happen in child processes, since a broken protocol may also trip a
// FURROW_CHECK. Steps that random runs seldom need have tests of their own: step_test.cc,
// recovery_step_test.cc, storage/object_interleaving_test.cc, rdma/sim/sim_ring_test.cc.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/mutation.h"
#include "tests/sim/simulation.h"

namespace furrow::sim {
namespace {

#ifdef FURROW_MUTATIONS

struct Setting {
  std::vector<Workload> workloads;
  uint64_t seeds = 40;
  SimulationOptions options = {};  // seed and workload are filled in
};

// True if the run is found wrong. The child's words go to `why`.
bool RunFails(SimulationOptions options, Mutation mutation, std::string* why) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  std::fflush(nullptr);
  pid_t child = fork();  // lint-allow(seams): nothing is registered here
  if (child == 0) {
    close(pipe_ends[0]);
    dup2(pipe_ends[1], 2);
    SetMutation(mutation);
    SimulationResult result = RunSimulation(options);
    std::string text = result.status.ToString();
    if (!result.status.ok() && write(2, text.data(), text.size()) < 0) _exit(2);
    _exit(result.status.ok() ? 0 : 1);
  }
  close(pipe_ends[1]);
  why->clear();
  char buffer[4096];
  for (ssize_t got; (got = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    why->append(buffer, static_cast<size_t>(got));
  close(pipe_ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

void ExpectCaught(Mutation mutation, const Setting& setting) {
  std::string why;
  for (uint64_t seed = 1; seed <= setting.seeds; ++seed) {
    for (Workload workload : setting.workloads) {
      SimulationOptions options = setting.options;
      options.seed = seed;
      options.workload = workload;
      if (!RunFails(options, mutation, &why)) continue;
      std::printf("caught by seed %llu of %s: %.600s\n", static_cast<unsigned long long>(seed),
                  std::string(Name(workload)).c_str(), why.c_str());
      EXPECT_FALSE(RunFails(options, Mutation::kNone, &why)) << "fails without the mutation, too: " << why;
      return;
    }
  }
  ADD_FAILURE() << "no seed up to " << setting.seeds << " notices that the step is missing";
}

TEST(Mutations, WithoutLocksUpdatesAreLost) {
  ExpectCaught(Mutation::kSkipLock, {.workloads = {Workload::kListAppend, Workload::kBank}});
}

TEST(Mutations, WithoutValidationWritesSkew) {
  ExpectCaught(Mutation::kSkipValidate, {.workloads = {Workload::kListAppend, Workload::kRegister}});
}

TEST(Mutations, AReadOfALockedHeadMissesAWriteBelowItsSnapshot) {
  ExpectCaught(Mutation::kReadLockedHead,
               {.workloads = {Workload::kBank, Workload::kListAppend}, .seeds = 150});
}

TEST(Mutations, WithoutTheReadWaitASnapshotIsOlderThanWhatWasReported) {
  ExpectCaught(Mutation::kSkipReadWait,
               {.workloads = {Workload::kRegister, Workload::kListAppend}, .seeds = 150});
}

TEST(Mutations, WithoutTheWriteWaitAWriteIsNewerThanLaterSnapshots) {
  ExpectCaught(Mutation::kSkipWriteWait,
               {.workloads = {Workload::kRegister, Workload::kListAppend}, .seeds = 150});
}

TEST(Mutations, ABackupThatAppliesAnOlderWriteDiffersFromItsPrimary) {
  ExpectCaught(Mutation::kApplyOlderWrite, {.workloads = {Workload::kRegister}, .seeds = 150});
}

TEST(Mutations, OldVersionsThatAreReusedEarlyAreReadByOthers) {
  Setting setting{.workloads = {Workload::kBank, Workload::kLongFork}, .seeds = 150};
  ExpectCaught(Mutation::kReuseOldVersionsEarly, setting);
}

TEST(Mutations, ATruncationThatDropsUnappliedRecordsLeavesBackupsBehind) {
  ExpectCaught(Mutation::kTruncateBeforeApply, {.workloads = {Workload::kRegister}});
}

TEST(Mutations, APrimaryThatIsNotToldWhatBackupsHaveSeenForgetsIt) {
  ExpectCaught(Mutation::kSkipNeedRecovery,
               {.workloads = {Workload::kListAppend, Workload::kBank}, .options = {.kills = 1}});
}

TEST(Mutations, ANewPrimaryWithoutTheLocksGivesOutOldValues) {
  ExpectCaught(
      Mutation::kSkipLockRecovery,
      {.workloads = {Workload::kListAppend, Workload::kBank}, .seeds = 100, .options = {.evictions = 1}});
}

TEST(Mutations, BackupsThatLackRecordsMissWhatRecoveryCommits) {
  ExpectCaught(
      Mutation::kSkipReplication,
      {.workloads = {Workload::kListAppend, Workload::kBank}, .seeds = 200, .options = {.evictions = 1}});
}

TEST(Mutations, ADecisionBeforeAllVotesAbortsWhatHasCommitted) {
  ExpectCaught(
      Mutation::kSkipWaitForVotes,
      {.workloads = {Workload::kListAppend, Workload::kBank}, .seeds = 200, .options = {.evictions = 1}});
}

#else

TEST(Mutations, NeedABuildWithFurrowMutations) { GTEST_SKIP() << "configure with --preset mutation"; }

#endif  // FURROW_MUTATIONS

}  // namespace
}  // namespace furrow::sim
