/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tailcam for C and C++ programs: spans, activities and triggers. Copy this file; it needs no library.
 *
 * Spans are for rules of `track: span`. x86-64 and arm64; elsewhere the calls do nothing.
 *
 *	tailcam_begin("checkout-42");
 *	...
 *	tailcam_end("checkout-42");
 *
 * Each call is one system call that fails immediately, without changing errno; tailcam observes it
 * if it is running. A key is 1 to 63 bytes of text; invalid keys are counted and ignored. Keys are
 * private to the user and pid namespace of the caller; any thread or process with the same user and
 * pid namespace may end a span. Beginning a span again restarts it. Safe in threads, in signal
 * handlers and after fork.
 *
 * A seccomp filter must allow faccessat2.
 */
#ifndef TAILCAM_H
#define TAILCAM_H

#define TAILCAM_KEY_LEN 64 /* with its NUL */

static inline void tailcam_mark(const char *key, long what)
{
	/*
	 * Copy the key to the stack, as the kernel side cannot fault pages in. One byte more, so that
	 * a key that is too long is detected.
	 */
	char text[TAILCAM_KEY_LEN + 1];
	int n = 0;

	if (key)
		while (n < TAILCAM_KEY_LEN && key[n]) {
			text[n] = key[n];
			n++;
		}
	text[n] = 0;
#if defined(__x86_64__) && !defined(__ILP32__)
	{
		long ret = 439; /* faccessat2 */
		register long flags __asm__("r10") = 0;

		__asm__ volatile("syscall"
				 : "+a"(ret)
				 : "D"(-1L), "S"(text), "d"(what), "r"(flags)
				 : "rcx", "r11", "memory");
		(void)ret;
	}
#elif defined(__aarch64__) && !defined(__ILP32__)
	{
		register long nr __asm__("x8") = 439;
		register long dir __asm__("x0") = -1;
		register long path __asm__("x1") = (long)text;
		register long mode __asm__("x2") = what;
		register long flags __asm__("x3") = 0;

		__asm__ volatile("svc 0" : "+r"(dir) : "r"(nr), "r"(path), "r"(mode), "r"(flags) : "memory");
	}
#else
	(void)what;
	(void)text;
#endif
}

/* Begin the span with this key. */
static inline void tailcam_begin(const char *key)
{
	tailcam_mark(key, 0x74630001);
}

/* End the span with this key. */
static inline void tailcam_end(const char *key)
{
	tailcam_mark(key, 0x74630002);
}

/*
 * Activities: what each request costs and waits for (docs/activities.md), with a daemon that has
 * `activities.enabled`. Linux, x86-64 and arm64. With -std=c99 and the like, define _GNU_SOURCE.
 * TAILCAM_SPANS_ONLY leaves this part out.
 *
 *	struct tailcam *h = tailcam_open(NULL, NULL, error, sizeof(error));
 *	uint64_t t = tailcam_token(h, "checkout");
 *	tailcam_switch(h, t);		// this thread works for t from here
 *	...
 *	tailcam_switch(h, 0);		// and for nobody from here
 *	tailcam_end_token(h, t, &account);
 *
 * A handle that is NULL is accepted everywhere: tokens are 0, accounts empty, nothing fails. So a
 * program goes on as it is where tailcam_open() failed, and may tell the error or not.
 *
 * A token is a plain number. It goes with a work item to another thread, which switches to it. All
 * functions may be called from any thread, but not from signal handlers; A process has one handle at a time. A thread needs no registration: its first
 * tailcam_switch() claims a slot, with a system call; the later ones make none.
 */
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(__ILP32__) && \
	!defined(TAILCAM_SPANS_ONLY) &&                                                           \
	(!defined(__STRICT_ANSI__) || defined(_GNU_SOURCE) || defined(_DEFAULT_SOURCE))
#define TAILCAM_ACTIVITIES 1

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define TAILCAM_SOCKET "/run/tailcam/tailcam.sock"

/*
 * What an account has, besides wall_ns, elapsed_ns and unexplained_ns: nanoseconds, bytes, pages and
 * counts, by the names that they have everywhere in tailcam. `tailcam list accounts` says where each
 * comes from, and which are not to be had on a kernel. The order is the kernel side's.
 */
#define TAILCAM_VALUES(X)         \
	X(cpu_ns)                 \
	X(cpu_kernel_ns)          \
	X(runnable_ns)            \
	X(runnable_preempted_ns)  \
	X(runnable_woken_ns)      \
	X(runnable_throttled_ns)  \
	X(blocked_ns)             \
	X(blocked_disk_ns)        \
	X(blocked_lock_ns)        \
	X(blocked_network_ns)     \
	X(blocked_task_ns)        \
	X(blocked_timer_ns)       \
	X(blocked_fault_ns)       \
	X(blocked_reclaim_ns)     \
	X(blocked_work_ns)        \
	X(blocked_other_ns)       \
	X(switches)               \
	X(preemptions)            \
	X(wakeups)                \
	X(syscalls)               \
	X(syscall_ns)             \
	X(faults_minor)           \
	X(faults_major)           \
	X(fault_ns)               \
	X(cache_hits)             \
	X(cache_misses)           \
	X(block_requests)         \
	X(block_bytes)            \
	X(block_queue_ns)         \
	X(block_device_ns)        \
	X(tcp_bytes_sent)         \
	X(tcp_bytes_received)     \
	X(tcp_segments)           \
	X(tcp_retransmits)        \
	X(network_ns)             \
	X(memory_bytes)           \
	X(work_items)             \
	X(work_ns)                \
	X(work_blocked_ns)        \
	X(writeback_bytes)        \
	X(evicted_pages)          \
	X(evicts_pages)           \
	X(cycles)                 \
	X(instructions)           \
	X(cache_misses_hw)        \
	X(runnable_stolen_ns)     \
	X(blocked_kernel_lock_ns) \
	X(kernel_locks)           \
	X(kernel_lock_mutex_ns)   \
	X(kernel_lock_rwsem_ns)   \
	X(kernel_lock_spin_ns)    \
	X(kernel_lock_rtmutex_ns)

#define TAILCAM_FIELD_(name) uint64_t name;
#define TAILCAM_NUMBER_(name) TAILCAM_##name##_,
#define TAILCAM_NAME_(name) #name,

enum tailcam_number_ { TAILCAM_VALUES(TAILCAM_NUMBER_) TAILCAM_NUMBERS_ };

/*
 * What one token has cost. wall_ns is how long threads have carried it, summed over them, and is
 * cpu_ns + runnable_ns + blocked_ns + unexplained_ns; elapsed_ns is from token() to now, or to its end.
 */
struct tailcam_account {
	uint64_t token;
	char name[32];
	char text[16];	/* set_text */
	uint64_t value; /* set_value */
	uint8_t trace_id[16], span_id[8];
	uint64_t wall_ns, elapsed_ns, unexplained_ns;
	uint64_t tcp_bytes; /* sent and received */
	TAILCAM_VALUES(TAILCAM_FIELD_)
};

