#include "bench/fabric_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/child_process.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"
#include "bench/fabric_cases.h"
#include "bench/fabric_copies.h"
#include "bench/fabric_peer.h"
#include "bench/fabric_site.h"
#include "bench/fabric_wire.h"
#include "bench/harness/flags.h"
#include "bench/harness/json.h"

namespace furrow::bench {
namespace {

constexpr char kCopies[] = "copies";
constexpr char kRings[] = "rings";
constexpr char kUrgent[] = "urgent";
constexpr char kOfWires[] = "read-latency,write-latency,notify-latency,read-rate,write-rate,urgent";

struct Settings {
  std::string fabric = "shm";
  std::string address;
  std::string peer_address;
  uint64_t gid_index = kNoGid;
  std::string serve;
  std::string peer;
  std::string measure;
  std::string sizes = "8,64,1024,4096,65536";
  MeshSettings mesh;
  WireSettings wires;
  std::string json;
  // Of the child processes.
  bool target = false;
  std::string directory;
  bool park = false;
  bool while_input = false;

  static constexpr uint64_t kNoGid = 256;
};

bool IsPath(std::string_view endpoint) { return endpoint.starts_with('/'); }

// Of "10.0.0.1:4520", "[::1]:4520", "10.0.0.1".
std::string HostOf(std::string_view endpoint) {
  if (endpoint.starts_with('[')) return std::string(endpoint.substr(1, endpoint.find(']') - 1));
  return std::string(endpoint.substr(0, endpoint.rfind(':')));
}

// The cases that are to run, each of them one that there is.
absl::StatusOr<std::vector<std::string>> CasesOf(const Settings& settings) {
  std::string list = settings.measure;
  if (list.empty()) {
    list = kOfWires;
    if (settings.peer.empty()) list = absl::StrCat(kRings, ",", list);
    if (settings.peer.empty() && settings.fabric == "shm") list = absl::StrCat(kCopies, ",", list);
  }
  std::vector<std::string> cases = absl::StrSplit(list, ',');
  for (const std::string& name : cases) {
    const bool of_mesh = name == kCopies || name == kRings;
    if (!of_mesh && name != kUrgent && !WireCases::IsCase(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--measure ", name, ": there are ", kCopies, ",", kRings, ",", kOfWires));
    }
    if (of_mesh && !settings.peer.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--measure ", name, " starts its other side itself: not with --peer"));
    }
  }
  return cases;
}

absl::StatusOr<std::vector<size_t>> SizesOf(const Settings& settings) {
  std::vector<size_t> sizes;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(settings.sizes, ','))) {
    uint32_t bytes = 0;
    if (!absl::SimpleAtoi(word, &bytes) || bytes == 0 || bytes > WireQueue::kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat("--sizes ", settings.sizes,
                                                     ": numbers of bytes from 1 to ", WireQueue::kMaxBytes,
                                                     " with commas between them"));
    }
    sizes.push_back(bytes);
  }
  return sizes;
}

absl::Status CheckSettings(const Settings& settings) {
  if (settings.fabric != "shm" && settings.fabric != "verbs") {
    return absl::InvalidArgumentError(absl::StrCat("--fabric ", settings.fabric, ": shm or verbs"));
  }
  if (!settings.serve.empty() && !settings.peer.empty()) {
    return absl::InvalidArgumentError("--serve is for one side, --peer for the other: give one of them");
  }
  const bool own = settings.serve.empty() && settings.peer.empty() && !settings.target;
  if (own && settings.fabric == "verbs" && (settings.address.empty() || settings.peer_address.empty())) {
    return absl::InvalidArgumentError(
        "--fabric verbs needs --address and --peer-address: two addresses of this host's RDMA devices, or "
        "the "
        "same twice. For another host's: --serve there, --peer here");
  }
  if (!settings.peer.empty() && !IsPath(settings.peer) && settings.address.empty()) {
    return absl::InvalidArgumentError("--peer HOST:PORT needs --address of this host's RDMA device");
  }
  if (settings.wires.batch > settings.wires.depth) {
    return absl::InvalidArgumentError(absl::StrCat("--batch ", settings.wires.batch, " is more than --depth ",
                                                   settings.wires.depth, ", the requests under way at most"));
  }
  return absl::OkStatus();
}

FabricSite SiteOf(const Settings& settings, const std::string& address) {
  return {.address = address,
          .directory = settings.directory,
          .gid_index = settings.gid_index == Settings::kNoGid ? -1 : static_cast<int>(settings.gid_index)};
}

