package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// archive is where packages of another release or architecture than this
// machine's come from. It has lists of its own below out/vm, so that nothing of
// this machine's apt changes, and no root is needed.
type archive struct {
	name    string // of its directory
	arch    string
	sources []string // lines of sources.list without their first word and options
}

var (
	bookwormARM = &archive{"bookworm-arm64", "arm64", []string{
		"http://deb.debian.org/debian bookworm main",
		"http://deb.debian.org/debian-security bookworm-security main",
	}}
	sid = &archive{"sid-amd64", "amd64", []string{"http://deb.debian.org/debian sid main"}}
)

const (
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	// listsAge is how old lists may be.
	listsAge = 12 * time.Hour
)

// apt runs tools of apt for an archive; nil stands for that of this machine.
type apt struct {
	*archive
	dir string // of the archives
}

// output runs a tool of apt and returns what it prints.
func (a apt) output(ctx context.Context, dir, name string, args ...string) (string, error) {
	if a.archive == nil {
		return output(ctx, dir, name, args...)
	}
	return output(ctx, dir, "env", append([]string{"APT_CONFIG=" + a.config(), name}, args...)...)
}

func (a apt) root() string   { return filepath.Join(a.dir, a.name) }
func (a apt) config() string { return filepath.Join(a.root(), "apt.conf") }

// update fetches the lists of an archive that has none, or old ones. Those of
// this machine are its administrator's.
func (a apt) update(ctx context.Context) error {
	if a.archive == nil {
		return nil
	}
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.root(), dir), 0o755); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(a.root(), "lock")) // several kernels may come from here
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	stamp := filepath.Join(a.root(), "updated")
	if st, err := os.Stat(stamp); err == nil && time.Since(st.ModTime()) < listsAge {
		return nil
	}
	if err := a.write(); err != nil {
		return err
	}
	if _, err := a.output(ctx, "", "apt-get", "-q", "update"); err != nil {
		return err
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// write writes the configuration.
func (a apt) write() error {
	var sources strings.Builder
	for _, s := range a.sources {
		fmt.Fprintf(&sources, "deb [arch=%s signed-by=%s] %s\n", a.arch, keyring, s)
	}
	status := filepath.Join(a.root(), "status") // no package is installed
	conf := fmt.Sprintf(`APT::Architecture "%[1]s";
APT::Architectures { "%[1]s"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Dir::State "%[2]s/state";
Dir::State::status "%[3]s";
Dir::Cache "%[2]s/cache";
Dir::Etc::sourcelist "%[2]s/sources.list";
Dir::Etc::sourceparts "-";
`, a.arch, a.root(), status)
	for file, text := range map[string]string{
		status: "", a.config(): conf, filepath.Join(a.root(), "sources.list"): sources.String(),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
