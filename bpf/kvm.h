/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Virtual CPUs of guests on this machine, for the recorder's group kvm. Why a
 * guest was left is not among what the tracepoint hands out: the reason stays 0.
 */
#ifndef TAILCAM_KVM_H
#define TAILCAM_KVM_H

#include "recorder.h"

#define VCPU_REGS_RIP 16 /* arch/x86/include/asm/kvm_host.h */

SEC("tp_btf/kvm_entry")
int BPF_PROG(kvm_entry, struct kvm_vcpu *vcpu)
{
	struct record r;

	if (!vcpu) /* the verifier thinks that it may be: the tracepoint is of a module */
		return 0;
	record_begin(&r, REC_KVM_ENTRY);
	r.kvm.vcpu = vcpu->vcpu_id;
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(kvm_exit, struct kvm_vcpu *vcpu)
{
	struct record r;

	if (!vcpu)
		return 0;
	record_begin(&r, REC_KVM_EXIT);
	r.kvm.vcpu = vcpu->vcpu_id;
	r.kvm.ip = vcpu->arch.regs[VCPU_REGS_RIP]; /* with Intel's, as of an earlier exit if nobody asked since */
	record(ctx, &r);
	return 0;
}

#endif
