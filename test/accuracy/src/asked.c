/* SPDX-License-Identifier: Apache-2.0 */
/* Victims whose system calls others have to allow, to open too, or to end; and timers of their own. */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static char path[64];
static volatile uint64_t begin, allowed;

static void make_path(const char *kind)
{
	snprintf(path, sizeof(path), "/tmp/tailcam-scenario-%s-%d", kind, getpid());
}

/* ------------------------------------------------------------- a scanner of files */

static int events;

static void scan(struct actor *actor)
{
	struct fanotify_event_metadata event;

	(void)actor;
	need(read(events, &event, sizeof(event)) == sizeof(event), "read an event");
	spin_until(now() + LONG);
	struct fanotify_response allow = {.fd = event.fd, .response = FAN_ALLOW};

	allowed = now();
	need(write(events, &allow, sizeof(allow)) == sizeof(allow), "allow");
	close(event.fd);
}

/* Each open waits until a scanner has looked at the file. */
static void scanned(void)
{
	struct actor scanner = {.comm = "scn-scanner", .cpu = other, .fifo = MIDDLE, .act = scan};

	make_path("scanned");
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	need(fd >= 0, path);
	events = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
	if (events < 0 || fanotify_mark(events, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path) != 0) {
		unlink(path);
		die("this scenario needs fanotify's permission events");
	}
	start(&scanner);
	become_victim();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	done();
	unlink(path);
	need(fd >= 0, path);
	join(&scanner);
	truth.culprit = scanner.tid;
	truth.part = allowed - truth.start;
}

/* ------------------------------------------------- a supervisor of system calls */

static volatile int listener = -1;

static void supervise(struct actor *actor)
{
	struct seccomp_notif call = {0};

	(void)actor;
	while (listener < 0)
		usleep(200);
	need(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0, "receive a call");
	spin_until(now() + LONG);
	struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

	allowed = now();
	need(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0, "answer a call");
}

static void call_supervised(struct actor *actor)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	need(listener >= 0, "seccomp");
	sleep_until(now() + 5 * MSEC);
	truth.victim = actor->tid;
	truth.start = now();
	syscall(SYS_mkdirat, AT_FDCWD, "/proc/scenario", 0700); /* nobody can */
	truth.end = now();
}

/* As in containers: a call waits until another program has allowed it. */
static void supervised(void)
{
	struct actor supervisor = {.comm = "scn-supervisor", .cpu = other, .fifo = MIDDLE, .act = supervise};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = call_supervised};

	start(&supervisor);
	start(&victim);
	join(&victim);
	join(&supervisor);
	truth.culprit = supervisor.tid;
	truth.part = allowed - truth.start;
}

/* -------------------------------------------------------------- the other end */

static void open_late(struct actor *actor)
{
	(void)actor;
	while (!begin)
		usleep(200);
	spin_until(begin + LONG);
	allowed = now();
	need(open(path, O_WRONLY | O_CLOEXEC) >= 0, path);
}

/* A pipe with a name is open when both ends are. */
static void named_pipe(void)
{
	struct actor opener = {.comm = "scn-opener", .cpu = other, .fifo = MIDDLE, .act = open_late};

	make_path("pipe");
	need(mkfifo(path, 0600) == 0, path);
	start(&opener);
	become_victim();
	begin = truth.start;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	done();
	join(&opener);
	unlink(path);
	need(fd >= 0, path);
	truth.culprit = opener.tid;
	truth.part = allowed - truth.start;
}

static int ends[2];

static void fetch(struct actor *actor)
{
	int fd = open(argument, O_RDONLY | O_DIRECT | O_CLOEXEC);
	char *buf = pages(4096);

	(void)actor;
	while (!begin)
		usleep(200);
	need(fd >= 0 && pread(fd, buf, 4096, 112 << 20) == 4096, "read directly");
	allowed = now();
	need(write(ends[1], "x", 1) == 1, "write");
}

/* It reads what another one has to fetch from a disk. */
static void pipeline(void)
{
	struct actor fetcher = {.comm = "scn-fetcher", .cpu = other, .fifo = MIDDLE, .act = fetch};
	char c;

	need(pipe2(ends, O_CLOEXEC) == 0, "make a pipe");
	start(&fetcher);
	become_victim();
	begin = truth.start;
	need(read(ends[0], &c, 1) == 1, "read");
	done();
	join(&fetcher);
	truth.culprit = fetcher.tid;
}

/* ------------------------------------------------------------------- a CPU */

static struct stretches noted;

static void have_cpu(struct actor *actor)
{
	(void)actor;
	begin = now();
	spin_noting(&noted, begin + LONG);
}

/* It moves to a CPU that another one has. */
static void moved(void)
{
	struct actor hog = {.comm = "scn-hog", .cpu = other, .fifo = HIGH, .act = have_cpu};

	pin_thread(cpu);
	start(&hog);
	while (!begin)
		;
	become_victim();
	pin_thread(other);
	done();
	join(&hog);
	truth.culprit = hog.tid;
	truth.part = overlap(&noted, truth.start, truth.end);
}

/* ----------------------------------------------------------- timers of its own */

static void alarm_wait(void)
{
	struct itimerspec once = {.it_value.tv_nsec = LONG};
	struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
	sigset_t signals;
	timer_t timer;
	int number;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR2);
	need(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0, "block a signal");
	need(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0, "make a timer");
	become_victim();
	need(timer_settime(timer, 0, &once, NULL) == 0, "set a timer");
	need(sigwait(&signals, &number) == 0, "wait for a signal");
	done();
}

static void timer_file(void)
{
	struct itimerspec once = {.it_value.tv_nsec = LONG};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	uint64_t count;

	need(fd >= 0, "make a timerfd");
	become_victim();
	need(timerfd_settime(fd, 0, &once, NULL) == 0, "set a timer");
	need(read(fd, &count, sizeof(count)) == sizeof(count), "read a timerfd");
	done();
}

const struct scenario asked_scenarios[] = {
	{"scanned", scanned}, {"supervised", supervised}, {"named-pipe", named_pipe}, {"pipeline", pipeline},
	{"moved", moved},     {"alarm", alarm_wait},	  {"timerfd", timer_file},    {NULL, NULL},
};
