package accuracy

import (
	_ "embed" // a program in Python
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// diskScenarios are waits for a disk that others use, or for memory that it takes to make room.
func diskScenarios(shared *resources) []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	return []scenario{
		{
			name: "bulk-io", rule: trackSyscall("pread64"), prepare: shared.withFiles(0, 3*time.Millisecond, 0),
			want: want{causes: only(explain.BlockQueue), by: "scn-writer", pattern: explain.BulkIO, advice: "Limit what scn-writer"},
		},
		{ // the read gets no place in the queue at first, and then is behind others
			name: "full-queue", rule: trackSyscall("pread64"), prepare: shared.withShortQueue,
			want: want{causes: only(explain.BlockQueue), by: "scn-writer", advice: "Limit what scn-writer"},
		},
		{
			name: "writeback", rule: trackSyscall("pread64"), prepare: shared.withFiles(0, time.Millisecond, 0),
			want: want{causes: only(explain.BlockQueue), by: "kworker/", pattern: explain.WritebackStorm, advice: "Have less dirty at once: vm.dirty_background_bytes (now "},
		},
		{
			name: "checkpoint", rule: trackSyscall("pread64"), long: true, prepare: shared.withTablespace,
			want: want{causes: only(explain.BlockQueue), by: "postgres", pattern: explain.CheckpointStorm, advice: "checkpoint_completion_target"},
		},
		{
			name: "reclaim-storm", rule: trackSyscall("madvise"), prepare: shared.withLittleMemory,
			want: want{causes: only(explain.Reclaim), by: provoke.CgroupName("memory"), pattern: explain.ReclaimStorm, advice: " (now 33554432)"},
		},
		{
			name: "async-io", rule: trackSyscall("io_getevents"), prepare: shared.withDisk(40*time.Millisecond, 0, 0),
			want: want{causes: only(explain.BlockDevice), by: "loop", advice: diskServer},
		},
		{
			name: "row-lock", rule: trackSyscall("read"), prepare: shared.withPostgresOnly,
			want: want{causes: only(explain.Task), by: "postgres", root: explain.Timer, rootBy: "timer", says: "scn-holder"},
		},
		{
			name: "log-lock", comm: "postgres", prepare: shared.withPostgres,
			rule: "track: syscall\n    attach: all\n    stacks: [user], syscall: [futex]",
			want: want{causes: only(explain.Locked), by: "postgres", root: explain.Timer, rootBy: "timer", says: "a mutex", advice: "while it holds a mutex. loop"},
		},
		{
			name: "redis-script", rule: trackSyscall("read"), prepare: withRedis,
			want: want{causes: only(explain.Task), by: "redis-server", root: explain.Running, rootBy: "redis-server", says: "scn-client", advice: "It is CPU time of redis-server", does: true},
		},
		{
			name: "prefork", rule: trackSyscall("read"), prepare: withWorkers("shared"),
			want: want{causes: only(explain.Task), by: "scn-worker", root: explain.Timer, rootBy: "timer", pattern: explain.ExhaustedPool, advice: "All processes named scn-worker were at work"},
		},
		{ // one process sleeps all the time, and has no event: no pool is exhausted
			name: "prefork-idle", rule: trackSyscall("read"), prepare: withWorkers("apart"),
			want: want{causes: only(explain.Task), by: "scn-worker", root: explain.Timer, rootBy: "timer", not: explain.ExhaustedPool},
		},
		{
			name: "nginx-disk", rule: trackSyscall("read"), prepare: shared.withNginx,
			want: want{causes: only(explain.Task), by: "nginx", root: explain.Timer, rootBy: "timer", advice: diskServer},
		},
	}
}

// withPostgresOnly is withPostgres on a disk that is not slow.
func (s *resources) withPostgresOnly(t *testing.T, r *round) {
	s.withPostgres(t, r)
	s.disk.slow(0, 0, 0)
}

