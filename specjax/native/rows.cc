// The operations on a few rows, in one library: their threads are the same.

#include "rows_attention.cc"
#include "rows_feed_forward.cc"
#include "rows_norm.cc"
#include "rows_products.cc"
