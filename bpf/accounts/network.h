/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * TCP, for the thread that sends or receives. Segments are counted by the socket, and go
 * to whoever sent on it last, as they are often sent later, from a softirq.
 */
#ifndef TAILCAM_ACCOUNTS_NETWORK_H
#define TAILCAM_ACCOUNTS_NETWORK_H

#include "accounts/owner.h"
#include "accounts/slice.h"

#define IPPROTO_TCP 6 /* include/uapi/linux/in.h */
#define AF_INET 2     /* include/linux/socket.h */
#define AF_INET6 10
#define MSG_PEEK 2 /* include/linux/socket.h */

/* What a socket has counted when it was last looked at. */
struct owned_socket {
	struct activity_reference owner; /* who sent on it last */
	u32 sent, received;		 /* segments with data */
	u32 resent;			 /* segments */
	u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct owned_socket);
} sockets SEC(".maps");

/* Whether all that was sent or is to be, is of a call with that many bytes; what was lost is sent twice. */
static __always_inline bool sent_first(struct tcp_sock *tcp, u64 bytes)
{
	return BPF_CORE_READ(tcp, bytes_sent) - BPF_CORE_READ(tcp, bytes_retrans) <= bytes;
}

/* Whether all that was read is of a call with that many bytes; more may have come. A FIN is a byte to be read. */
static __always_inline bool received_first(struct tcp_sock *tcp, u64 bytes)
{
	u32 unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq);

	return BPF_CORE_READ(tcp, bytes_received) <= bytes + unread;
}

/* The socket of current; segments of before it was first seen are nobody's, but of a connection that just began. */
static __always_inline struct owned_socket *socket_of(struct sock *sk, struct tcp_sock *tcp, bool sends, u64 bytes)
{
	struct owned_socket *s = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	if (s)
		return s;
	s = bpf_sk_storage_get(&sockets, sk, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!s)
		return NULL;
	if (!sends || !sent_first(tcp, bytes)) {
		s->sent = BPF_CORE_READ(tcp, data_segs_out);
		s->resent = BPF_CORE_READ(tcp, total_retrans);
	}
	if (sends || !received_first(tcp, bytes))
		s->received = BPF_CORE_READ(tcp, data_segs_in);
	return s;
}

/* Segments that were sent since, for who sent last; before that becomes somebody else. */
static __always_inline void socket_sent(struct owned_socket *s, struct tcp_sock *tcp)
{
	u32 sent = BPF_CORE_READ(tcp, data_segs_out), more = sent - s->sent;
	struct activity_account *a;

	s->sent = sent;
	if (!more || !s->owner.serial)
		return;
	a = owner_account(&s->owner);
	if (a)
		account_add(a, ACTIVITY_TCP_SEGMENTS, more);
}

/* Segments that were sent again since, for who sent last. A softirq may do so meanwhile. */
static __always_inline void socket_resent(struct owned_socket *s, struct tcp_sock *tcp)
{
	u32 all = BPF_CORE_READ(tcp, total_retrans), counted = s->resent;
	struct activity_account *a;

	if (all == counted || !s->owner.serial || __sync_val_compare_and_swap(&s->resent, counted, all) != counted)
		return;
	a = owner_account(&s->owner);
	if (a)
		account_add(a, ACTIVITY_TCP_RETRANSMITS, all - counted);
}

/*
 * The socket's part of a call is over: that was the network's since the call began, or since
 * the part before, as of sendmmsg(2).
 */
static __always_inline void network_spent(struct sock *sk)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u16 family = sk->__sk_common.skc_family;
	struct account_thread thread;
	struct activity_account *a;
	struct activity_half half;
	struct progress *p;
	u64 now;

	if (!account_syscalls || (family != AF_INET && family != AF_INET6) || !account_thread_of(current, &thread))
		return;
	p = progress_of(current);
	if (!p || !p->call_ns)
		return;
	account_carried(thread.shared, &half);
	a = account_of_token(&thread.process, half.token, half.generation);
	now = bpf_ktime_get_ns();
	if (a)
		account_add(a, ACTIVITY_NETWORK_NS, account_ran(&thread, p->network_ns, p->network_away_ns, now));
	p->network_ns = now;
	p->network_away_ns = account_away(&thread);
}

static __always_inline bool is_tcp(struct sock *sk)
{
	return ((struct sock___tcp *)sk)->sk_protocol == IPPROTO_TCP;
}

static __always_inline void tcp_sent(struct sock *sk, s32 bytes)
{
	struct tcp_sock *tcp = (void *)pointer_number(sk);
	struct activity_account *a;
	struct owned_socket *s;
	struct activity_reference o = {};

	network_spent(sk);
	if (bytes <= 0 || !is_tcp(sk) || !owner_of(bpf_get_current_task_btf(), &o))
		return;
	a = owner_account(&o);
	if (!a)
		return;
	account_add(a, ACTIVITY_TCP_BYTES_SENT, bytes);
	s = socket_of(sk, tcp, true, bytes);
	if (!s)
		return;
	if (!s->owner.serial)
		s->owner = o;
	socket_sent(s, tcp);
	socket_resent(s, tcp);
	s->owner = o;
}

static __always_inline void tcp_received(struct sock *sk, s32 bytes, int flags)
{
	struct tcp_sock *tcp = (void *)pointer_number(sk);
	struct activity_account *a;
	struct owned_socket *s;
	u32 received;

	network_spent(sk);
	if (bytes <= 0 || (flags & MSG_PEEK) || !is_tcp(sk))
		return;
	a = owner_account_now(bpf_get_current_task_btf());
	if (!a)
		return;
	account_add(a, ACTIVITY_TCP_BYTES_RECEIVED, bytes);
	s = socket_of(sk, tcp, false, bytes);
	if (!s)
		return;
	received = BPF_CORE_READ(tcp, data_segs_in);
	account_add(a, ACTIVITY_TCP_SEGMENTS, received - s->received);
	s->received = received;
	socket_sent(s, tcp);
}

static __always_inline void tcp_retransmitted(struct sock *sk)
{
	struct owned_socket *s = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	if (s)
		socket_resent(s, (void *)pointer_number(sk));
}

#endif
