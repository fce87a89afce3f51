package stuckfs

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// role makes a test program serve the file system, by its name of itself.
const role = "tailcam-stuckfs"

// mountPoint is hidden by the file system from its own namespace alone.
const mountPoint = "/media"

// done is what the child answers; all else is why it cannot.
const done = "done"

// Every test program with this package in it can be the child.
func init() {
	if os.Args[0] == role {
		if err := serve(os.Args[1]); err != nil {
			fmt.Println(err) // whoever waits for an answer
		}
		os.Exit(0)
	}
}

// serve ends when its standard input does. The mount goes with its namespace,
// and who has a file open or waits for it gets an error then.
func serve(dir string) error {
	m, err := newMirror(dir)
	if err != nil {
		return err
	}
	server, err := fuse.NewServer(m, mountPoint, &fuse.MountOptions{
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
		if err := m.order(strings.Fields(in.Text())); err != nil {
			return err
		}
	}
	return nil
}
