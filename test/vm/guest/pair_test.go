package guest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// everyPair names each kind of hook that needs no program, with every part of
// the language, so that the verifier of this kernel sees every template.
const everyPair = `
rules:
  - name: raw
    track: pair
    entry: raw_tracepoint:sys_enter
    exit: raw_tracepoint:sys_exit
    cancel: raw_tracepoint:sched_process_exit
    key: [tid, pid]
    entry_when: args.id == NANOSLEEP
    exit_when: [args.ret == 0, '(struct pt_regs)args.regs->0 >= 0']
    on_duplicate: count
    threshold: 40ms
    timeout: 45ms
    stacks: [kernel, user]
    labels: {call: args.id, regs: args.regs, ret: exit.args.ret}
  - name: record
    track: pair
    entry: tracepoint:syscalls:sys_enter_nanosleep
    exit: {hook: tracepoint:syscalls:sys_exit_nanosleep, when: args.ret == 0}
    key: [{name: thread, entry: tid, exit: tid}]
    threshold: 40ms
    stacks: [kernel, user]
    labels: {ret: exit.args.ret, asked: {field: args.rqtp, as: hex}}
  - name: kprobe
    track: pair
    entry: kprobe:hrtimer_nanosleep
    exit: kretprobe:hrtimer_nanosleep
    key: tid
    on_duplicate: keep
    threshold: 40ms
    labels: {asked: args.rqtp, first: arg0, ret: exit.ret}
  - name: fentry
    track: pair
    entry: fentry:hrtimer_nanosleep
    exit: fexit:hrtimer_nanosleep
    key: [tid, uid]
    threshold: 40ms
    labels: {asked: args.rqtp, ret: exit.ret}
  - name: switched
    track: pair
    entry: raw_tracepoint:sched_switch
    exit: raw_tracepoint:sched_switch
    key: {name: thread, entry: args.prev->pid, exit: args.next->pid}
    entry_when: 'args.prev->tgid == SELF'
    threshold: 40ms
    labels: {from: {field: args.prev->comm, as: string}, to: exit.args.next->comm}
  - name: absent
    track: pair
    entry: raw_tracepoint:no_such_tracepoint
    exit: raw_tracepoint:sys_exit
    key: tid
    threshold: 40ms
`

// TestTrackersPairs loads every kind of declared pair, sleeps, and wants each to tell of it.
func TestTrackersPairs(t *testing.T) {
	inGuest(t)
	sleep, ok := rules.SyscallNumber("nanosleep")
	assert.Assert(t, ok, "no nanosleep here")
	list, err := rules.Parse("pairs", []byte(replaceAll(everyPair, "NANOSLEEP", sleep, "SELF", unix.Getpid())), &rules.LocalMachine{})
	assert.NilError(t, err)
	kernel, err := tracker.New(list, &tracker.Options{TrackSelf: true})
	assert.NilError(t, err)
	defer func() {
		assert.Check(t, kernel.Close())
	}()
	n := len(kernel.Inactive())
	assert.Check(t, n == 1 && kernel.Inactive()["absent"] != nil,
		"rules that do not work on this kernel: %v; want only absent", kernel.Inactive())
	assert.NilError(t, kernel.Attach())
	for _, p := range kernel.Programs() {
		t.Logf("attached %v", p)
	}
	outliers := collect(t, kernel)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	asked := unix.NsecToTimespec((100 * time.Millisecond).Nanoseconds())
	missing := map[string]bool{}
	for _, rule := range []string{"record", "kprobe", "fentry", "switched"} {
		missing[rule+" "+string(events.CauseThreshold)] = true
	}
	for _, cause := range []events.Cause{events.CauseTimeout, events.CauseAfterTimeout} {
		missing["raw "+string(cause)] = true // where a guest stands still, nobody has a look meanwhile
	}
	var again <-chan time.Time
	interrupted := false
	for tries := 0; len(missing) > 0; {
		if again == nil {
			if tries++; tries > 15 {
				t.Fatalf("still missing: %v", missing)
			}
			err := unix.Nanosleep(&asked, nil)
			interrupted = errors.Is(err, unix.EINTR) // by Go's scheduler, in a slow guest
			assert.Assert(t, err == nil || interrupted, "%v", err)
			again = time.After(2 * time.Second)
		}
		var o *events.Outlier
		select {
		case o = <-outliers:
		case <-again:
			again = nil
		}
		if o == nil || o.Key["tid"] != uint64(tid) && o.Key["thread"] != uint64(tid) {
			continue
		}
		delete(missing, o.Rule+" "+string(o.Cause))
		t.Logf("%s: %s after %d ns, key %v, labels %v, %d frames", o.Rule, o.Cause, o.DelayNS, o.Key, o.Labels, len(o.Raw.Kernel))
		least := int64(99e6)
		if o.Rule == "switched" || interrupted { // a slow guest sleeps late
			least = 40e6
		}
		assert.Check(t, o.Cause == events.CauseTimeout || o.DelayNS >= least, "%s: %d ns", o.Rule, o.DelayNS)
		assert.Check(t, interrupted || o.Rule != "kprobe" && o.Rule != "fentry" || o.Labels["asked"] == int64(100e6) &&
			o.Labels["ret"] == int64(0), "%s: labels %v", o.Rule, o.Labels)
		assert.Check(t, o.Rule != "switched" || o.Labels["from"] == o.Labels["to"],
			"%s: labels %v of %+v", o.Rule, o.Labels, o.Task)
	}
}

// replaceAll puts numbers in the places of names.
func replaceAll(s string, pairs ...any) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		s = strings.ReplaceAll(s, fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
	}
	return s
}
