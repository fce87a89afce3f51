package api

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenModes(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		t.Run(fmt.Sprintf("umask %03o", umask), func(t *testing.T) {
			path := socketPath(t)
			old := syscall.Umask(umask)
			s, err := Listen(&ListenOptions{Path: path})
			syscall.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for p, want := range map[string]fs.FileMode{
				path:               fs.ModeSocket | 0o660,
				filepath.Dir(path): fs.ModeDir | 0o750,
				path + ".lock":     0o640 &^ fs.FileMode(umask),
			} {
				info, err := os.Stat(p)
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode() != want {
					t.Errorf("%s has mode %v, want %v", p, info.Mode(), want)
				}
			}
		})
	}
}

func TestListenGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root may give a file to a group it is not in")
	}
	const group, gid = "daemon", 1 // in every /etc/group of Linux
	path := socketPath(t)
	s, err := Listen(&ListenOptions{Path: path, Group: group})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Gid; got != gid {
			t.Errorf("%s belongs to group %d, want %d", p, got, gid)
		}
	}
}

func TestListenLeavesForeignDirectoryAlone(t *testing.T) {
	path := socketPath(t)
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(dir)
	s, err := Listen(&ListenOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if after, _ := os.Stat(dir); after.Mode() != before.Mode() {
		t.Errorf("mode of an existing directory became %v, was %v", after.Mode(), before.Mode())
	}
}

func TestListenTwice(t *testing.T) {
	path := socketPath(t)
	first, err := Listen(&ListenOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen(&ListenOptions{Path: path})
	want := fmt.Sprintf("another daemon is running, pid %d: stop it first, or use another socket", os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first daemon's socket is gone: %v", err)
	} else {
		conn.Close()
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is there after Close")
	}
	second, err := Listen(&ListenOptions{Path: path})
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	second.Close()
}

// A crashed daemon is a real one here: this test binary, killed.
func TestListenAfterCrash(t *testing.T) {
	const marker = "TAILCAM_TEST_LISTEN"
	if path := os.Getenv(marker); path != "" {
		if _, err := Listen(&ListenOptions{Path: path}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("listening")
		select {}
	}
	path := socketPath(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestListenAfterCrash$")
	cmd.Env = append(os.Environ(), marker+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	buf := make([]byte, 64)
	if n, err := out.Read(buf); !bytes.Contains(buf[:n], []byte("listening")) {
		t.Fatalf("child says %q, %v", buf[:n], err)
	}
	want := fmt.Sprintf("pid %d", cmd.Process.Pid)
	if _, err := Listen(&ListenOptions{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want one with %q", err, want)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("a killed daemon leaves its socket: %v", err)
	}
	if _, err := NewClient(path).Status(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "daemon not reachable at "+path) {
		t.Errorf("client of a stale socket: %v", err)
	}
	s, err := Listen(&ListenOptions{Path: path})
	if err != nil {
		t.Fatalf("after a crash: %v", err)
	}
	s.Close()
}

func TestListenRefuses(t *testing.T) {
	occupied := socketPath(t)
	if err := os.MkdirAll(filepath.Dir(occupied), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(occupied, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := socketPath(t)
	if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(occupied, linked+".lock"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		occupied:                         "exists and is not a socket",
		linked:                           "too many levels of symbolic links",
		occupied + "/below/s.sock":       "not a directory",
		"/" + strings.Repeat("long", 30): "must be at most 107 bytes",
	} {
		if _, err := Listen(&ListenOptions{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen(%.40s): error %v, want %q", path, err, want)
		}
	}
	if data, _ := os.ReadFile(occupied); string(data) != "precious" {
		t.Error("Listen changed a file that is not its own")
	}
}
