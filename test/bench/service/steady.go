package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// steady is a client that goes on, so that parts of a second can be compared.
type steady interface {
	// mark begins a window, and ends the one before.
	mark() error
	// end ends the client, and has each window between two marks.
	end() ([]window, error)
}

// window is what a client did between two marks.
type window struct {
	ns   float64   // of a request
	took []float64 // of those whose latencies are told
}

// goesOn is a load that can be asked for a client that goes on.
type goesOn interface {
	goOn(ctx context.Context) (steady, error)
}

// counted is a client whose requests are counted by whom they are made to.
type counted struct {
	client interface{ stop() error }
	count  func() (float64, error)
	conn   io.Closer // over which it is asked; nil: over none that stays
	asker  *asker    // one more client, which sees latencies; nil: there is none
	at     []time.Time
	done   []float64
}

func (c *counted) mark() error {
	n, err := c.count()
	c.at, c.done = append(c.at, time.Now()), append(c.done, n)
	return err
}

func (c *counted) end() (list []window, err error) {
	took := make([][]float64, len(c.at)+1)
	if c.asker != nil {
		asked, askErr := c.asker.end()
		err = askErr
		took = between(c.at, asked)
	}
	for i := 1; i < len(c.at); i++ {
		n := c.done[i] - c.done[i-1]
		if n <= 0 && i%2 == 1 { // every second window lies between two that are measured
			err = errors.Join(err, errors.New("nothing was asked of it for a while"))
		}
		list = append(list, window{float64(c.at[i].Sub(c.at[i-1]).Nanoseconds()) / n, took[i]})
	}
	return list, errors.Join(err, c.stop())
}

func (c *counted) stop() error {
	err := c.client.stop()
	if c.conn != nil {
		err = errors.Join(err, c.conn.Close())
	}
	return err
}

// asked adds an asker to a client.
func asked(c *counted, port int, request string, on place) (s steady, err error) {
	if c.asker, err = ask(port, request, on); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// between has what requests took that ended before the first of these moments, between each two, and after the last.
func between(at []time.Time, list []transaction) [][]float64 {
	took := make([][]float64, len(at)+1)
	for _, t := range list {
		i, _ := slices.BinarySearchFunc(at, t.end, time.Time.Compare)
		took[i] = append(took[i], t.took)
	}
	return took
}

// started is a process that is ready as soon as it runs.
func started(*server) error { return nil }

func (r *redis) goOn(ctx context.Context) (steady, error) {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.port))
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	count := func() (float64, error) {
		if _, err := io.WriteString(conn, "INFO stats\r\n"); err != nil {
			return 0, err
		}
		head, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
		if err != nil {
			return 0, fmt.Errorf("redis answered %q to INFO", head)
		}
		text := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(in, text); err != nil {
			return 0, err
		}
		return numberAfter(text, "total_commands_processed:")
	}
	s, err := r.client.serve(ctx, nil, started, "redis-benchmark", "-h", "127.0.0.1", "-p", strconv.Itoa(r.port), "-t", "get",
		"-c", "20", "-n", "2000000000", "-q")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return asked(&counted{client: s, count: count, conn: conn}, r.port, "GET key:__rand_int__\r\n", r.client)
}

func (n *nginx) goOn(ctx context.Context) (steady, error) {
	count := func() (float64, error) {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", n.port, nginxStatus))
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return 0, err
		}
		f := strings.Fields(string(text)) // ... accepts handled requests N N N ...
		for i := range f {
			if f[i] == "requests" && i+3 < len(f) {
				return strconv.ParseFloat(f[i+3], 64)
			}
		}
		return 0, fmt.Errorf("nginx answered %q", text)
	}
	s, err := n.client.serve(ctx, nil, started, "wrk", "-t", "1", "-c", "20", "-d", "3600", fmt.Sprintf("http://127.0.0.1:%d/", n.port))
	if err != nil {
		return nil, err
	}
	return asked(&counted{client: s, count: count}, n.port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", n.client)
}

// numberAfter is what follows a word in a text.
func numberAfter(text []byte, word string) (float64, error) {
	_, rest, ok := bytes.Cut(text, []byte(word))
	f := bytes.Fields(rest)
	if !ok || len(f) == 0 {
		return 0, fmt.Errorf("there is no %q in %q", word, text)
	}
	return strconv.ParseFloat(string(f[0]), 64)
}

// logged is a pgbench that logs when each transaction ended, and what it took.
type logged struct {
	client *server
	dir    string
	at     []time.Time
}

func (l *logged) mark() error {
	l.at = append(l.at, time.Now())
	return nil
}

// logDelay is when all is written that pgbench had logged: it keeps some 4 KiB.
const logDelay = 300 * time.Millisecond

