package inject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// childTimeout is what a child gets on top of the delay that it was asked for.
const childTimeout = 5 * time.Second

// child is a process of ours at the other end of two pipes.
type child struct {
	role string
	proc *os.Process
	in   *os.File // to its standard input: it leaves when this is closed
	out  *os.File
	wire *wire
	done chan struct{} // closed when it is gone
}

// startChild runs this executable again in a role. ownMounts gives it a mount
// namespace of its own, in which nothing propagates back: its mounts vanish
// with its last process, however that ends.
func startChild(role string, ownMounts bool) (*child, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	defer childIn.Close() // the child has its own
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close() // nothing was written
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	defer childOut.Close() // the child has its own

	attr := &os.ProcAttr{
		Env:   childEnv(os.Environ()),
		Files: []*os.File{childIn, childOut, os.Stderr},
		Sys:   &syscall.SysProcAttr{},
	}
	if ownMounts {
		attr.Sys.Unshareflags = syscall.CLONE_NEWNS
	}
	proc, err := os.StartProcess("/proc/self/exe", []string{"tailcam", Verb, role}, attr)
	if err != nil {
		in.Close()  // nothing was written
		out.Close() // nothing was read
		if errors.Is(err, syscall.EPERM) {
			return nil, fmt.Errorf("start %s: %w (run as root: CAP_SYS_ADMIN is needed for a mount namespace)", role, err)
		}
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c := &child{role: role, proc: proc, in: in, out: out, wire: newWire(out, in), done: make(chan struct{})}
	go func() {
		// only that it is gone matters
		_, _ = proc.Wait()
		close(c.done)
	}()
	return c, nil
}

// childEnv keeps Go's runtime from waking, preempting or stopping threads.
func childEnv(env []string) []string {
	var kept []string
	for _, e := range env {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOCOVERDIR":
		default:
			kept = append(kept, e)
		}
	}
	return append(kept, "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=4")
}

// ask sends an order and waits for its answer, at most wait and only as long
// as ctx lives. After an error the child must not be asked again.
func (c *child) ask(ctx context.Context, order message, wait time.Duration) (message, error) {
	told := c.tell(order)
	// A child that could not start has left its reason on the way out.
	m, err := c.answer(ctx, wait)
	if err == nil && told != nil {
		err = told
	}
	return m, err
}

func (c *child) tell(order message) error {
	if err := c.wire.send(order); err != nil {
		return fmt.Errorf("%s: %w", c.role, err)
	}
	return nil
}

func (c *child) answer(ctx context.Context, wait time.Duration) (message, error) {
	if err := c.out.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return message{}, fmt.Errorf("%s: %w", c.role, err)
	}
	stop := context.AfterFunc(ctx, func() {
		// at worst the deadline above ends the wait
		_ = c.out.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	m, err := c.wire.receive()
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return m, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return m, fmt.Errorf("%s: no answer within %v", c.role, wait)
	case errors.Is(err, io.EOF):
		return m, fmt.Errorf("%s: ended unexpectedly", c.role)
	}
	return m, fmt.Errorf("%s: %w", c.role, err)
}

// leave asks the child to end; gone waits for it.
func (c *child) leave() {
	c.in.Close() // closing is the message
}

// gone waits until the child has ended, and kills it if it does not.
func (c *child) gone() error {
	defer c.out.Close() // nothing more to read
	select {
	case <-c.done:
		return nil
	case <-time.After(childTimeout):
	}
	// it may have ended just now
	_ = c.proc.Kill()
	select {
	case <-c.done:
		return nil
	case <-time.After(childTimeout):
		return fmt.Errorf("%s: process %d does not end even when killed", c.role, c.proc.Pid)
	}
}
