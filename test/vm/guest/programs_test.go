package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

// run runs tailcam itself, and returns what it prints.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command("/bin/tailcam", args...)
	cmd.Env = []string{"PATH=/bin", "TMPDIR=/tmp"} // it takes TAILCAM_GUEST for a key of its configuration
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	err = cmd.Run()
	return out.String(), told.String(), err
}

// TestProbes notes which hooks this kernel has.
func TestProbes(t *testing.T) {
	inGuest(t)
	out, told, err := run(t, "list", "probes", "-o", "json")
	assert.NilError(t, err, "%s", told)
	for line := range strings.Lines(out) {
		var p struct {
			Name, Reason        string
			Available, Required bool
		}
		assert.NilError(t, json.Unmarshal([]byte(line), &p), "%s", line)
		assert.Check(t, p.Available || !p.Required, "%s: %s", p.Name, p.Reason)
		var why error
		if !p.Available {
			why = errors.New(p.Reason)
		}
		available(t, "hook "+p.Name, why)
	}
}

// inactive matches the lines of check --load about rules that this kernel cannot serve.
var inactive = regexp.MustCompile(`(?m)^(?:tailcam: |inactive: )?rule ([a-z0-9-]+): (.*)$`)

// TestShippedLoad loads and attaches every rule that is shipped. Only those may fail
// whose hooks are not there, as the kernel says, and not tailcam.
func TestShippedLoad(t *testing.T) {
	inGuest(t)
	traced := canTrace()
	available(t, "attaching to functions", traced)
	dirs := []string{"../../../configs/rules.d", "../../../configs/rules.more"}
	list, err := rules.Load(dirs, &rules.LocalMachine{})
	assert.NilError(t, err)
	want, refused := map[string]bool{}, false
	for i := range list {
		if lacks(&list[i], traced) {
			want[list[i].Name] = true
			refused = refused || list[i].Pair != nil // a syscall rule may be inactive
		}
	}
	out, told, err := run(t, append([]string{"check", "--load"}, dirs...)...)
	got, why := map[string]bool{}, map[string]error{}
	for _, m := range inactive.FindAllStringSubmatch(out+told, -1) {
		got[m[1]], why[m[1]] = true, errors.New(m[2])
	}
	assert.Check(t, is.DeepEqual(got, want), "%v\n%s%s", err, out, told)
	assert.Check(t, is.Equal(err != nil, refused), "%v\n%s%s", err, out, told)
	for i := range list {
		available(t, "shipped rule "+list[i].Name, why[list[i].Name])
	}
}

// lacks reports whether a rule declares a hook that is not there.
func lacks(r *rules.Rule, traced error) bool {
	if r.Pair == nil {
		return r.Track == rules.Syscall && r.Attach != rules.AttachAll && traced != nil
	}
	return slices.ContainsFunc(slices.Concat(r.Pair.Entry, r.Pair.Exit, r.Pair.Cancel), func(h rules.Hook) bool {
		switch kind, _, _ := strings.Cut(h.Text, ":"); kind {
		case "tracepoint":
			return missing(filepath.Join("/sys/kernel/tracing/events", h.Category, h.Name))
		case "uprobe", "uretprobe", "usdt":
			return missing(h.Path)
		}
		return false
	})
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// TestDemo runs the demo until each latency has once been caught as it was: a busy
// host makes some of them longer than they are meant to be.
func TestDemo(t *testing.T) {
	inGuest(t)
	left := map[string]string{}
	for try := range 5 {
		out, told, err := run(t, "demo", "-o", "json", "--snapshots-dir", filepath.Join(t.TempDir(), fmt.Sprint(try)))
		t.Logf("%v\n%s", err, told)
		for line := range strings.Lines(out) {
			var r struct{ Track, Error, Verdict string }
			assert.NilError(t, json.Unmarshal([]byte(line), &r), "%s", line)
			why, before := left[r.Track]
			if before && why == "" {
				continue
			}
			left[r.Track] = r.Error
			t.Logf("%s: %s %s", r.Track, r.Verdict, r.Error)
		}
		if len(left) == 4 && !slices.ContainsFunc(slices.Collect(maps.Values(left)), func(why string) bool { return why != "" }) {
			return
		}
	}
	t.Errorf("after five runs: %v", left)
}
