package packages

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// system is a Debian in a directory.
type system struct {
	t   *testing.T
	dir string
}

var debian struct {
	sync.Once
	tar string
}

// newSystem unpacks a fresh Debian, which is made once. Nothing is mounted in it, and no service
// runs, so removing the directory removes all.
func newSystem(t *testing.T) *system {
	t.Helper()
	needRoot(t)
	mmdebstrap := needTool(t, "mmdebstrap", "mmdebstrap")
	debian.Do(func() {
		debian.tar = filepath.Join(packages(t), "debian.tar")
		// What it mounts, of the host's too, ends with it, even if it is killed.
		run(t, "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
			mmdebstrap, "--quiet", "--variant=essential", "--include=systemd", "--dpkgopt=force-unsafe-io",
			"bookworm", debian.tar, "deb http://deb.debian.org/debian bookworm main")
	})
	s := &system{t: t, dir: t.TempDir()}
	run(t, "tar", "-C", s.dir, "-xf", debian.tar)
	return s
}

// do runs a command in it, in a PID namespace of its own.
func (s *system) do(argv ...string) string {
	s.t.Helper()
	out, err := s.try(argv...)
	assert.NilError(s.t, err, "%s\n%s", strings.Join(argv, " "), out)
	return out
}

func (s *system) try(argv ...string) (string, error) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "unshare", append([]string{
		"--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--root", s.dir, "--wd", "/"}, argv...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copy puts a file into its /root and returns the path there.
func (s *system) copy(path string) string {
	s.t.Helper()
	data, err := os.ReadFile(path)
	assert.NilError(s.t, err)
	inside := "/root/" + filepath.Base(path)
	assert.NilError(s.t, os.WriteFile(s.dir+inside, data, 0o600))
	return inside
}

func (s *system) write(path, text string) {
	s.t.Helper()
	assert.NilError(s.t, os.WriteFile(s.dir+path, []byte(text), 0o600))
}

func (s *system) read(path string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.dir + path)
	assert.NilError(s.t, err)
	return string(text)
}

func (s *system) has(path string) bool {
	_, err := os.Lstat(s.dir + path)
	return err == nil
}

// files are all files but those of the package managers.
func (s *system) files() string {
	s.t.Helper()
	var list bytes.Buffer
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := strings.TrimPrefix(path, s.dir); name {
		case "/var/lib/dpkg", "/var/lib/rpm", "/var/log", "/var/cache", "/root", "/proc", "/dev":
			return fs.SkipDir
		case "/etc/group-", "/etc/gshadow-", "/etc/.pwd.lock": // backups of the group's creation
		default:
			list.WriteString(name + "\n")
		}
		return nil
	})
	assert.NilError(s.t, err)
	return list.String()
}

func (s *system) version() string {
	s.t.Helper()
	line, _, _ := strings.Cut(s.do("tailcam", "version"), "\n")
	return line
}

// works checks an installed system of either kind.
func (s *system) works() {
	s.t.Helper()
	assert.Check(s.t, is.Contains(s.do("tailcam", "check"), "\nok: "))
	assert.Check(s.t, is.Contains(s.read("/etc/group"), "\ntailcam:x:"))
	for _, path := range []string{
		"/usr/include/tailcam.h", "/usr/lib/tailcam/actions/save-top.sh", "/usr/lib/tailcam/rules.d/wakeup.yaml",
		"/usr/lib/systemd/system/tailcam.service", "/usr/share/man/man1/tailcam.1.gz", "/usr/share/man/man5/tailcam-rules.5.gz",
		"/usr/share/bash-completion/completions/tailcam", "/usr/share/doc/tailcam/examples/systemd/programs.conf", "/etc/tailcam/conf.d",
		"/usr/share/doc/tailcam/examples/prometheus/alerts.yaml", "/usr/share/doc/tailcam/examples/grafana/tailcam.json",
		"/usr/share/doc/tailcam/examples/kubernetes/kustomization.yaml", "/usr/share/doc/tailcam/examples/kubernetes/daemonset.yaml",
		"/usr/share/doc/tailcam/examples/kubernetes/conf.d/kubernetes.yaml", "/usr/share/doc/tailcam/examples/kubernetes/rules.d/site.yaml",
		"/usr/share/tailcam/schemas/outlier.v1.json", "/usr/lib/python3/dist-packages/tailcam.py",
	} {
		assert.Check(s.t, s.has(path), "%s is missing", path)
	}
	info, err := os.Stat(s.dir + "/var/lib/tailcam")
	assert.NilError(s.t, err)
	assert.Check(s.t, is.Equal(info.Mode().Perm(), fs.FileMode(0o711)))
}

const (
	ownConfig = "log:\n  level: warn\n"
	ownRule   = "rules:\n  - name: mine\n    track: wakeup\n    threshold: 1s\n"
	enabled   = "/etc/systemd/system/multi-user.target.wants/tailcam.service"
)

