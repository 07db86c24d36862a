# net: dummy
# rdma/verbs on one device: the contracts of fabric and mesh, and what the provider adds to them.

# Named, so that a test without a device fails: without this it would skip itself.
export FURROW_VERBS_ADDRESSES=10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4
limit=([contract]=300 [provider]=240 [provider_under_asan]=600)
test_contract() { "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='*Contract*'; }

# Sleeping and waking, credits, the send queue, errors, leaks of queue pairs and descriptors; processes that are
# stopped and killed.
test_provider() { "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter=-'*Contract*'; }

# With leak checks: every object of libibverbs and librdmacm is freed. (The mesh is under AddressSanitizer over shm.)
test_provider_under_asan() {
  "$FURROW_ASAN_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='*FabricContract*:Verbs*Test.*-*Mesh*'
}
