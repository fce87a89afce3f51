// Package helper reads files and memory of watched processes for the daemon,
// in processes of their own: those processes and their files are hostile.
//
// The daemon starts its own executable again with [Verb] as first argument, in
// one of these roles:
//
//	parse   parses programs, debug information and perf maps. It has another
//	        user, no capabilities and no system call that opens, connects or
//	        starts anything, and little memory.
//	open    opens the files for a parser and passes the descriptors. It has the
//	        capabilities that this takes, and parses nothing but /proc.
//	read    reads memory: stacks and command lines. It is like open.
//
// Whatever does not answer in time is killed and replaced, and is not waited
// for: it may hang in the kernel.
package helper

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/sandbox"
	"github.com/tailcam/tailcam/internal/symbols"
)

// Verb is the hidden command that makes the program a helper.
const Verb = "helper"

const (
	roleParse = "parse"
	roleOpen  = "open"
	roleRead  = "read"
)

// Descriptors passed to a helper.
const (
	daemonFD = 3 // parse, read: to the daemon; open: to its parser
	openerFD = 4 // parse: to its opener
)

// role is the task of a helper process.
type role struct {
	name   string
	lines  bool  // read source lines as well
	remote bool  // read files on network file systems as well
	memory int64 // limit in bytes
}

func (o role) args() []string {
	return []string{Verb, fmt.Sprintf("-lines=%t", o.lines), fmt.Sprintf("-remote=%t", o.remote), fmt.Sprintf("-memory=%d", o.memory), o.name}
}

const (
	minLargest = 64 << 20 // growth of Go's heap
	codeMemory = 16 << 20 // the program itself, not covered by LimitMemory
)

// largest bounds one allocation, so that the helper stays below its memory limit.
func (o role) largest() int64 { return max(minLargest, o.memory/4) }

// Main must be called by the program with the arguments after [Verb]. It returns the
// exit status.
//
// It serves on another goroutine than the main one, which is bound to its thread (package
// iothread): each message would take two more switches of threads.
func Main(args []string) int {
	served := make(chan error, 1)
	go func() { served <- serve(args) }()
	if err := <-served; err != nil && !errors.Is(err, io.EOF) { // whom it served has exited
		fmt.Fprintln(os.Stderr, err)
		return exitBroken
	}
	return 0
}

func serve(args []string) error {
	var o role
	f := flag.NewFlagSet(Verb, flag.ContinueOnError)
	f.BoolVar(&o.lines, "lines", false, "")
	f.BoolVar(&o.remote, "remote", false, "")
	f.Int64Var(&o.memory, "memory", 256<<20, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.name = f.Arg(0)
	if kind, err := unix.GetsockoptInt(daemonFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return fmt.Errorf("tailcam %s is internal: it is started by the daemon", Verb)
	}
	// The first to be killed when memory runs out.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	if err := sandbox.LimitMemory(o.memory - o.largest() - codeMemory); err != nil {
		return err
	}
	daemon, err := passed(daemonFD)
	if err != nil {
		return err
	}
	switch o.name {
	case roleParse:
		opener, err := passed(openerFD)
		if err != nil {
			return err
		}
		p := newParser(daemon, opener, o)
		hello, err := confinement(sandbox.Enter(sandbox.Parser(o.largest()), 0))
		if err != nil {
			return err
		}
		return p.serve(hello)
	case roleOpen:
		files := symbols.NewOpener(&symbols.OpenerOptions{Local: !o.remote})
		if _, err := confinement(sandbox.Enter(sandbox.Opener(o.largest()), openerCapabilities)); err != nil {
			return err
		}
		return serveOpener(daemon, files)
	case roleRead:
		hello, err := confinement(sandbox.Enter(sandbox.Opener(o.largest()), openerCapabilities))
		if err != nil {
			return err
		}
		return serveReader(daemon, hello)
	}
	return fmt.Errorf("unknown helper role %q; allowed: %s", o.name, strings.Join([]string{roleParse, roleOpen, roleRead}, ", "))
}

// confinement turns a tolerable error into a message for the daemon.
func confinement(err error) (hello string, _ error) {
	if errors.Is(err, sandbox.ErrNoFilter) {
		return err.Error(), nil
	}
	return "", err
}

// openerCapabilities are kept by an opener if the daemon has them.
const openerCapabilities = 1<<sandbox.CapSysPtrace | 1<<sandbox.CapDACReadSearch | 1<<sandbox.CapDACOverride | 1<<sandbox.CapCheckpointRestore
