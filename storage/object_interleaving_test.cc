// Every interleaving of installs with one reader, at the granularity at which memory is really read: lines by
// a NIC in any order, 8-byte words in any order between two reads of word 0, words in ascending order by a
// local reader.
//
// The states of the slot after each single store are recorded through StorePoint(); an image that a reader
// may get is then put together from pieces of different states, and judged by StripImage(), whose rules
// CopyObject() shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/mutation.h"
#include "base/random.h"
#include "base/store_point.h"
#include "storage/object.h"
#include "storage/object_copy.h"

#ifdef FURROW_MUTATIONS

namespace furrow::storage {
namespace {

using Bytes = std::vector<std::byte>;
using State = Bytes;  // of the whole slot

struct Version {
  uint64_t ts;
  OldVersionPointer ovp;
};
constexpr Version kVersions[] = {
    {10, OldVersionPointer(64)}, {20, OldVersionPointer(128)}, {30, OldVersionPointer(192)}};

Bytes PayloadOf(uint64_t ts, size_t size) {
  Bytes payload(size);
  for (size_t i = 0; i < size; ++i) payload[i] = static_cast<std::byte>(ts + i % 5);
  return payload;
}

// The states of a slot that holds version 0 while `installs` later versions are installed, one store after
// another.
class Recording : public StoreObserver {
 public:
  Recording(size_t slot_bytes, int installs) : slot_(slot_bytes / kLineBytes) {
    const size_t payload = PayloadCapacity(slot_bytes);
    Install(slot(), slot_bytes, PayloadOf(kVersions[0].ts, payload), Word(0), kVersions[0].ovp);
    OnStorePoint();
    StoreObserver* previous = SetStoreObserver(this);
    for (int i = 1; i <= installs; ++i) {
      EXPECT_TRUE(TryLock(slot(), Word(i - 1)));
      OnStorePoint();
      Install(slot(), slot_bytes, PayloadOf(kVersions[i].ts, payload), Word(i), kVersions[i].ovp);
      OnStorePoint();
    }
    SetStoreObserver(previous);
  }
  void OnStorePoint() override { states_.emplace_back(slot(), slot() + slot_.size() * kLineBytes); }
  const std::vector<State>& states() const { return states_; }

  static ObjectWord Word(int i) { return ObjectWord(Timestamp(kVersions[i].ts), true, false); }

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes] = {};
  };
  std::byte* slot() { return slot_[0].bytes; }
  std::vector<Line> slot_;
  std::vector<State> states_;
};

uint64_t WordOf(const State& state, size_t word) {
  uint64_t w;
  std::memcpy(&w, state.data() + 8 * word, 8);
  return w;
}

struct Verdict {
  uint64_t objects = 0;  // accepted
  uint64_t torn = 0;     // accepted although it is no version's header and payload
};

// Judges an image as a reader does and checks what it accepts.
void Judge(const Bytes& image, ObjectWord before, ObjectWord after, Verdict* verdict) {
  static Bytes got;
  got.resize(PayloadCapacity(image.size()));
  ObjectHeader header;
  if (StripImage(image, before, after, got, &header) != CopyResult::kObject) return;
  ++verdict->objects;
  for (const Version& v : kVersions) {
    if (header.word == ObjectWord(Timestamp(v.ts), true, false) && header.version.ovp() == v.ovp &&
        got == PayloadOf(v.ts, got.size())) {
      return;
    }
  }
  ++verdict->torn;
}

// A NIC's READ: whole lines, each from any state. Its own word 0 stands for before and after.
Verdict ReadLines(size_t slot_bytes, int installs, Mutation of_reader = Mutation::kNone,
                  Mutation of_writer = Mutation::kNone) {
  SetMutation(of_writer);
  Recording recording(slot_bytes, installs);
  SetMutation(of_reader);
  const std::vector<State>& states = recording.states();
  Verdict verdict;
  Bytes image(slot_bytes);
  std::function<void(size_t)> choose = [&](size_t at) {
    if (at == slot_bytes) {
      ObjectWord own = ObjectWord::FromBits(WordOf(image, 0));
      return Judge(image, own, own, &verdict);
    }
    for (const State& state : states) {
      std::copy_n(state.begin() + static_cast<long>(at), kLineBytes, image.begin() + static_cast<long>(at));
      choose(at + kLineBytes);
    }
  };
  choose(0);
  SetMutation(Mutation::kNone);
  return verdict;
}

