package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/snapshot"
)

// names are what the snapshot says of the numbers in its trace.
type names struct {
	tasks     []snapshot.NamedTask
	byTID     map[int]*snapshot.NamedTask
	functions map[uint64]string
	devices   map[uint32]string
	fields    fields.Names
}

// machines are the names that uname gives the architectures that tailcam runs on.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func readNames(dir, machine string, syscall func(int) string) (*names, error) {
	file, err := snapshot.ReadNames(dir)
	if err != nil {
		return nil, err
	}
	n := &names{
		tasks: file.Tasks, byTID: map[int]*snapshot.NamedTask{}, functions: map[uint64]string{}, devices: map[uint32]string{},
	}
	for i := range file.Tasks {
		n.byTID[file.Tasks[i].TID] = &file.Tasks[i]
	}
	for address, name := range file.Functions {
		if v, err := strconv.ParseUint(strings.TrimPrefix(address, "0x"), 16, 64); err == nil {
			n.functions[v] = name
		}
	}
	for dev, name := range file.Devices {
		major, minor, _ := strings.Cut(dev, ":")
		a, errA := strconv.ParseUint(major, 10, 12)
		b, errB := strconv.ParseUint(minor, 10, 20)
		if errA == nil && errB == nil {
			n.devices[uint32(a<<20|b)] = name
		}
	}
	n.fields.Function = func(address uint64) string { return n.functions[address] }
	n.fields.Device = func(dev uint32) string { return n.devices[dev] }
	if machine == "" || machine == machines[runtime.GOARCH] {
		n.fields.Syscall = syscall // numbers of another architecture mean other calls
	}
	return n, nil
}

// known returns what tasks.json says of a task.
func (n *names) known(tid int) (pid int, comm string) {
	if t := n.byTID[tid]; t != nil {
		return t.PID, t.Comm
	}
	return 0, ""
}

// maxExplain bounds what is taken in of one explain.json.
const maxExplain = 256 << 20

// readExplained reads the critical paths of a snapshot; nil if it has none.
func readExplained(dir string) (*explain.Report, error) {
	path := filepath.Join(dir, snapshot.ExplainJSONFile)
	data, err := snapshot.ReadDocument(path, maxExplain)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read explanation: %w", err)
	}
	var r explain.Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read explanation %s: %w: remove the file to export without the critical path", path, err)
	}
	return &r, nil
}