// TestDebian: the package goes in, up, down, out and in again, keeps what the operator changed, and
// leaves nothing but its group when it is purged.
func TestDebian(t *testing.T) {
	s := newSystem(t)
	release, next := s.copy(deb(t, "1.0.0")), s.copy(deb(t, "1.1.0~rc.1"))
	before := s.files()

	s.do("dpkg", "--install", release)
	s.works()
	assert.Check(t, is.Equal(s.version(), "tailcam v1.0.0"))
	assert.Check(t, s.has(enabled), "the service is not enabled")

	s.write("/etc/tailcam/tailcam.yaml", ownConfig)
	s.write("/etc/tailcam/rules.d/mine.yaml", ownRule)
	s.do("systemctl", "--root=/", "disable", "tailcam.service")
	s.do("dpkg", "--install", next)
	s.works()
	assert.Check(t, is.Equal(s.version(), "tailcam v1.1.0-rc.1"))
	assert.Check(t, is.Equal(s.read("/etc/tailcam/tailcam.yaml"), ownConfig), "the upgrade replaced the configuration")
	assert.Check(t, !s.has(enabled), "the upgrade enabled a service that was disabled")

	s.do("dpkg", "--install", release)
	s.works()
	assert.Check(t, is.Equal(s.version(), "tailcam v1.0.0"))
	assert.Check(t, is.Equal(s.read("/etc/tailcam/tailcam.yaml"), ownConfig), "the downgrade replaced the configuration")
	assert.Check(t, is.Contains(s.do("tailcam", "check"), "mine"))

	s.do("dpkg", "--remove", "tailcam")
	assert.Check(t, !s.has("/usr/bin/tailcam") && !s.has("/usr/lib/tailcam"))
	assert.Check(t, is.Equal(s.read("/etc/tailcam/tailcam.yaml"), ownConfig), "remove is not purge")
	assert.Check(t, s.has("/var/lib/tailcam"), "remove is not purge")

	s.do("dpkg", "--install", next)
	s.works()
	assert.Check(t, !s.has(enabled), "a service that was disabled is enabled again")

	assert.NilError(t, os.MkdirAll(s.dir+"/var/lib/tailcam/snapshots/x", 0o700))
	assert.NilError(t, os.Remove(s.dir+"/etc/tailcam/rules.d/mine.yaml"))
	s.do("dpkg", "--purge", "tailcam")
	assert.Check(t, is.Equal(s.files(), before), "purge left something, or took too much")
	assert.Check(t, is.Contains(s.read("/etc/group"), "\ntailcam:x:"), "the number of the group can be given to another")
}

// TestRPM: the same with rpm, which has no purge: what the operator changed stays.
func TestRPM(t *testing.T) {
	needTool(t, "rpm", "rpm")
	s := newSystem(t)
	release, next := rpm(t, "1.0.0"), rpm(t, "1.1.0~rc.1")
	about := run(t, "rpm", "-qp", "--info", "--scripts", "--configfiles", release)
	assert.Check(t, is.Contains(about, "/etc/tailcam/tailcam.yaml"))
	assert.Check(t, is.Contains(about, "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"))
	do := func(args ...string) {
		t.Helper()
		// The root has no rpm of its own, and none of the dependencies of packages that are not its.
		run(t, "unshare", append([]string{"--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
			"--mount-proc=" + s.dir + "/proc", "rpm", "--root", s.dir, "--dbpath", "/var/lib/rpm", "--nodeps", "--force-debian"}, args...)...)
	}
	before := s.files()

	do("--install", release)
	s.works()
	assert.Check(t, is.Equal(s.version(), "tailcam v1.0.0"))
	s.write("/etc/tailcam/tailcam.yaml", ownConfig)
	do("--upgrade", next)
	s.works()
	assert.Check(t, is.Equal(s.version(), "tailcam v1.1.0-rc.1"))
	assert.Check(t, is.Equal(s.read("/etc/tailcam/tailcam.yaml"), ownConfig), "the upgrade replaced the configuration")
	do("--upgrade", "--oldpackage", release)
	s.works()
	assert.Check(t, is.Equal(s.version(), "tailcam v1.0.0"))

	do("--erase", "tailcam")
	assert.Check(t, is.Equal(s.read("/etc/tailcam/tailcam.yaml.rpmsave"), ownConfig))
	for _, path := range []string{
		"/etc/tailcam/tailcam.yaml.rpmsave", "/etc/tailcam", "/var/lib/tailcam",
		// Empty, and of the package filesystem where rpm is at home.
		"/usr/share/fish/vendor_completions.d", "/usr/share/fish", "/usr/share/licenses", "/usr/share/zsh/site-functions",
	} {
		assert.NilError(t, os.Remove(s.dir+path))
	}
	assert.Check(t, is.Equal(s.files(), before), "erase left something, or took too much")
}
