package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/inject"
)

// latency is one of those that the demo provokes: how, and the rule that has
// to catch it and nothing else on this machine.
type latency struct {
	track  string // also the rule's name
	title  string // for people, after the track
	rule   string // the rest of the rule; empty: no rule, inject fails
	inject func(context.Context) (inject.Truth, error)
}

// Lengths of what is injected: well above the thresholds of the rules below,
// and short enough to be nobody's trouble.
const (
	wakeupDelay  = 20 * time.Millisecond
	blockedDelay = 60 * time.Millisecond
	syscallDelay = 40 * time.Millisecond
	readDelay    = 20 * time.Millisecond
)

// latencies lists what the demo provokes. Where there is no slow disk, its
// three say why.
func latencies(disk *inject.SlowDisk, noDisk error) []latency {
	list := []latency{
		{
			track: "wakeup", title: "a task was woken, but a real-time hog kept its CPU",
			rule: fmt.Sprintf(`    threshold: 5ms
    when: {comm: [%s]}
    stacks: [kernel, user, waker]
`, inject.CommVictim),
			inject: func(ctx context.Context) (inject.Truth, error) { return inject.Wakeup(ctx, wakeupDelay) },
		},
		{
			track: "offcpu", title: "a task slept uninterruptibly until its disk answered",
			rule: fmt.Sprintf(`    threshold: 30ms
    when: {comm: [%s], state: uninterruptible}
    stacks: [kernel, user, waker]
`, inject.CommBlocked),
			inject: func(ctx context.Context) (inject.Truth, error) { return disk.Blocked(ctx, blockedDelay) },
		},
		{
			track: "syscall", title: "a system call waited for a slow file system",
			rule: fmt.Sprintf(`    attach: all
    threshold: 20ms
    when: {comm: [%s], syscall: [pread64]}
    stacks: [kernel, user]
`, inject.CommSyscall),
			inject: func(ctx context.Context) (inject.Truth, error) { return disk.Syscall(ctx, syscallDelay) },
		},
		{
			track: "block", title: "a disk was slow to complete a read",
			inject: func(ctx context.Context) (inject.Truth, error) { return disk.Read(ctx, readDelay) },
		},
	}
	for i := range list {
		l := &list[i]
		switch {
		case l.track == "wakeup":
		case disk == nil:
			l.rule = ""
			l.inject = func(context.Context) (inject.Truth, error) { return inject.Truth{}, noDisk }
		case l.track == "block":
			// The sleep waits for a slow request too, which is not this one.
			l.rule = fmt.Sprintf(`    threshold: 10ms
    when: {device: [%s], comm: [%s]}
`, disk.Device(), inject.CommReader)
		}
	}
	return list
}

// ruleFile writes the rules of these latencies as YAML.
func ruleFile(list []latency) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range list {
		l := &list[i]
		if l.rule == "" {
			continue
		}
		fmt.Fprintf(&b, "  - name: %s\n    track: %s\n%s", l.track, l.track, l.rule)
		// Disturbed attempts at a wake-up may be outliers too, and must not
		// use up the snapshot of the one that counts.
		b.WriteString("    snapshot: {after: 20ms, every: 1s, burst: 32}\n")
	}
	return b.String()
}