/*
 * What is known of the process, and not of which of its tokens: never guessed. Of the values, those
 * from syscalls on; the others are 0. machine_ns is what interrupts and softirqs took on top of its
 * threads, with group interrupts: it is in the cpu_ns of tokens, too. late counts what was to be
 * credited to tokens that had ended.
 */
struct tailcam_shared {
	uint64_t machine_ns, late;
	TAILCAM_VALUES(TAILCAM_FIELD_)
};

/* What a process asks for. Zeros, or NULL for the struct, are the defaults. */
struct tailcam_options {
	unsigned threads; /* that switch at the same time; a power of two, at most 4096; 256 */
	unsigned tokens;  /* live at the same time, at most 131072; 1024 */
	int inherit;	  /* a process made by fork() goes on with the handle, and its thread with the token */
};

/* What did not work, since tailcam_open(), in all processes that share the handle. */
struct tailcam_stats {
	uint64_t tokens_full;	  /* token(): all were live */
	uint64_t threads_full;	  /* switch(): no slot was free for the thread */
	uint64_t stale;		  /* switch() to a token that had ended */
	uint64_t untold;	  /* slow requests that the daemon was not told of, as it did not read */
	uint64_t attributes_full; /* set_attribute(): too many different ones, or of one token */
};

/* ------------------------------------------------- shared memory, as bpf/abi/activity.h has it */

enum tailcam_layout_ {
	TAILCAM_ABI_ = 1,
	TAILCAM_SHARED_ = 128,	/* bytes of an element */
	TAILCAM_ACCOUNT_ = 512, /* bytes of an element */
	TAILCAM_WINDOW_ = 8,
	TAILCAM_TOKEN_ATTRIBUTES_ = 4,
};

struct tailcam_half_ {
	uint32_t token, generation;
	uint64_t since_ns;
};

struct tailcam_thread_ {
	uint32_t tid, seq;
	struct tailcam_half_ half[2]; /* half[seq & 1] is valid */
};

struct tailcam_token_ {
	uint32_t generation, flags; /* generation is odd while it is live */
	uint64_t begin_ns, end_ns, cpu_ns, wall_ns, value;
	uint8_t trace_id[16], span_id[8];
	char name[32], text[16];
	uint16_t attributes[TAILCAM_TOKEN_ATTRIBUTES_];
};

/* A key with a value, which is written once. Number n, from 1 on, is the nth after the tokens. */
struct tailcam_pair_ {
	uint32_t state; /* 0: free; 1: it is being written; 2: it is there */
	char key[32], value[92];
};

/* Index 0 of what the process writes. */
struct tailcam_client_ {
	uint64_t next_token, tokens_refused, threads_refused, attributes_refused;
};

/* Index 0 of what the kernel side writes. */
struct tailcam_header_ {
	uint32_t abi, threads, tokens, flags, groups, process;
	uint64_t late, slow_ns, machine_ns;
};

struct tailcam_state_ {
	uint32_t tid, slices;
	uint64_t slice_ns;
	uint32_t seen_seq, seen_slice;
	uint64_t seen_ns, out_ns, waking_ns, early_ns;
	uint32_t cause;
};

/* Of a token; of an older one, if the generation is another: then nothing has been credited to it. */
struct tailcam_values_ {
	uint64_t value[63];
	uint32_t generation;
};

/* ------------------------------------------------------------------------------- own memory */

/* Shared with children that inherit. */
struct tailcam_family_ {
	uint32_t ended; /* how many tokens have been given back */
	uint32_t full;	/* ended, when a search found none */
	uint32_t was_full;
	uint32_t _pad;
	uint64_t stale, untold; /* of struct tailcam_stats */
	uint64_t taken[];	/* a bit for each token: 1 while it is live */
};

struct tailcam {
	uint32_t *epoch; /* which opening this is; 0 after fork (MADV_WIPEONFORK) and close */
	uint32_t opened;
	uint32_t threads, tokens, first, shift, pairs;
	int fd, inherit, tsc;
	char *shared;
	const char *accounts;
	struct tailcam_family_ *family;
	int registered, opening;
	size_t shared_bytes, accounts_bytes, family_bytes;
};

/* The time stamp counter as CLOCK_MONOTONIC, which is what reading it through the vDSO costs less. */
struct tailcam_clock_ {
	uint64_t tsc, ns, limit, mult;
	uint64_t anchor_tsc, anchor_ns;
};

struct tailcam_self_ {
	uint32_t epoch, refused;
	struct tailcam_thread_ *thread; /* NULL: no slot was free */
	const struct tailcam_state_ *state;
	struct tailcam_clock_ clock;
};

/* One of each, in however many files the header is included. */
__attribute__((weak)) struct tailcam tailcam_process_;
__attribute__((weak)) __thread struct tailcam_self_ tailcam_self_;

#define TAILCAM_SLOW_ __attribute__((noinline, unused))
#define TAILCAM_UNLIKELY_(x) __builtin_expect(!!(x), 0)
#define TAILCAM_LOAD_(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define TAILCAM_PEEK_(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
/* The kernel side writes a thread's state on the thread's own CPU, so the compiler alone could reorder. */
#define TAILCAM_BARRIER_() __asm__ volatile("" ::: "memory")

