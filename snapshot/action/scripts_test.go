package action

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// shipped is the path of a script in configs/actions.
func shipped(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../configs/actions", name))
	assert.NilError(t, err)
	_, err = os.Stat(path)
	assert.NilError(t, err)
	return path
}

const scriptID = "20261120T231502.123456789Z-wakeup-000042"

// snapshotDir makes a snapshot's directory inside one with an odd name.
func snapshotDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "-odd $(name);'", scriptID)
	assert.NilError(t, os.MkdirAll(filepath.Join(dir, "trace"), 0o750))
	for _, name := range []string{"snapshot.json", "trace/metadata"} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o640))
	}
	return dir
}

func script(t *testing.T, dir string, run ...string) (Result, string) {
	t.Helper()
	run[0] = shipped(t, run[0])
	res := runJob(t, Options{}, Job{ID: scriptID, Dir: dir, Items: []Item{item(long, run...)}})[0]
	return res, read(t, dir, "action-0.log")
}

func TestScriptsAreClean(t *testing.T) {
	check, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("shellcheck is not installed")
	}
	scripts, err := filepath.Glob("../../configs/actions/*.sh")
	assert.NilError(t, err)
	out, err := exec.Command(check, scripts...).CombinedOutput()
	assert.Check(t, err, "%s", out)
}

func TestSaveTop(t *testing.T) {
	dir := snapshotDir(t)
	run := []string{shipped(t, "save-top.sh")}
	victim := filepath.Join(dir, "victim")
	assert.NilError(t, os.Symlink(victim, filepath.Join(dir, "process-table.txt")))
	mine := item(long, run...)
	mine.Outlier.Task.PID, mine.Outlier.Task.TID = os.Getpid(), os.Getpid()
	mine.Outlier.Task.Comm = "\x1b[2Jbad"
	res := runJob(t, Options{}, Job{ID: scriptID, Dir: dir, Items: []Item{mine}})[0]
	log := read(t, dir, "action-0.log")
	if !res.OK() || !strings.Contains(log, "wrote process-table-2.txt") {
		t.Fatalf("%s\n%s", res.String(), log)
	}
	table := read(t, dir, "process-table-2.txt")
	for _, want := range []string{"== /proc/loadavg", "== threads by CPU time", "task ?[2Jbad", "/status"} {
		assert.Check(t, strings.Contains(table, want), "%q is missing", want)
	}
	_, err := os.Lstat(victim)
	assert.Check(t, is.ErrorIs(err, os.ErrNotExist), "it wrote through a link")

	res = runJob(t, Options{}, Job{Items: []Item{item(long, run...)}})[0]
	if !res.OK() || !strings.Contains(res.Output, "== the task has ended") && !strings.Contains(res.Output, "== /proc/loadavg") {
		t.Errorf("without a snapshot: %s\n%s", res.String(), res.Output)
	}
}

func TestShipToDirectory(t *testing.T) {
	dir, target := snapshotDir(t), filepath.Join(t.TempDir(), "a b")
	if res, log := script(t, dir, "ship.sh", target); res.OK() || !strings.Contains(log, "is not a directory") {
		t.Errorf("%s\n%s", res.String(), log)
	}
	assert.NilError(t, os.Mkdir(target, 0o755))
	assert.NilError(t, os.Remove(filepath.Join(dir, "action-0.log")))
	conf := filepath.Join(t.TempDir(), "ship.conf")
	assert.NilError(t, os.WriteFile(conf, []byte("TARGET='"+target+"'\n"), 0o600))
	if res, log := script(t, dir, "ship.sh", "-c", conf); !res.OK() || !strings.Contains(log, "shipped "+scriptID) {
		t.Fatalf("%s\n%s", res.String(), log)
	}
	got := read(t, target, scriptID, "trace", "metadata")
	assert.Check(t, got == "trace/metadata", "shipped %q", got)
}

func TestShipByHTTP(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	var path string
	var names []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		for tr := tar.NewReader(z); ; {
			h, err := tr.Next()
			if err != nil {
				assert.Check(t, is.ErrorIs(err, io.EOF))
				return
			}
			names = append(names, h.Name)
		}
	}))
	defer server.Close()
	res, log := script(t, snapshotDir(t), "ship.sh", server.URL+"/in/")
	if !res.OK() || path != "PUT /in/"+scriptID+".tar.gz" || !slices.Contains(names, scriptID+"/trace/metadata") {
		t.Errorf("%s\n%s\n%s %q", res.String(), log, path, names)
	}

	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	if res, log := script(t, snapshotDir(t), "ship.sh", refusing.URL); res.OK() || !strings.Contains(log, "404") {
		t.Errorf("%s\n%s", res.String(), log)
	}
}

func TestShipByRsync(t *testing.T) {
	rsync, err := exec.LookPath("rsync")
	if err != nil {
		t.Skip("rsync is not installed")
	}
	target := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "rsyncd.conf")
	text := "use chroot = no\nreverse lookup = no\n[in]\npath = " + target + "\nread only = no\n"
	if os.Geteuid() == 0 {
		text += "uid = 0\ngid = 0\n"
	}
	assert.NilError(t, os.WriteFile(conf, []byte(text), 0o600))
	daemon := exec.Command(rsync, "--daemon", "--no-detach", "--address=127.0.0.1", "--port="+port, "--config="+conf, "--log-file=/dev/null")
	assert.NilError(t, daemon.Start())
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	}()
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	res, log := script(t, snapshotDir(t), "ship.sh", "rsync://127.0.0.1:"+port+"/in")
	if !res.OK() {
		t.Fatalf("%s\n%s", res.String(), log)
	}
	for _, name := range []string{"snapshot.json", "trace/metadata"} {
		got := read(t, target, scriptID, name)
		assert.Check(t, got == name, "shipped %q", got)
	}
}

func TestShipRefuses(t *testing.T) {
	for target, want := range map[string]string{
		"-oProxyCommand=x:": "begins with a dash",
		"nonsense":          "invalid target",
		"":                  "missing target",
	} {
		if res, log := script(t, snapshotDir(t), "ship.sh", target); res.OK() || !strings.Contains(log, want) {
			t.Errorf("%q: %s\n%s", target, res.String(), log)
		}
	}
}