// withTablespace lets PostgreSQL have tables on the slow disk.
func (s *resources) withTablespace(t *testing.T, r *round) {
	s.withPostgresOnly(t, r)
	socket := r.argument
	s.withFiles(0, 4*time.Millisecond, 0)(t, r)
	tables := filepath.Join(r.argument, "tables")
	assert.NilError(t, os.Mkdir(tables, 0o700))
	assert.NilError(t, os.Chmod(r.argument, 0o755))
	uid, gid := postgresUser(t)
	assert.NilError(t, os.Chown(tables, uid, gid))
	r.env = []string{
		"SCENARIO_FILES=" + r.argument,
		"SCENARIO_TABLESPACE=" + filepath.Join(ext4Dir, filepath.Base(r.argument), "tables"),
	}
	r.argument = socket
}

// withShortQueue hands the program the slow disk, whose queue takes four requests.
func (s *resources) withShortQueue(t *testing.T, r *round) {
	s.withDisk(5*time.Millisecond, 8*time.Millisecond, 0)(t, r)
	file := filepath.Join("/sys/block", s.disk.device, "queue/nr_requests")
	before, err := os.ReadFile(file)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(file, []byte("4"), 0o644))
	t.Cleanup(func() { assert.Check(t, os.WriteFile(file, before, 0o644)) })
}

// withFUSE hands the program the file that the slow disk is in.
func (s *resources) withFUSE(_ *testing.T, r *round) {
	d := s.theDisk()
	d.slow(40*time.Millisecond, 0, 0)
	r.argument = fmt.Sprintf("/proc/%d/root%s", d.cmd.Process.Pid, filepath.Join(fuseDir, diskFile))
}

// serve starts a server for one round, which must be known as the culprit, and waits for its socket.
func serve(t *testing.T, r *round, socket string, argv ...string) {
	t.Helper()
	var log child.Output
	cmd := exec.Command("chrt", append([]string{"-f", "40"}, argv...)...) // as the victim: whatever else there is to do
	cmd.Stdout, cmd.Stderr = &log, &log
	assert.NilError(t, child.Start(cmd), "needs Debian's %s", argv[0])
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Kill())
		cmd.Wait() // killed
		if t.Failed() {
			t.Logf("%s:\n%s", argv[0], &log)
		}
	})
	for end := time.Now().Add(hang); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		assert.Assert(t, time.Now().Before(end), "%s does not listen\n%s", argv[0], &log)
	}
	r.argument = socket
	r.complete = func(_ *testing.T, tr *truth) { tr.Culprit = cmd.Process.Pid }
}

// withRedis hands the program the socket of a Redis.
func withRedis(t *testing.T, r *round) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, r, socket, "redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", filepath.Dir(socket))
}

//go:embed src/prefork.py
var workersOfPython []byte

// withWorkers hands the program the socket of a server in Python with two processes.
func withWorkers(how string) func(*testing.T, *round) {
	return func(t *testing.T, r *round) {
		dir := t.TempDir()
		program, socket := filepath.Join(dir, "prefork.py"), filepath.Join(dir, "s")
		assert.NilError(t, os.WriteFile(program, workersOfPython, 0o600))
		serve(t, r, socket, "python3", program, socket, how)
		r.complete = nil // the worker tells
	}
}

// withNginx hands the program the socket of an nginx that serves a page of a slow disk.
func (s *resources) withNginx(t *testing.T, r *round) {
	s.withFiles(40*time.Millisecond, 0, 0)(t, r)
	s.disk.slow(0, 0, 0)
	page := filepath.Join(r.argument, "page")
	assert.NilError(t, os.WriteFile(page, make([]byte, 4096), 0o644))
	f, err := os.Open(page)
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, f.Sync())
	assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	serveNginx(t, r, "", func(string) string { return "root " + r.argument + ";" })
	s.disk.slow(40*time.Millisecond, 0, 0)
}

// serveNginx starts an nginx of one process, with some more configuration of its server, and of all.
func serveNginx(t *testing.T, r *round, all string, locations func(socket string) string) {
	dir := t.TempDir()
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; master_process off; error_log stderr; pid %[1]s/pid;\nevents {}\nhttp {\n"+
		"  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/g;\n"+
		"  %[4]s server { listen unix:%[2]s; %[3]s }\n}\n", dir, socket, locations(socket), all)
	assert.NilError(t, os.WriteFile(config, []byte(text), 0o600))
	serve(t, r, socket, "nginx", "-c", config, "-p", dir)
}
