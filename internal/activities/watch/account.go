package watch

import "github.com/tailcam/tailcam/bpf/abi"

// account fills the values from what the element says and the kernel side has added.
func (r *Record) account(t *Token, v *Values) {
	r.Values = *v
	r.Values[abi.ActivityCpuNs] += t.CPUNS
	r.Values[wall] = t.WallNS
}

// progress adds what a thread that carries the token has not added yet.
func (r *Record) progress(t *Thread, now uint64) {
	since := t.Half[0].SinceNS
	if now <= since {
		return
	}
	v := &r.Values
	v[wall] += now - since
	if t.OutNS == 0 { // it runs
		v[abi.ActivityCpuNs] += now - min(max(since, t.SliceNS), now)
		return
	}
	out := min(max(t.OutNS, since), now)
	woken := now
	if t.WakingNS > 0 {
		woken = min(max(t.WakingNS, out), now)
	}
	if isRunnable(t.Cause) {
		woken = out
	}
	v[abi.ActivityRunnableNs] += now - woken
	v[abi.ActivityBlockedNs] += woken - out
	if woken == out {
		return
	}
	part := t.Cause
	if !isBlocked(part) {
		part = abi.ActivityBlockedOtherNs
	}
	v[part] += woken - out
}

// isRunnable reports whether a thread that left its CPU could go on.
func isRunnable(cause uint32) bool {
	return cause >= abi.ActivityRunnableNs && cause <= abi.ActivityRunnableThrottledNs
}

// isBlocked reports whether a cause is a part of the blocked time.
func isBlocked(cause uint32) bool {
	return cause > abi.ActivityBlockedNs && cause <= abi.ActivityBlockedOtherNs || cause == abi.ActivityBlockedKernelLockNs
}
