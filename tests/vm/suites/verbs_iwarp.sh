# net: siw
# rdma/verbs on iWARP, as the kernel's siw has it: queue pairs that only the connection manager connects, no immediate
# data, WRITEs that end before they are at the peer. docs/internals/fabric.md says what is not run, and why.

export FURROW_VERBS_ADDRESSES=10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4
# siw says "flushed" whatever the peer has refused, as where the word of a refusal is lost.
export FURROW_VERBS_LOSS=1
limit=([contract]=400 [provider]=400)
test_contract() {
  "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 \
    --gtest_filter='*Contract*-*RefusedRequestsChangeNothing*:*RequestsBehindFailureAreFlushed*'
}
test_provider() {
  "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 \
    --gtest_filter='VerbsTest.*:VerbsBrokenTest.*:VerbsConnectingTest.*-*PeerThatDies*:*Unsignaled*'
}