func (l *logged) end() (list []window, err error) {
	time.Sleep(logDelay)
	if err := l.client.stop(); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(l.dir, "log.*"))
	if err != nil {
		return nil, err
	}
	var all []transaction
	for _, f := range files {
		some, err := readPgbenchLog(f)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	took := between(l.at, all)
	for i := 1; i < len(l.at); i++ {
		n := len(took[i])
		if n == 0 {
			return nil, fmt.Errorf("pgbench has logged no transaction in window %d of %d: %v", i, len(l.at), l.at[i-1:i+1])
		}
		list = append(list, window{float64(l.at[i].Sub(l.at[i-1]).Nanoseconds()) / float64(n), took[i]})
	}
	return list, os.RemoveAll(l.dir)
}

func (p *postgres) goOn(ctx context.Context) (steady, error) {
	dir, err := os.MkdirTemp(p.dir, "log-")
	if err != nil {
		return nil, err
	}
	args := append(p.connection(), "-S", "-n", "-M", "prepared", "-c", "4", "-j", "2", "-T", "3600",
		"--log", "--log-prefix", filepath.Join(dir, "log"), "postgres")
	s, err := p.client.serve(ctx, nil, started, filepath.Join(p.bin, "pgbench"), args...)
	return &logged{client: s, dir: dir}, err
}

// turns is perf's game of two tasks that wake each other: a round trip is two wake-ups and two switches.
type turns struct {
	messages
	client place
}

func (t *turns) goOn(ctx context.Context) (steady, error) {
	s, err := t.client.serve(ctx, nil, started, "perf", "bench", "sched", "pipe", "-l", "2000000000")
	if err != nil {
		return nil, err
	}
	status := fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)
	return &counted{client: s, count: func() (float64, error) { // it sleeps once in a round trip
		text, err := os.ReadFile(status)
		if err != nil {
			return 0, err
		}
		return numberAfter(text, "\nvoluntary_ctxt_switches:")
	}}, nil
}

// crowd is hackbench.
type crowd struct {
	messages
	client place
}

func (h *crowd) goOn(ctx context.Context) (steady, error) {
	s, err := h.client.serve(ctx, nil, started, "hackbench", "-g", "4", "-P", "-l", "100000000")
	if err != nil {
		return nil, err
	}
	pid := s.cmd.Process.Pid
	children := fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)
	return &counted{client: s, count: func() (sum float64, err error) { // each message is a read
		list, err := os.ReadFile(children)
		if err != nil {
			return 0, err
		}
		for _, child := range strings.Fields(string(list)) {
			io, err := os.ReadFile(fmt.Sprintf("/proc/%s/io", child))
			if err != nil {
				return 0, err
			}
			n, err := numberAfter(io, "syscr:")
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}}, nil
}

// goOn counts the reads of fio, which with threads are those of its process.
func (f *fio) goOn(ctx context.Context) (steady, error) {
	s, err := serve(ctx, nil, started, "fio", append(f.args(3600), "--thread")...)
	if err != nil {
		return nil, err
	}
	io := fmt.Sprintf("/proc/%d/io", s.cmd.Process.Pid)
	return &counted{client: s, count: func() (float64, error) {
		text, err := os.ReadFile(io)
		if err != nil {
			return 0, err
		}
		return numberAfter(text, "syscr:")
	}}, nil
}

// goOn compiles one file again and again, with as many compilers as there are CPUs. What is counted
// are the machine's page faults: a file has thousands, each time the same, and a window few files.
func (c *compile) goOn(ctx context.Context) (steady, error) {
	const loops = `trap 'kill 0' INT; for i in $(seq $0); do (while gcc -O1 -c -o /dev/null "$1"; do :; done) & done; wait`
	s, err := serve(ctx, nil, started, "sh", "-c", loops, strconv.Itoa(runtime.NumCPU()), c.source)
	return &counted{client: s, count: func() (float64, error) {
		text, err := os.ReadFile("/proc/vmstat")
		if err != nil {
			return 0, err
		}
		return numberAfter(text, "\npgfault ")
	}}, err
}

// caller makes system calls until it is stopped.
type caller struct {
	calls atomic.Uint64
	quit  chan struct{}
	ended chan struct{}
}

func (c *caller) stop() error {
	close(c.quit)
	<-c.ended
	return nil
}

func (*getppids) goOn(context.Context) (steady, error) {
	c := &caller{quit: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for {
			select {
			case <-c.quit:
				return
			default:
				c.calls.Add(someCalls)
				getppid()
			}
		}
	}()
	return &counted{client: c, count: func() (float64, error) { return float64(c.calls.Load()), nil }}, nil
}
