/* SPDX-License-Identifier: Apache-2.0 */
#include "threadctx.h"

__thread char before[24] = "initialised";
__thread struct record *otel_thread_ctx_v1 __attribute__((visibility("default")));

struct record **variable(void)
{
	return &otel_thread_ctx_v1;
}
