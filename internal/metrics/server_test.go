package metrics

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// serve serves the metrics of a busy daemon until the end of the test.
func serve(t *testing.T, opts *ListenOptions) *Server {
	t.Helper()
	s, err := Listen(opts)
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, NewRegistry(busy(), tallied(), nil)) }()
	t.Cleanup(func() {
		cancel()
		assert.Check(t, <-done)
		assert.Check(t, s.Close())
	})
	return s
}

// get returns status and body of a request.
func get(t *testing.T, c *http.Client, url, user, password string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	assert.NilError(t, err)
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := c.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return resp.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	s := serve(t, &ListenOptions{Address: "127.0.0.1:0"})
	for path, want := range map[string]int{Path: http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		code, body := get(t, http.DefaultClient, "http://"+s.Address()+path, "", "")
		assert.Check(t, is.Equal(code, want), "%s", path)
		assert.Check(t, code != http.StatusOK || strings.Contains(body, "tailcam_build_info"))
	}
	resp, err := http.Post("http://"+s.Address()+Path, "text/plain", strings.NewReader("x"))
	assert.NilError(t, err)
	resp.Body.Close()
	assert.Check(t, is.Equal(resp.StatusCode, http.StatusMethodNotAllowed))
	http.DefaultClient.CloseIdleConnections()
}

func TestServeUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	s := serve(t, &ListenOptions{Address: "unix:" + path, Group: "no-such-group"})
	assert.Check(t, is.Equal(s.Address(), "unix:"+path))
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(info.Mode().Perm(), os.FileMode(0o660)))
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	code, _ := get(t, c, "http://tailcam"+Path, "", "")
	assert.Check(t, is.Equal(code, http.StatusOK))
}

// TestHostileScrapers: garbage, half requests and endless headers end with their
// connection.
func TestHostileScrapers(t *testing.T) {
	s := serve(t, &ListenOptions{Address: "127.0.0.1:0"})
	var held []net.Conn
	for i := range 2 * maxConns {
		conn, err := net.Dial("tcp", s.Address())
		assert.NilError(t, err)
		held = append(held, conn)
		text := []string{"GET /metrics HTTP/1.1\r\nHost:", "\x16\x03\x01\x00", strings.Repeat("a", 100), ""}[i%4]
		_, err = io.WriteString(conn, text)
		assert.NilError(t, err)
	}
	for _, conn := range held {
		conn.Close()
	}
	conn, err := net.Dial("tcp", s.Address())
	assert.NilError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nA: %s\r\n\r\n", Path, strings.Repeat("a", 2*maxHeader))
	assert.NilError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	assert.NilError(t, err)
	resp.Body.Close()
	assert.Check(t, is.Equal(resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge))
	code, _ := get(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+s.Address()+Path, "", "")
	assert.Check(t, is.Equal(code, http.StatusOK))
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	assert.NilError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	assert.NilError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "t.crt"), public, 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "t.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pool := x509.NewCertPool()
	assert.Assert(t, pool.AppendCertsFromPEM(public))
	return pool
}

func TestWebConfig(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	assert.NilError(t, err)
	file := filepath.Join(dir, "web.yaml")
	assert.NilError(t, os.WriteFile(file, fmt.Appendf(nil,
		"tls_server_config: {cert_file: t.crt, key_file: t.key}\nbasic_auth_users: {prometheus: '%s'}\n", hash), 0o600))
	s := serve(t, &ListenOptions{Address: "127.0.0.1:0", WebConfig: file})
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for _, tt := range []struct {
		user, password string
		want           int
	}{{"", "", 401}, {"prometheus", "wrong", 401}, {"root", "secret", 401}, {"prometheus", "secret", 200}} {
		code, _ := get(t, c, "https://"+s.Address()+Path, tt.user, tt.password)
		assert.Check(t, is.Equal(code, tt.want), "%q %q", tt.user, tt.password)
	}
	// Without TLS, and while the file is damaged, nobody gets anything; and it recovers.
	code, _ := get(t, http.DefaultClient, "http://"+s.Address()+Path, "prometheus", "secret")
	assert.Check(t, is.Equal(code, 400))
	good, err := os.ReadFile(file)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(file, []byte("basic_auth_users: ["), 0o600))
	_, err = c.Get("https://" + s.Address() + Path)
	assert.Check(t, err != nil)
	assert.NilError(t, os.WriteFile(file, good, 0o600))
	code, _ = get(t, c, "https://"+s.Address()+Path, "prometheus", "secret")
	assert.Check(t, is.Equal(code, 200))
	http.DefaultClient.CloseIdleConnections()
}

// TestBadListen: each mistake is an error that says what to change.
func TestBadListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, tt := range []struct {
		opts ListenOptions
		want string
	}{
		{ListenOptions{Address: taken.Addr().String()}, "metrics.listen " + taken.Addr().String() + ": listen tcp " + taken.Addr().String() + ": bind: address already in use"},
		{ListenOptions{Address: "192.0.2.1:1"}, "metrics.listen 192.0.2.1:1: listen tcp 192.0.2.1:1: bind: cannot assign requested address"},
		{ListenOptions{Address: "unix:" + file("f", "x")}, "f exists and is not a socket: remove it, or use another path"},
		{ListenOptions{Address: "127.0.0.1:0", WebConfig: dir + "/none"}, "metrics.web_config " + dir + "/none: open " + dir + "/none: no such file or directory"},
		{ListenOptions{Address: "127.0.0.1:0", WebConfig: file("a", "tls: 1\n")}, "field tls not found"},
		{ListenOptions{Address: "127.0.0.1:0", WebConfig: file("b", "basic_auth_users: {a: secret}\n")}, "crypto/bcrypt"},
		{ListenOptions{Address: "127.0.0.1:0", WebConfig: file("c", "tls_server_config: {cert_file: x, key_file: y}\n")}, "no such file or directory"},
	} {
		s, err := Listen(&tt.opts)
		if err == nil {
			s.Close()
		}
		assert.Check(t, is.ErrorContains(err, tt.want))
	}
}
