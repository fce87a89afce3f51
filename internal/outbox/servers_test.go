package outbox

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"gotest.tools/v3/assert"
)

// received is a server, or a directory, to send to.
type received interface {
	// get returns the contents of a file, and whether it is there.
	get(t *testing.T, name string) ([]byte, bool)
	// counting counts how often each file becomes whole from now on, by its name below dir.
	counting(t *testing.T, dir string) (count func() map[string]int)
	// trouble lets the server fail at random until it is called again.
	trouble(t *testing.T) (end func())
}

// webServer stores what is PUT, whole or not at all. It counts each that it has stored.
type webServer struct {
	*httptest.Server
	mu      sync.Mutex
	files   map[string][]byte
	puts    map[string]int
	auth    string
	refused int
	down    bool
	faults  faults
}

func newWebServer(t *testing.T) *webServer {
	w := &webServer{files: map[string][]byte{}, puts: map[string]int{}}
	w.faults.handler = w
	w.Server = httptest.NewServer(&w.faults)
	t.Cleanup(w.Server.Close)
	return w
}

// ServeHTTP implements http.Handler.
func (w *webServer) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	data, there := w.files[r.URL.Path]
	switch {
	case err != nil:
		return
	case w.down:
		w.refused++
		out.WriteHeader(http.StatusServiceUnavailable)
	case w.auth != "" && r.Header.Get("Authorization") != w.auth:
		w.refused++
		http.Error(out, "\x1b[31m"+r.Header.Get("Authorization"), http.StatusForbidden)
	case r.Method == http.MethodHead && there:
		out.Header().Set("Content-Length", strconv.Itoa(len(data)))
	case r.Method == http.MethodHead:
		out.WriteHeader(http.StatusNotFound)
	case r.Method != http.MethodPut:
		out.WriteHeader(http.StatusMethodNotAllowed)
	case there && r.Header.Get("If-None-Match") == "*":
		out.WriteHeader(http.StatusPreconditionFailed)
	default:
		w.files[r.URL.Path] = body
		w.puts[r.URL.Path]++
		out.WriteHeader(http.StatusCreated)
	}
}

func (w *webServer) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *webServer) get(_ *testing.T, name string) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.files["/"+name]
	return data, ok
}

// localDir is a target that is a directory.
type localDir string

func (d localDir) get(t *testing.T, name string) ([]byte, bool) {
	data, err := os.ReadFile(filepath.Join(string(d), name))
	assert.Check(t, err == nil || os.IsNotExist(err), "%v", err)
	return data, err == nil
}

// s3Server is a store in memory.
type s3Server struct {
	*httptest.Server
	backend *s3mem.Backend
	mu      sync.Mutex
	puts    map[string]int // by path
	sent    int64          // bytes of bodies
	fail    func(r *http.Request) bool
	faults  faults
}

func newS3Server(t *testing.T) *s3Server {
	s := &s3Server{backend: s3mem.New(), puts: map[string]int{}}
	assert.NilError(t, s.backend.CreateBucket("slow"))
	handler := gofakes3.New(s.backend).Server()
	s.faults.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		fail := s.fail != nil && s.fail(r)
		if !fail {
			s.sent += max(0, r.ContentLength)
		}
		s.mu.Unlock()
		if fail {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		handler.ServeHTTP(answer, r)
		part, completed := r.URL.Query().Has("partNumber"), r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
		if (r.Method == http.MethodPut && !part || completed) && answer.status/100 == 2 {
			s.mu.Lock()
			s.puts[r.URL.Path]++
			s.mu.Unlock()
		}
	})
	s.Server = httptest.NewServer(&s.faults)
	t.Cleanup(s.Server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "the-key-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the-secret-key")
	return s
}

func (s *s3Server) get(t *testing.T, name string) ([]byte, bool) {
	o, err := s.backend.GetObject("slow", name, nil)
	if err != nil {
		return nil, false
	}
	defer o.Contents.Close()
	data, err := io.ReadAll(o.Contents)
	assert.NilError(t, err)
	return data, true
}

// sshServer is Debian's sshd.
type sshServer struct {
	localDir
	address, user, key, known string
	cmd                       *exec.Cmd
	config                    string
}

const sshd = "/usr/sbin/sshd"

func newSSHServer(t *testing.T) *sshServer {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	s := &sshServer{localDir: localDir(filepath.Join(dir, "files"))}
	assert.NilError(t, os.Mkdir(string(s.localDir), 0o755))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	s.address = l.Addr().String()
	assert.NilError(t, l.Close())
	_, port, err := net.SplitHostPort(s.address)
	assert.NilError(t, err)

	private := func(name string) (string, ssh.PublicKey) {
		public, key, err := ed25519.GenerateKey(rand.Reader)
		assert.NilError(t, err)
		block, err := ssh.MarshalPrivateKey(key, "")
		assert.NilError(t, err)
		file := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
		signer, err := ssh.NewPublicKey(public)
		assert.NilError(t, err)
		return file, signer
	}
	hostFile, host := private("host")
	var client ssh.PublicKey
	s.key, client = private("client")
	s.known = filepath.Join(dir, "known_hosts")
	assert.NilError(t, os.WriteFile(s.known, []byte(knownhosts.Line([]string{s.address}, host)+"\n"), 0o644))
	authorized := filepath.Join(dir, "authorized")
	assert.NilError(t, os.WriteFile(authorized, ssh.MarshalAuthorizedKey(client), 0o644))
	s.config = filepath.Join(dir, "config")
	assert.NilError(t, os.WriteFile(s.config, fmt.Appendf(nil, "ListenAddress 127.0.0.1\nPort %s\nHostKey %s\nPidFile none\nAuthorizedKeysFile %s\n"+
		"StrictModes no\nUsePAM yes\nPasswordAuthentication no\nSubsystem sftp internal-sftp\nMaxStartups 100\n", port, hostFile, authorized), 0o644))
	s.user = "root"
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *sshServer) url() string { return "sftp://" + s.user + "@" + s.address + string(s.localDir) }

// start starts sshd, and waits until it listens.
func (s *sshServer) start(t *testing.T) {
	t.Helper()
	assert.NilError(t, s.tryStart())
}

func (s *sshServer) tryStart() error {
	var log bytes.Buffer
	// It wants /run/sshd, which its package's service makes.
	s.cmd = exec.Command("sh", "-c", "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "+sshd+` -D -e -f "$0"`, s.config)
	s.cmd.Stderr = &log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			s.stop()
			return fmt.Errorf("sshd does not listen: %w\n%s", err, strings.TrimSpace(log.String()))
		}
	}
}

// stop ends sshd and its connections, each of which has a session of its own.
func (s *sshServer) stop() {
	pids := descendants(s.cmd.Process.Pid)
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = s.cmd.Wait()
}
