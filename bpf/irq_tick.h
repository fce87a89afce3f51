/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tick's part of irq and softirq: handlers and softirqs that are stuck. Belongs to tick.h. */
#ifndef TAILCAM_IRQ_TICK_H
#define TAILCAM_IRQ_TICK_H

/* A place is a CPU's number and that of a slot within its struct interrupt_slots. */
#define SLOT_BITS 5
#define PLACE_CPU(at) ((at) >> SLOT_BITS)
#define PLACE_SLOT(at) ((at) & ((1 << SLOT_BITS) - 1))
#define INTERRUPT_SLOTS (2 * NESTED + SOFTIRQS)

_Static_assert(INTERRUPT_SLOTS <= 1 << SLOT_BITS, "places name every slot");
_Static_assert(sizeof(struct interrupt_slots) == INTERRUPT_SLOTS * sizeof(struct interrupt_slot), "no other members");

/* Nothing can be due before, as with a chunk of a pending table. Tick only. */
volatile struct chunk interrupts_chunk;

/* The slot at a place; NULL: there is none. */
static __always_inline struct interrupt_slot *interrupt_slot_at(u32 at)
{
	struct interrupt_slots *of = interrupts_of(PLACE_CPU(at));
	u32 i = PLACE_SLOT(at);

	barrier_var(i);
	if (!of || i >= INTERRUPT_SLOTS)
		return NULL;
	return &((struct interrupt_slot *)of)[i];
}

static __always_inline u64 interrupt_timeout(u32 i, u64 key)
{
	if (i < NESTED)
		return timeout_irq[key & (IRQ_CLASSES - 1)];
	if (i < 2 * NESTED)
		return timeout_softirq[PHASE_RUN][(key >> 32) & (SOFTIRQS - 1)];
	return timeout_softirq[PHASE_RAISE][key & (SOFTIRQS - 1)];
}

static long interrupt_look(u32 at, struct tick_walk *w)
{
	struct interrupt_slot *slot = interrupt_slot_at(at);
	u32 i = PLACE_SLOT(at);
	u64 start;

	if (!slot)
		return 0;
	start = *(volatile u64 *)&slot->start_ns;
	if (start)
		place_look(w, i < NESTED ? TRACK_IRQ : TRACK_SOFTIRQ, at, start, start, interrupt_timeout(i, slot->key),
			   &slot->deadline);
	return 0;
}

static __always_inline void expire_interrupt(struct tick_walk *w, u32 tracker, u32 at)
{
	struct interrupt_slot *slot = interrupt_slot_at(at);
	u32 cpu = PLACE_CPU(at);
	struct irqaction *action;
	struct irq_extra *extra;
	struct task_struct *task;
	struct scratch *s;
	u64 start, key;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expire_begin(w, tracker, start, start, &slot->deadline);
	if (!s)
		return;
	key = slot->key;
	task = (struct task_struct *)slot->task;
	if (task)
		read_task(s, task, BPF_CORE_READ(task, pid));
	s->out.cpu = s->out.entry_cpu = s->facts.cpu = cpu;
	extra = (struct irq_extra *)s->out.extra;
	if (tracker == TRACK_IRQ) {
		action = (struct irqaction *)slot->action;
		extra->irq = s->facts.irq = key;
		bpf_probe_read_kernel_str(extra->name, sizeof(extra->name), BPF_CORE_READ(action, name));
		s->facts.handler = handler_hash(extra->name);
	} else {
		extra->phase = PLACE_SLOT(at) < 2 * NESTED ? PHASE_RUN : PHASE_RAISE;
		extra->vector = extra->phase == PHASE_RUN ? key >> 32 : key;
		s->facts.vector = 1 << (extra->vector & (SOFTIRQS - 1));
		s->facts.phase = 1 << extra->phase;
	}
	evaluate(s, tracker, w->now - start);
	if (expire_claim(s, &slot->start_ns, &slot->deadline, start, start))
		outlier_emit(s); /* without stacks: nobody sees those of a CPU that is busy */
}

/* A pass of its own, with a frame of its own: that of expire_step fills the stack that 6.1 allows. */
static long expire_interrupt_step(u32 i, struct tick_walk *w)
{
	struct due_place *p = bpf_map_lookup_elem(&due_places, &i);

	if (!p)
		return 1;
	expire_interrupt(w, p->tracker, p->at);
	return 0;
}

/* Looks at all CPUs, unless nothing can be due, and reports what is. */
static __always_inline void interrupts_tick(struct tick_walk *w)
{
	u32 live = generation;

	if (timeout_interrupts == NEVER || (interrupts_chunk.due_ns > w->now && interrupts_chunk.generation == live))
		return;
	w->force = interrupts_chunk.generation != live;
	w->next = w->now + timeout_interrupts;
	w->due = 0;
	bpf_loop(interrupt_cpus << SLOT_BITS, interrupt_look, w, 0);
	interrupts_chunk.generation = live;
	interrupts_chunk.due_ns = w->due ? w->now : w->next;
	if (w->due)
		bpf_loop(w->due, expire_interrupt_step, w, 0);
}

#endif
