package pagecache

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	tailcam "github.com/tailcam/tailcam/clients/go"
	"github.com/tailcam/tailcam/test/support/activitypeer"
	"github.com/tailcam/tailcam/test/support/provoke"
)

const readerEnv = "TAILCAM_TEST_READER" // the socket; arguments are the cgroup and the file

func TestMain(m *testing.M) {
	if os.Getenv(readerEnv) != "" {
		if err := readForRequest(os.Args[1], os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// readForRequest reads a file in a cgroup, for a request whose token it prints, and then for none; and
// waits for the end of standard input.
func readForRequest(group, path string) error {
	h, err := tailcam.Open(os.Getenv(readerEnv), nil)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	token, thread := h.Token("report"), h.Thread()
	thread.Switch(token)
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 256<<10)); err != nil {
		return err
	}
	thread.Switch(0)
	fmt.Printf("%d.%d\n", uint32(token), token>>32)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestWhoseRequest: a neighbour that works for a request evicts pages of another one's file, and both
// are told: the task and the request. A thread without a token has none.
func TestWhoseRequest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	k := activitypeer.StartKernel(t, "scheduler")
	maps, err := OpenMaps(k.MapIDs())
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, CloseMaps(maps)) })
	dir := disk(t)
	victim, large := filepath.Join(dir, "victim"), filepath.Join(dir, "large")
	for path, pages := range map[string]int{victim: 2048, large: 32768} {
		drop(t, write(t, path, pages))
	}
	g := provoke.NewCgroup(t, "memory")
	g.Set(t, "memory.limit_in_bytes", "memory.max", fmt.Sprint(32<<20))
	w := watch(t, &Options{File: dir + "/*", Activities: maps})
	out, err := exec.Command("sh", "-c", `echo $$ >"$1/cgroup.procs" && exec cat "$2"`, "sh", g.Dir, victim).Output()
	assert.Check(t, err == nil && len(out) == 2048*page, "%v", err)

	neighbour := exec.Command("/proc/self/exe", g.Dir, large)
	neighbour.Env = append(os.Environ(), readerEnv+"="+k.Path)
	in, err := neighbour.StdinPipe()
	assert.NilError(t, err)
	says, err := neighbour.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, neighbour.Start())
	line, err := bufio.NewReader(says).ReadString('\n')
	assert.Assert(t, err == nil && line[0] >= '0' && line[0] <= '9', "%q, %v", line, err)
	serial := k.Processes()[0].Key()
	f := told(t, w, victim)
	i := slices.IndexFunc(f.RemovedBy, func(r Remover) bool { return r.How == "cgroup-reclaim" && r.PID == neighbour.Process.Pid })
	assert.Assert(t, i >= 0, "%+v", f)
	by := &f.RemovedBy[i]
	assert.Assert(t, len(by.Requests) == 1, "%+v", by)
	q := &by.Requests[0]
	assert.Equal(t, q.Token+"\n", fmt.Sprintf("%d.%s", serial, line))
	assert.Check(t, q.Pages > 0 && q.Pages <= by.Pages, "%d of %d", q.Pages, by.Pages)
	for _, r := range f.RemovedBy {
		assert.Check(t, r.PID == neighbour.Process.Pid || len(r.Requests) == 0, "it carried no token: %+v", r)
	}
	assert.NilError(t, in.Close())
	assert.NilError(t, neighbour.Wait())
}

// TestRequestsOfMany: what was removed by one task is counted with and without its requests.
func TestRequestsOfMany(t *testing.T) {
	w := &Watch{opts: Options{Files: 4}}
	w.removals = newSummary[abi.PagecacheRemoval, struct{}](4)
	w.requests = newSummary[abi.PagecacheRemoval, struct{}](4)
	who := abi.PagecacheRemoval{Pid: 7}
	for token, pages := range map[uint32]uint64{0: 5, 1: 1, 2: 3} {
		by := who
		if token != 0 {
			by.By = abi.ActivityReference{Process: 1, Serial: 2, Token: token, Generation: 3}
		}
		w.addRemoval(by, pages)
	}
	assert.Equal(t, w.removals.entries[who].weight, uint64(9))
	assert.DeepEqual(t, w.requestsBy()[who], []Request{{Token: "2.2.3", Pages: 3}, {Token: "2.1.3", Pages: 1}})
}

// TestOpenMaps: ids of no map, or not all of them, are refused.
func TestOpenMaps(t *testing.T) {
	_, err := OpenMaps(nil)
	assert.ErrorContains(t, err, "the daemon tells no map activity_owners")
	if os.Geteuid() != 0 {
		t.Skip("needs root: opens maps")
	}
	_, err = OpenMaps(map[string]uint32{"activity_owners": 1<<32 - 1})
	assert.ErrorContains(t, err, "open the daemon's map activity_owners")
}
