package action

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tailcam/tailcam/rules"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a program as another user")
	}
	if _, err := user.Lookup("nobody"); err != nil {
		t.Fatal(err)
	}
}

// openDir makes a directory that every user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	snap := filepath.Join(dir, "snap")
	if err := os.MkdirAll(filepath.Join(snap, "trace"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"snapshot.json", "trace/metadata"} {
		if err := os.WriteFile(filepath.Join(snap, name), []byte("daemon's\n"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return snap
}

func TestOtherUser(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	script := `id -un; cat snapshot.json trace/metadata; echo mine >mine
		echo evil >snapshot.json; rm -f snapshot.json; mv action-0.log x; ln -s /etc/passwd action-1.log; id -G >groups; true`
	first := item(long, sh(script)...)
	first.Action.User = "nobody"
	second := item(long, "/bin/true")
	res := runJob(t, Options{}, Job{Dir: dir, Items: []Item{first, second}})
	log := read(t, dir, "action-0.log")
	if !res[0].OK() || !strings.Contains(log, "\nnobody\ndaemon's\ndaemon's\n") {
		t.Errorf("%s\n%s", res[0].String(), log)
	}
	if got := read(t, dir, "snapshot.json"); got != "daemon's\n" {
		t.Errorf("snapshot.json is now %q", got)
	}
	if got := read(t, dir, "mine"); got != "mine\n" {
		t.Errorf("mine is %q", got)
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(read(t, dir, "groups")); len(got) == 0 || got[0] != u.Gid || strings.Contains(" "+strings.Join(got, " ")+" ", " 0 ") {
		t.Errorf("groups %q", got)
	}
	// Its log was there before the first one could lay a link.
	if log := read(t, dir, "action-1.log"); !res[1].OK() || !strings.Contains(log, "# exit status 0 after ") {
		t.Errorf("second: %+v\n%s", res[1], log)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 || info.Mode()&fs.ModeSticky != 0 {
		t.Errorf("mode afterwards %v, %v", info.Mode(), err)
	}
}

func TestShareLeavesOtherFilesAlone(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	if err := os.WriteFile(outside, []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(outside, filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "soft")); err != nil {
		t.Fatal(err)
	}
	id, err := lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if err := share(dir, id); err != nil {
		t.Fatal(err)
	}
	gid := func(path string) uint32 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Gid
	}
	if gid(outside) == id.gid || gid("/etc/shadow") == id.gid {
		t.Error("a file outside was opened up")
	}
	if gid(filepath.Join(dir, "trace", "metadata")) != id.gid {
		t.Error("the trace was not shared")
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := script("good", "#!/bin/sh\n", 0o755)
	plain := script("plain", "x", 0o644)
	dangling := script("dangling", "#!/no/such/python -u\n", 0o755)
	for _, c := range []struct {
		action rules.Action
		want   string // empty: good
	}{
		{rules.Action{Run: []string{good}}, ""},
		{rules.Action{Run: []string{"sh"}}, ""},
		{rules.Action{}, "action: run is empty: give a program and its arguments"},
		{rules.Action{Run: []string{good, "a\x00b"}}, "an argument contains a NUL byte"},
		{rules.Action{Run: []string{"bin/sh"}}, `action: program "bin/sh": give its full path, beginning with a slash`},
		{rules.Action{Run: []string{"no-such-program"}}, `action: program "no-such-program" is not in /usr/local/sbin`},
		{rules.Action{Run: []string{dir + "/none"}}, "action: program " + dir + "/none does not exist"},
		{rules.Action{Run: []string{dir}}, "action: program " + dir + " is not a file"},
		{rules.Action{Run: []string{plain}}, "may not execute it: chmod +x"},
		{rules.Action{Run: []string{dangling}}, "its interpreter /no/such/python: no such file"},
		{rules.Action{Run: []string{good}, User: "no-such-user"}, `action: unknown user "no-such-user": name one of /etc/passwd`},
	} {
		err := Check(c.action)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.action.Run, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: got %v, want %s", c.action.Run, err, c.want)
		}
	}
}

func TestCheckAsOtherUser(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	path := filepath.Join(dir, "prog")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Check(rules.Action{Run: []string{path}, User: "nobody"})
	if err == nil || !strings.Contains(err.Error(), "user nobody may not enter "+dir) {
		t.Errorf("got %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Check(rules.Action{Run: []string{path}, User: "nobody"}); err != nil {
		t.Error(err)
	}
	if err := Check(rules.Action{Run: []string{path}, User: "65534"}); err != nil {
		t.Error(err)
	}
}