static inline void tailcam_count_(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------------------------- clock */

static inline uint64_t tailcam_vdso_(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__)
static inline uint64_t tailcam_rdtsc_(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
	return (uint64_t)high << 32 | low;
}

/*
 * Reads both clocks, and lets the line through them hold for a millisecond. Whatever happens to the
 * counter (suspend, migration, a kernel that stops trusting it) is over then.
 */
static TAILCAM_SLOW_ uint64_t tailcam_sync_(struct tailcam_clock_ *c, int tsc)
{
	uint64_t before, ns, after, mid, age, cycles, mult, off;
	int try_again = 3;

	if (!tsc)
		return tailcam_vdso_();
	c->limit = 0;
	do {
		before = tailcam_rdtsc_();
		ns = tailcam_vdso_();
		after = tailcam_rdtsc_();
	} while (after - before > 1000 && --try_again); /* cycles: it was interrupted */
	if (!try_again)
		return ns;
	mid = before + (after - before) / 2;
	age = ns - c->anchor_ns;
	cycles = mid - c->anchor_tsc;
	mult = c->mult;
	if (c->anchor_ns && age >= 10000000) {
		mult = (uint64_t)((double)age / (double)cycles * 4294967296.0);
		off = mult > c->mult ? mult - c->mult : c->mult - mult;
		if (cycles > age * 16 || cycles < age / 16 || (c->mult && off > c->mult / 1000)) {
			c->mult = c->anchor_ns = 0;
			mult = 0;
		}
	}
	if (!c->anchor_ns || age > 1000000000) {
		c->anchor_ns = ns;
		c->anchor_tsc = mid;
	}
	if (mult) {
		c->mult = mult;
		c->tsc = mid;
		c->ns = ns;
		c->limit = (1000000ull << 32) / mult;
	}
	return ns;
}

static inline uint64_t tailcam_now_(struct tailcam_clock_ *c, int tsc)
{
	uint64_t cycles = tailcam_rdtsc_() - c->tsc;

	if (TAILCAM_UNLIKELY_(cycles >= c->limit))
		return tailcam_sync_(c, tsc);
	return c->ns + (cycles * c->mult >> 32);
}
#else
static inline uint64_t tailcam_now_(struct tailcam_clock_ *c, int tsc)
{
	(void)c;
	(void)tsc;
	return tailcam_vdso_();
}
#endif

/* ------------------------------------------------------------------------------------ memory */

static inline struct tailcam_client_ *tailcam_client_(const struct tailcam *h)
{
	return (struct tailcam_client_ *)h->shared;
}

static inline struct tailcam_thread_ *tailcam_thread_(const struct tailcam *h, uint32_t index)
{
	return (struct tailcam_thread_ *)(h->shared + (size_t)index * TAILCAM_SHARED_);
}

static inline const struct tailcam_state_ *tailcam_state_(const struct tailcam *h, uint32_t index)
{
	return (const struct tailcam_state_ *)(h->accounts + (size_t)index * TAILCAM_ACCOUNT_);
}

static inline struct tailcam_token_ *tailcam_element_(const struct tailcam *h, uint32_t index)
{
	return (struct tailcam_token_ *)(h->shared + (size_t)index * TAILCAM_SHARED_);
}

static inline struct tailcam_pair_ *tailcam_pair_(const struct tailcam *h, uint32_t number)
{
	return (struct tailcam_pair_ *)(h->shared + (size_t)(h->first + h->tokens + number - 1) * TAILCAM_SHARED_);
}

static inline const struct tailcam_values_ *tailcam_values_(const struct tailcam *h, uint32_t index)
{
	return (const struct tailcam_values_ *)(h->accounts + (size_t)index * TAILCAM_ACCOUNT_);
}

/* The token's element, or NULL if it is none of this process, or has ended. */
static inline struct tailcam_token_ *tailcam_find_(const struct tailcam *h, uint64_t token)
{
	uint32_t index = (uint32_t)token, generation = (uint32_t)(token >> 32);
	struct tailcam_token_ *t;

	if (TAILCAM_UNLIKELY_(index - h->first >= h->tokens || !(generation & 1)))
		return NULL;
	t = tailcam_element_(h, index);
	return TAILCAM_LOAD_(t->generation) == generation ? t : NULL;
}

/* Whether the handle may be used here: not after close, nor after a fork without inherit. */
static inline int tailcam_usable_(struct tailcam *h)
{
	uint32_t epoch, next;

	if (!h)
		return 0;
	epoch = TAILCAM_LOAD_(*h->epoch);
	if (TAILCAM_UNLIKELY_(!epoch && h->opened && h->inherit)) { /* a child */
		next = h->opened + 1;
		if (__atomic_compare_exchange_n(h->epoch, &epoch, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			h->opened = next;
		return 1;
	}
	return epoch != 0;
}

/* Finds the calling thread's slot, which the kernel side gave it at a fork, or claims one of the same eight. */
static TAILCAM_SLOW_ int tailcam_join_(struct tailcam *h, struct tailcam_self_ *self)
{
	struct tailcam_thread_ *thread;
	uint32_t tid, home, i, index, seen, found = 0;

	if (!tailcam_usable_(h))
		return 0;
	if (self->epoch == TAILCAM_PEEK_(*h->epoch) && ++self->refused % 1024) {
		tailcam_count_(&tailcam_client_(h)->threads_refused);
		return 0; /* looks again only so often */
	}
	tid = (uint32_t)syscall(SYS_gettid);
	home = (uint32_t)(tid * 0x9E3779B1u) >> h->shift;
	for (i = 0; i < TAILCAM_WINDOW_ && !found; i++) {
		index = 1 + ((home + i) & (h->threads - 1));
		if (TAILCAM_PEEK_(tailcam_thread_(h, index)->tid) == tid)
			found = index;
	}
	for (i = 0; i < TAILCAM_WINDOW_ && !found; i++) {
		index = 1 + ((home + i) & (h->threads - 1));
		thread = tailcam_thread_(h, index);
		seen = 0;
		if (!__atomic_compare_exchange_n(&thread->tid, &seen, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		thread->half[(thread->seq + 1) & 1] = (struct tailcam_half_){0, 0, tailcam_vdso_()};
		__atomic_store_n(&thread->seq, thread->seq + 1, __ATOMIC_RELEASE);
		found = index;
	}
	if (!found) {
		self->epoch = TAILCAM_PEEK_(*h->epoch);
		self->thread = NULL;
		tailcam_count_(&tailcam_client_(h)->threads_refused);
		return 0;
	}
	self->thread = tailcam_thread_(h, found);
	self->state = tailcam_state_(h, found);
	self->epoch = TAILCAM_PEEK_(*h->epoch);
	return 1;
}

/* The calling thread's slot in self, or 0. */
static inline int tailcam_joined_(struct tailcam *h, struct tailcam_self_ *self)
{
	return TAILCAM_PEEK_(*h->epoch) == self->epoch && self->thread ? 1 : tailcam_join_(h, self);
}

/* ------------------------------------------------------------------------------------ switch */

/*
 * The kernel has switched the thread out and in since the clock was read for a switch. What it saw
 * before the commit went to the old token, whose time then ends where the slice of the commit began:
 * this one, or the one in which the kernel side saw the new half for the first time. Some machines keep
 * switches from every tracer: then it saw that the thread left (out_ns), and not that it came back.
 */
static TAILCAM_SLOW_ void tailcam_interrupted_(struct tailcam_self_ *self, uint32_t slices, uint64_t out, uint64_t *now,
					       uint64_t *cpu)
{
	const struct tailcam_state_ *s = self->state;
	uint32_t again, seen, first, seq = self->thread->seq;
	uint64_t border, left;

	do {
		again = TAILCAM_PEEK_(s->slices);
		left = TAILCAM_PEEK_(s->out_ns);
		TAILCAM_BARRIER_();
		seen = TAILCAM_PEEK_(s->seen_seq);
		first = TAILCAM_PEEK_(s->seen_slice);
		border = seen == seq ? TAILCAM_PEEK_(s->seen_ns) : left ? left : TAILCAM_PEEK_(s->slice_ns);
		TAILCAM_BARRIER_();
	} while (TAILCAM_PEEK_(s->slices) != again || TAILCAM_PEEK_(s->out_ns) != left);
	if ((seen == seq && first == slices) || (again == slices && left == out))
		return; /* all was after the commit */
	*cpu = 0;
	if (border > *now) {
		*now = border;
		__atomic_store_n(&self->thread->half[seq & 1].since_ns, border, __ATOMIC_RELAXED);
	}
}

/*
 * From here the calling thread works for token; 0: for none. 0, or -1 if no slot is free for the thread,
 * or the token has ended: it then works for none. No system call but the first time in a thread.
 */
static inline int tailcam_switch(struct tailcam *h, uint64_t token)
{
	struct tailcam_self_ *self = &tailcam_self_;
	struct tailcam_thread_ *thread;
	struct tailcam_token_ *credited;
	struct tailcam_half_ *old, *half;
	uint64_t now, start, cpu, since, out;
	uint32_t seq, slices;
	int failed = 0;

	if (!h)
		return 0;
	if (TAILCAM_UNLIKELY_(!tailcam_joined_(h, self)))
		return -1;
	if (token && TAILCAM_UNLIKELY_(!tailcam_find_(h, token))) {
		tailcam_count_(&h->family->stale);
		token = 0;
		failed = -1;
	}
	thread = self->thread;
	seq = thread->seq;
	old = &thread->half[seq & 1];
	since = old->since_ns;
	do {
		slices = TAILCAM_PEEK_(self->state->slices);
		out = TAILCAM_PEEK_(self->state->out_ns);
		TAILCAM_BARRIER_();
		now = tailcam_now_(&self->clock, h->tsc);
		start = TAILCAM_PEEK_(self->state->slice_ns);
		TAILCAM_BARRIER_();
	} while (TAILCAM_UNLIKELY_(TAILCAM_PEEK_(self->state->slices) != slices ||
				   TAILCAM_PEEK_(self->state->out_ns) != out));
	if (start < since)
		start = since;
	if (now < start)
		now = start; /* the clocks differ by a few nanoseconds; a slice may begin some microseconds late */
	cpu = start > out ? now - start : 0; /* it runs, and how it came back was not seen: unexplained */
	half = &thread->half[(seq + 1) & 1];
	half->token = (uint32_t)token;
	half->generation = (uint32_t)(token >> 32);
	half->since_ns = now;
	__atomic_store_n(&thread->seq, seq + 1, __ATOMIC_RELEASE);
	TAILCAM_BARRIER_();
	if (TAILCAM_UNLIKELY_(TAILCAM_PEEK_(self->state->slices) != slices ||
			      TAILCAM_PEEK_(self->state->out_ns) != out))
		tailcam_interrupted_(self, slices, out, &now, &cpu);
	if (!old->token)
		return failed;
	credited = tailcam_find_(h, (uint64_t)old->generation << 32 | old->token);
	if (TAILCAM_UNLIKELY_(!credited))
		return failed; /* ended by another thread */
	__atomic_fetch_add(&credited->wall_ns, now - since, __ATOMIC_RELAXED);
	if (cpu)
		__atomic_fetch_add(&credited->cpu_ns, cpu, __ATOMIC_RELAXED);
	return failed;
}

/* The token that the calling thread works for, to hand it over to another; 0: none. */
static inline uint64_t tailcam_current(struct tailcam *h)
{
	struct tailcam_self_ *self = &tailcam_self_;
	const struct tailcam_half_ *half;

	if (!h || !tailcam_joined_(h, self))
		return 0;
	half = &self->thread->half[self->thread->seq & 1];
	return half->token ? (uint64_t)half->generation << 32 | half->token : 0;
}

/* ------------------------------------------------------------------------------------ tokens */

static inline void tailcam_copy_(char *to, size_t size, const char *from)
{
	size_t n = 0;

	if (from)
		for (; n < size - 1 && from[n]; n++)
			to[n] = from[n];
	memset(to + n, 0, size - n);
}

/* How many words of 64 bits the tokens take. */
static inline uint32_t tailcam_words_(const struct tailcam *h)
{
	return (h->tokens + 63) / 64;
}

/* The index of a free token, or 0: of the next one, as others have been free for longer. */
static inline uint32_t tailcam_take_(struct tailcam *h)
{
	struct tailcam_family_ *f = h->family;
	uint64_t unused, bit, *next = &tailcam_client_(h)->next_token;
	uint32_t i, at, start, word, ended = TAILCAM_LOAD_(f->ended);

	if (TAILCAM_PEEK_(f->was_full) && TAILCAM_PEEK_(f->full) == ended)
		return 0; /* and none has ended since */
	start = (uint32_t)(__atomic_fetch_add(next, 1, __ATOMIC_RELAXED) % h->tokens);
	word = start / 64;
	for (i = 0; i <= tailcam_words_(h); i++) { /* the first word again at the end, for what is before start */
		unused = ~TAILCAM_PEEK_(f->taken[word]);
		if (!i)
			unused &= ~0ull << start % 64;
		for (; unused; unused &= unused - 1) {
			bit = unused & -unused;
			if (__atomic_fetch_or(&f->taken[word], bit, __ATOMIC_ACQ_REL) & bit)
				continue; /* another thread was faster */
			at = word * 64 + (uint32_t)__builtin_ctzll(bit);
			if (at != start)
				__atomic_fetch_add(next, (at + h->tokens - start) % h->tokens, __ATOMIC_RELAXED);
			return h->first + at;
		}
		word = word + 1 < tailcam_words_(h) ? word + 1 : 0;
	}
	__atomic_store_n(&f->full, ended, __ATOMIC_RELAXED);
	__atomic_store_n(&f->was_full, 1, __ATOMIC_RELAXED);
	return 0;
}

/*
 * A new token for a request; its name, of at most 31 bytes, is that of its kind, such as checkout.
 * 0 if all are live, which is counted.
 */
static inline uint64_t tailcam_token(struct tailcam *h, const char *name)
{
	struct tailcam_token_ *t;
	uint32_t index, generation;

	if (!tailcam_usable_(h))
		return 0;
	index = tailcam_take_(h);
	if (!index) {
		tailcam_count_(&tailcam_client_(h)->tokens_refused);
		return 0;
	}
	t = tailcam_element_(h, index);
	t->flags = 0;
	t->begin_ns = tailcam_vdso_();
	t->end_ns = t->cpu_ns = t->wall_ns = t->value = 0;
	memset(t->trace_id, 0, sizeof(t->trace_id));
	memset(t->span_id, 0, sizeof(t->span_id));
	tailcam_copy_(t->name, sizeof(t->name), name);
	memset(t->text, 0, sizeof(t->text));
	memset(t->attributes, 0, sizeof(t->attributes));
	generation = t->generation + 1;
	__atomic_store_n(&t->generation, generation, __ATOMIC_RELEASE);
	return (uint64_t)generation << 32 | index;
}

/* A number of the application's, which tailcam shows and gives back with the account. */
static inline int tailcam_set_value(struct tailcam *h, uint64_t token, uint64_t value)
{
	struct tailcam_token_ *t = tailcam_usable_(h) ? tailcam_find_(h, token) : NULL;

	if (t)
		__atomic_store_n(&t->value, value, __ATOMIC_RELAXED);
	return t || !h ? 0 : -1;
}

/* A text of the application's, of at most 15 bytes. */
static inline int tailcam_set_text(struct tailcam *h, uint64_t token, const char *text)
{
	struct tailcam_token_ *t = tailcam_usable_(h) ? tailcam_find_(h, token) : NULL;

	if (t)
		tailcam_copy_(t->text, sizeof(t->text), text);
	return t || !h ? 0 : -1;
}

/* The trace and the span that the request is part of, of 16 and 8 bytes. */
static inline int tailcam_set_trace(struct tailcam *h, uint64_t token, const void *trace_id, const void *span_id)
{
	struct tailcam_token_ *t = tailcam_usable_(h) ? tailcam_find_(h, token) : NULL;

	if (t) {
		memcpy(t->trace_id, trace_id, sizeof(t->trace_id));
		memcpy(t->span_id, span_id, sizeof(t->span_id));
	}
	return t || !h ? 0 : -1;
}

/* The number of that key with that value, which is written if it is not there; 0: no place is free. */
static TAILCAM_SLOW_ uint32_t tailcam_number_(struct tailcam *h, const char *key, const char *value)
{
	struct tailcam_pair_ want, *pair;
	uint32_t i, number, state, hash = 2166136261u;
	const char *at;

	tailcam_copy_(want.key, sizeof(want.key), key);
	tailcam_copy_(want.value, sizeof(want.value), value);
	for (at = want.key; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619u;
	for (at = want.value; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619u;
	for (i = 0; i < h->pairs; i++) {
		number = 1 + (hash + i) % h->pairs;
		pair = tailcam_pair_(h, number);
		state = TAILCAM_LOAD_(pair->state);
		if (!state &&
		    __atomic_compare_exchange_n(&pair->state, &state, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			memcpy(pair->key, want.key, sizeof(want.key));
			memcpy(pair->value, want.value, sizeof(want.value));
			__atomic_store_n(&pair->state, 2, __ATOMIC_RELEASE);
			return number;
		}
		if (state == 2 && !memcmp(pair->key, want.key, sizeof(want.key)) &&
		    !memcmp(pair->value, want.value, sizeof(want.value)))
			return number;
	}
	return 0;
}

/*
 * An attribute of the request, such as http.route, that tailcam groups and filters by. Few different ones:
 * a process has 256, of which a token has four; more are counted. The key has at most 31 bytes, the value 91.
 * The same key again replaces its value; NULL or "" takes it away. Only one thread may do so at a time.
 */
static inline int tailcam_set_attribute(struct tailcam *h, uint64_t token, const char *key, const char *value)
{
	struct tailcam_token_ *t = tailcam_usable_(h) ? tailcam_find_(h, token) : NULL;
	uint32_t i, number = 0, at = TAILCAM_TOKEN_ATTRIBUTES_;

	if (!t || !key || !*key)
		return t || h ? -1 : 0;
	for (i = TAILCAM_TOKEN_ATTRIBUTES_; i--;) {
		if (!t->attributes[i] || t->attributes[i] > h->pairs) {
			at = i;
		} else if (!strncmp(tailcam_pair_(h, t->attributes[i])->key, key,
				    sizeof(((struct tailcam_pair_ *)0)->key) - 1)) {
			at = i;
			break;
		}
	}
	if (value && *value && at < TAILCAM_TOKEN_ATTRIBUTES_)
		number = tailcam_number_(h, key, value);
	if (at < TAILCAM_TOKEN_ATTRIBUTES_)
		__atomic_store_n(&t->attributes[at], (uint16_t)number, __ATOMIC_RELAXED);
	if (number || !value || !*value)
		return 0;
	tailcam_count_(&tailcam_client_(h)->attributes_refused);
	return -1;
}

/* ---------------------------------------------------------------------------------- accounts */

/* Adds what a thread that carries the token has not yet been credited with. */
static inline void tailcam_progress_(const struct tailcam_state_ *s, uint32_t tid, uint64_t since, uint64_t now,
				     uint64_t *n, uint64_t *wall)
{
	uint64_t slice = TAILCAM_PEEK_(s->slice_ns), out = TAILCAM_PEEK_(s->out_ns),
		 waking = TAILCAM_PEEK_(s->waking_ns);
	uint32_t cause = TAILCAM_PEEK_(s->cause);

	if (now < since)
		return;
	*wall += now - since;
	if (!out || TAILCAM_PEEK_(s->tid) != tid) { /* of another: it has not been off the CPU yet */
		slice = slice > since ? slice : since;
		n[TAILCAM_cpu_ns_] += now > slice ? now - slice : 0;
		return;
	}
	out = out > since ? out : since;
	if (out > now)
		return;
	if (cause > TAILCAM_runnable_ns_ && cause < TAILCAM_blocked_ns_) {
		n[TAILCAM_runnable_ns_] += now - out;
		n[cause] += now - out;
		return;
	}
	if ((cause <= TAILCAM_blocked_ns_ || cause > TAILCAM_blocked_other_ns_) &&
	    cause != TAILCAM_blocked_kernel_lock_ns_)
		cause = TAILCAM_blocked_other_ns_;
	if (!waking || waking > now || waking < out)
		waking = now;
	n[TAILCAM_blocked_ns_] += waking - out;
	n[cause] += waking - out;
	n[TAILCAM_runnable_ns_] += now - waking;
	n[TAILCAM_runnable_woken_ns_] += now - waking;
}

/* What changes when something is credited to the token. */
static inline uint64_t tailcam_sum_(struct tailcam *h, uint64_t token, uint64_t now, uint64_t *n, uint64_t *wall)
{
	uint32_t i, seq, index = (uint32_t)token;
	struct tailcam_token_ *t = tailcam_element_(h, index);
	const struct tailcam_values_ *values = tailcam_values_(h, index);
	uint64_t sum, ours = TAILCAM_LOAD_(values->generation) == (uint32_t)(token >> 32);

	*wall = TAILCAM_LOAD_(t->wall_ns);
	for (i = 0; i < TAILCAM_NUMBERS_; i++)
		n[i] = ours ? TAILCAM_PEEK_(values->value[i]) : 0;
	n[TAILCAM_cpu_ns_] += TAILCAM_LOAD_(t->cpu_ns);
	sum = *wall + n[TAILCAM_cpu_ns_] + n[TAILCAM_runnable_ns_] + n[TAILCAM_blocked_ns_];
	for (i = 1; i < h->first; i++) {
		const struct tailcam_thread_ *thread = tailcam_thread_(h, i);
		const struct tailcam_half_ *half;

		if (!TAILCAM_PEEK_(thread->tid))
			continue;
		seq = TAILCAM_LOAD_(thread->seq);
		half = &thread->half[seq & 1];
		if (TAILCAM_PEEK_(half->token) != index || TAILCAM_PEEK_(half->generation) != (uint32_t)(token >> 32))
			continue;
		sum += (uint64_t)i << 48 ^ ((uint64_t)seq << 16) ^ TAILCAM_LOAD_(tailcam_state_(h, i)->slices) ^
		       TAILCAM_PEEK_(tailcam_state_(h, i)->out_ns);
		tailcam_progress_(tailcam_state_(h, i), TAILCAM_PEEK_(thread->tid), TAILCAM_PEEK_(half->since_ns), now,
				  n, wall);
	}
	return sum;
}

/* Fills in what the token has cost until now. Two readings must agree, or as many as are worth it. */
static inline void tailcam_account_(struct tailcam *h, uint64_t token, const struct tailcam_token_ *t,
				    struct tailcam_account *a)
{
	uint64_t n[TAILCAM_NUMBERS_], first, now, known;
	int tries = 8;

	do {
		now = tailcam_vdso_();
		first = tailcam_sum_(h, token, now, n, &a->wall_ns);
	} while (tailcam_sum_(h, token, now, n, &a->wall_ns) != first && --tries);
#define TAILCAM_SET_(name) a->name = n[TAILCAM_##name##_];
	TAILCAM_VALUES(TAILCAM_SET_)
#undef TAILCAM_SET_
	known = a->cpu_ns + a->runnable_ns + a->blocked_ns;
	a->unexplained_ns = a->wall_ns > known ? a->wall_ns - known : 0;
	a->tcp_bytes = a->tcp_bytes_sent + a->tcp_bytes_received;
	a->token = token;
	a->elapsed_ns = now > t->begin_ns ? now - t->begin_ns : 0;
	a->value = TAILCAM_PEEK_(t->value);
	memcpy(a->trace_id, t->trace_id, sizeof(a->trace_id));
	memcpy(a->span_id, t->span_id, sizeof(a->span_id));
	memcpy(a->name, t->name, sizeof(a->name) - 1);
	memcpy(a->text, t->text, sizeof(a->text) - 1);
}

/* What the token has cost until now. -1, and zeros, if it has ended, or is 0. */
static inline int tailcam_read(struct tailcam *h, uint64_t token, struct tailcam_account *account)
{
	const struct tailcam_token_ *t = tailcam_usable_(h) ? tailcam_find_(h, token) : NULL;

	memset(account, 0, sizeof(*account));
	if (!t)
		return h ? -1 : 0;
	tailcam_account_(h, token, t, account);
	return 0;
}

/* Tells the daemon of a slow request, for rules of `track: activity`. It reads the maps itself. */
static inline void tailcam_tell_(struct tailcam *h, uint64_t token, uint64_t elapsed_ns)
{
	const struct tailcam_header_ *header = (const struct tailcam_header_ *)h->accounts;
	uint64_t slow = TAILCAM_PEEK_(header->slow_ns);

	if (slow && elapsed_ns >= slow &&
	    send(h->fd, &token, sizeof(token), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(token))
		tailcam_count_(&h->family->untold);
}

/*
 * Ends the token, and gives what it has cost; account may be NULL. If the calling thread works for it,
 * it works for none then; what other threads do for it from here is for nobody. -1 if it has ended.
 */
static inline int tailcam_end_token(struct tailcam *h, uint64_t token, struct tailcam_account *account)
{
	struct tailcam_token_ *t;
	uint32_t slot, generation = (uint32_t)(token >> 32);
	uint64_t now, elapsed;

	if (account)
		memset(account, 0, sizeof(*account));
	if (!h)
		return 0;
	if (token && tailcam_current(h) == token)
		tailcam_switch(h, 0);
	t = tailcam_usable_(h) ? tailcam_find_(h, token) : NULL;
	if (!t)
		return -1;
	if (account) {
		tailcam_account_(h, token, t, account);
		elapsed = account->elapsed_ns;
	} else {
		now = tailcam_vdso_();
		elapsed = now > t->begin_ns ? now - t->begin_ns : 0;
	}
	__atomic_store_n(&t->end_ns, t->begin_ns + elapsed, __ATOMIC_RELAXED);
	if (!__atomic_compare_exchange_n(&t->generation, &generation, generation + 1, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return -1;
	slot = (uint32_t)token - h->first;
	__atomic_fetch_and(&h->family->taken[slot / 64], ~(1ull << slot % 64), __ATOMIC_RELEASE);
	__atomic_fetch_add(&h->family->ended, 1, __ATOMIC_RELEASE);
	tailcam_tell_(h, token, elapsed);
	return 0;
}

/* ------------------------------------------------------------------------------ many accounts */

/* Adds what from has cost to into. Name, text and ids stay into's. */
static inline void tailcam_merge(struct tailcam_account *into, const struct tailcam_account *from)
{
#define TAILCAM_ADD_(name) into->name += from->name;
	TAILCAM_VALUES(TAILCAM_ADD_)
#undef TAILCAM_ADD_
	into->wall_ns += from->wall_ns;
	into->elapsed_ns += from->elapsed_ns;
	into->unexplained_ns += from->unexplained_ns;
	into->tcp_bytes += from->tcp_bytes;
}

/*
 * Calls f with the account of each live token of the process, until it returns other than 0; returns
 * that.
 */
static inline int tailcam_map(struct tailcam *h, int (*f)(const struct tailcam_account *account, void *ctx), void *ctx)
{
	struct tailcam_account account;
	uint32_t i, generation;
	int result = 0;

	if (!tailcam_usable_(h))
		return 0;
	for (i = h->first; i < h->first + h->tokens && !result; i++) {
		generation = TAILCAM_LOAD_(tailcam_element_(h, i)->generation);
		if (generation & 1 && !tailcam_read(h, (uint64_t)generation << 32 | i, &account))
			result = f(&account, ctx);
	}
	return result;
}

/* Calls f with into and each account, such as tailcam_merge(), which adds them up. */
struct tailcam_fold_ {
	struct tailcam_account *into;
	void (*f)(struct tailcam_account *into, const struct tailcam_account *account);
};

static inline int tailcam_fold_one_(const struct tailcam_account *account, void *ctx)
{
	struct tailcam_fold_ *fold = (struct tailcam_fold_ *)ctx;

	fold->f(fold->into, account);
	return 0;
}

static inline void tailcam_fold(struct tailcam *h, struct tailcam_account *into,
				void (*f)(struct tailcam_account *into, const struct tailcam_account *account))
{
	struct tailcam_fold_ fold = {into, f};

	tailcam_map(h, tailcam_fold_one_, &fold);
}

/* Copies the accounts for which keep() is not 0, at most max of them, and returns how many there are. */
struct tailcam_filter_ {
	int (*keep)(const struct tailcam_account *account, void *ctx);
	void *ctx;
	struct tailcam_account *accounts;
	size_t n, max;
};

static inline int tailcam_filter_one_(const struct tailcam_account *account, void *ctx)
{
	struct tailcam_filter_ *filter = (struct tailcam_filter_ *)ctx;

	if (filter->keep(account, filter->ctx) && filter->n++ < filter->max)
		filter->accounts[filter->n - 1] = *account;
	return 0;
}

static inline size_t tailcam_filter(struct tailcam *h, int (*keep)(const struct tailcam_account *account, void *ctx),
				    void *ctx, struct tailcam_account *accounts, size_t max)
{
	struct tailcam_filter_ filter = {keep, ctx, accounts, 0, max};

	tailcam_map(h, tailcam_filter_one_, &filter);
	return filter.n;
}

/* What was done for the process until now, and for which of its tokens is not known. */
static inline void tailcam_shared(struct tailcam *h, struct tailcam_shared *shared)
{
	const struct tailcam_header_ *header;
	const struct tailcam_values_ *values;

	memset(shared, 0, sizeof(*shared));
	if (!tailcam_usable_(h))
		return;
	header = (const struct tailcam_header_ *)h->accounts;
	values = tailcam_values_(h, 0);
	shared->machine_ns = TAILCAM_PEEK_(header->machine_ns);
	shared->late = TAILCAM_PEEK_(header->late);
#define TAILCAM_SHARE_(name)                             \
	if (TAILCAM_##name##_ >= (int)TAILCAM_syscalls_) \
		shared->name = TAILCAM_PEEK_(values->value[TAILCAM_##name##_]);
	TAILCAM_VALUES(TAILCAM_SHARE_)
#undef TAILCAM_SHARE_
}

static inline void tailcam_stats(struct tailcam *h, struct tailcam_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	if (!tailcam_usable_(h))
		return;
	stats->tokens_full = TAILCAM_PEEK_(tailcam_client_(h)->tokens_refused);
	stats->threads_full = TAILCAM_PEEK_(tailcam_client_(h)->threads_refused);
	stats->stale = TAILCAM_PEEK_(h->family->stale);
	stats->untold = TAILCAM_PEEK_(h->family->untold);
	stats->attributes_full = TAILCAM_PEEK_(tailcam_client_(h)->attributes_refused);
}

/* ------------------------------------------------------------------------------------ daemon */

/* Connects to the daemon, and gives up after five seconds. */
static inline int tailcam_connect_(const char *path, char *error, size_t size)
{
	struct sockaddr_un address;
	struct timeval limit = {5, 0};
	int fd;

	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(address.sun_path)) {
		snprintf(error, size, "path of the socket is too long: %s: must be at most %zu bytes", path,
			 sizeof(address.sun_path) - 1);
		return -1;
	}
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		snprintf(error, size, "create socket: %s", strerror(errno));
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		if (errno == EACCES || errno == EPERM)
			snprintf(error, size, "permission denied: %s: join its group, and log in again", path);
		else
			snprintf(error, size, "daemon not reachable at %s: %s: start it with \"sudo tailcam run\"",
				 path, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

/* What follows name in a reply, or NULL. */
static inline const char *tailcam_after_(const char *reply, const char *name)
{
	size_t n = strlen(name);

	for (; *reply; reply++)
		if (!strncasecmp(reply, name, n))
			return reply + n;
	return NULL;
}

static inline unsigned long tailcam_header_(const char *reply, const char *name)
{
	const char *at = tailcam_after_(reply, name);

	return at ? strtoul(at, NULL, 10) : 0;
}

/* Copies the string that follows name in a reply of JSON. 0 if there is none. */
static inline int tailcam_json_(const char *reply, const char *name, char *to, size_t size)
{
	const char *at = tailcam_after_(reply, name);
	size_t n = 0;

	if (!at || !size)
		return 0;
	for (; *at && *at != '"' && n + 1 < size; at++) {
		if (*at == '\\' && at[1])
			at++;
		to[n++] = *at;
	}
	to[n] = 0;
	return 1;
}

/* Takes the descriptors that came with a message. */
static inline void tailcam_fds_(struct msghdr *m, int fds[2])
{
	struct cmsghdr *c;
	size_t i, n;
	int fd, *slot;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			slot = fds[0] < 0 ? &fds[0] : &fds[1];
			if (*slot < 0)
				*slot = fd;
			else
				close(fd);
		}
	}
}

/* Sends a request, and receives what is of a reply that has no end of its own, or until its end. */
static inline int tailcam_ask_(int fd, const char *request, char *reply, size_t size, int fds[2])
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct msghdr m;
	struct iovec iov;
	const char *body;
	size_t n = 0;
	ssize_t got;

	if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
		return -1;
	while (n + 1 < size) {
		memset(&m, 0, sizeof(m));
		iov.iov_base = reply + n;
		iov.iov_len = size - 1 - n;
		m.msg_iov = &iov;
		m.msg_iovlen = 1;
		m.msg_control = control.space;
		m.msg_controllen = sizeof(control.space);
		got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		tailcam_fds_(&m, fds);
		n += (size_t)got;
		reply[n] = 0;
		body = strstr(reply, "\r\n\r\n");
		if (!got || (body && (size_t)(reply + n - body - 4) >= tailcam_header_(reply, "\r\nContent-Length: ")))
			break;
	}
	reply[n] = 0;
	return 0;
}

/* The number of a reply's first line, or -1. */
static inline int tailcam_status_(const char *reply)
{
	return strncmp(reply, "HTTP/1.", 7) || strlen(reply) < 12 ? -1 : atoi(reply + 9);
}

/* What a trigger asks for; zeros are the defaults. */
struct tailcam_trigger_options {
	uint64_t last_ns;  /* of the calling thread's time, to explain; 1 s */
	uint64_t after_ns; /* recorded beyond now, at most 1 minute; nothing */
};

/*
 * Has the daemon save the seconds before now, because of reason, and explain what the calling thread did
 * and waited for. Returns when it has begun; id, of at least 64 bytes, or NULL, gets the snapshot's. It
 * needs no handle. path, options: NULL for the defaults. 0, or -1 and the error's text.
 */
static inline int tailcam_trigger_with(const char *path, const char *reason,
				       const struct tailcam_trigger_options *options, char *id, size_t id_size,
				       char *error, size_t size)
{
	static const char head[] = "POST /v1/trigger HTTP/1.1\r\nHost: tailcam\r\nContent-Type: application/json\r\n"
				   "Connection: close\r\nContent-Length: %zu\r\n\r\n%s";
	char body[2400] = "{\"no_wait\":true,\"reason\":\"", request[2700], reply[4096] = "";
	unsigned long long last = options ? options->last_ns : 0, after = options ? options->after_ns : 0;
	int fd, status, fds[2] = {-1, -1};
	size_t n = strlen(body);

	for (; reason && *reason && n < 2100; reason++) {
		if (*reason == '"' || *reason == '\\')
			body[n++] = '\\';
		body[n++] = (unsigned char)*reason < ' ' ? ' ' : *reason;
	}
	snprintf(body + n, sizeof(body) - n, "\",\"self\":true,\"tid\":%d,\"last\":\"%lluns\",\"after\":\"%lluns\"}",
		 (int)syscall(SYS_gettid), last ? last : 1000000000ull, after);
	fd = tailcam_connect_(path ? path : TAILCAM_SOCKET, error, size);
	if (fd < 0)
		return -1;
	snprintf(request, sizeof(request), head, strlen(body), body);
	status = tailcam_ask_(fd, request, reply, sizeof(reply), fds) ? -1 : tailcam_status_(reply);
	close(fd);
	if (status == 200 && (!id || tailcam_json_(reply, "\"id\":\"", id, id_size)))
		return 0;
	if (!tailcam_json_(reply, "\"error\":\"", error, size))
		snprintf(error, size, "no reply from the daemon");
	return -1;
}

/* tailcam_trigger_with of the calling thread's last second. */
static inline int tailcam_trigger(const char *path, const char *reason, char *id, size_t id_size, char *error,
				  size_t size)
{
	return tailcam_trigger_with(path, reason, NULL, id, id_size, error, size);
}

/* A child that does not inherit must not keep its parent's maps alive. */
static inline void tailcam_child_(void)
{
	struct tailcam *h = &tailcam_process_;

	if (h->opened && !h->inherit && h->fd >= 0) {
		close(h->fd);
		h->fd = -1;
	}
}

/* Whether user space may read the counter, and the kernel has its clock from it. */
static inline int tailcam_tsc_(void)
{
#if defined(__x86_64__)
	char name[8] = "";
	int mode = 0;
	FILE *f;

	if (prctl(PR_GET_TSC, &mode, 0, 0, 0) || mode != PR_TSC_ENABLE)
		return 0;
	f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	if (!f)
		return 0;
	if (!fgets(name, sizeof(name), f))
		name[0] = 0;
	fclose(f);
	return !strcmp(name, "tsc\n");
#else
	return 0;
#endif
}

static inline int tailcam_map_(struct tailcam *h, int inherit, int fds[2])
{
	size_t elements = 1 + (size_t)h->threads + h->tokens, page = (size_t)sysconf(_SC_PAGESIZE);
	void *epoch, *shared, *accounts, *family;

	h->shared_bytes = ((elements + h->pairs) * TAILCAM_SHARED_ + page - 1) / page * page;
	h->accounts_bytes = (elements * TAILCAM_ACCOUNT_ + page - 1) / page * page;
	h->family_bytes = sizeof(struct tailcam_family_) + tailcam_words_(h) * sizeof(uint64_t);
	epoch = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, h->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	accounts = mmap(NULL, h->accounts_bytes, PROT_READ, MAP_SHARED, fds[1], 0);
	family = mmap(NULL, h->family_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (epoch != MAP_FAILED && shared != MAP_FAILED && accounts != MAP_FAILED && family != MAP_FAILED &&
	    !madvise(epoch, page, MADV_WIPEONFORK) &&
	    (inherit || (!madvise(shared, h->shared_bytes, MADV_DONTFORK) &&
			 !madvise(accounts, h->accounts_bytes, MADV_DONTFORK) &&
			 !madvise(family, h->family_bytes, MADV_DONTFORK)))) {
		h->epoch = (uint32_t *)epoch;
		h->shared = (char *)shared;
		h->accounts = (const char *)accounts;
		h->family = (struct tailcam_family_ *)family;
		if (h->tokens % 64) /* there are no such tokens */
			h->family->taken[h->tokens / 64] = ~0ull << h->tokens % 64;
		return 0;
	}
	if (epoch != MAP_FAILED)
		munmap(epoch, page);
	if (shared != MAP_FAILED)
		munmap(shared, h->shared_bytes);
	if (accounts != MAP_FAILED)
		munmap(accounts, h->accounts_bytes);
	if (family != MAP_FAILED)
		munmap(family, h->family_bytes);
	return -1;
}

static inline int tailcam_accept_(struct tailcam *h, const char *reply, int inherit, int fds[2], char *error,
				  size_t size)
{
	unsigned long abi = tailcam_header_(reply, "\r\nTailcam-Abi: ");
	int power;

	if (tailcam_status_(reply) != 101) {
		if (!tailcam_json_(reply, "\"error\":\"", error, size))
			snprintf(error, size,
				 "unexpected reply: is another program listening there, or an older tailcam?");
		return -1;
	}
	if (abi != TAILCAM_ABI_) {
		snprintf(
			error, size,
			"the daemon speaks version %lu of activities, and this program %d: rebuild it with its tailcam.h",
			abi, TAILCAM_ABI_);
		return -1;
	}
	h->threads = (uint32_t)tailcam_header_(reply, "\r\nTailcam-Threads: ");
	h->tokens = (uint32_t)tailcam_header_(reply, "\r\nTailcam-Tokens: ");
	h->pairs = (uint32_t)tailcam_header_(reply, "\r\nTailcam-Attributes: "); /* an older daemon has none */
	if (fds[0] < 0 || fds[1] < 0 || h->threads < TAILCAM_WINDOW_ || h->threads > 4096 ||
	    h->threads & (h->threads - 1) || !h->tokens || h->tokens > 131072 || h->pairs > 65535) {
		snprintf(error, size, "the daemon's reply makes no sense");
		return -1;
	}
	for (power = 0; 1u << power < h->threads; power++)
		;
	h->shift = 32 - (uint32_t)power;
	h->first = 1 + h->threads;
	if (tailcam_map_(h, inherit, fds)) {
		snprintf(error, size, "map accounts: %s", strerror(errno));
		return -1;
	}
	return 0;
}

static inline int tailcam_start_(struct tailcam *h, const char *path, const struct tailcam_options *options,
				 char *error, size_t size)
{
	char request[256], reply[4096] = "";
	int failed, fds[2] = {-1, -1};

	h->fd = tailcam_connect_(path, error, size);
	if (h->fd < 0)
		return -1;
	snprintf(
		request, sizeof(request),
		"POST /v1/activities?threads=%u&tokens=%u&inherit=%d HTTP/1.1\r\nHost: tailcam\r\nContent-Length: 0\r\n"
		"Connection: Upgrade\r\nUpgrade: tailcam-activities\r\n\r\n",
		options->threads ? options->threads : 256, options->tokens ? options->tokens : 1024,
		!!options->inherit);
	failed = tailcam_ask_(h->fd, request, reply, sizeof(reply), fds);
	if (failed)
		snprintf(error, size, "ask the daemon at %s: %s", path,
			 errno == EAGAIN ? "no answer within 5 s: it may still be starting" : strerror(errno));
	else
		failed = tailcam_accept_(h, reply, options->inherit, fds, error, size);
	if (fds[0] >= 0)
		close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	if (failed) {
		close(h->fd);
		h->fd = -1;
		return -1;
	}
	if (!h->registered)
		h->registered = !pthread_atfork(NULL, NULL, tailcam_child_);
	h->tsc = tailcam_tsc_();
	h->inherit = options->inherit;
	h->opened++;
	__atomic_store_n(h->epoch, h->opened, __ATOMIC_RELEASE);
	return 0;
}

/*
 * Opens activities for this process. path: NULL for the default. NULL if that fails, with the reason in
 * error; a program may then go on with NULL. Gives up after five seconds.
 */
static inline struct tailcam *tailcam_open(const char *path, const struct tailcam_options *options, char *error,
					   size_t size)
{
	static const struct tailcam_options defaults = {0, 0, 0};
	struct tailcam *h = &tailcam_process_;
	int failed = -1, opening = __atomic_exchange_n(&h->opening, 1, __ATOMIC_ACQUIRE);

	if (opening || (h->opened && tailcam_usable_(h)))
		snprintf(error, size, "activities are open in this process already, or are being opened");
	else
		failed = tailcam_start_(h, path ? path : TAILCAM_SOCKET, options ? options : &defaults, error, size);
	if (!opening)
		__atomic_store_n(&h->opening, 0, __ATOMIC_RELEASE);
	return failed ? NULL : h;
}
/*
 * Ends activities in this process. What other threads do with the handle meanwhile goes to memory that
 * nobody reads, and which stays.
 */
static inline void tailcam_close(struct tailcam *h)
{
	if (!h || !tailcam_usable_(h))
		return;
	__atomic_store_n(h->epoch, 0, __ATOMIC_RELEASE);
	/* A child of another thread may have the descriptor until its exec: the daemon is to know now. */
	if (!h->inherit)
		shutdown(h->fd, SHUT_RDWR);
	h->inherit = 0;
	mmap(h->shared, h->shared_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	mmap((void *)h->accounts, h->accounts_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
	     -1, 0);
	close(h->fd);
	h->fd = -1;
}
#endif /* activities */

#endif
