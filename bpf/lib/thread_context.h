/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The trace and the span that a thread works for, as its program publishes them:
 * OpenTelemetry's OTEP 4947, a pointer to a record in the thread-local variable
 * otel_thread_ctx_v1.
 *
 * A thread writes its record itself. It is read while that thread is in the kernel, by
 * the thread itself: nothing changes meanwhile but for what other threads do, which
 * have no business there. All of it is the process's word: it chooses what is read,
 * within its own memory, and what comes out is two numbers.
 */
#ifndef TAILCAM_THREAD_CONTEXT_H
#define TAILCAM_THREAD_CONTEXT_H

#include "abi/context.h"
#include "lib/messages.h"
#include "lib/task.h"

const volatile bool thread_contexts;   /* they are wanted */
const volatile bool thread_attributes; /* and the attributes in them */
const volatile bool
	thread_contexts_later; /* and a rule at sched_switch is there, and irq_work_entry: see lib/stacks.h */

/* The place of each process that has one, of its first thread; written by the daemon. Without contexts an array. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct context_place);
} context_places SEC(".maps");

/* The first bytes of a record; what follows are attributes. */
struct context_record {
	u64 id[3]; /* trace_id, span_id */
	u8 valid;
	u8 trace_flags;
	u16 attributes_bytes;
};

#define CONTEXT_RECORD_BYTES 28 /* without padding */

static __always_inline struct context_place *context_place_in(struct task_struct *leader, struct task_struct *p)
{
	struct context_place *place = bpf_task_storage_get(&context_places, leader, NULL, 0);

	if (!place || place->start_code != BPF_CORE_READ(p, mm, start_code) ||
	    place->start_stack != BPF_CORE_READ(p, mm, start_stack))
		return NULL;
	return place;
}

/* Where the program of p has its contexts; NULL: nowhere, or nobody knows yet. A new process has its parent's. */
static __always_inline struct context_place *context_place_of(struct task_struct *p)
{
	struct context_place *place = context_place_in(p->group_leader, p);

	return place ?: context_place_in(p->group_leader->real_parent, p);
}

static __always_inline bool read_user_word(u64 *to, u64 from)
{
	return !bpf_probe_read_user(to, sizeof(*to), (void *)from);
}

/* Where the variable is for the current thread; 0: nowhere, as its module has no memory for this thread yet. */
static __always_inline u64 context_variable(struct context_place *place, u64 pointer)
{
	u64 vector, length, memory;

	if (!place->module)
		return pointer + place->offset;
	if (!read_user_word(&vector, pointer + place->vector) || !read_user_word(&length, vector + place->length))
		return 0;
	if (place->module > length || !read_user_word(&memory, vector + place->module * place->entry))
		return 0;
	/* glibc: TLS_DTV_UNALLOCATED (sysdeps/generic/dl-dtv.h) */
	return memory && memory != (u64)-1 ? memory + place->offset : 0;
}

/* The record that the variable points to, and its address; 0: there is none. It must be aligned to two bytes. */
static __always_inline u64 context_record_read(struct context_record *to, u64 variable)
{
	u64 record;

	if (!read_user_word(&record, variable) || !record || (record & 1) ||
	    bpf_probe_read_user(to, CONTEXT_RECORD_BYTES, (void *)record) || to->valid != 1)
		return 0;
	return record;
}

static __always_inline bool context_record_equal(struct context_record *a, struct context_record *b)
{
	return a->id[0] == b->id[0] && a->id[1] == b->id[1] && a->id[2] == b->id[2] &&
	       a->attributes_bytes == b->attributes_bytes;
}

/*
 * Reads the context of current to trace_id and the span_id behind it, which stay as they
 * are if it has none. A record that is other when it is read again is being written, and
 * not believed.
 */
static __noinline int context_read(u64 *id)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct context_record record = {}, again = {};
	struct context_place *place = context_place_of(current);
	u64 variable;

	if (!place)
		return 0;
	variable = context_variable(place, thread_pointer(current));
	if (!variable || !context_record_read(&record, variable) || !context_record_read(&again, variable))
		return 0;
	if (!context_record_equal(&record, &again))
		return 0;
	if (!(record.id[0] | record.id[1]) || !record.id[2])
		return 0;
	id[0] = record.id[0];
	id[1] = record.id[1];
	id[2] = record.id[2];
	return 1;
}

/*
 * Sends the attributes beside id, which context_read() has just read, for outliers of
 * that time and thread; 0: the record has none, more than can be sent, or other ids by
 * now, or there is no room. A part of them would not do: what comes last is what counts.
 */
static __noinline int attributes_send(u64 *id, u32 tid, u64 time_ns)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct context_record record = {}, again = {};
	struct context_place *place = context_place_of(current);
	struct thread_attributes *m;
	u64 variable, at;
	u32 bytes;

	if (!place)
		return 0;
	variable = context_variable(place, thread_pointer(current));
	if (!variable)
		return 0;
	at = context_record_read(&record, variable);
	if (!at || record.id[0] != id[0] || record.id[1] != id[1] || record.id[2] != id[2])
		return 0;
	bytes = record.attributes_bytes;
	barrier_var(bytes);
	if (!bytes || bytes > ATTRIBUTES_BYTES)
		return 0;
	m = message_reserve_spare(RING_STACKS, sizeof(*m));
	if (!m)
		return 0;
	__builtin_memset(m, 0, __builtin_offsetof(struct thread_attributes, data));
	m->type = THREAD_ATTRIBUTES_TYPE;
	m->tid = tid;
	m->time_ns = time_ns;
	__builtin_memcpy(m->trace_id, id, sizeof(m->trace_id) + sizeof(m->span_id));
	m->pid = current->tgid;
	m->start_code = place->start_code;
	m->start_stack = place->start_stack;
	at += CONTEXT_RECORD_BYTES;
	if (!bpf_probe_read_user(m->data, bytes, (void *)at) && !bpf_probe_read_user(m->again, bytes, (void *)at) &&
	    context_record_read(&again, variable) == at - CONTEXT_RECORD_BYTES && context_record_equal(&record, &again))
		m->bytes = bytes;
	bpf_ringbuf_submit(m, 0);
	return 1;
}

/* The outlier's task is current. */
static __always_inline void context_of_current(struct outlier *out)
{
	if (thread_contexts && context_read((u64 *)out->trace_id) && thread_attributes)
		attributes_send((u64 *)out->trace_id, out->tid, out->time_ns);
}

/* Sends what the outlier of that time, of current, was promised. */
static __always_inline void context_send(struct task_struct *current, u64 time_ns)
{
	struct thread_context *m;
	u64 id[3] = {};

	if (context_read(id) && thread_attributes && attributes_send(id, current->pid, time_ns))
		return;
	m = message_reserve_spare(RING_STACKS, sizeof(*m));
	if (!m)
		return;
	__builtin_memset(m, 0, sizeof(*m));
	m->type = THREAD_CONTEXT_TYPE;
	m->tid = current->pid;
	m->time_ns = time_ns;
	__builtin_memcpy(m->trace_id, id, sizeof(id));
	bpf_ringbuf_submit(m, 0);
}

#endif
