/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for a kernel: never run, only looked into. */
struct list {
	struct list *next, *prev;
};

__asm__(".text\n.globl _stext\n_stext:\n.skip 16\n");

static inline __attribute__((always_inline)) void list_del(struct list *l)
{
	l->next->prev = l->prev; /* list_del is here */
	l->prev->next = l->next;
}

__attribute__((noinline, used)) void finish_wait(struct list *l)
{
	list_del(l); /* finish_wait calls */
}
