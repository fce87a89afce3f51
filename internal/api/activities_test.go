package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/test/support/bpfobjects"
)

// opened is a connection with the maps of this process.
type opened struct {
	*net.UnixConn
	status int
	reply  http.Header
	body   string
	fds    []int
}

func (o *opened) close() {
	o.Close()
	for _, fd := range o.fds {
		_ = unix.Close(fd)
	}
}

// kernelSide opens activities with the kernel side, as a daemon does, and keeps what it is told.
type kernelSide struct {
	*activities.Activities
	told chan uint32
}

func (r *kernelSide) OpenActivities(o *activities.Opening) (OpenedActivities, error) {
	p, err := r.Open(o)
	if err != nil {
		return nil, err
	}
	return &told{p, r.told}, nil
}

type told struct {
	*activities.Process
	to chan<- uint32
}

func (t *told) Slow(token uint32) { t.to <- token }

// openAt asks for maps, as clients do.
func openAt(t *testing.T, path, query, upgrade string) *opened {
	t.Helper()
	conn, err := net.Dial("unix", path)
	assert.NilError(t, err)
	o := &opened{UnixConn: conn.(*net.UnixConn)}
	fmt.Fprintf(o, "POST /v1/activities?%s HTTP/1.1\r\nHost: tailcam\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n", query, upgrade)
	control, text := make([]byte, unix.CmsgSpace(8)), make([]byte, 4096)
	n, controls, _, _, err := o.ReadMsgUnix(text, control)
	assert.NilError(t, err)
	messages, err := syscall.ParseSocketControlMessage(control[:controls])
	assert.NilError(t, err)
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		assert.NilError(t, err)
		o.fds = append(o.fds, fds...)
	}
	pr, pw := net.Pipe()
	go func() { _, _ = pw.Write(text[:n]); pw.Close() }()
	r, err := http.ReadResponse(bufio.NewReader(pr), nil)
	assert.NilError(t, err)
	body, _ := io.ReadAll(r.Body)
	o.status, o.reply, o.body = r.StatusCode, r.Header, string(body)
	return o
}

// eventually waits for what needs some time.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !what(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(end))
	}
}

// refusing refuses all.
type refusing struct{ why error }

func (r refusing) OpenActivities(*activities.Opening) (OpenedActivities, error) { return nil, r.why }

// Clients are told why there are no accounts, in one line.
func TestActivitiesFailed(t *testing.T) {
	for _, why := range []error{ErrActivitiesDisabled, ActivitiesFailed(errors.New("load:\n\tpermission denied"))} {
		path := serveOpener(t, refusing{why})
		o := openAt(t, path, "", ActivitiesUpgrade)
		assert.Check(t, o.status == http.StatusServiceUnavailable, "%d", o.status)
		assert.Check(t, o.body == fmt.Sprintf("{\"error\":%q}\n", why), "%s", o.body)
		o.close()
	}
	assert.Error(t, ActivitiesFailed(errors.New("load:\n\tpermission denied")),
		"activities are enabled, but the daemon could not begin with them: load: permission denied")
}

// serveOpener serves nothing but the opening of activities until the test ends.
func serveOpener(t testing.TB, opener Opener) (path string) {
	t.Helper()
	socket, err := Listen(&ListenOptions{Path: filepath.Join(t.TempDir(), "s"), Public: true})
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ServeActivities(ctx, socket, opener, nil) }()
	t.Cleanup(func() {
		cancel()
		assert.Check(t, <-served)
		assert.Check(t, socket.Close())
	})
	return socket.Path
}

// A process gets its maps, and nothing is left of it when its connection ends.
func TestOpenActivities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	a, err := activities.New(&activities.Options{Groups: []string{"scheduler"}})
	assert.NilError(t, err)
	defer func() { assert.Check(t, a.Close()) }()
	socket, err := Listen(&ListenOptions{Path: filepath.Join(t.TempDir(), "activities", "socket"), Public: true})
	assert.NilError(t, err)
	defer socket.Close()
	opener := &kernelSide{a, make(chan uint32, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- ServeActivities(ctx, socket, opener, nil)
	}()
	for path, mode := range map[string]os.FileMode{socket.Path: 0o666, filepath.Dir(socket.Path): 0o755} {
		info, err := os.Stat(path)
		assert.NilError(t, err)
		assert.Check(t, info.Mode().Perm() == mode, "%s: %v", path, info.Mode())
	}
	gone := func() bool { return a.Counts().Processes == 0 }
	for _, test := range []struct {
		query, upgrade string
		status         int
	}{
		{"threads=7", ActivitiesUpgrade, 400}, {"threads=-1", ActivitiesUpgrade, 400}, {"tokens=9999999", ActivitiesUpgrade, 400},
		{"tokens=x", ActivitiesUpgrade, 400}, {"inherit=2", ActivitiesUpgrade, 400}, {"", "websocket", 426},
		{"threads=8&tokens=131072&inherit=1", ActivitiesUpgrade, 101}, {"threads=16&tokens=5", ActivitiesUpgrade, 101},
	} {
		o := openAt(t, socket.Path, test.query, test.upgrade)
		assert.Check(t, o.status == test.status, "%s: %d %s", test.query, o.status, o.body)
		assert.Check(t, (len(o.fds) == 2) == (test.status == 101), "%s: %v", test.query, o.fds)
		o.close()
		eventually(t, gone)
	}
	r, err := (&http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket.Path)
	}}}).Get("http://tailcam/v1/status")
	assert.NilError(t, err)
	assert.Check(t, r.StatusCode == http.StatusNotFound, "this socket serves nothing else")
	r.Body.Close()

	o := openAt(t, socket.Path, "threads=16&tokens=5", ActivitiesUpgrade)
	assert.Check(t, o.reply.Get("Tailcam-Threads") == "16" && o.reply.Get("Tailcam-Tokens") == "5" && o.reply.Get("Tailcam-Abi") == "1", "%v", o.reply)
	_, err = o.Write([]byte{17, 0, 0, 0, 1, 0, 0, 0})
	assert.NilError(t, err)
	assert.Check(t, <-opener.told == 17)
	time.AfterFunc(10*time.Millisecond, o.close)
	again := openAt(t, socket.Path, "", ActivitiesUpgrade)
	assert.Check(t, again.status == http.StatusSwitchingProtocols, "%d %s", again.status, again.body)
	assert.Check(t, openStatus(activities.ErrIsOpen) == http.StatusConflict, "one that does not close")
	again.close()
	eventually(t, gone)

	before := len(bpfobjects.Held(t, os.Getpid()))
	began := time.Now()
	for range 20 {
		o := openAt(t, socket.Path, "", ActivitiesUpgrade)
		assert.Check(t, o.status == 101, "%d %s", o.status, o.body)
		o.close() // and opened again at once, as after a crash or an exec
	}
	eventually(t, gone)
	t.Logf("20 processes in %v", time.Since(began))
	assert.Check(t, len(bpfobjects.Held(t, os.Getpid())) == before)
	last := openAt(t, socket.Path, "", ActivitiesUpgrade)
	defer last.close()
	cancel()
	assert.NilError(t, <-served)
	eventually(t, gone)
}
