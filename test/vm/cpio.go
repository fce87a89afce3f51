package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Types and permissions of cpio entries, as in a file's mode.
const (
	modeDir  = 0o040000
	modeChar = 0o020000
	modeFile = 0o100000
)

// cpioWriter writes an initramfs: the "newc" format of cpio, which the kernel
// unpacks. Parents of entries are made where they are missing.
type cpioWriter struct {
	w     io.Writer
	inode int
	dirs  map[string]bool
	err   error // the first; all later calls do nothing
}

func newCPIOWriter(w io.Writer) *cpioWriter {
	return &cpioWriter{w: w, dirs: map[string]bool{".": true}}
}

// dir adds a directory.
func (c *cpioWriter) dir(name string) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if name == "" || c.dirs[name] {
		return
	}
	c.parent(name)
	c.dirs[name] = true
	c.entry(name, modeDir|0o755, 0, 0, nil)
}

// file adds a file with the given permissions.
func (c *cpioWriter) file(name string, perm uint32, data []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	c.parent(name)
	c.entry(name, modeFile|perm, 0, 0, data)
}

// device adds a character device.
func (c *cpioWriter) device(name string, major, minor int) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	c.parent(name)
	c.entry(name, modeChar|0o600, major, minor, nil)
}

// close writes the end of the archive.
func (c *cpioWriter) close() error {
	c.entry("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}

func (c *cpioWriter) parent(name string) { c.dir(path.Dir(name)) }

// entry writes a header of 13 hexadecimal numbers, the name with its zero, and
// the data; both padded to a multiple of 4.
func (c *cpioWriter) entry(name string, mode uint32, major, minor int, data []byte) {
	if c.err != nil {
		return
	}
	if uint64(len(data)) > 0xffffffff {
		c.err = errors.New("initramfs: file too large: " + name)
		return
	}
	c.inode++
	header := "070701"
	for _, field := range []int{
		c.inode, int(mode), 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name) + 1, 0,
	} {
		header += fmt.Sprintf("%08x", field)
	}
	c.write([]byte(header + name + "\x00" + padding(len(header)+len(name)+1)))
	c.write(data)
	c.write([]byte(padding(len(data))))
}

func (c *cpioWriter) write(p []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(p)
	}
}

// padding fills up to a multiple of 4.
func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }
