package detect

import (
	"fmt"
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

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
)

// server is a PostgreSQL server of a test, in a directory of its own.
type server struct {
	bin, dir string
	uid, gid uint32
}

// as is a program of PostgreSQL's, as the server's user.
func (s *server) as(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.gid}}
	return cmd
}

func (s *server) run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := s.as(name, args...).CombinedOutput()
	assert.NilError(t, err, "%s: %v\n%s", name, err, out)
}

func (s *server) query(t *testing.T, sql string) {
	t.Helper()
	s.run(t, "psql", "-h", s.dir, "-d", "postgres", "-q", "-c", sql)
}

// startPostgres runs a server until the test ends.
func startPostgres(t *testing.T) *server {
	t.Helper()
	needRoot(t)
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("needs PostgreSQL (apt-get install postgresql)")
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		t.Skipf("needs the user postgres: %v", err)
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	dir, err := os.MkdirTemp("", "tailcam-postgres-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	assert.NilError(t, os.Chown(dir, uid, gid))
	s := &server{bin: filepath.Dir(found[len(found)-1]), dir: dir, uid: uint32(uid), gid: uint32(gid)}
	data := filepath.Join(dir, "data")
	s.run(t, "initdb", "-D", data, "--no-sync", "-A", "trust")
	cmd := s.as("postgres", "-D", data, "-c", "listen_addresses=", "-k", dir, "-F")
	assert.NilError(t, child.Start(cmd))
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Signal(syscall.SIGQUIT)) // at once
		_ = cmd.Wait()                                       // that it was told to quit
	})
	for end := time.Now().Add(patience); s.as("pg_isready", "-q", "-h", dir).Run() != nil; time.Sleep(20 * time.Millisecond) {
		assert.Assert(t, !time.Now().After(end), "PostgreSQL does not get ready")
	}
	return s
}

// A slow query among fast ones, by the probes that PostgreSQL has built in, and
// by the function that executes it.
func TestShippedPostgres(t *testing.T) {
	slow := "select pg_sleep(0.1), 'tailcam'"
	s := startPostgres(t)
	query := func(sql string) {
		t.Helper()
		s.query(t, sql)
	}
	for _, name := range []string{"postgres-query", "postgres-execute"} {
		t.Run(name, func(t *testing.T) {
			list := shipped(t, name, 60*time.Millisecond, rules.Match{Comm: []string{"postgres"}})
			for _, hooks := range [][]rules.Hook{list[0].Pair.Entry, list[0].Pair.Exit} {
				for i := range hooks {
					hooks[i].Path = filepath.Join(s.bin, "postgres")
				}
			}
			c := watch(t, list, nil)
			late := 0
			for range 20 {
				begin := time.Now()
				if query("select 1"); time.Since(begin) >= 60*time.Millisecond {
					late++ // the machine may have made it slow
				}
			}
			begin := int64(linux.Monotonic())
			query(slow)
			end := int64(linux.Monotonic())
			got := c.settle()
			assert.Assert(t, len(got) != 0 && len(got) <= 1+late,
				"%d outliers, want one, and at most %d more", len(got), late)
			o := got[len(got)-1]
			t.Logf("%v, labels %v, stack %q", time.Duration(o.DelayNS), o.Labels, o.Stacks.User)
			within(t, o, begin, end)
			assert.Check(t, o.DelayNS >= (100*time.Millisecond).Nanoseconds(),
				"delay %v", time.Duration(o.DelayNS))
			text := fmt.Sprint(o.Labels["query"])
			assert.Check(t, name != "postgres-query" || strings.HasPrefix(slow, text), "query %q", text)
		})
	}
}
