/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packets, for the recorder's group net. */
#ifndef TAILCAM_NET_H
#define TAILCAM_NET_H

#include "recorder.h"

static __always_inline void net_name(struct record *r, struct net_device *dev)
{
	if (!dev)
		return;
	((u64 *)r->net.dev)[0] = ((u64 *)dev->name)[0];
	((u64 *)r->net.dev)[1] = ((u64 *)dev->name)[1];
}

static __always_inline void record_packet(void *ctx, u16 type, struct sk_buff *skb)
{
	struct record r;

	record_begin(&r, type);
	r.net.skb = (u64)skb;
	r.net.bytes = skb->len;
	net_name(&r, skb->dev);
	record(ctx, &r);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(net_dev_queue, struct sk_buff *skb)
{
	record_packet(ctx, REC_NET_QUEUE, skb);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(netif_receive_skb, struct sk_buff *skb)
{
	record_packet(ctx, REC_NET_RECEIVE, skb);
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct record r;

	record_begin(&r, REC_NAPI_POLL);
	r.net.work = work;
	r.net.budget = budget;
	net_name(&r, napi->dev);
	record(ctx, &r);
	return 0;
}

#endif
