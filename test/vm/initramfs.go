package main

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// writeInitramfs writes the root file system of one guest. It is not
// compressed: an emulated CPU takes longer to unpack it than QEMU to load it.
func writeInitramfs(file string, k *kernel, p *payload, cfg *boot.Config) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	buf := bufio.NewWriterSize(f, 1<<20)
	c := newCPIOWriter(buf)

	// Needed before init mounts a devtmpfs.
	c.device("/dev/console", 5, 1)
	c.device("/dev/null", 1, 3)
	for _, dir := range []string{"/proc", "/sys", "/tmp", "/run", "/root", "/var/lib", "/mnt"} {
		c.dir(dir)
	}
	c.file("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	c.file("/etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))

	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	c.file(boot.ConfigPath, 0o644, text)
	for _, m := range k.Modules {
		if err := copyIn(c, m.Path(), filepath.Join(k.dir, m.Name+".ko"), 0o644); err != nil {
			return err
		}
	}
	for _, guest := range slices.Sorted(maps.Keys(p.files)) {
		if err := copyIn(c, guest, p.files[guest], 0o755); err != nil {
			return err
		}
	}
	for _, guest := range slices.Sorted(maps.Keys(p.trees)) {
		c.dir(guest)
		if err := copyTree(c, guest, p.trees[guest]); err != nil {
			return err
		}
	}
	if err := c.close(); err != nil {
		return err
	}
	return buf.Flush()
}

func copyIn(c *cpioWriter, guest, host string, perm uint32) error {
	data, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	c.file(guest, perm, data)
	return c.err
}

// copyTree adds the regular files below a host directory; of "", none.
func copyTree(c *cpioWriter, guest, host string) error {
	if host == "" {
		return nil
	}
	return filepath.WalkDir(host, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(host, file)
		if err != nil {
			return err
		}
		return copyIn(c, path.Join(guest, filepath.ToSlash(rel)), file, 0o755)
	})
}
