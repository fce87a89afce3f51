package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
)

// asking is a client of a server: a program that takes a request a line, and answers each.
type asking struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func ask(t *testing.T, name string, args ...string) *asking {
	t.Helper()
	// Each line at once, also into a pipe.
	c := &asking{t: t, cmd: exec.Command("stdbuf", append([]string{"-oL", name}, args...)...)}
	in, err := c.cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := c.cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, out.(*os.File).SetReadDeadline(time.Now().Add(hang)))
	c.in, c.out = in, bufio.NewReader(out)
	assert.NilError(t, child.Start(c.cmd))
	t.Cleanup(func() {
		in.Close()
		c.cmd.Process.Kill() // it may have ended
		_ = c.cmd.Wait()     // killed
	})
	return c
}

func (c *asking) send(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.in, text+"\n")
	assert.NilError(c.t, err)
}

// gets reads until a line has this in it.
func (c *asking) gets(want string) {
	c.t.Helper()
	for {
		line, err := c.out.ReadString('\n')
		assert.NilError(c.t, err)
		if strings.Contains(line, want) {
			return
		}
	}
}

// runServer starts a server, which must answer ready.
func runServer(t *testing.T, cmd *exec.Cmd, ready func() error) {
	t.Helper()
	var log logText
	cmd.Stdout, cmd.Stderr = &log, &log
	assert.NilError(t, child.Start(cmd))
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Signal(syscall.SIGQUIT)) // PostgreSQL ends at once
		time.AfterFunc(time.Second, func() { cmd.Process.Kill() })
		_ = cmd.Wait() // that it was told to quit
	})
	for end := time.Now().Add(hang); ready() != nil; time.Sleep(20 * time.Millisecond) {
		assert.Assert(t, !time.Now().After(end), "the server does not get ready\n%s", &log)
	}
}

// redisServer runs a server of its own, and returns its port.
func redisServer(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	assert.NilError(t, err)
	free.Close()
	runServer(t, exec.Command(needTool(t, "redis-server", "redis-server"), "--bind", "127.0.0.1", "--port", port, "--save", "", "--daemonize", "no", "--dir", t.TempDir()),
		func() error { return exec.Command("redis-cli", "-p", port, "ping").Run() })
	return port
}

// postgresServer runs a server of its own, and returns the directory of its programs and that
// of its socket.
func postgresServer(t *testing.T) (bin, dir string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("needs PostgreSQL (apt-get install postgresql)")
	}
	bin, dir = filepath.Dir(found[len(found)-1]), publicDir(t, "")
	owner, err := user.Lookup("postgres")
	assert.NilError(t, err)
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	assert.NilError(t, os.Chown(dir, uid, gid))
	as := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
	data := filepath.Join(dir, "data")
	out, err := as("initdb", "-D", data, "--no-sync", "-A", "trust").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	runServer(t, as("postgres", "-D", data, "-c", "listen_addresses=", "-k", dir, "-F"), func() error { return as("pg_isready", "-q", "-h", dir).Run() })
	return bin, dir
}

// served finds the explanations of a client's waits for a server, once the snapshot of the one
// that was going on at a moment is complete.
func served(t *testing.T, d *running, pid int, at uint64) (found explain.Result) {
	t.Helper()
	eventually(t, "a snapshot of it", func() bool {
		for _, dir := range d.list() {
			data, err := os.ReadFile(filepath.Join(dir.Dir, snapshot.ExplainJSONFile))
			var r explain.Report
			if err != nil || json.Unmarshal(data, &r) != nil {
				continue
			}
			for i := range r.Outliers {
				if o := r.Outliers[i]; o.Task.PID == pid && o.StartMonoNS <= at && at <= o.EndMonoNS {
					found = o
					return true
				}
			}
		}
		return false
	})
	return found
}

// behalfOf returns for whom any culprit of an explanation worked.
func behalfOf(r *explain.Result) *explain.Behalf {
	if r.Blame.Behalf != nil {
		return r.Blame.Behalf
	}
	for i := range r.Chain {
		if b := r.Chain[i].Behalf; b != nil {
			return b
		}
	}
	return nil
}

// TestOnWhoseBehalf: while a server is busy for one client, another one waits, and the verdict
// names the first; a third, which waits for nothing, never is.
func TestOnWhoseBehalf(t *testing.T) {
	needRoot(t)
	port := redisServer(t)
	bin, dir := postgresServer(t)
	waits := func(comm string) string {
		return entry(comm, "offcpu", "50ms", "{comm: "+comm+", syscall: [read, recvfrom, poll, ppoll]}", "snapshot: {before: 300ms, after: 20ms, every: 1us, burst: 1000}")
	}
	d := start(t, rulesFile(waits("redis-cli"), waits("psql")), "--recorder-size", "16MiB")
	redis := func() *asking {
		c := ask(t, "redis-cli", "-p", port)
		c.send("ping")
		c.gets("PONG")
		return c
	}
	psql := func() *asking {
		c := ask(t, filepath.Join(bin, "psql"), "-h", dir, "-U", "postgres", "-d", "postgres", "-Atq")
		c.send("select 'PO'||'NG';")
		c.gets("PONG")
		return c
	}
	const lua = `eval "local n = 0 for i = 1, 100000000 do n = n + i % 7 end return 'DONE'" 0`
	const query = `begin\; lock table held\; do $$ declare e timestamptz := clock_timestamp() + '250ms'; begin while clock_timestamp() < e loop end loop; end $$\; commit\; select 'DO'||'NE';`
	psql().send("create table held(i int);")
	for _, c := range []struct {
		name       string
		client     func() *asking
		slow, fast string
	}{
		{"Redis busy with a script", redis, lua, "ping"},
		{"PostgreSQL holding a lock", psql, query, "select 'PO'||'NG' from held limit 1 \\; select 'PO'||'NG';"},
	} {
		t.Run(c.name, func(t *testing.T) {
			slow, fast, idle := c.client(), c.client(), c.client()
			for try := 0; ; try++ {
				slow.send(c.slow)
				time.Sleep(60 * time.Millisecond) // it is at work
				fast.send(c.fast)
				time.Sleep(60 * time.Millisecond) // it waits
				at := linux.Monotonic()
				slow.gets("DONE")
				fast.gets("PONG")
				r := served(t, d, fast.cmd.Process.Pid, at)
				t.Log(r.Verdict)
				for _, never := range []*asking{idle, fast} {
					name := fmt.Sprintf("client redis-cli %d", never.cmd.Process.Pid)
					assert.Check(t, !strings.Contains(strings.ReplaceAll(r.Verdict, "psql", "redis-cli"), name), "it did not ask: %s", r.Verdict)
				}
				b := behalfOf(&r)
				if b == nil && try < 4 {
					continue // the machine was slow, or its softirqs had a thread: who asked was not seen
				}
				assert.Assert(t, b != nil && b.Client != nil, "%s\n%+v", r.Verdict, r.Chain)
				assert.Check(t, b.Client.PID == slow.cmd.Process.Pid && strings.Contains(r.Verdict, "at work for the client "+b.Client.Name), "%+v: %s", b, r.Verdict)
				return
			}
		})
	}
}
