package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/test/support/child"
)

// roleVar makes this test program a client, or a server, of its own.
const roleVar = "TAILCAM_TEST_API_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "hoard":
		hoard(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	case "starved":
		starved(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// hoard becomes a user, opens so many connections, sends a (quoted) text on each,
// and keeps those that stay open: it prints how many these are, and ends with its
// standard input.
func hoard(user, path, many, quoted string) {
	uid, err := strconv.Atoi(user)
	if err == nil {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid))
	}
	if err != nil {
		panic(err)
	}
	n, _ := strconv.Atoi(many)
	send, err := strconv.Unquote(quoted)
	if err != nil {
		panic(err)
	}
	var open []net.Conn
	for range n {
		c, err := net.Dial("unix", path)
		if err != nil {
			continue
		}
		if _, err := io.WriteString(c, send); err != nil {
			c.Close()
			continue
		}
		open = append(open, c)
	}
	patience := 10 * time.Second
	if n > 1 {
		time.Sleep(refusalTime + 300*time.Millisecond) // those that are refused are closed
		patience = time.Millisecond
	}
	var answered []net.Conn
	for fewer := true; fewer; { // a slow server has not refused all yet
		before := len(open)
		open = slices.DeleteFunc(open, func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			b := make([]byte, 12)
			n, err := io.ReadFull(c, b)
			if err == nil && strings.HasSuffix(string(b[:n]), "200") {
				answered = append(answered, c)
				return true
			}
			return !errors.Is(err, os.ErrDeadlineExceeded)
		})
		if fewer = n > 1 && len(open) < before && len(open) > 0; fewer {
			time.Sleep(time.Second)
		}
	}
	fmt.Println(len(answered) + len(open))
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive([][]net.Conn{answered, open})
}

// hoarder runs hoard as a user, until the test ends. It returns how many
// connections that user has.
func hoarder(t *testing.T, uid int, path string, many int, send string) (kept int, stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], strconv.Itoa(uid), path, strconv.Itoa(many), strconv.Quote(send))
	cmd.Env = append(os.Environ(), roleVar+"=hoard")
	p := child.Talk(t, cmd)
	kept, err := strconv.Atoi(p.Line())
	assert.NilError(t, err)
	return kept, func() { _ = p.End() }
}

// public lets every user connect to a server's socket.
func public(t *testing.T, c *Client) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be several users")
	}
	for path := c.path; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		assert.NilError(t, os.Chmod(path, 0o777))
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	return len(list)
}

const asks = "GET /v1/rules HTTP/1.1\r\nHost: x\r\n\r\n"

// Whatever users leave open, others get in, root does, and the descriptors of
// the daemon are bounded.
func TestConnectionsOfUsers(t *testing.T) {
	for name, send := range map[string]string{
		"nothing sent":    "",
		"half a header":   "GET /v1/status HTT",
		"no body":         "POST /v1/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"unwanted body":   "GET /v1/rules HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"never reads":     strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 100),
		"event stream":    "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"two requests":    "GET /v1/rules HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/ru",
		"no HTTP at all":  "\x00\x01\x02\r\n\r\n",
		"an endless line": strings.Repeat("a", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, newFake())
			public(t, c)
			before := descriptors(t)
			n, _ := hoarder(t, 70001, c.path, 2000, send)
			assert.Check(t, n <= (maxConns-reservedConns)/2+maxRefusals,
				"one user has %d connections", n) // some may be about to be refused
			if name == "nothing sent" {
				hoarder(t, 70002, c.path, 2000, send)
			}
			n, _ = hoarder(t, 70003, c.path, 1, asks)
			assert.Check(t, n == 1, "a third user does not get in")
			_, err := c.Status(t.Context())
			assert.Check(t, err, "root does not get in")
			n = descriptors(t) - before
			assert.Check(t, n <= maxConns+maxRefusals+20, "%d descriptors more than before", n)
		})
	}
}

