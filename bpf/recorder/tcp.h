/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a timer of TCP that expires is for, and who waits for its socket. Nothing is held: what is
 * read may change or be freed meanwhile. Reads cannot fault, and what they find is checked.
 */
#ifndef TAILCAM_RECORDER_TCP_H
#define TAILCAM_RECORDER_TCP_H

#include "abi/record.h"
#include "lib/core_fixes.h"
#include "lib/kernel.h"

#include <bpf/bpf_endian.h>

/* Addresses of functions of the kernel; 0: not known. Set before load. */
const volatile u64 fn_tcp_write_timer, fn_tcp_delack_timer, fn_tcp_keepalive_timer;
const volatile u64 fn_woken_wake_function, fn_pollwake, fn_ep_poll_callback, fn_ep_autoremove_wake_function;

#define ICSK_ACK_TIMER 2 /* include/net/inet_connection_sock.h: BIT(1) of icsk_ack.pending */
#define TCP_SYN_SENT 2	 /* include/net/tcp_states.h */
#define TCP_LISTEN 10
#define AF_INET 2
#define LISTENERS 16 /* of one bucket that are looked at */
#define JHASH_INITVAL 0xdeadbeef

/* The first entry of a wait queue, as struct wait_queue_entry *; 0: nobody waits. */
static __always_inline u64 first_waiter(struct wait_queue_head *queue)
{
	u64 head = (u64)queue + bpf_core_field_offset(struct wait_queue_head, head);
	u64 first = (u64)BPF_CORE_READ((struct list_head *)head, next);

	if (!first || first == head)
		return 0;
	return first - bpf_core_field_offset(struct wait_queue_entry, entry);
}

/* The thread that an entry of a socket's wait queue wakes; 0: not known. What private is depends on func. */
static __always_inline u32 entry_waiter(u64 entry)
{
	u64 func = (u64)BPF_CORE_READ((struct wait_queue_entry *)entry, func);
	void *private = BPF_CORE_READ((struct wait_queue_entry *)entry, private);

	if (!func)
		return 0;
	if (func == fn_pollwake)
	private = BPF_CORE_READ((struct poll_wqueues *)private, polling_task);
	else if (func != fn_woken_wake_function) return 0;
	return BPF_CORE_READ((struct task_struct *)private, pid);
}

/* The thread that waits for a set of files, one of which the entry is of. */
static __always_inline u32 epoll_waiter(u64 entry)
{
	struct eppoll_entry *of = (void *)(entry - bpf_core_field_offset(struct eppoll_entry, wait));
	struct eventpoll *set = BPF_CORE_READ(of, base, ep);
	u64 first = first_waiter((void *)set + bpf_core_field_offset(struct eventpoll, wq));
	struct task_struct *task;

	if (!first || (u64)BPF_CORE_READ((struct wait_queue_entry *)first, func) != fn_ep_autoremove_wake_function)
		return 0;
	task = BPF_CORE_READ((struct wait_queue_entry *)first, private);
	return BPF_CORE_READ(task, pid);
}

static __always_inline u32 socket_waiter(struct sock *sk)
{
	struct socket_wq *queue = BPF_CORE_READ(sk, sk_wq);
	u64 entry = first_waiter((void *)queue + bpf_core_field_offset(struct socket_wq, wait));

	if (!entry)
		return 0;
	if (fn_ep_poll_callback && (u64)BPF_CORE_READ((struct wait_queue_entry *)entry, func) == fn_ep_poll_callback)
		return epoll_waiter(entry);
	return entry_waiter(entry);
}

static __always_inline u32 rotated(u32 x, int by)
{
	return x << by | x >> (32 - by);
}

/* jhash_1word() of include/linux/jhash.h. */
static __always_inline u32 jhash_word(u32 word, u32 seed)
{
	u32 c = JHASH_INITVAL + (1 << 2) + seed, b = c, a = c + word;

	c ^= b, c -= rotated(b, 14);
	a ^= c, a -= rotated(c, 11);
	b ^= a, b -= rotated(a, 25);
	c ^= b, c -= rotated(b, 16);
	a ^= c, a -= rotated(c, 4);
	b ^= a, b -= rotated(a, 14);
	c ^= b, c -= rotated(b, 24);
	return c;
}

