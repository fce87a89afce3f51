package install

import (
	"testing"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
)

// Outliers that were on their way when their rules were replaced are understood.
func TestDecideOfReplacedRules(t *testing.T) {
	before, err := compile.New([]rules.Rule{{Name: "block", Track: rules.Block, Threshold: time.Millisecond}}, 1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Rules{current: &compile.Generation{Number: 2}, replaced: []*compile.Generation{before}}
	if o := r.Decide(&abi.Outlier{Generation: 1, Rule: abi.MaxRules}); o == nil || o.Rule != "block" {
		t.Errorf("one of the generation before: %+v", o)
	}
	if o := r.Decide(&abi.Outlier{Generation: 0}); o != nil || r.stale != 1 {
		t.Errorf("one of rules long gone: %+v, %d stale", o, r.stale)
	}
}