// --serve, and the process that the other side starts.
absl::Status Serve(const Settings& settings) {
  FabricSite site = SiteOf(settings, settings.address);
  rdma::Endpoint at = settings.serve;
  if (!IsPath(at)) {
    if (site.address.empty()) site.address = HostOf(at);
    if (at.find(':') == std::string::npos) at = absl::StrCat(at, ":0");
  }
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<rdma::Fabric> fabric, MakeFabric(site, kTargetNode));
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<WireTarget> target, WireTarget::Start(*fabric, at));
  std::printf("%s\n", target->endpoint().c_str());
  std::fflush(stdout);
  Thread watcher;
  if (settings.while_input) {
    watcher = Thread({.name = "bench-input"}, [&target] {
      char byte;
      while (read(STDIN_FILENO, &byte, 1) > 0) {
      }
      target->Stop();
    });
  }
  target->Serve();
  return absl::OkStatus();
}

// The other side of raw connections: --peer's, or a process of ours.
struct OtherSide {
  std::unique_ptr<ChildProcess> child;
  rdma::Endpoint endpoint;
};
absl::StatusOr<OtherSide> FindOtherSide(const Settings& settings) {
  OtherSide other;
  other.endpoint = settings.peer;
  if (!other.endpoint.empty()) return other;
  const FabricSite site = settings.mesh.peer_site;
  FURROW_ASSIGN_OR_RETURN(other.child, ChildProcess::Start(ChildProcess::Self(),
                                                           {"fabric", "--serve",
                                                            EndpointOf(site, kTargetNode), "--while-input"}));
  other.endpoint = other.child->ReadLine();
  if (other.endpoint.empty())
    return absl::UnavailableError("the other process of the benchmark did not start");
  return other;
}

// What is measured over raw connections.
struct Wires {
  OtherSide other;
  std::unique_ptr<rdma::Fabric> fabric;
  std::unique_ptr<WireCases> cases;
  std::optional<UrgentCase> urgent;

  absl::Status Run(const Settings& settings, const std::string& name) {
    if (fabric == nullptr) {
      FURROW_ASSIGN_OR_RETURN(other, FindOtherSide(settings));
      FURROW_ASSIGN_OR_RETURN(fabric, MakeFabric(settings.mesh.site, kSourceNode));
      FURROW_ASSIGN_OR_RETURN(cases, WireCases::Connect(*fabric, other.endpoint, settings.wires));
    }
    if (name != kUrgent) return cases->Run(name);
    FURROW_ASSIGN_OR_RETURN(urgent, UrgentCase::Run(*fabric, other.endpoint, settings.wires.probes));
    return absl::OkStatus();
  }
};

struct Results {
  std::vector<CopyRow> copies;
  std::vector<RingRow> rings;
  Wires wires;
};

void Print(const Settings& settings, const Results& results) {
  if (!results.copies.empty()) PrintCopies(settings.mesh, results.copies);
  if (!results.rings.empty()) PrintRings(results.rings);
  if (results.wires.cases != nullptr) results.wires.cases->Print();
  if (results.wires.urgent) results.wires.urgent->Print();
}

absl::Status WriteJson(const Settings& settings, const Results& results) {
  JsonWriter json;
  json.BeginObject();
  json.Add("benchmark", "fabric");
  json.Add("provider", settings.mesh.site.address.empty() ? "shm" : "verbs");
  json.Add("memory_mb", settings.mesh.memory_mb);
  if (!results.copies.empty()) AddCopies(results.copies, json);
  if (!results.rings.empty()) AddRings(results.rings, json);
  if (results.wires.cases != nullptr) results.wires.cases->AddTo(json);
  if (results.wires.urgent) results.wires.urgent->AddTo(json);
  json.End();
  std::ofstream file(settings.json);
  file << json.Take();
  if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", settings.json));
  return absl::OkStatus();
}

absl::Status RunAll(const Settings& settings, const std::vector<std::string>& cases) {
  Results results;
  for (const std::string& name : cases) {
    if (name == kCopies) {
      FURROW_ASSIGN_OR_RETURN(results.copies, RunCopies(settings.mesh));
    } else if (name == kRings) {
      FURROW_ASSIGN_OR_RETURN(results.rings, RunRings(settings.mesh));
    } else {
      FURROW_RETURN_IF_ERROR(results.wires.Run(settings, name));
    }
  }
  Print(settings, results);
  return settings.json.empty() ? absl::OkStatus() : WriteJson(settings, results);
}

absl::Status RunTarget(const Settings& settings) {
  FURROW_ASSIGN_OR_RETURN(
      std::unique_ptr<FabricPeer> peer,
      FabricPeer::Create(kTargetNode, SiteOf(settings, settings.address), settings.mesh.memory_mb << 20));
  return peer->ServeUntilInputEnds(settings.park ? Waiting::kPark : Waiting::kSpin);
}

