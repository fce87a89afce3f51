/* SPDX-License-Identifier: Apache-2.0 */
/* A tracepoint of LTTng-UST with what a switch of tokens tells. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER tailcam_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng-tp.h"

#if !defined(LTTNG_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_TP_H

#include <stdint.h>

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(tailcam_bench, switched, LTTNG_UST_TP_ARGS(uint64_t, token),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, token, token)))

#endif

#include <lttng/tracepoint-event.h>
