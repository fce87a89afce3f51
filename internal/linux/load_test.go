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

func TestLimitNice(t *testing.T) {
	const variable = "TAILCAM_TEST_LIMIT_NICE"
	if os.Getenv(variable) == "" { // in a process of its own: it cannot be taken back
		cmd := exec.Command(os.Args[0], "-test.run", "^TestLimitNice$")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, strings.TrimSpace(string(out)))
		}
		return
	}
	_ = unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{Cur: 40, Max: 40}) // as root: there is something to take
	LimitNice()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &l); err != nil || l.Max > niceZero || l.Cur > l.Max {
		t.Errorf("%+v, %v", l, err)
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
