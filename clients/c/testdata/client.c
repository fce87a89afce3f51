/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with activities, for tests: does what it is told, and prints one JSON object per token, with
 * its account and with what it has measured itself by other clocks.
 *
 *	client SOCKET open			opens and closes; the error, if that fails
 *	client SOCKET exact			spins, sleeps, waits for a lock, and for a pipe; 20 ms each
 *	client SOCKET churn THREADS MS STEP_US	threads that work for a token at a time, spinning for that long, and
 *						hand it over to the next
 *	client SOCKET mixed DIR			the same, each token with work of one kind: injectors.h
 *	client SOCKET fork INHERIT		a child that spins for 20 ms
 *	client SOCKET exec			a child that inherits, spins, and becomes another program, which spins, too
 *	client SOCKET reopen TIMES		closes and opens again at once
 *	client SOCKET crash TIMES AT_ONCE	processes that open, carry a token, and die
 *	client SOCKET hostile FILE		writes anything into all that it may write, and keeps the kernel side busy
 *						with it, until the end of its standard input
 *	client SOCKET silent TIMES CALL		switches while any system call would kill it; CALL: and makes one
 *	client SOCKET shared DIR		what is known of the process alone, of files that it writes
 *	client SOCKET full			more tokens and threads than there are
 *	client SOCKET cost LIVE			nanoseconds of a switch between so many tokens, of a request's token from
 *						begin to end, and of calls beside them; probed() may have a uprobe
 *	client SOCKET trigger REASON [MS]
 */
#define _GNU_SOURCE
#include "tailcam.h"

#include "injectors.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/wait.h>

static struct tailcam *h;

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static void spin(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void nap(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	nanosleep(&t, NULL);
}

/* How often the thread has got a CPU, as the scheduler counts. */
static uint32_t arrivals(void)
{
	unsigned long ran, ns, times;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");

	if (!f || fscanf(f, "%lu %lu %lu", &ran, &ns, &times) != 3)
		abort();
	fclose(f);
	return (uint32_t)times;
}

/* What was taken from threads of this process while they ran, and from which of their tokens is not known. */
static uint64_t stolen(void)
{
	return h ? __atomic_load_n(&tailcam_values_(h, 0)->value[TAILCAM_runnable_stolen_ns_], __ATOMIC_RELAXED) : 0;
}

/* What the program has measured itself. */
struct truth {
	uint64_t wall, cpu;
	uint64_t unsure;	 /* what both may be wrong by */
	uint64_t pieces, paused; /* of its kind, and how long those took that wait */
};

static void print(const struct tailcam_account *a, struct truth truth)
{
	printf("{\"name\":\"%s\",\"text\":\"%s\",\"value\":%lu", a->name, a->text, a->value);
#define FIELD(field) printf(",\"%s\":%lu", #field, a->field);
	TAILCAM_VALUES(FIELD)
	FIELD(wall_ns)
	FIELD(elapsed_ns)
	FIELD(unexplained_ns)
	FIELD(tcp_bytes)
	printf(",\"true_wall_ns\":%lu,\"true_cpu_ns\":%lu,\"unsure_ns\":%lu,\"pieces\":%lu,\"paused_ns\":%lu}\n",
	       truth.wall, truth.cpu, truth.unsure, truth.pieces, truth.paused);
}

static void finish(uint64_t token, struct truth truth)
{
	struct tailcam_account a;

	if (tailcam_end_token(h, token, &a))
		fprintf(stderr, "token has ended\n");
	print(&a, truth);
}

/* ------------------------------------------------------------------ exact */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];

