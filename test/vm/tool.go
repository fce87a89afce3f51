package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// dirs is where everything lies, all below the ignored out/.
type dirs struct {
	root    string // of the repository
	kernels string // the cache; worth keeping between runs of a CI
	apt     string // lists of other archives than this machine's
	build   string // binaries for the guests
	logs    string // of the last run, a directory a kernel
}

func layout(root string) dirs {
	out := filepath.Join(root, "out", "vm")
	return dirs{
		root:    root,
		kernels: filepath.Join(out, "kernels"),
		apt:     filepath.Join(out, "apt"),
		build:   filepath.Join(out, "build"),
		logs:    filepath.Join(out, "logs"),
	}
}

// lock keeps a second run out until the returned function is called, or this
// process ends.
func (d dirs) lock() (unlock func(), err error) {
	file := filepath.Join(filepath.Dir(d.kernels), "lock")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w: another run is in progress; wait for it", file, err)
	}
	return func() { f.Close() }, nil
}

// create makes the directories, and removes what an earlier run left half done.
func (d dirs) create() error {
	for _, dir := range []string{d.build, d.logs} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	half, _ := filepath.Glob(filepath.Join(d.kernels, ".new-*"))
	others, _ := filepath.Glob(filepath.Join(d.kernels, "*", ".new-*"))
	for _, dir := range append(half, others...) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{d.kernels, d.apt, d.build, d.logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// needTools says at once what is missing, and which Debian package has it.
func needTools(opts *options) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the compilers for the guests are those of an x86-64 machine, this is %s", runtime.GOARCH)
	}
	wanted := []tool{
		{"apt-get", "apt (a Debian system, for its kernels)"}, {"dpkg", "dpkg"}, {"xz", "xz-utils"}, {"go", "golang-go, or from go.dev/dl"},
	}
	for _, a := range arches(opts.kernels) {
		wanted = append(wanted, a.qemu, a.cc)
	}
	var missing []string
	for _, t := range wanted {
		if _, err := exec.LookPath(t.name); err != nil {
			missing = append(missing, t.name+": apt-get install "+t.pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing tools:\n  %s", strings.Join(missing, "\n  "))
	}
	for _, host := range opts.files {
		if _, err := os.Stat(host); err != nil {
			return fmt.Errorf("-file: %w", err)
		}
	}
	return nil
}

// command prepares a child that dies with this process, also when that is
// killed. The caller must stay on its thread until the child has ended: the
// kernel takes the death of the starting thread for that of the process.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// output runs a tool and returns what it prints. Errors carry its messages.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	cmd := command(ctx, dir, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
