package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountAll mounts the file systems that tests rely on.
func mountAll() error {
	for _, m := range []struct{ kind, dir, data string }{
		{"devtmpfs", "/dev", ""},
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"bpf", "/sys/fs/bpf", ""},
		{"tracefs", "/sys/kernel/tracing", ""},
	} {
		// Those below /sys exist already, and cannot be made.
		if _, err := os.Stat(m.dir); err != nil {
			if err := os.MkdirAll(m.dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.dir, err)
		}
	}
	return nil
}