// A user over his share is told why, and is in again once he has closed some.
func TestConnectionRefused(t *testing.T) {
	c, _ := serve(t, newFake())
	public(t, c)
	_, stop := hoarder(t, 70001, c.path, 300, "")
	n, _ := hoarder(t, 70001, c.path, 1, asks)
	assert.Check(t, n == 0, "one more got in")
	s, err := c.Status(t.Context())
	assert.NilError(t, err)
	refused := uint64(0)
	for _, l := range s.Losses {
		if l.Cause == "connection_refused" {
			refused = l.Count
		}
	}
	assert.Check(t, refused >= 200, "%d connections refused", refused)
	stop()
	for end := time.Now().Add(30 * time.Second); ; {
		n, again := hoarder(t, 70001, c.path, 1, asks)
		again()
		if n == 1 {
			break
		}
		assert.Assert(t, !time.Now().After(end), "still refused")
	}
}

// What a user is told who has too many connections.
func TestRefusal(t *testing.T) {
	ours, theirs := net.Pipe()
	go refuse(ours, 7)
	go io.WriteString(theirs, "GET / HTTP/1.1\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(theirs), nil)
	assert.NilError(t, err)
	var f failure
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || resp.StatusCode != http.StatusServiceUnavailable ||
		!strings.HasPrefix(f.Error, "too many connections of user 7") {
		t.Errorf("%s: %+v, %v", resp.Status, f, err)
	}
}

func TestQuota(t *testing.T) {
	q := newQuota(64, 16)
	fill := func(uid uint32) (n int) {
		for q.take(uid) {
			n++
		}
		return n
	}
	for i, want := range []int{24, 12, 6, 3} {
		assert.Check(t, is.Equal(fill(uint32(100000+i)), want), "user %d gets", i)
	}
	n := fill(0)
	assert.Check(t, n == 64-45, "root gets %d", n)
	assert.Check(t, q.refused.Load() == 5, "%d refused", q.refused.Load())
	for i, had := range []int{24, 12, 6, 3} {
		for range had {
			q.release(uint32(100000 + i))
		}
	}
	for range 19 {
		q.release(0)
	}
	assert.Check(t, q.used == 0 && q.root == 0 && len(q.by) == 0, "left: %+v", q)
}

// panicking panics where it is asked for what a mistake in it would make it.
type panicking struct{ *fake }

func (p panicking) Rules() []RuleInfo { panic("of a rule") }

// A request that makes the daemon panic costs that request.
func TestRequestPanics(t *testing.T) {
	socket, err := Listen(&ListenOptions{Path: socketPath(t)})
	assert.NilError(t, err)
	defer socket.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	g := guard.New(zap.NewNop())
	go func() { done <- Serve(ctx, socket, panicking{newFake()}, &ServeOptions{Guard: g}) }()
	c := NewClient(socket.Path)
	_, err = c.Rules(ctx)
	assert.Check(t, is.ErrorContains(err, "the daemon panicked"))
	_, err = c.Snapshots(ctx)
	assert.Check(t, err, "the next request")
	for _, p := range g.Counts() {
		assert.Check(t, p.Place != "request" || p.Count == 1, "%d panics", p.Count)
	}
	cancel()
	assert.Check(t, <-done)
}

// starved serves with few descriptors, and prints so.
func starved(path string) {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
		panic(err)
	}
	socket, err := Listen(&ListenOptions{Path: path})
	if err != nil {
		panic(err)
	}
	fmt.Println("serves")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := Serve(ctx, socket, newFake(), nil); err != nil {
		panic(err)
	}
	socket.Close()
}

// Where descriptors are used up, the server neither ends nor spins, and serves
// again once there are some.
func TestNoDescriptorsLeft(t *testing.T) {
	path := socketPath(t)
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), roleVar+"=starved")
	p := child.Talk(t, cmd)
	p.Line()
	var open []net.Conn
	for range 200 {
		c, err := net.Dial("unix", path)
		assert.NilError(t, err)
		defer c.Close()
		open = append(open, c)
	}
	time.Sleep(time.Second)
	for _, c := range open {
		c.Close()
	}
	c := NewClient(path)
	defer c.Close()
	_, err := c.Rules(t.Context())
	assert.Check(t, err, "after it")
	assert.Check(t, p.End(), "the server ended")
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	assert.Check(t, used <= 800*time.Millisecond, "it used %s of CPU", used)
}
