/* SPDX-License-Identifier: Apache-2.0 */
/* Compares tailcam.h with the kernel side's header, and prints the names of values. */
#define _GNU_SOURCE
#include <stddef.h>

#include "tailcam.h"
#include "abi/activity.h"

#define SAME(a, b) _Static_assert((size_t)(a) == (size_t)(b), #a " is " #b)
#define FIELD(ours, theirs, field) SAME(offsetof(struct ours, field), offsetof(struct theirs, field))

SAME(TAILCAM_ABI_, ACTIVITY_ABI);
SAME(TAILCAM_SHARED_, ACTIVITY_SHARED_BYTES);
SAME(TAILCAM_ACCOUNT_, ACTIVITY_ACCOUNT_BYTES);
SAME(TAILCAM_WINDOW_, ACTIVITY_THREAD_WINDOW);
SAME(0x9E3779B1, ACTIVITY_HASH);
SAME(sizeof(struct tailcam_half_), sizeof(struct activity_half));
FIELD(tailcam_half_, activity_half, generation);
FIELD(tailcam_half_, activity_half, since_ns);
FIELD(tailcam_thread_, activity_thread, seq);
FIELD(tailcam_thread_, activity_thread, half);
FIELD(tailcam_token_, activity_token, generation);
FIELD(tailcam_token_, activity_token, begin_ns);
FIELD(tailcam_token_, activity_token, end_ns);
FIELD(tailcam_token_, activity_token, cpu_ns);
FIELD(tailcam_token_, activity_token, wall_ns);
FIELD(tailcam_token_, activity_token, value);
FIELD(tailcam_token_, activity_token, trace_id);
FIELD(tailcam_token_, activity_token, span_id);
FIELD(tailcam_token_, activity_token, name);
FIELD(tailcam_token_, activity_token, text);
FIELD(tailcam_token_, activity_token, attributes);
SAME(TAILCAM_TOKEN_ATTRIBUTES_, ACTIVITY_TOKEN_ATTRIBUTES);
FIELD(tailcam_pair_, activity_attribute, key);
FIELD(tailcam_pair_, activity_attribute, value);
SAME(sizeof(struct tailcam_pair_), sizeof(struct activity_attribute));
FIELD(tailcam_client_, activity_client, next_token);
FIELD(tailcam_client_, activity_client, tokens_refused);
FIELD(tailcam_client_, activity_client, threads_refused);
FIELD(tailcam_client_, activity_client, attributes_refused);
FIELD(tailcam_header_, activity_header, abi);
FIELD(tailcam_header_, activity_header, late);
FIELD(tailcam_header_, activity_header, slow_ns);
FIELD(tailcam_header_, activity_header, machine_ns);
SAME(offsetof(struct activity_header, unknown), TAILCAM_syscalls_ * sizeof(uint64_t));
FIELD(tailcam_state_, activity_thread_state, slices);
FIELD(tailcam_state_, activity_thread_state, slice_ns);
FIELD(tailcam_state_, activity_thread_state, seen_seq);
FIELD(tailcam_state_, activity_thread_state, seen_slice);
FIELD(tailcam_state_, activity_thread_state, seen_ns);
FIELD(tailcam_state_, activity_thread_state, out_ns);
FIELD(tailcam_state_, activity_thread_state, waking_ns);
FIELD(tailcam_state_, activity_thread_state, cause);
FIELD(tailcam_values_, activity_account, generation);
SAME(TAILCAM_NUMBERS_, ACTIVITY_VALUES);
SAME(TAILCAM_runnable_ns_, ACTIVITY_RUNNABLE_NS);
SAME(TAILCAM_blocked_ns_, ACTIVITY_BLOCKED_NS);
SAME(TAILCAM_blocked_other_ns_, ACTIVITY_BLOCKED_OTHER_NS);
SAME(TAILCAM_syscalls_, ACTIVITY_SYSCALLS);
SAME(TAILCAM_tcp_bytes_sent_, ACTIVITY_TCP_BYTES_SENT);
SAME(TAILCAM_work_items_, ACTIVITY_WORK_ITEMS);
SAME(TAILCAM_cpu_kernel_ns_, ACTIVITY_CPU_KERNEL_NS);
SAME(TAILCAM_cache_misses_hw_, ACTIVITY_CACHE_MISSES_HW);
SAME(TAILCAM_runnable_stolen_ns_, ACTIVITY_RUNNABLE_STOLEN_NS);
SAME(TAILCAM_blocked_kernel_lock_ns_, ACTIVITY_BLOCKED_KERNEL_LOCK_NS);
SAME(TAILCAM_kernel_lock_rtmutex_ns_, ACTIVITY_KERNEL_LOCK_RTMUTEX_NS);

int main(void)
{
#define PRINT(name) puts(#name);
	TAILCAM_VALUES(PRINT)
	return 0;
}