// Makes the directory of the sockets.
absl::StatusOr<std::string> MakeDirectory() {
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) {
    const char* given = getenv("TMPDIR");
    return absl::UnavailableError(absl::StrCat("cannot put temporary files into ",
                                               given == nullptr ? "/tmp" : given, ": ", error.message(),
                                               "; set TMPDIR to a directory that can be written"));
  }
  std::string directory = temporary.string() + "/furrow-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the directory ", directory));
  return directory;
}

absl::Status Measure(Settings settings, const std::vector<std::string>& cases) {
  const bool shm = settings.peer.empty() ? settings.fabric == "shm" : IsPath(settings.peer);
  absl::Cleanup remove = [&settings] {
    std::error_code ignored;
    if (!settings.directory.empty()) std::filesystem::remove_all(settings.directory, ignored);
  };
  if (shm) {
    FURROW_ASSIGN_OR_RETURN(settings.directory, MakeDirectory());
  }
  settings.mesh.site = SiteOf(settings, shm ? "" : settings.address);
  settings.mesh.peer_site = SiteOf(settings, shm ? "" : settings.peer_address);
  return RunAll(settings, cases);
}

void AddFlags(Settings& settings, FlagSet& flags) {
  flags.AddText("fabric", &settings.fabric, "shm, or verbs between two addresses of this host");
  flags.AddText("address", &settings.address, "verbs: of this side's RDMA device");
  flags.AddText("peer-address", &settings.peer_address, "verbs: of the other side's, on this host");
  flags.AddText(
      "serve", &settings.serve,
      "be the other side of measurements from another host, at HOST:PORT (verbs) or a path (shm), for "
      "whoever connects, until a signal");
  flags.AddText("peer", &settings.peer, "measure against a --serve: what that printed");
  flags.AddNumber("gid-index", &settings.gid_index, 0, 256,
                  "verbs: another entry of the port's table of GIDs; 256: the address's own");
  flags.AddText("measure", &settings.measure,
                absl::StrCat("with commas between them: ", kCopies, ",", kRings, ",", kOfWires,
                             ". Default: all, but copies with shm only"));
  flags.AddText("sizes", &settings.sizes, "bytes of each case of latencies and rates");
  flags.AddNumber("round-trips", &settings.mesh.round_trips, 100, 100'000'000,
                  "operations per case; a quarter where rings park");
  flags.AddNumber("batch", &settings.wires.batch, 1, 1024, "requests per Post() of the rates");
  flags.AddNumber("depth", &settings.wires.depth, 1, 16'384, "requests under way at most");
  flags.AddNumber("probes", &settings.wires.probes, 10, 1'000'000, "messages of each row of urgent");
  flags.AddNumber("memory-mb", &settings.mesh.memory_mb, 1, 1 << 16,
                  "memory of the target that copies read and write");
  flags.AddNumber("milliseconds", &settings.mesh.milliseconds, 1, 60'000,
                  "how long each case of copies is measured");
  flags.AddText("json", &settings.json, "write the figures to this file too");
  flags.AddSwitch("target", &settings.target, "");
  flags.AddText("directory", &settings.directory, "");
  flags.AddSwitch("park", &settings.park, "");
  flags.AddSwitch("while-input", &settings.while_input, "");
  for (const char* hidden : {"target", "directory", "park", "while-input"}) flags.Hide(hidden);
}

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "furrow-bench fabric: %s\n", std::string(status.message()).c_str());
  return code;
}

}  // namespace

int RunFabricBench(std::span<const std::string_view> arguments) {
  Settings settings;
  FlagSet flags(
      "furrow-bench fabric: READ, WRITE, notifications and ring round trips between two processes of this "
      "host "
      "or of two");
  AddFlags(settings, flags);
  absl::Status status = flags.Parse(arguments);
  if (status.ok() && flags.help_asked()) {
    std::fputs(flags.Help().c_str(), stdout);
    return 0;
  }
  if (status.ok()) status = CheckSettings(settings);
  absl::StatusOr<std::vector<std::string>> cases = CasesOf(settings);
  absl::StatusOr<std::vector<size_t>> sizes = SizesOf(settings);
  if (status.ok()) status = cases.status();
  if (status.ok()) status = sizes.status();
  if (!status.ok()) return Complain(status, 2);
  SetLogLevel(LogLevel::kWarning);  // connections come and go in numbers
  settings.wires.sizes = *std::move(sizes);
  settings.wires.count = settings.mesh.round_trips;
  if (settings.target) {
    status = RunTarget(settings);
  } else if (!settings.serve.empty()) {
    status = Serve(settings);
  } else {
    status = Measure(settings, *cases);
  }
  return status.ok() ? 0 : Complain(status, 1);
}

}  // namespace furrow::bench
