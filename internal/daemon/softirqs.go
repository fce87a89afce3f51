package daemon

import (
	"bytes"
	"context"
	"os"
	"strconv"

	"github.com/tailcam/tailcam/rules"
)

// watchSoftirqs attaches the hooks of softirqs while these are few enough to be cheap.
func (d *daemon) watchSoftirqs(ctx context.Context) error {
	if !d.kernel.SamplesSoftirqs() {
		d.log.Info("the hooks of softirqs stay attached: this kernel tells of softirqs in no other way")
		return nil
	}
	d.watchGate(ctx, &gated{
		gate: &d.cost.softirqs, hooks: "the hooks of softirqs", key: "budget.softirqs", count: readSoftirqs,
		many: "too many softirqs for hooks: from here on they are sampled",
		few:  "few softirqs: their hooks are attached again",
	})
	return nil
}

// gatedRules lists the rules that cannot fire without the hooks of softirqs. Requires c.mu.
func (c *cost) gatedRules(list []rules.Rule) (names []string) {
	if !c.softirqs.Closed() {
		return nil
	}
	for i := range list {
		if list[i].Track == rules.Softirq {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// readSoftirqs counts the softirqs of each CPU.
func readSoftirqs() ([]uint64, error) {
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return nil, err
	}
	return parseSoftirqs(text), nil
}

func parseSoftirqs(text []byte) (counts []uint64) {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 2 || !bytes.HasSuffix(f[0], []byte(":")) {
			continue // names of the CPUs
		}
		for i, field := range f[1:] {
			if i == len(counts) {
				counts = append(counts, 0)
			}
			n, _ := strconv.ParseUint(string(field), 10, 64)
			counts[i] += n
		}
	}
	return counts
}
