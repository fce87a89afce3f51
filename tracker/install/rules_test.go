package install

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
)

// Outliers that were on their way when their rules were replaced are understood.
func TestDecideOfReplacedRules(t *testing.T) {
	before, err := compile.New([]rules.Rule{{Name: "block", Track: rules.Block, Threshold: time.Millisecond}}, 1, 0, nil)
	assert.NilError(t, err)
	r := &Rules{current: &compile.Generation{Number: 2}, replaced: []*compile.Generation{before}}
	o, _ := r.Decide(&abi.Outlier{Generation: 1, Rule: abi.MaxRules}, false)
	assert.Check(t, o != nil && o.Rule == "block", "one of the generation before: %+v", o)
	o, _ = r.Decide(&abi.Outlier{Generation: 0}, false)
	assert.Check(t, o == nil && r.stale == 1, "one of rules long gone: %+v, %d stale", o, r.stale)
}
