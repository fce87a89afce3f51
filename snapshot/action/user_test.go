package action

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a program as another user")
	}
	_, err := user.Lookup("nobody")
	assert.NilError(t, err)
}

// openDir makes a directory that every user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		assert.NilError(t, os.Chmod(d, 0o755))
	}
	snap := filepath.Join(dir, "snap")
	assert.NilError(t, os.MkdirAll(filepath.Join(snap, "trace"), 0o750))
	for _, name := range []string{"snapshot.json", "trace/metadata"} {
		assert.NilError(t, os.WriteFile(filepath.Join(snap, name), []byte("daemon's\n"), 0o640))
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
	got := read(t, dir, "snapshot.json")
	assert.Check(t, got == "daemon's\n", "snapshot.json is now %q", got)
	got = read(t, dir, "mine")
	assert.Check(t, got == "mine\n", "mine is %q", got)
	u, err := user.Lookup("nobody")
	assert.NilError(t, err)
	if got := strings.Fields(read(t, dir, "groups")); len(got) == 0 || got[0] != u.Gid || strings.Contains(" "+strings.Join(got, " ")+" ", " 0 ") {
		t.Errorf("groups %q", got)
	}
	// Its log was there before the first one could lay a link.
	log = read(t, dir, "action-1.log")
	assert.Check(t, res[1].OK() && strings.Contains(log, "# exit status 0 after "), "second: %+v\n%s", res[1], log)
	info, err := os.Stat(dir)
	assert.Check(t, err == nil && info.Mode().Perm() == 0o750 && info.Mode()&fs.ModeSticky == 0,
		"mode afterwards %v, %v", info.Mode(), err)
}

func TestShareLeavesOtherFilesAlone(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	assert.NilError(t, os.WriteFile(outside, []byte("x"), 0o640))
	assert.NilError(t, os.Link(outside, filepath.Join(dir, "hard")))
	assert.NilError(t, os.Symlink("/etc/shadow", filepath.Join(dir, "soft")))
	id, err := lookup("nobody")
	assert.NilError(t, err)
	assert.NilError(t, share(dir, id))
	gid := func(path string) uint32 {
		info, err := os.Stat(path)
		assert.NilError(t, err)
		return info.Sys().(*syscall.Stat_t).Gid
	}
	assert.Check(t, gid(outside) != id.gid && gid("/etc/shadow") != id.gid, "a file outside was opened up")
	assert.Check(t, gid(filepath.Join(dir, "trace", "metadata")) == id.gid, "the trace was not shared")
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, []byte(text), mode))
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
	assert.NilError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	err := Check(rules.Action{Run: []string{path}, User: "nobody"})
	assert.Check(t, is.ErrorContains(err, "user nobody may not enter "+dir))
	assert.NilError(t, os.Chmod(dir, 0o755))
	assert.Check(t, Check(rules.Action{Run: []string{path}, User: "nobody"}))
	assert.Check(t, Check(rules.Action{Run: []string{path}, User: "65534"}))
}
