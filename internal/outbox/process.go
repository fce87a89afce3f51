package outbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
)

// Times of the daemon's side of a sender.
const (
	stopTime     = time.Second      // to end by itself, and then to be killed
	restartPause = time.Second      // after a sender that died, at first
	longestRest  = time.Minute      // and after many
	steady       = 10 * time.Minute // a sender that has lived for so long has not died at once
)

// inherited are the variables that a sender gets: credentials of S3, proxies,
// certificates.
var inherited = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY", "AWS_SECRET_KEY",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// process is a running sender.
type process struct {
	proc    *os.Process
	in      *os.File
	reports chan report
	ended   chan struct{} // closed when the process has ended
	said    chan string   // the beginning of what it wrote to standard error, at the end
}

// start starts a sender, which ends with its standard input.
func (o *Outbox) start() (*process, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%w (closing: %w)", err, in.Close())
	}
	defer childOut.Close()
	said, childErr, err := os.Pipe() // not the daemon's, which a sender that hangs would keep open
	if err != nil {
		return nil, fmt.Errorf("%w (closing: %w)", err, errors.Join(in.Close(), out.Close()))
	}
	defer childErr.Close()
	env := []string{"GOMAXPROCS=2"}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	proc, err := os.StartProcess(o.opts.Executable, []string{"tailcam", Verb}, &os.ProcAttr{
		Dir: "/", Env: env, Files: []*os.File{childIn, childOut, childErr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_, _, _ = in.Close(), out.Close(), said.Close()
		return nil, fmt.Errorf("start the sender: %w", err)
	}
	o.pid.Store(int64(proc.Pid))
	p := &process{proc: proc, in: in, reports: make(chan report), ended: make(chan struct{}), said: make(chan string, 1)}
	go func() {
		if state, err := proc.Wait(); err == nil {
			o.pid.Store(0)
			o.opts.Counts.cpu.Add(int64(state.UserTime() + state.SystemTime()))
		}
		close(p.ended)
	}()
	go p.read(out)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(said, maxError))
		p.said <- string(text)
		_, _ = io.Copy(io.Discard, said)
		_ = said.Close()
	}()
	line, err := json.Marshal(o.opts.job())
	if err == nil {
		err = p.write(append(line, '\n'))
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start the sender: %w", err)
	}
	return p, nil
}

// write never waits for a sender that hangs.
func (p *process) write(b []byte) error {
	_ = p.in.SetWriteDeadline(time.Now().Add(stopTime))
	_, err := p.in.Write(b)
	return err
}

// read decodes reports until the sender closes its output, or says what it cannot mean.
func (p *process) read(out *os.File) {
	defer close(p.reports)
	defer out.Close()
	lines := bufio.NewScanner(io.Reader(out))
	lines.Buffer(make([]byte, 0, maxReport), maxReport)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil || len(r.Error) > maxReport || r.Bytes < 0 || r.Pause < 0 {
			return
		}
		select {
		case p.reports <- r:
		case <-p.ended:
			return
		}
	}
}

// stop ends a sender, and leaves behind one that the kernel does not let go.
func (p *process) stop() {
	_ = p.in.Close()
	for _, kill := range []bool{false, true} {
		if kill {
			_ = p.proc.Kill()
		}
		timer := time.NewTimer(stopTime)
		select {
		case <-p.ended:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// death is why a sender has closed its output.
func (p *process) death() error {
	select {
	case text := <-p.said:
		if line, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); line != "" {
			return fmt.Errorf("%w: %s", errEnded, clean(line))
		}
	case <-time.After(stopTime):
	}
	return errEnded
}

// supervise keeps one sender running until ctx is done.
func (o *Outbox) supervise(ctx context.Context) {
	pause := restartPause
	for ctx.Err() == nil {
		began := time.Now()
		p, err := o.start()
		if err == nil {
			err = o.follow(ctx, p)
			p.stop()
			if hangs(p) {
				o.setState(StateHangs, "")
				o.log.Warn("the sender hangs in the kernel, and goes on when it is released")
				select {
				case <-p.ended: // one that hangs is enough
				case <-ctx.Done():
				}
			}
		}
		if ctx.Err() != nil {
			return
		}
		o.setState(StateFailed, err.Error())
		o.log.Warn("start the sender again", zap.Error(err), zap.Duration("in", pause))
		if time.Since(began) > steady {
			pause = restartPause
		}
		wait(ctx, pause)
		pause = min(2*pause, longestRest)
		_ = o.opts.Guard.Do(guard.Upload, func() error { o.reconcile(); return nil }) // logs its errors
	}
}

func hangs(p *process) bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// wait waits, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// follow counts what a sender reports, until it ends or hangs.
func (o *Outbox) follow(ctx context.Context, p *process) error {
	o.setState(StateSending, "")
	limit := 2 * o.opts.Stall
	silent := time.NewTimer(limit)
	defer silent.Stop()
	idle := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.more:
			if err := p.write([]byte{'\n'}); err != nil {
				return fmt.Errorf("the sender reads nothing: %w", err)
			}
			if idle { // it has something to do again
				idle = false
				silent.Reset(limit)
			}
		case <-silent.C:
			return fmt.Errorf("the sender has not made any progress for %s: the target, or the disk of the spool, may hang", limit)
		case r, ok := <-p.reports:
			if !ok {
				return p.death()
			}
			silent.Stop()
			if idle = r.Idle; !idle {
				silent.Reset(limit + r.Pause)
			}
			o.count(&r)
		}
	}
}

// clean makes a text from a sender fit for a log.
func clean(s string) string { return short(strings.TrimSpace(s)) }
