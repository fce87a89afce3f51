package boot

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestFact(t *testing.T) {
	for _, want := range [][3]string{
		{"hook tp_btf:sched_switch", Yes, ""},
		{"shipped rule x", No, "no function y: use fentry, or a kprobe"},
	} {
		name, value, why, ok := ParseFact(FormatFact(want[0], want[1], want[2]))
		assert.Check(t, ok && want == [3]string{name, value, why}, "%v: %q %q %q", want, name, value, why)
	}
	_, _, _, ok := ParseFact("in fact: no")
	assert.Check(t, !ok)
}
