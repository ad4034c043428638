// The places of tokens in buckets.
#pragma once

#include <cstdint>

namespace mvprune {

// T5's and MPNet's bucket of a query's place minus a key's. `goes_both_ways`: half of the buckets are for keys after the
// query; else these share the first one.
int64_t relative_bucket(int64_t distance, int64_t buckets, int64_t reach, bool goes_both_ways);

}  // namespace mvprune
