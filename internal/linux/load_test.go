package linux

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestLimitPriority(t *testing.T) {
	const variable = "TAILCAM_TEST_LIMIT_PRIORITY"
	if os.Getenv(variable) == "" { // in a process of its own: it cannot be taken back
		cmd := exec.Command(os.Args[0], "-test.run", "^TestLimitPriority$")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, strings.TrimSpace(string(out)))
		}
		return
	}
	for resource, most := range map[int]uint64{unix.RLIMIT_NICE: niceZero, unix.RLIMIT_RTPRIO: 0} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: 40, Max: 40}) // as root: there is something to take
		LimitPriority()
		var l unix.Rlimit
		err := unix.Getrlimit(resource, &l)
		assert.Check(t, err == nil && l.Max <= most && l.Cur <= l.Max, "limit %d: %+v, %v", resource, l, err)
	}
}

// TestLoad: an answer holds for a while, and not longer.
func TestLoad(t *testing.T) {
	l := Load{read: time.Now().Add(time.Hour), overloaded: true}
	assert.Check(t, l.Overloaded(), "it was read again")
	l.read = time.Now().Add(-loadAge)
	before := l.read
	l.Overloaded()
	assert.Check(t, l.read.After(before), "it was not read again")
}
