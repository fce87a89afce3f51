// Package leftovers lists what tailcam has left on a machine.
package leftovers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/tracker/pins"
)

// Item is one thing that is there. The JSON form is stable; fields are only added.
type Item struct {
	Kind string `json:"kind"` // daemon, pin, program, socket, state
	What string `json:"what"`
	Do   string `json:"do"` // what removes it
}

// Find lists what is there for a configuration. Programs are listed with CAP_SYS_ADMIN
// alone; without, the error says so, and the rest is listed.
func Find(cfg *config.Config) ([]Item, error) {
	var list []Item
	pid := api.Holder(cfg.Socket.Path)
	if pid != 0 {
		list = append(list, Item{"daemon", fmt.Sprintf("process %d", pid), "systemctl disable --now tailcam, or end the process"})
	}
	list = append(list, pinned(PinDir(cfg))...)
	programs, err := loaded()
	list = append(list, programs...)
	for _, path := range []string{cfg.Socket.Path, cfg.Socket.Path + ".lock"} {
		if exists(path) {
			list = append(list, Item{"socket", path, "rm " + path})
		}
	}
	if dir := cfg.Snapshots.Dir; exists(dir) {
		list = append(list, Item{"state", dir, "rm -r " + dir + " (it has the snapshots)"})
	}
	return list, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// PinDir is the directory of pins: that of the configuration, or else the usual one.
func PinDir(cfg *config.Config) string {
	if filepath.IsAbs(cfg.Pin) {
		return cfg.Pin
	}
	return config.DefaultPinDir
}

func pinned(dir string) []Item {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // most have none; the programs in one that cannot be read are listed
	}
	what := dir
	if len(entries) > 0 {
		what = fmt.Sprintf("%s: %d objects", dir, len(entries))
	}
	return []Item{{"pin", what, "tailcam uninstall-check --unpin"}}
}

// Unpin removes the pins of a directory, which detaches their programs; a daemon must not
// be using it. It reports whether there were any.
func Unpin(dir string) (bool, error) {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	s, err := pins.OpenDir(dir)
	if err != nil {
		return false, err
	}
	return true, errors.Join(pins.Clear(s), s.Close())
}

// ringMap is a map that each main object has, and nobody else.
const ringMap = "record_rings"

// loaded lists the programs of tailcam that the kernel has, whoever holds them.
func loaded() ([]Item, error) {
	spec, err := bpf.LoadTailcam()
	if err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	var names []string
	for name := range spec.Programs {
		names = append(names, name[:min(len(name), objectName)])
	}
	var found []string
	for id := ebpf.ProgramID(0); ; {
		id, err = ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("list the BPF programs of this machine: %w (run as root)", err)
		}
		if name := nameOf(id); slices.Contains(names, name) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	slices.Sort(found)
	return []Item{{"program", fmt.Sprintf("%d BPF programs: %s", len(found), strings.Join(slices.Compact(found), ", ")),
		"stop the daemon, remove the pins"}}, nil
}

// objectName is the length that the kernel cuts names to (BPF_OBJ_NAME_LEN, less a NUL).
const objectName = 15

// nameOf is the name of a program that works on the recorder's rings; empty: it is
// another one, or gone.
func nameOf(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close() //nolint:errcheck // only looked at
	info, err := p.Info()
	if err != nil {
		return ""
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		mapInfo, err := m.Info()
		_ = m.Close() // only looked at
		if err == nil && mapInfo.Name == ringMap {
			return info.Name
		}
	}
	return ""
}