static void *hold(void *held)
{
	pthread_mutex_lock(&lock);
	__atomic_store_n((int *)held, 1, __ATOMIC_RELEASE);
	nap(20000000);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void *speak(void *unused)
{
	nap(20000000);
	if (write(ends[1], "x", 1) != 1)
		abort();
	return unused;
}

/* One token for what f does. */
static void measure(const char *name, void (*f)(void))
{
	struct truth truth = {0, 0, stolen(), 0, 0};
	uint64_t token = tailcam_token(h, name), wall, cpu;

	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	wall = now();
	tailcam_switch(h, token);
	f();
	tailcam_switch(h, 0);
	truth.wall = now() - wall;
	truth.cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	nap(100000); /* the slice ends */
	truth.unsure = stolen() - truth.unsure;
	finish(token, truth);
}

static void spins(void)
{
	spin(20000000);
}

static void sleeps(void)
{
	nap(20000000);
}

static void locks(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

static void reads(void)
{
	char c;

	if (read(ends[0], &c, 1) != 1)
		abort();
}

static void exact(void)
{
	pthread_t other;
	int held = 0;

	measure("spin", spins);
	measure("sleep", sleeps);
	pthread_create(&other, NULL, hold, &held);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		sched_yield();
	measure("lock", locks);
	pthread_join(other, NULL);
	if (pipe(ends))
		abort();
	pthread_create(&other, NULL, speak, NULL);
	measure("pipe", reads);
	pthread_join(other, NULL);
}

/* ------------------------------------------------------------------ churn */

enum { TOKENS = 99, QUEUE = 128 };

static uint64_t tokens[TOKENS];
static struct truth truths[TOKENS];
static uint64_t all_cpu, all_arrivals, all_unseen; /* of the threads; unseen: no tracer was told of it */
static bool mixed;				   /* a token has work of a kind, and no spinning alone */
static uint32_t undone;				   /* pieces of that */
static bool stop;
static uint64_t step_ns;
static uint32_t queue[QUEUE], head, tail; /* token + 1; 0: taken */

/*
 * Nobody sleeps for it: the scheduler looks for other work then, which is not a thread's own time, but goes by
 * on its CPU before it has left.
 */
static int take(void)
{
	uint32_t *slot = &queue[__atomic_fetch_add(&tail, 1, __ATOMIC_RELAXED) % QUEUE], i;

	while (!(i = __atomic_exchange_n(slot, 0, __ATOMIC_ACQUIRE)))
		sched_yield();
	return (int)i - 1;
}

static void hand_over(int i)
{
	uint32_t *slot = &queue[__atomic_fetch_add(&head, 1, __ATOMIC_RELAXED) % QUEUE], none = 0;

	while (!__atomic_compare_exchange_n(slot, &none, (uint32_t)i + 1, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
		none = 0;
		sched_yield();
	}
}

/* The work for a token that is handed over next. */
static void inject(int i, uint64_t began)
{
	const struct injector *kind = &injectors[i % INJECTORS];
	uint64_t begin;

	if (!mixed || !kind->piece || truths[i].pieces == (uint64_t)kind->pieces) {
		while (now() < began + step_ns)
			;
		return;
	}
	begin = now();
	kind->piece();
	if (kind->waits)
		truths[i].paused += now() - begin;
	truths[i].pieces++;
	__atomic_fetch_sub(&undone, 1, __ATOMIC_RELAXED);
}

/*
 * From token to token, with no time between them: what the clocks are late at the end of one, they are at
 * the begin of the next. Where the thread did not run in between, nobody knows to whom the time belongs.
 */
static void *work(void *unused)
{
	uint64_t began = 0, ended, began_cpu = 0, cpu, late, first_cpu;
	uint32_t slices, came, then;
	int i = -1, next;

	if (mixed)
		injectors_join();
	first_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	tailcam_switch(h, 0);
	do {
		slices = tailcam_self_.state->slices;
		came = arrivals();
	} while (arrivals() != came);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		next = take();
		late = now();
		cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		ended = now();
		tailcam_switch(h, tokens[next]);
		late = now() - late;
		if (late > 5000) {
			__atomic_fetch_add(&truths[next].unsure, late, __ATOMIC_RELAXED);
			if (i >= 0)
				__atomic_fetch_add(&truths[i].unsure, late, __ATOMIC_RELAXED);
		}
		if (i >= 0) {
			__atomic_fetch_add(&truths[i].wall, ended - began, __ATOMIC_RELAXED);
			__atomic_fetch_add(&truths[i].cpu, cpu - began_cpu, __ATOMIC_RELAXED);
			hand_over(i);
		}
		i = next;
		began = ended;
		began_cpu = cpu;
		inject(i, began);
	}
	ended = now();
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	tailcam_switch(h, 0);
	__atomic_fetch_add(&all_cpu, clock_ns(CLOCK_THREAD_CPUTIME_ID) - first_cpu, __ATOMIC_RELAXED);
	__atomic_fetch_add(&truths[i].wall, ended - began, __ATOMIC_RELAXED);
	__atomic_fetch_add(&truths[i].cpu, cpu - began_cpu, __ATOMIC_RELAXED);
	then = arrivals() - came;
	__atomic_fetch_add(&all_arrivals, then, __ATOMIC_RELAXED);
	then -= tailcam_self_.state->slices - slices;
	__atomic_fetch_add(&all_unseen, (int32_t)then > 0 ? then : 0, __ATOMIC_RELAXED);
	return unused;
}

/* A neighbour has the page cache forget what others have read. */
static void evict(void)
{
	uint64_t token = tailcam_token(h, "evict"), wall = now(), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	struct truth truth = {0, 0, stolen(), 0, 0};

	tailcam_switch(h, token);
	MUST(!posix_fadvise(cold_file, 0, 0, POSIX_FADV_DONTNEED));
	tailcam_switch(h, 0);
	truth.wall = now() - wall;
	truth.cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	truth.pieces = next_cold;
	nap(100000);
	truth.unsure = stolen() - truth.unsure;
	finish(token, truth);
}

static void churn(int threads, int ms, int step_us)
{
	uint64_t deadline = now() + 30000000000;
	pthread_t all[256];
	int i;

	step_ns = (uint64_t)step_us * 1000;
	for (i = 0; i < TOKENS; i++) {
		tokens[i] = tailcam_token(h, mixed ? injectors[i % INJECTORS].name : "churn");
		undone += mixed ? (uint32_t)injectors[i % INJECTORS].pieces : 0;
		tailcam_set_value(h, tokens[i], (uint64_t)i);
		hand_over(i);
	}
	for (i = 0; i < threads; i++)
		pthread_create(&all[i], NULL, work, NULL);
	do {
		nap((uint64_t)ms * 1000000);
	} while (__atomic_load_n(&undone, __ATOMIC_RELAXED) && now() < deadline);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	if (mixed)
		evict();
	for (i = 0; i < TOKENS; i++)
		finish(tokens[i], truths[i]);
	printf("{\"all_cpu_ns\":%lu,\"stolen_ns\":%lu,\"arrivals\":%lu,\"unseen\":%lu}\n", all_cpu, stolen(),
	       all_arrivals, all_unseen);
}

/* ------------------------------------------------------------- fork, full */

static void forks(void)
{
	uint64_t token = tailcam_token(h, "fork"), other, wall = now();
	struct truth truth = {0, 20000000, 0, 0, 0};
	int status;
	pid_t pid;

	tailcam_switch(h, token);
	pid = fork();
	if (!pid) {
		spin(10000000);
		/* Without inherit, nothing of this is anybody's. */
		other = tailcam_token(h, "child");
		tailcam_switch(h, other ? other : token);
		tailcam_switch(h, token);
		spin(10000000);
		tailcam_switch(h, 0);
		if (other)
			tailcam_end_token(h, other, NULL);
		_exit(other ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	tailcam_switch(h, 0);
	truth.wall = now() - wall;
	fprintf(stderr, "child %s\n", WEXITSTATUS(status) ? "inherited" : "did not inherit");
	finish(token, truth);
}

static void execs(char *socket)
{
	char *again[] = {"/proc/self/exe", socket, "spin", "200", NULL};
	uint64_t token = tailcam_token(h, "exec"), began = now();
	struct truth truth = {0, 0, 0, 0, 0};
	pid_t pid;

	tailcam_switch(h, token);
	pid = fork();
	if (!pid) {
		spin(10000000);
		printf("{\"before_ns\":%lu}\n", now() - began);
		fflush(stdout);
		execv(again[0], again);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	tailcam_switch(h, 0);
	finish(token, truth);
}

/* --------------------------------------------------------- reopen, crash */

static void reopen(const char *socket, const struct tailcam_options *options, int times)
{
	char error[300] = "";

	while (times--) {
		tailcam_close(h);
		h = tailcam_open(socket, options, error, sizeof(error));
		if (!h || !tailcam_token(h, "again")) {
			fprintf(stderr, "%s\n", error);
			return;
		}
	}
}

/* Opens and dies, in one of the ways of programs. */
static void crash(const char *socket, const struct tailcam_options *options, int how)
{
	char error[300] = "";

	h = tailcam_open(socket, options, error, sizeof(error));
	if (!h) {
		fprintf(stderr, "%s\n", error);
		_exit(1);
	}
	tailcam_switch(h, tailcam_token(h, "crash"));
	prctl(PR_SET_DUMPABLE, 0); /* leaves no core, also where a program takes them */
	if (how % 3 == 0)
		raise(SIGKILL);
	if (how % 3 == 1)
		abort();
	*(volatile int *)NULL = 0;
}

static void crashes(const char *socket, const struct tailcam_options *options, int times, int at_once)
{
	int alive = 0, died = 0, status;

	for (int i = 0; i < times || alive; i++) {
		if (i < times && !fork())
			crash(socket, options, i);
		alive += i < times;
		if (alive < at_once && i < times)
			continue;
		wait(&status);
		alive--;
		died += WIFSIGNALED(status);
	}
	printf("{\"died\":%d}\n", died);
}

/* ---------------------------------------------------------------- hostile */

static uint32_t own_threads[64];
static int own_count;

/* Which ids its threads have now. */
static void look_up(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	while (dir && n < 64 && (e = readdir(dir)))
		if (atoi(e->d_name))
			own_threads[n++] = (uint32_t)atoi(e->d_name);
	own_count = n;
	if (dir)
		closedir(dir);
}

static void *scribble(void *seed)
{
	uint32_t *words = (uint32_t *)h->shared, *slot;
	size_t count = h->shared_bytes / 4;
	uint64_t r = (uint64_t)(uintptr_t)seed;

	for (uint64_t round = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); round++) {
		r ^= r << 13;
		r ^= r >> 7;
		r ^= r << 17;
		slot = words + (1 + r % h->threads) * TAILCAM_SHARED_ / 4;
		switch (r >> 40 & 3) {
		case 0: /* anything, anywhere */
			words[(r >> 8) % count] = (uint32_t)(r >> 16);
			break;
		case 1: /* one of its threads is there */
			slot[0] = own_count ? own_threads[(r >> 20) % (unsigned)own_count] : 0;
			break;
		case 2: /* and carries a token, or one that there is not */
			slot[1] = 0;
			slot[2] = (uint32_t)((r >> 24) % (h->first + h->tokens + 2));
			slot[3] = 1;
			*(uint64_t *)(slot + 4) = r & 1 ? now() : r;
			break;
		default: /* which is live */
			words[(h->first + (r >> 24) % h->tokens) * TAILCAM_SHARED_ / 4] = 1 + (uint32_t)(r >> 60);
		}
		if (round % 100000 == 99999)
			for (size_t i = 0; i < count; i++)
				words[i] = (uint32_t)(r * i);
		if (round % 1000 == 999)
			nap(1000);
	}
	return NULL;
}

static void *nothing(void *unused)
{
	return unused;
}

/* Something for each group of accounts. */
static void keep_busy(const char *file)
{
	static char page[65536];
	struct sockaddr_in address;
	socklen_t size = sizeof(address);
	int l = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0), b;
	pthread_t thread;
	char *fresh;
	FILE *f;

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!bind(l, (struct sockaddr *)&address, size) && !listen(l, 1) &&
	    !getsockname(l, (struct sockaddr *)&address, &size) && !connect(a, (struct sockaddr *)&address, size) &&
	    (b = accept(l, NULL, NULL)) >= 0) {
		if (write(a, page, sizeof(page)) > 0 && read(b, page, sizeof(page)) > 0)
			close(b);
	}
	close(a);
	close(l);
	f = fopen(file, "w+");
	if (f) {
		fwrite(page, 1, sizeof(page), f);
		fflush(f);
		fdatasync(fileno(f));
		fclose(f);
	}
	fresh = (char *)mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(fresh, 1, 1 << 20);
	munmap(fresh, 1 << 20);
	if (!pthread_create(&thread, NULL, nothing, NULL))
		pthread_join(thread, NULL);
	if (!fork())
		_exit(0);
	wait(NULL);
	sched_yield();
	look_up();
}

static void hostile(const char *file)
{
	struct pollfd in = {0, POLLIN, 0};
	pthread_t all[4];
	int rounds = 0;

	look_up();
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&all[i], NULL, scribble, (void *)(88172645463325252 + i));
	printf("{\"writable\":%d}\n", mprotect((void *)h->accounts, h->accounts_bytes, PROT_READ | PROT_WRITE) == 0);
	fflush(stdout);
	while (!poll(&in, 1, 0)) {
		keep_busy(file);
		rounds++;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
	printf("{\"rounds\":%d}\n", rounds);
}

static void *claim(void *barrier)
{
	tailcam_switch(h, 0);
	pthread_barrier_wait((pthread_barrier_t *)barrier);
	return NULL;
}

/* What a token has as its attribute number n is this; NULL: nothing. */
static void attribute_is(uint64_t token, int n, const char *key, const char *value)
{
	uint16_t number = tailcam_element_(h, (uint32_t)token)->attributes[n];

	if (!number != !key ||
	    (number && (strcmp(tailcam_pair_(h, number)->key, key) || strcmp(tailcam_pair_(h, number)->value, value))))
		abort();
}

/* Few for each token, few different ones; the rest is counted. */
static void attributes(uint64_t a, uint64_t b)
{
	char value[200];
	int i;

	if (tailcam_set_attribute(h, a, "http.route", "/cart") || tailcam_set_attribute(h, b, "http.route", "/cart") ||
	    tailcam_set_attribute(h, a, "tenant", "gold") || tailcam_set_attribute(h, a, "http.route", "/pay"))
		abort();
	attribute_is(a, 0, "http.route", "/pay");
	attribute_is(a, 1, "tenant", "gold");
	attribute_is(b, 0, "http.route", "/cart");
	if (tailcam_set_attribute(h, a, "http.route", NULL) || tailcam_set_attribute(h, a, "never", ""))
		abort();
	attribute_is(a, 0, NULL, NULL);
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = 0;
	if (tailcam_set_attribute(h, a, "a key that is longer than keys may be", value))
		abort();
	value[91] = 0;
	attribute_is(a, 0, "a key that is longer than keys ", value);
	if (tailcam_set_attribute(h, a, "3", "x") || tailcam_set_attribute(h, a, "4", "x") ||
	    tailcam_set_attribute(h, a, "5", "x") != -1 || tailcam_set_attribute(h, a, "", "x") != -1 ||
	    tailcam_set_attribute(h, 1, "a", "x") != -1 || tailcam_set_attribute(NULL, a, "a", "x"))
		abort();
	for (i = 0; i < 20; i++) { /* of 16 */
		snprintf(value, sizeof(value), "%d", i);
		tailcam_set_attribute(h, b, "n", value);
	}
	attribute_is(b, 1, NULL, NULL);
	attribute_is(b, 0, "http.route", "/cart");
}

static void full(void)
{
	uint64_t again;
	pthread_barrier_t barrier;
	struct tailcam_stats stats;
	uint64_t first = 0, second = 0, token;
	pthread_t all[100];
	int i, n = 0;

	for (i = 0; i < 2000; i++) {
		token = tailcam_token(h, "full");
		second = first && !second ? token : second;
		first = first ? first : token;
		n += token != 0;
		tailcam_switch(h, token);
		tailcam_switch(h, 0);
	}
	tailcam_end_token(h, first, NULL);
	again = tailcam_token(h, "again");
	if (tailcam_switch(h, first) != -1 || tailcam_current(h) || !again)
		abort();
	attributes(again, second);
	pthread_barrier_init(&barrier, NULL, 100);
	for (i = 0; i < 100; i++)
		pthread_create(&all[i], NULL, claim, &barrier);
	for (i = 0; i < 100; i++)
		pthread_join(all[i], NULL);
	tailcam_stats(h, &stats);
	printf("{\"tokens\":%d,\"tokens_full\":%lu,\"threads_full\":%lu,\"stale\":%lu,\"untold\":%lu,"
	       "\"attributes_full\":%lu}\n",
	       n, stats.tokens_full, stats.threads_full, stats.stale, stats.untold, stats.attributes_full);
}

/* ------------------------------------------------------------------- cost */

__attribute__((noinline)) void empty(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void probed(void)
{
	__asm__ volatile("");
}

/* As a probe of USDT in programs that want it cheap: from 6.18 on, kernels make a system call of it. */
__attribute__((noinline)) void probed_nop(void)
{
#ifdef __x86_64__
	__asm__ volatile(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00");
#else
	__asm__ volatile("nop");
#endif
}

#define EACH(n, what)                                          \
	({                                                     \
		uint64_t best_ = UINT64_MAX, began_, took_;    \
		for (int round_ = 0; round_ < 50; round_++) {  \
			began_ = now();                        \
			for (int i = 0; i < (n); i++)          \
				what;                          \
			took_ = now() - began_;                \
			best_ = took_ < best_ ? took_ : best_; \
		}                                              \
		(double)best_ / (n);                           \
	})

static void request(struct tailcam_account *account)
{
	uint64_t token = tailcam_token(h, "request");

	tailcam_switch(h, token);
	tailcam_end_token(h, token, account);
}

/* Live tokens, in no order. */
static uint64_t *shuffled(int live)
{
	uint64_t *all = calloc((size_t)live, sizeof(*all)), other;
	int i, k;

	for (i = 0; i < live; i++) {
		k = (int)(random() % (i + 1));
		other = tailcam_token(h, "live");
		if (!all || !other)
			abort();
		all[i] = all[k];
		all[k] = other;
	}
	return all;
}

static void cost(int live)
{
	uint64_t *all = shuffled(live);
	struct tailcam_account account;
	int next = 0;

	nap(20000000); /* the clock is known by then */
	tailcam_switch(h, all[0]);
	printf("{\"empty_ns\":%.1f,", EACH(100000, empty()));
	printf("\"uprobe_ns\":%.1f,", EACH(1000, probed()));
	printf("\"uprobe_nop_ns\":%.1f,", EACH(1000, probed_nop()));
	printf("\"getppid_ns\":%.1f,", EACH(10000, syscall(SYS_getppid)));
	printf("\"clock_ns\":%.1f,", EACH(100000, now()));
	printf("\"switch_ns\":%.1f,", EACH(100000, tailcam_switch(h, all[next = next + 1 < live ? next + 1 : 0])));
	printf("\"on_off_ns\":%.1f,", EACH(100000, tailcam_switch(h, i & 1 ? all[0] : 0)));
	printf("\"request_ns\":%.1f,", EACH(10000, request(NULL)));
	printf("\"request_account_ns\":%.1f}\n", EACH(10000, request(&account)));
	free(all);
}

/* ------------------------------------------------------------------ shared */

enum { HALF = 1 << 20, PIECE = 1 << 18 };

/* Has a token write to a file. */
static uint64_t dirty(const char *name, int fd, int from, int to)
{
	static char zeros[PIECE];
	uint64_t token = tailcam_token(h, name);

	tailcam_switch(h, token);
	for (; from < to; from += PIECE)
		if (pwrite(fd, zeros, sizeof(zeros), from) != (ssize_t)sizeof(zeros))
			abort();
	tailcam_switch(h, 0);
	return token;
}

static int new_file(const char *dir, const char *name)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		abort();
	return fd;
}

/* A file that two tokens have written to, and one whose token has ended. */
static void shared(const char *dir)
{
	int both = new_file(dir, "both"), late = new_file(dir, "late");
	struct tailcam_shared s;

	sync();
	dirty("one", both, 0, HALF);
	dirty("other", both, HALF, 2 * HALF);
	tailcam_end_token(h, dirty("ended", late, 0, PIECE), NULL);
	if (syncfs(both))
		abort();
	tailcam_shared(h, &s);
	printf("{\"machine_ns\":%lu,\"late\":%lu", s.machine_ns, s.late);
#define SHARED(field) printf(",\"%s\":%lu", #field, s.field);
	TAILCAM_VALUES(SHARED)
	printf("}\n");
	tailcam_shared(NULL, &s);
	if (s.late || s.writeback_bytes)
		abort();
}

/* ------------------------------------------------------------------ silent */

/* From here on any other system call than write and exit_group kills the process. */
static void no_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		abort();
}

/* Switches that must make no system call, after the first one of the thread. */
static void silent(int times, bool call)
{
	uint64_t all[2] = {tailcam_token(h, "one"), tailcam_token(h, "other")};
	char line[64];
	int length = snprintf(line, sizeof(line), "{\"switches\":%d}\n", times);

	tailcam_switch(h, all[0]);
	no_calls();
	for (int i = 0; i < times; i++) {
		tailcam_switch(h, i % 3 ? all[i % 2] : 0);
		if (i % 3 && tailcam_current(h) != all[i % 2])
			abort();
	}
	if (call)
		syscall(SYS_getppid);
	syscall(SYS_exit_group, write(STDOUT_FILENO, line, (size_t)length) != length);
}

int main(int argc, char **argv)
{
	struct tailcam_options options = {64, 128, 0};
	char error[300] = "", id[64] = "";
	const char *what = argc > 2 ? argv[2] : "";

	if (!strcmp(what, "trigger")) {
		const uint64_t ns = (uint64_t)(argc > 4 ? atoi(argv[4]) : 0) * 1000000;
		const struct tailcam_trigger_options asked = {ns, ns};

		if (ns ? tailcam_trigger_with(argv[1], argv[3], &asked, id, sizeof(id), error, sizeof(error))
		       : tailcam_trigger(argv[1], argv[3], id, sizeof(id), error, sizeof(error)))
			fprintf(stderr, "%s\n", error);
		printf("%s\n", id);
		return 0;
	}
	if (!strcmp(what, "spin")) {
		spin((uint64_t)atoi(argv[3]) * 1000000);
		return 0;
	}
	mixed = !strcmp(what, "mixed");
	options.threads = mixed || !strcmp(what, "churn") ? 512 : 64;
	options.inherit = !strcmp(what, "exec") || !strcmp(what, "hostile") || (!strcmp(what, "fork") && atoi(argv[3]));
	if (!strcmp(what, "crash")) {
		crashes(argv[1], &options, atoi(argv[3]), atoi(argv[4]));
		return 0;
	}
	if (!strcmp(what, "cost")) {
		options.threads = 0;
		options.tokens = (unsigned)atoi(argv[3]) + 1024;
	}
	h = tailcam_open(argv[1], &options, error, sizeof(error));
	if (!h)
		fprintf(stderr, "%s\n", error);
	else if (tailcam_open(argv[1], &options, error, sizeof(error)))
		abort();
	if (!strcmp(what, "exact"))
		exact();
	else if (!strcmp(what, "churn"))
		churn(atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	else if (mixed) {
		injectors_open(argv[3]);
		churn(64, 1000, 10);
	} else if (!strcmp(what, "fork"))
		forks();
	else if (!strcmp(what, "exec"))
		execs(argv[1]);
	else if (!strcmp(what, "hostile"))
		hostile(argv[3]);
	else if (!strcmp(what, "reopen"))
		reopen(argv[1], &options, atoi(argv[3]));
	else if (!strcmp(what, "full"))
		full();
	else if (!strcmp(what, "silent"))
		silent(atoi(argv[3]), atoi(argv[4]));
	else if (!strcmp(what, "shared"))
		shared(argv[3]);
	else if (!strcmp(what, "cost"))
		cost(atoi(argv[3]));
	tailcam_close(h);
	tailcam_close(h);
	return h ? 0 : 1;
}
