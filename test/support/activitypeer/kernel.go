package activitypeer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/api"
)

// Kernel is the daemon's socket of activities with the real kernel side, and without the rest of
// a daemon.
type Kernel struct {
	*activities.Activities
	Path string // of the socket, which is for everybody

	mu   sync.Mutex
	maps []ebpf.MapID
}

// StartKernel starts one, which ends with the test; groups: none are those that are on by
// default. Needs root.
func StartKernel(t testing.TB, groups ...string) *Kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	kernel, err := activities.New(&activities.Options{Groups: groups})
	assert.NilError(t, err)
	dir := t.TempDir()
	assert.NilError(t, os.Chmod(filepath.Dir(dir), 0o755)) // other users may come here
	k := &Kernel{Activities: kernel, Path: filepath.Join(dir, "s")}
	socket, err := api.Listen(&api.ListenOptions{Path: k.Path, Public: true})
	assert.NilError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.ServeActivities(ctx, socket, k, nil) }()
	t.Cleanup(func() {
		stop()
		assert.Check(t, <-served)
		assert.Check(t, socket.Close())
		assert.Check(t, kernel.Close())
	})
	return k
}

// OpenActivities implements api.Opener.
func (k *Kernel) OpenActivities(o *activities.Opening) (api.OpenedActivities, error) {
	p, err := k.Open(o)
	if err != nil {
		return nil, err
	}
	err = p.Descriptors(func(fds []int) error { return errors.Join(k.note(fds[0]), k.note(fds[1])) })
	if err != nil {
		p.Close()
		return nil, err
	}
	return deaf{p}, nil
}

// note remembers a map.
func (k *Kernel) note(fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m, err := ebpf.NewMapFromFD(own)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it was only asked
	info, err := m.Info()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	id, _ := info.ID() // 4.13
	k.maps = append(k.maps, id)
	return nil
}

// Maps are those of all processes that have opened so far.
func (k *Kernel) Maps() []ebpf.MapID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.maps)
}

// deaf ignores messages.
type deaf struct{ *activities.Process }

// Slow implements api.OpenedActivities.
func (deaf) Slow(uint32) {}