/* Looks for who listens on an address (0: any) and a port, as inet_lhash2_lookup() does. */
static __always_inline bool find_listener(struct record_timer *r, struct net *net, u32 address, u16 port)
{
	struct inet_hashinfo *table = BPF_CORE_READ(net, ipv4.tcp_death_row.hashinfo);
	u32 slot = (jhash_word(address, BPF_CORE_READ(net, hash_mix)) ^ port) & BPF_CORE_READ(table, lhash2_mask);
	u64 bucket = (u64)BPF_CORE_READ(table, lhash2) + (u64)slot * bpf_core_type_size(struct inet_listen_hashbucket);
	u64 node = (u64)BPF_CORE_READ((struct inet_listen_hashbucket *)bucket, nulls_head.first);

	for (int i = 0; i < LISTENERS && node && !(node & 1); i++) {
		u64 common = node - bpf_core_field_offset(struct sock_common, skc_nulls_node);
		struct sock *sk = (void *)(common - bpf_core_field_offset(struct sock, __sk_common));

		if (BPF_CORE_READ(sk, __sk_common.skc_num) == port &&
		    BPF_CORE_READ(sk, __sk_common.skc_net.net) == net &&
		    BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN &&
		    (!address || BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr) == address)) {
			r->tcp |= TCP_LISTENER;
			r->accept_queue = BPF_CORE_READ(sk, sk_ack_backlog);
			r->accept_limit = BPF_CORE_READ(sk, sk_max_ack_backlog);
			return true;
		}
		node = (u64)BPF_CORE_READ((struct hlist_nulls_node *)node, next);
	}
	return false;
}

/* The peer's address is of this machine: who connects to one of its own has the same, unless it chose another. */
static __always_inline bool own_address(struct sock *sk, u32 address)
{
	return (bpf_ntohl(address) >> 24) == 127 || BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr) == address;
}

/* The peer has room for all that there is to send. */
static __always_inline bool window_open(struct tcp_sock *tp)
{
	return BPF_CORE_READ(tp, write_seq) - BPF_CORE_READ(tp, snd_una) <= BPF_CORE_READ(tp, snd_wnd);
}

/* What sends again, probes, or sends what was held back; 0: nothing is due. */
static __always_inline u32 write_timer_for(struct sock *sk, unsigned long now)
{
	struct inet_connection_sock *icsk = (void *)sk;
	u32 timer;

	if (!tcp_retransmit_due(icsk, now))
		return TCP_TIMER_NONE;
	/* One timer is for both: tcp_check_probe_timer() of include/net/tcp.h. */
	timer = BPF_CORE_READ(icsk, icsk_pending);
	return timer == TCP_TIMER_PROBE && window_open((void *)sk) ? TCP_TIMER_CORK : timer;
}

static __always_inline u32 delack_timer_for(struct sock *sk, unsigned long now)
{
	struct inet_connection_sock *icsk = (void *)sk;

	if (!(BPF_CORE_READ(icsk, icsk_ack.pending) & ICSK_ACK_TIMER) || !tcp_delack_due(icsk, now))
		return TCP_TIMER_NONE;
	return TCP_TIMER_DELACK;
}

/* The rest of what is said of the timer of a socket. */
static __always_inline void tcp_socket(struct record_timer *r, struct sock *sk, u32 timer)
{
	u32 state = BPF_CORE_READ(sk, __sk_common.skc_state);
	struct net *net = BPF_CORE_READ(sk, __sk_common.skc_net.net);

	if (!timer)
		return;
	r->tcp = timer | state << TCP_STATE_SHIFT;
	r->waiter = socket_waiter(sk);
	r->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (BPF_CORE_READ(sk, __sk_common.skc_family) != AF_INET)
		return;
	r->address = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	if (timer != TCP_TIMER_RETRANSMIT || state != TCP_SYN_SENT || !own_address(sk, r->address))
		return;
	if (!find_listener(r, net, r->address, r->port))
		find_listener(r, net, 0, r->port);
}

/* Fills in what is TCP's. */
static __always_inline void tcp_timer(struct record_timer *r, unsigned long now)
{
	struct sock *sk;

	if (!r->function)
		return;
	if (r->function == fn_tcp_write_timer && tcp_retransmit_offset()) {
		sk = (void *)(r->timer - tcp_retransmit_offset());
		tcp_socket(r, sk, write_timer_for(sk, now));
	} else if (r->function == fn_tcp_delack_timer) {
		sk = (void *)(r->timer - bpf_core_field_offset(struct inet_connection_sock, icsk_delack_timer));
		tcp_socket(r, sk, delack_timer_for(sk, now));
	} else if (r->function == fn_tcp_keepalive_timer) {
		tcp_socket(r, (void *)(r->timer - tcp_keepalive_offset()), TCP_TIMER_KEEPALIVE);
	}
}

#endif
