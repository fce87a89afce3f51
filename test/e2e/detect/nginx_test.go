package detect

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
)

// nginx runs a server of its own before another one, and returns its address.
func nginx(t *testing.T, behind string) string {
	t.Helper()
	return nginxFor(t, "location / { proxy_pass "+behind+"; }")
}

// nginxFor runs a server with this configuration, and returns its address.
func nginxFor(t *testing.T, what string) string {
	t.Helper()
	needRoot(t)
	path, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("needs nginx (apt-get install nginx-light)")
	}
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	address := free.Addr().String()
	free.Close()
	dir := t.TempDir()
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/log;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	server { listen %[2]s; %[3]s }
}
`, dir, address, what)
	file := filepath.Join(dir, "nginx.conf")
	assert.NilError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(path, "-c", file, "-p", dir)
	var trouble strings.Builder
	cmd.Stderr = &trouble
	assert.NilError(t, child.Start(cmd))
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp4", address)
		if err == nil {
			conn.Close()
			return address
		}
		assert.Assert(t, !time.Now().After(end), "nginx does not listen: %v\n%s", err, trouble.String())
	}
}

// nginx answers late where the server behind it does: time to first byte of
// exactly those connections.
func TestShippedFirstByteOfNginx(t *testing.T) {
	needRoot(t)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(80 * time.Millisecond)
		}
		fmt.Fprintln(w, "hello")
	}))
	defer behind.Close()
	address := nginx(t, behind.URL)
	c := watch(t, shipped(t, "first-byte", 50*time.Millisecond, rules.Match{Comm: []string{"nginx"}}), nil)
	get := func(path string) {
		t.Helper()
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get("http://" + address + path)
		assert.NilError(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		assert.NilError(t, err)
		answer.Body.Close()
	}
	slow, late := 0, 0
	for i := range 60 {
		if i%20 == 19 {
			get("/slow")
			slow++
			continue
		}
		begin := time.Now()
		if get("/fast"); time.Since(begin) >= 50*time.Millisecond {
			late++ // the machine made it slow, by the client's own clock
		}
	}
	got := c.settle()
	for _, o := range got {
		t.Logf("%v, key %v, task %s", time.Duration(o.DelayNS), o.Key, o.Task.Comm)
		if o.DelayNS >= (80 * time.Millisecond).Nanoseconds() {
			slow--
		} else {
			late--
		}
	}
	// Any of the late ones may have been as late as the slow ones.
	assert.Check(t, slow <= 0 && late >= 0 && slow+late >= 0,
		"%d outliers: %d slow answers are missing, %d were not slow", len(got), slow, -late)
}
