//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Declared pairs: one template a kind of hook. tracker loads a template once
 * for each hook of each rule, with `hook` filled in and the maps of the main
 * object (tailcam.bpf.c).
 */
#define RULE_WRITER SHARED /* programs of this object interrupt each other: see lib/histogram.h */
#include "lib/stack.h"
#include "trackers/pair.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("raw_tp/any")
int pair_raw(void *ctx)
{
	return pair_event(ctx, HOOK_RAW);
}

SEC("tracepoint/any/any")
int pair_record(void *ctx)
{
	return pair_event(ctx, HOOK_RECORD);
}

NOWHERE(regs_nowhere);

/* kprobe, kretprobe, uprobe, uretprobe, usdt */
SEC("kprobe/any")
int pair_regs(void *ctx)
{
	KEEP_KERNEL_STACK(ctx, regs_nowhere);
	return pair_event(ctx, HOOK_REGS);
}

/* fentry, fexit */
SEC("fentry/any")
int pair_tracing(void *ctx)
{
	return pair_event(ctx, HOOK_TRACING);
}
