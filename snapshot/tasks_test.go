package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot/trace"
)

func TestReadNames(t *testing.T) {
	dir := t.TempDir()
	n, err := ReadNames(dir)
	assert.Check(t, err == nil && len(n.Tasks) == 0, "a snapshot without names: %+v, %v", n, err)
	for text, want := range map[string]string{
		`{"version":1,"tasks":[{"tid":7,"comm":"sh","future":1}],"functions":{"0x10":"f"},"new":2}`: "",
		`{"version":1,"tasks":[{"tid":7`: "unexpected end",
		`{"version":2}`:                  "schema version 2",
		`{}`:                             "schema version 0",
		`[]`:                             "cannot unmarshal",
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, TasksFile), []byte(text), 0o600))
		n, err := ReadNames(dir)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want == "" && (len(n.Tasks) != 1 || n.Tasks[0].TID != 7 || n.Functions["0x10"] != "f"):
			t.Errorf("%s: %+v", text, n)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestKnownFromNames(t *testing.T) {
	n := Names{
		Tasks:   []NamedTask{{TID: 5, PID: 4, PPID: 1, Comm: "c", Cmdline: "c -x", Kernel: true}},
		Devices: map[string]string{"259:0": "nvme0n1", "7:1": "loop1", "7:0": "loop0", "nonsense": "x", "4096:0": "y", "1:1048576": "z"},
		Files:   []trace.FileState{{PID: 4, FD: 3, Name: "/f"}},
	}
	want := &trace.Known{
		Tasks:   []trace.KnownTask{{TID: 5, PID: 4, PPID: 1, Comm: "c", Kernel: true}},
		Devices: []trace.DeviceState{{Dev: 7 << 20, Name: "loop0"}, {Dev: 7<<20 | 1, Name: "loop1"}, {Dev: 259 << 20, Name: "nvme0n1"}},
		Files:   n.Files,
	}
	assert.Check(t, is.DeepEqual(want, n.traceNames()))
}
