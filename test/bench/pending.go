package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tailcam/tailcam/rules"
)

// Setups of timeouts, and of a declared pair beside the tracker that has the same hooks.
const (
	sTimeouts = "everything, timeouts"
	sPair     = "pair of sys_enter and sys_exit"
)

const callPair = `
rules:
  - name: calls
    track: pair
    entry: raw_tracepoint:sys_enter
    exit: raw_tracepoint:sys_exit
    key: [tid]
    threshold: 1s
    stacks: [kernel]
    snapshot: false
`

func pendingSetups(all []rules.Rule) []setup {
	return []setup{
		{name: sTimeouts, start: tailcamWith(withTimeout(all, 10*time.Second), everyGroup...), against: sAll},
		{name: sPair, start: startPair, against: sCalls},
	}
}

func withTimeout(list []rules.Rule, timeout time.Duration) []rules.Rule {
	return changed(list, func(r *rules.Rule) { r.Timeout = timeout })
}

func startPair(ctx context.Context) (running, error) {
	list, err := rules.Parse("bench", []byte(callPair), &rules.LocalMachine{})
	if err != nil {
		return nil, fmt.Errorf("read the pair: %w", err)
	}
	return tailcamWith(list)(ctx)
}

// hookOf is the hook of a program of ours: those of pairs are named after the
// rule and the hook.
func hookOf(program string) string {
	return program[strings.LastIndexByte(program, ':')+1:]
}
