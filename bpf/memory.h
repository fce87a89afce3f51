/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Page faults, reclaim and compaction, for the recorder's groups memory and reclaim. */
#ifndef TAILCAM_MEMORY_H
#define TAILCAM_MEMORY_H

#include "recorder.h"

/* x86 alone has these two tracepoints. */
static __always_inline void record_fault(void *ctx, u16 type, unsigned long address, void *regs, unsigned long code)
{
	struct record r;

	record_begin(&r, type);
	r.fault.address = address;
	r.fault.ip = ((struct pt_regs___x86 *)regs)->ip;
	r.fault.error_code = code;
	record(ctx, &r);
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address, void *regs, unsigned long code)
{
	record_fault(ctx, REC_FAULT_USER, address, regs, code);
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_kernel, unsigned long address, void *regs, unsigned long code)
{
	record_fault(ctx, REC_FAULT_KERNEL, address, regs, code);
	return 0;
}

static __always_inline void record_reclaim(void *ctx, u16 type, u32 kind, int order, u64 reclaimed)
{
	struct record r;

	record_begin(&r, type);
	r.reclaim.kind = kind;
	r.reclaim.order = order;
	r.reclaim.reclaimed = reclaimed;
	record(ctx, &r);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(direct_reclaim_begin, int order)
{
	record_reclaim(ctx, REC_RECLAIM_BEGIN, RECLAIM_DIRECT, order, 0);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(direct_reclaim_end, unsigned long reclaimed)
{
	record_reclaim(ctx, REC_RECLAIM_END, RECLAIM_DIRECT, 0, reclaimed);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(memcg_reclaim_begin, int order)
{
	record_reclaim(ctx, REC_RECLAIM_BEGIN, RECLAIM_MEMCG, order, 0);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(memcg_reclaim_end, unsigned long reclaimed)
{
	record_reclaim(ctx, REC_RECLAIM_END, RECLAIM_MEMCG, 0, reclaimed);
	return 0;
}

SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(compaction_begin, void *control, unsigned long from, unsigned long to, bool sync)
{
	struct record r;

	record_begin(&r, REC_COMPACTION_BEGIN);
	r.reclaim.sync = sync;
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(compaction_end, void *control, unsigned long from, unsigned long to, bool sync, int status)
{
	struct record r;

	record_begin(&r, REC_COMPACTION_END);
	r.reclaim.sync = sync;
	r.reclaim.status = status;
	record(ctx, &r);
	return 0;
}

#endif
