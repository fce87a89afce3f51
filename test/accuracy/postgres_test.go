package accuracy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// withPostgres hands the program the socket of a PostgreSQL whose log is on the
// slow disk.
func (s *resources) withPostgres(t *testing.T, r *round) {
	d := s.theDisk()
	d.slow(0, 0, 0)
	if s.pg == "" {
		s.pg = s.startPostgres(d)
	}
	r.argument = s.pg
	d.slow(0, 15*time.Millisecond, 15*time.Millisecond)
	t.Cleanup(func() { d.slow(0, 0, 0) })
}

// startPostgres runs a server of its own, in a directory of its own, as its
// user. It goes at the end of the whole test, before the disk does.
func (s *resources) startPostgres(d *slowDisk) (socket string) {
	t := s.t
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	assert.Assert(t, len(found) != 0, "needs PostgreSQL (apt-get install postgresql)")
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "tailcam-scenario-")
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, os.RemoveAll(dir))
	})
	wal := filepath.Join(d.dir(), "wal")
	assert.NilError(t, os.Mkdir(wal, 0o700))
	uid, gid := postgresUser(t)
	for _, path := range []string{dir, wal} {
		assert.NilError(t, os.Chown(path, uid, gid))
	}
	as := func(argv ...string) *exec.Cmd {
		// Real-time, as the victim: it is the disk that it shall wait for. The
		// server must go when this program does, whatever user it became.
		argv = d.inside(append([]string{
			"chrt", "-f", "40", "setpriv", fmt.Sprint("--reuid=", uid), fmt.Sprint("--regid=", gid), "--clear-groups", "--pdeathsig=KILL", "--",
		}, argv...)...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	out, err := as(filepath.Join(bin, "initdb"), "-D", data, "-X", filepath.Join(ext4Dir, "wal"), "--no-sync", "-A", "trust",
		"--wal-segsize=1", "--locale=C").CombinedOutput()
	assert.NilError(t, err, "initdb: %v\n%s", err, out)
	var log bytes.Buffer
	server := as(filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=", "-k", dir, "-c", "min_wal_size=2MB",
		"-c", "max_wal_size=64MB", "-c", "autovacuum=off")
	server.Stdout, server.Stderr = &log, &log
	assert.NilError(t, child.Start(server))
	gone := make(chan error, 1)
	go func() { gone <- server.Wait() }()
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGQUIT) // at once
		<-gone
		if t.Failed() {
			t.Logf("PostgreSQL:\n%s", &log)
		}
	})
	for end := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		if err := exec.Command(filepath.Join(bin, "pg_isready"), "-q", "-h", dir).Run(); err == nil {
			return filepath.Join(dir, ".s.PGSQL.5432")
		}
		select {
		case err := <-gone:
			t.Fatal(errors.Join(errors.New("PostgreSQL has ended"), err, fmt.Errorf("%s", log.Bytes())))
		default:
		}
		assert.Assert(t, !time.Now().After(end), "PostgreSQL does not get ready")
	}
}

func postgresUser(t *testing.T) (uid, gid int) {
	t.Helper()
	owner, err := user.Lookup("postgres")
	assert.NilError(t, err)
	uid, _ = strconv.Atoi(owner.Uid)
	gid, _ = strconv.Atoi(owner.Gid)
	return uid, gid
}