TEST(ObjectInterleavingTest, LinesInAnyOrderNeverMakeATornObject) {
  for (size_t slot_bytes : {64, 128, 192}) {
    Verdict verdict = ReadLines(slot_bytes, 2);
    EXPECT_EQ(verdict.torn, 0u) << slot_bytes;
    EXPECT_GE(verdict.objects, 3u);
  }
  EXPECT_EQ(ReadLines(256, 1).torn, 0u);
}

TEST(ObjectInterleavingTest, MutationSkipInvalidLineVersionsMakesTornObjects) {
  EXPECT_GT(ReadLines(192, 1, Mutation::kNone, Mutation::kSkipInvalidLineVersions).torn, 0u);
}

TEST(ObjectInterleavingTest, MutationSkipLineVersionCheckMakesTornObjects) {
  EXPECT_GT(ReadLines(192, 1, Mutation::kSkipLineVersionCheck).torn, 0u);
}

// Loads of CopyObject(), each from the recorded state that the schedule gives it.
struct ScheduledWord {
  static uint64_t Load(const std::byte* p) {
    const State& state = (*states)[schedule[next++]];
    return WordOf(state, static_cast<size_t>(p - states->front().data()) / 8);
  }
  static inline const std::vector<State>* states = nullptr;
  static inline std::vector<size_t> schedule;
  static inline size_t next = 0;
};

