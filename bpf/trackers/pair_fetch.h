/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Values of a hook's event: keys, conditions, labels. What to read is constant
 * (struct fetch), so of all this the verifier leaves a few instructions.
 */
#ifndef TAILCAM_TRACKER_PAIR_FETCH_H
#define TAILCAM_TRACKER_PAIR_FETCH_H

#include "abi/pair.h"
#include "lib/state.h"

/* What ctx is. */
enum hook_kind {
	HOOK_RAW,     /* the arguments of a tracepoint, eight bytes each */
	HOOK_RECORD,  /* the record of a tracepoint */
	HOOK_REGS,    /* struct pt_regs */
	HOOK_TRACING, /* a function, for bpf_get_func_arg */
};

#define MAX_ARGUMENTS 12

/* Argument n of a raw tracepoint; the compiler must not make an address of it. */
#define RAW_ARGUMENT(n)   \
	if (index == (n)) \
	asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"((n) * sizeof(u64)))

static __always_inline u64 raw_argument(void *ctx, u32 index)
{
	u64 v = 0;

	RAW_ARGUMENT(0);
	RAW_ARGUMENT(1);
	RAW_ARGUMENT(2);
	RAW_ARGUMENT(3);
	RAW_ARGUMENT(4);
	RAW_ARGUMENT(5);
	RAW_ARGUMENT(6);
	RAW_ARGUMENT(7);
	RAW_ARGUMENT(8);
	RAW_ARGUMENT(9);
	RAW_ARGUMENT(10);
	RAW_ARGUMENT(11);
	return v;
}

static __always_inline long fetch_memory(void *to, u32 size, u64 from, bool user)
{
	if (user)
		return bpf_probe_read_user(to, size, (void *)from);
	return bpf_probe_read_kernel(to, size, (void *)from);
}

static __always_inline u64 fetch_origin(void *ctx, const volatile struct fetch *f, enum hook_kind kind, bool *bad)
{
	u8 base = f->base;
	u64 v = 0;

	if (base == FETCH_TID)
		return (u32)bpf_get_current_pid_tgid();
	if (base == FETCH_PID)
		return bpf_get_current_pid_tgid() >> 32;
	if (base == FETCH_UID)
		return (u32)bpf_get_current_uid_gid();
	if (base == FETCH_CPU)
		return bpf_get_smp_processor_id();
	if (base == FETCH_CONSTANT)
		return f->constant;
	if (kind == HOOK_RAW && base == FETCH_ARGUMENT)
		return raw_argument(ctx, f->index);
	if (kind == HOOK_TRACING && base == FETCH_ARGUMENT)
		*bad |= !!bpf_get_func_arg(ctx, f->index, &v);
	if (kind == HOOK_TRACING && base == FETCH_RETURN)
		*bad |= !!bpf_get_func_ret(ctx, &v);
	if (kind == HOOK_REGS && base == FETCH_REGISTER)
		*bad |= !!bpf_probe_read_kernel(&v, sizeof(v), ctx + f->index);
	if (kind == HOOK_RECORD && base == FETCH_RECORD)
		*bad |= !!bpf_probe_read_kernel(&v, sizeof(v), ctx + f->index);
	return v;
}

/* Follows the loads; the address at which text stands, or what the last load has read. */
static __always_inline u64 fetch_follow(const volatile struct fetch *f, u64 v, bool *bad)
{
	u32 loads = f->loads, user = f->user;

#pragma unroll
	for (int i = 0; i < FETCH_LOADS; i++) {
		if (i < loads) {
			u64 from = v + f->offset[i];
			u32 size = i + 1 == loads && f->text == FETCH_NUMBER ? f->bytes : sizeof(v);

			v = 0;
			if (size > sizeof(v))
				size = sizeof(v);
			*bad |= !!fetch_memory(&v, size, from, user >> i & 1);
		}
	}
	return v;
}

/* A number. */
static __always_inline u64 fetch_number(void *ctx, const volatile struct fetch *f, enum hook_kind kind, bool *bad)
{
	u64 v = fetch_origin(ctx, f, kind, bad);

	v = fetch_follow(f, v, bad);
	v <<= f->left & 63;
	return f->sign ? (u64)((s64)v >> (f->right & 63)) : v >> (f->right & 63);
}

/* A label: a number, or text, which may be truncated. What cannot be read stays empty. */
static __always_inline void fetch_label(void *ctx, const volatile struct fetch *f, enum hook_kind kind, u8 *to)
{
	bool bad = false;
	u32 loads, size;
	u64 from;

	__builtin_memset(to, 0, PAIR_TEXT);
	if (f->text == FETCH_NUMBER) {
		*(u64 *)to = fetch_number(ctx, f, kind, &bad);
		return;
	}
	size = f->bytes;
	if (!size || size > PAIR_TEXT)
		size = PAIR_TEXT;
	if (kind == HOOK_RECORD && f->base == FETCH_INSIDE) {
		if (f->text == FETCH_STRING)
			bpf_probe_read_kernel_str(to, size, ctx + f->index);
		else
			bpf_probe_read_kernel(to, size, ctx + f->index);
		return;
	}
	if (kind == HOOK_RECORD && f->base == FETCH_DATA_LOC) {
		u32 where = 0;

		bpf_probe_read_kernel(&where, sizeof(where), ctx + f->index);
		where &= 0xffff;
		bpf_probe_read_kernel_str(to, size, ctx + where);
		return;
	}
	from = fetch_follow(f, fetch_origin(ctx, f, kind, &bad), &bad);
	if (bad)
		return;
	loads = f->loads;
	if (loads > FETCH_LOADS)
		return;
	from += f->offset[loads];
	if (f->text == FETCH_BYTES)
		fetch_memory(to, size, from, f->user >> loads & 1);
	else if (f->user >> loads & 1)
		bpf_probe_read_user_str(to, size, (void *)from);
	else
		bpf_probe_read_kernel_str(to, size, (void *)from);
}

/* Whether a condition holds. */
static __always_inline bool condition_holds(void *ctx, const volatile struct pair_condition *c, enum hook_kind kind,
					    bool *bad)
{
	u32 op = c->op;
	u64 v;

	if (!op)
		return true;
	v = fetch_number(ctx, &c->what, kind, bad);
	if (op == OPERATOR_EQ)
		return v == (u64)c->value;
	if (op == OPERATOR_NE)
		return v != (u64)c->value;
	if (op == OPERATOR_AND)
		return v & (u64)c->value;
	if (op == OPERATOR_LT)
		return c->sign ? (s64)v < c->value : v < (u64)c->value;
	if (op == OPERATOR_LE)
		return c->sign ? (s64)v <= c->value : v <= (u64)c->value;
	if (op == OPERATOR_GT)
		return c->sign ? (s64)v > c->value : v > (u64)c->value;
	return c->sign ? (s64)v >= c->value : v >= (u64)c->value;
}

#endif
