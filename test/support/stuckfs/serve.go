package stuckfs

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// role makes a test program serve the file system, by its name of itself.
const role = "tailcam-stuckfs"

// mountPoint is hidden by the file system from its own namespace alone.
const mountPoint = "/media"

// What the child is told, and what it answers; all else is why it cannot.
const (
	hang   = "hang"
	answer = "answer"
	done   = "done"
)

// Every test program with this package in it can be the child.
func init() {
	if os.Args[0] == role {
		if err := serve(os.Args[1], os.Args[2]); err != nil {
			fmt.Println(err) // whoever waits for an answer
		}
		os.Exit(0)
	}
}

// served is a file system that takes orders.
type served interface {
	fuse.RawFileSystem
	order(words []string) error
}

// serve ends when its standard input does. The mount goes with its namespace,
// and who has the file open or waits for it gets an error then.
func serve(name, source string) error {
	f, err := newServed(name, source)
	if err != nil {
		return err
	}
	server, err := fuse.NewServer(f, mountPoint, &fuse.MountOptions{
		DirectMountStrict: true, FsName: "stuck", Name: role, AllowOther: true, MaxReadAhead: 4096,
	})
	if err != nil {
		return fmt.Errorf("no FUSE here (try modprobe fuse): %w", err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return err
	}
	fmt.Println(done)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println(done) {
		if err := f.order(strings.Fields(in.Text())); err != nil {
			return err
		}
	}
	return nil
}

// newServed is the file system of one file, or without its name the mirror of a directory.
func newServed(name, source string) (served, error) {
	if name == "" {
		return newMirror(source)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	f := &files{RawFileSystem: fuse.NewDefaultRawFileSystem(), name: name, text: text, answers: make(chan struct{})}
	close(f.answers)
	return f, nil
}

// node is the number of the only file.
const node = 2

// files is the file system of one file.
type files struct {
	fuse.RawFileSystem
	name string
	text []byte

	mu      sync.Mutex
	answers chan struct{} // closed while reads are answered
}

func (f *files) order(words []string) error {
	switch strings.Join(words, " ") {
	case hang:
		f.hang()
	case answer:
		f.answer()
	default:
		return fmt.Errorf("unknown order %q", words)
	}
	return nil
}

func (f *files) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answering() {
		f.answers = make(chan struct{})
	}
}

func (f *files) answer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.answering() {
		close(f.answers)
	}
}

func (f *files) answering() bool {
	select {
	case <-f.answers:
		return true
	default:
		return false
	}
}

// Lookup implements fuse.RawFileSystem.
func (f *files) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if name != f.name {
		return fuse.ENOENT
	}
	out.NodeId = node
	f.attributes(&out.Attr)
	return fuse.OK
}

func (f *files) attributes(a *fuse.Attr) {
	a.Ino, a.Mode, a.Nlink, a.Size = node, syscall.S_IFREG|0o755, 1, uint64(len(f.text))
}

// GetAttr implements fuse.RawFileSystem.
func (f *files) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == node {
		f.attributes(&out.Attr)
	} else {
		out.Ino, out.Mode, out.Nlink = in.NodeId, syscall.S_IFDIR|0o755, 2
	}
	return fuse.OK
}

// Open implements fuse.RawFileSystem.
func (f *files) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.Fh = 1
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE // else each open takes from programs what they run
	return fuse.OK
}

// Read implements fuse.RawFileSystem.
func (f *files) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	f.mu.Lock()
	answers := f.answers
	f.mu.Unlock()
	<-answers
	from := min(in.Offset, uint64(len(f.text)))
	return fuse.ReadResultData(f.text[from:min(from+uint64(in.Size), uint64(len(f.text)))]), fuse.OK
}