// CopyObject() itself: its nine loads of a one-line object fall between the stores of an install in each of
// C(18, 9) ways.
TEST(ObjectInterleavingTest, LocalReadersNeverAcceptATornObject) {
  Recording recording(64, 1);
  ScheduledWord::states = &recording.states();
  const size_t states = recording.states().size();
  ASSERT_EQ(states, 10u);  // before; lock, 6 words of payload, word 1, word 0
  Bytes got(kFirstLinePayload);
  uint64_t schedules = 0;
  uint64_t objects[2] = {};
  std::vector<size_t>& schedule = ScheduledWord::schedule;
  schedule.assign(9, 0);
  std::function<void(size_t, size_t)> choose = [&](size_t load, size_t from) {
    for (size_t t = from; t < states; ++t) {
      schedule[load] = t;
      if (load + 1 < schedule.size()) {
        choose(load + 1, t);
        continue;
      }
      ++schedules;
      ScheduledWord::next = 0;
      ObjectHeader header;
      if (internal::CopyObject<ScheduledWord>(recording.states().front().data(), got, &header) !=
          CopyResult::kObject) {
        continue;
      }
      const size_t v = header.word == Recording::Word(0) ? 0 : 1;
      ++objects[v];
      ASSERT_EQ(header.word, Recording::Word(static_cast<int>(v)));
      ASSERT_EQ(header.version.ovp(), kVersions[v].ovp);
      ASSERT_EQ(got, PayloadOf(kVersions[v].ts, got.size()));
    }
  };
  choose(0, 0);
  EXPECT_EQ(schedules, 48'620u);
  EXPECT_EQ(objects[0], 1u);  // all loads before the lock
  EXPECT_EQ(objects[1], 1u);  // all after the last store
}

// Words in any order between a READ of word 0 before and one after. A torn object is one in which two pieces
// disagree, so it is enough to take any two from any states within the window and all others from its start.
TEST(ObjectInterleavingTest, WordsInAnyOrderBetweenTwoReadsOfWordZeroNeverMakeATornObject) {
  for (size_t slot_bytes : {64, 128}) {
    Recording recording(slot_bytes, slot_bytes == 64 ? 2 : 1);
    const std::vector<State>& states = recording.states();
    const size_t words = slot_bytes / 8;
    Verdict verdict;
    for (size_t first = 0; first < states.size(); ++first) {
      for (size_t last = first; last < states.size(); ++last) {
        ObjectWord before = ObjectWord::FromBits(WordOf(states[first], 0));
        ObjectWord after = ObjectWord::FromBits(WordOf(states[last], 0));
        if (before != after) continue;  // rejected whatever the image is
        for (size_t a = 0; a < words; ++a) {
          for (size_t b = 0; b < a; ++b) {
            for (size_t ta = first; ta <= last; ++ta) {
              for (size_t tb = first; tb <= last; ++tb) {
                Bytes image = states[first];
                std::copy_n(states[ta].begin() + static_cast<long>(8 * a), 8,
                            image.begin() + static_cast<long>(8 * a));
                std::copy_n(states[tb].begin() + static_cast<long>(8 * b), 8,
                            image.begin() + static_cast<long>(8 * b));
                Judge(image, before, after, &verdict);
              }
            }
          }
        }
      }
    }
    EXPECT_EQ(verdict.torn, 0u) << slot_bytes;
    EXPECT_GT(verdict.objects, 0u);
  }
}

TEST(ObjectInterleavingTest, RandomWordsOfLargerObjectsNeverMakeATornObject) {
  const uint64_t seed = 20240611;
  Random random(seed);
  Recording recording(256, 2);
  const std::vector<State>& states = recording.states();
  Verdict verdict;
  for (int round = 0; round < 50'000; ++round) {
    size_t first = random.Below(states.size());
    size_t last = std::min(states.size() - 1, first + random.Below(6));
    Bytes image(256);
    for (size_t at = 0; at < image.size(); at += 8) {
      const State& state = states[first + random.Below(last - first + 1)];
      std::copy_n(state.begin() + static_cast<long>(at), 8, image.begin() + static_cast<long>(at));
    }
    Judge(image, ObjectWord::FromBits(WordOf(states[first], 0)),
          ObjectWord::FromBits(WordOf(states[last], 0)), &verdict);
  }
  EXPECT_EQ(verdict.torn, 0u) << "seed " << seed;
  EXPECT_GT(verdict.objects, 0u);
}

// Why the second read of word 0 is needed where pieces are smaller than lines.
TEST(ObjectInterleavingTest, WordsWithoutASecondReadOfWordZeroWouldTear) {
  Recording recording(64, 1);
  const std::vector<State>& states = recording.states();
  Bytes image = states[0];
  std::copy_n(states[2].begin() + 16, 8, image.begin() + 16);  // one word of the new payload
  Verdict verdict;
  Judge(image, Recording::Word(0), Recording::Word(0), &verdict);
  EXPECT_EQ(verdict.torn, 1u);
}

// The pair that leads to older versions: its chain has every version up to word 0's timestamp, exclusive of
// it or, during an install, inclusive. Never does it skip one.
TEST(ObjectInterleavingTest, AnAcceptedHeaderNeverSkipsAVersion) {
  Recording recording(64, 2);
  const std::vector<State>& states = recording.states();
  int locked = 0;
  for (size_t before = 0; before < states.size(); ++before) {
    for (size_t pair = before; pair < states.size(); ++pair) {
      for (size_t after = pair; after < states.size(); ++after) {
        ObjectWord word = ObjectWord::FromBits(WordOf(states[before], 0));
        if (word != ObjectWord::FromBits(WordOf(states[after], 0))) continue;
        OldVersionPointer ovp = VersionWord::FromBits(WordOf(states[pair], 1)).ovp();
        size_t v = 0;
        while (kVersions[v].ts != word.timestamp().value()) ++v;
        bool own = ovp == kVersions[v].ovp;
        // The OVP of the next version names the copy of this one.
        bool next = word.locked() && v + 1 < std::size(kVersions) && ovp == kVersions[v + 1].ovp;
        EXPECT_TRUE(own || next);
        locked += next;
      }
    }
  }
  EXPECT_GT(locked, 0);
}

}  // namespace
}  // namespace furrow::storage

#endif  // FURROW_MUTATIONS
