# net: dummy
# rdma/verbs on one device: the fabric contract and what the provider adds to it.

limit=([contract]=240 [contract_under_asan]=400)
test_contract() { "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='*Contract*'; }

# With leak checks: every object of libibverbs and librdmacm is freed.
test_contract_under_asan() { "$FURROW_ASAN_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='*Contract*'; }
