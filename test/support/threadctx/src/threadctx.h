/* SPDX-License-Identifier: Apache-2.0 */
/* What an SDK publishes of a thread: OpenTelemetry's OTEP 4947. */
#ifndef THREADCTX_H
#define THREADCTX_H

#include <stdint.h>

struct record {
	uint8_t trace_id[16];
	uint8_t span_id[8];
	uint8_t valid;
	uint8_t trace_flags;
	uint16_t attributes_bytes;
	uint8_t attributes[1200];
	char route[256]; /* no part of it: the http.route that its attributes say, for who checks that */
};

/* The calling thread's variable. */
struct record **variable(void);

#endif
