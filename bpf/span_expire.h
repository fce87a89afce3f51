/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Holds a span that is due against the rules. Belongs to expire.h. */
#ifndef TAILCAM_SPAN_EXPIRE_H
#define TAILCAM_SPAN_EXPIRE_H

static __always_inline void expire_span(struct tick_walk *w, u32 at)
{
	struct span_slot *slot = span_slot_at(at);
	struct task_struct *task;
	struct span_extra *extra;
	struct scratch *s;
	bool alive;
	u64 start;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expire_begin(w, TRACK_SPAN, start, start, &slot->deadline);
	if (!s)
		return;
	extra = (struct span_extra *)s->out.extra;
	span_fill(extra, slot);
	__builtin_memcpy(s->facts.key, slot->key, SPAN_KEY_LEN);
	task = (struct task_struct *)slot->task;
	alive = read_task(s, task, slot->tid);
	extra->gone = !alive;
	/* As it was at the begin: its name and cgroup may have changed, and be another's if it is gone. */
	s->out.tid = s->facts.tid = slot->tid;
	s->out.pid = s->facts.pid = slot->pid;
	s->out.uid = s->facts.uid = slot->uid;
	s->out.cgroup_id = s->facts.cgroup_id = slot->cgroup_id;
	__builtin_memcpy(s->out.comm, slot->comm, TASK_COMM_LEN);
	__builtin_memcpy(s->facts.comm, slot->comm, TASK_COMM_LEN);
	s->facts.thread = THREAD_USER;
	s->out.entry_cpu = slot->cpu;
	if (s->facts.pid == self_pid) {
		slot->deadline.due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	evaluate(s, TRACK_SPAN, w->now - start);
	if (!expire_claim(s, &slot->start_ns, &slot->deadline, start, start))
		return;
	if (alive && s->wants_kernel)
		read_stack(s, slot->tid);
	if (alive && s->wants_user)
		read_user(s, task_regs(task));
	outlier_emit(s);
}

/* A pass of its own, with a frame of its own (see irq_tick.h). */
static long expire_span_step(u32 i, struct tick_walk *w)
{
	struct due_place *p = bpf_map_lookup_elem(&due_places, &i);

	if (!p)
		return 1;
	if (p->tracker == TRACK_SPAN)
		expire_span(w, p->at);
	return 0;
}

#endif
