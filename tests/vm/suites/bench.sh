# net: dummy
# furrow-bench fabric over verbs, and beside perftest: short runs, whose figures are looked at and not judged.

limit=([fabric]=240 [fabric_starts_its_other_side]=240 [beside_perftest]=400)

# Fails unless a line of the report matches.
says() { grep -E -- "$1" report || { echo "the report does not say: $1"; cat report; return 1; }; }

test_fabric() {
  cd "$(mktemp -d)"
  taskset -c 1 "$FURROW_BIN/furrow-bench" fabric --serve 10.77.0.1:0 >endpoint &
  local i name
  for i in {1..600}; do
    if [[ -s endpoint ]]; then break; fi
    sleep 0.1
  done
  taskset -c 0 "$FURROW_BIN/furrow-bench" fabric --peer "$(<endpoint)" --address 10.77.0.2 --sizes 8,65536 \
    --round-trips 100 --batch 4 --depth 16 --probes 20 --json figures >report
  for name in read-latency write-latency notify-latency read-rate write-rate; do
    says "^$name +8 +[0-9.]*[1-9]"
    says "^$name +65536 +[0-9.]*[1-9]"
  done
  says '^urgent +0.0 +[0-9.]*[1-9]'
  says "^the load's own +[0-9.]*[1-9]"
  python3 -c 'import json; assert len(json.load(open("figures"))["urgent_ns"]) == 5'
}

# Both processes by itself, and the rings.
test_fabric_starts_its_other_side() {
  cd "$(mktemp -d)"
  "$FURROW_BIN/furrow-bench" fabric --fabric verbs --address 10.77.0.1 --peer-address 10.77.0.2 \
    --measure rings,read-latency --sizes 8 --round-trips 100 --memory-mb 4 >report
  says '^ +8192 both park +[0-9.]*[1-9]'
  says '^ +8192 both poll +[0-9.]*[1-9]'
  says '^read-latency +8 +[0-9.]*[1-9]'
}

# In a table without gaps.
test_beside_perftest() {
  local table=$PWD/bench/perftest_table name beside
  cd "$(mktemp -d)"
  "$table" --bin "$FURROW_BIN" --rounds 1 --count 256 --rate-count 1024 --sizes 8 --patience 90 >report
  for name in read-latency:ib_read_lat write-latency:ib_write_lat notify-latency:ib_send_lat read-rate:ib_read_bw \
    write-rate:ib_write_bw; do
    beside=${name#*:}
    says "^${name%:*} +8 +$beside +[0-9.]*[1-9][0-9.]* +[0-9.]*[1-9][0-9.]* +[0-9.]+ "
  done
  sed 's/^/note: /' report
}
