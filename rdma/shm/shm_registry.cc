#include "rdma/shm/shm_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "rdma/shm/shm_session.h"

namespace furrow::rdma {

absl::StatusOr<std::unique_ptr<ShmRegistry>> ShmRegistry::Make() {
  FURROW_ASSIGN_OR_RETURN(MemoryFile table, MemoryFile::Anonymous(sizeof(RegistrationTable)));
  return std::unique_ptr<ShmRegistry>(new ShmRegistry(std::move(table)));
}

ShmRegistry::ShmRegistry(MemoryFile table) : table_(std::move(table)), registrations_(kMaxRegistrations) {
  for (uint32_t slot = 0; slot < kMaxRegistrations; ++slot) free_slots_.push_back(slot);
}

uint64_t* ShmRegistry::word_at(uint32_t slot) {
  return &reinterpret_cast<RegistrationTable*>(table_.data())->words[slot];
}

absl::StatusOr<RegistrationWord> ShmRegistry::Add(const MemoryFile& file, Access access) {
  if (file.size() == 0) return absl::InvalidArgumentError("cannot register an empty memory file");
  Registration registration;
  registration.range = {file.data(), file.data() + file.size()};
  if (access != Access::kNone) {
    if (file.fd() < 0) {
      return absl::InvalidArgumentError(
          "memory mapped from a peer's descriptor can be registered for local use only");
    }
    if (Grants(access, Access::kWrite)) {
      FURROW_ASSIGN_OR_RETURN(registration.fd, Duplicate(file.fd()));
    } else {
      FURROW_ASSIGN_OR_RETURN(const int fd, file.ReadOnlyDescriptor());
      registration.fd = Fd(fd);
    }
  }

  MutexLock lock(&mutex_);
  if (free_slots_.empty() || next_generation_ > RegistrationWord::kMaxGeneration) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", kMaxRegistrations,
                     " memory registrations of this fabric are in use: register fewer, larger files"));
  }
  const uint32_t slot = free_slots_.front();
  const uint32_t random = static_cast<uint32_t>(EntropySeed());
  const RemoteKey key(random / kMaxRegistrations * kMaxRegistrations + slot);
  registration.word = RegistrationWord::Make(key, next_generation_++, access);
  // What can fail comes first: a registration that its owner takes for failed must not stay.
  std::vector<ShmMessage> news;
  for (size_t i = 0; access != Access::kNone && i < subscribers_.size(); ++i) {
    FURROW_ASSIGN_OR_RETURN(ShmMessage message, MemoryMessage(registration));
    news.push_back(std::move(message));
  }
  free_slots_.pop_front();
  const RegistrationWord word = registration.word;
  registrations_[slot] = std::move(registration);
  if (access != Access::kNone) __atomic_store_n(word_at(slot), word.bits, __ATOMIC_RELEASE);
  for (size_t i = 0; i < news.size(); ++i) subscribers_[i]->Send(std::move(news[i]));
  version_.fetch_add(1, std::memory_order_acq_rel);
  return word;
}

void ShmRegistry::Remove(RegistrationWord word) {
  const uint32_t slot = word.slot();
  __atomic_store_n(word_at(slot), 0, __ATOMIC_SEQ_CST);
  MutexLock lock(&mutex_);
  FURROW_CHECK(registrations_[slot].word.bits == word.bits);
  registrations_[slot] = Registration();
  free_slots_.push_back(slot);
  version_.fetch_add(1, std::memory_order_acq_rel);
  if (word.access() == Access::kNone) return;
  for (const auto& session : subscribers_) {
    ShmMessage message;
    message.type = ShmMessageType::kForget;
    message.numbers[0] = word.bits;
    session->Send(std::move(message));
  }
}

void ShmRegistry::Subscribe(std::shared_ptr<ShmSession> session) {
  MutexLock lock(&mutex_);
  for (const Registration& registration : registrations_) {
    if (registration.word.bits == 0 || registration.word.access() == Access::kNone) continue;
    absl::StatusOr<ShmMessage> message = MemoryMessage(registration);
    // Without a descriptor to spare the peer cannot use this memory; its requests fail with kRemoteAccess.
    if (message.ok()) session->Send(*std::move(message));
  }
  subscribers_.push_back(std::move(session));
}

void ShmRegistry::Unsubscribe(const ShmSession* session) {
  MutexLock lock(&mutex_);
  std::erase_if(subscribers_, [session](const auto& s) { return s.get() == session; });
}

absl::StatusOr<Fd> ShmRegistry::TableDescriptor() const {
  FURROW_ASSIGN_OR_RETURN(const int fd, table_.ReadOnlyDescriptor());
  return Fd(fd);
}

absl::StatusOr<ShmMessage> ShmRegistry::MemoryMessage(const Registration& registration) const {
  ShmMessage message;
  message.type = ShmMessageType::kMemory;
  message.numbers = {registration.word.bits, reinterpret_cast<uint64_t>(registration.range.begin),
                     static_cast<uint64_t>(registration.range.end - registration.range.begin), 0};
  FURROW_ASSIGN_OR_RETURN(Fd fd, Duplicate(registration.fd.get()));
  message.fds.push_back(std::move(fd));
  return message;
}

std::vector<LocalRange> ShmRegistry::ranges() const {
  std::vector<LocalRange> all;
  {
    MutexLock lock(&mutex_);
    for (const Registration& registration : registrations_) {
      if (registration.word.bits != 0) all.push_back(registration.range);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const LocalRange& a, const LocalRange& b) { return a.begin < b.begin; });
  std::vector<LocalRange> joined;
  for (const LocalRange& range : all) {
    if (!joined.empty() && range.begin < joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

}  // namespace furrow::rdma
