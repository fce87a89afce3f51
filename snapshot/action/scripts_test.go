package action

import (
	"archive/tar"
	"compress/gzip"
	"errors"
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
)

// shipped is the path of a script in configs/actions.
func shipped(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../configs/actions", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

const scriptID = "20261120T231502.123456789Z-wakeup-000042"

// snapshotDir makes a snapshot's directory inside one with an odd name.
func snapshotDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "-odd $(name);'", scriptID)
	if err := os.MkdirAll(filepath.Join(dir, "trace"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"snapshot.json", "trace/metadata"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o640); err != nil {
			t.Fatal(err)
		}
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
	if out, err := exec.Command(check, shipped(t, "ship.sh"), shipped(t, "save-top.sh")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSaveTop(t *testing.T) {
	dir := snapshotDir(t)
	run := []string{shipped(t, "save-top.sh")}
	victim := filepath.Join(dir, "victim")
	if err := os.Symlink(victim, filepath.Join(dir, "process-table.txt")); err != nil {
		t.Fatal(err)
	}
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
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if _, err := os.Lstat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Error("it wrote through a link")
	}

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
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "action-0.log")); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "ship.conf")
	if err := os.WriteFile(conf, []byte("TARGET='"+target+"'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res, log := script(t, dir, "ship.sh", "-c", conf); !res.OK() || !strings.Contains(log, "shipped "+scriptID) {
		t.Fatalf("%s\n%s", res.String(), log)
	}
	if got := read(t, target, scriptID, "trace", "metadata"); got != "trace/metadata" {
		t.Errorf("shipped %q", got)
	}
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
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
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
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "rsyncd.conf")
	text := "use chroot = no\nreverse lookup = no\n[in]\npath = " + target + "\nread only = no\n"
	if os.Geteuid() == 0 {
		text += "uid = 0\ngid = 0\n"
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(rsync, "--daemon", "--no-detach", "--address=127.0.0.1", "--port="+port, "--config="+conf, "--log-file=/dev/null")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
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
		if got := read(t, target, scriptID, name); got != name {
			t.Errorf("shipped %q", got)
		}
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
