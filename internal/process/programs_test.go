package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestTitlesOfPrograms: what Debian's nginx, Redis, PostgreSQL, Python and Perl call
// themselves is found.
func TestTitlesOfPrograms(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"nginx": {
			[]string{"/usr/sbin/nginx", "-p", ".", "-e", "stderr", "-c", "nginx.conf"},
			[]string{"nginx: master process /usr/sbin/nginx", "nginx: worker process"},
		},
		"redis": {
			[]string{"/usr/bin/redis-server", "--port", "0", "--unixsocket", "s", "--save", "", "--daemonize", "no"},
			[]string{"redis-server unixsocket:s"},
		},
		"python": {[]string{"/usr/bin/python3", "-u", "app.py", "secret"}, []string{"app.py"}},
		"perl":   {[]string{"/usr/bin/perl", "-w", "app.pl", "secret"}, []string{"app.pl"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"nginx.conf": "daemon off; pid p; error_log stderr; events {} http { access_log off; client_body_temp_path b; " +
					"proxy_temp_path x; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path c; server { listen unix:s; } }",
				"app.py": "import time\ntime.sleep(600)\n", "app.pl": "sleep 600;\n",
			} {
				assert.NilError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			titlesOf(t, dir, nil, test.want, test.args...)
		})
	}
	t.Run("postgres", func(t *testing.T) { postgres(t) })
}

// waits makes this test program one that ignores its arguments, and lives until its input ends.
const waits = "TAILCAM_TEST_WAITS"

func TestMain(m *testing.M) {
	if os.Getenv(waits) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestTitleOfJava: the main class is found in /proc of a process with the arguments of a JVM,
// which is too large to install for a test.
func TestTitleOfJava(t *testing.T) {
	for want, args := range map[string][]string{
		"org.example.Main": {"/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-Xmx1g", "-cp", "/a.jar:/b.jar", "-Dpassword=secret", "org.example.Main", "secret"},
		"shop-1.2.jar":     {"java", "-XX:+UseZGC", "--enable-native-access", "ALL-UNNAMED", "-jar", "/srv/shop-1.2.jar", "secret"},
		"":                 {"java", "@/etc/secret.args"},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args, cmd.Env = args, []string{waits + "=1"}
		in, err := cmd.StdinPipe()
		assert.NilError(t, err)
		assert.NilError(t, cmd.Start())
		who, err := New(nil).Identity(cmd.Process.Pid)
		assert.Check(t, err == nil && who.Title == want, "%q: %q, %v", args, who.Title, err)
		assert.NilError(t, in.Close())
		assert.NilError(t, cmd.Wait())
	}
}

func postgres(t *testing.T) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(bins) == 0 {
		t.Skip("needs postgres (apt install postgresql)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: changes to the user postgres")
	}
	who, err := user.Lookup("postgres")
	assert.NilError(t, err)
	uid, err := strconv.Atoi(who.Uid)
	assert.NilError(t, err)
	dir, err := os.MkdirTemp("", "tailcam-pg-")
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	assert.NilError(t, os.Chown(dir, uid, uid))
	as := &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	initdb := exec.Command(filepath.Join(filepath.Dir(bins[0]), "initdb"), "-D", dir+"/d", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	out, err := initdb.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	titlesOf(t, dir, as, []string{"postgres: checkpointer", "postgres: background writer", "postgres: walwriter"},
		bins[0], "-D", dir+"/d", "-k", dir, "-c", "listen_addresses=")
}

// titlesOf runs a program in a directory until it and its children have these titles.
func titlesOf(t *testing.T, dir string, as *syscall.Credential, want []string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s", filepath.Base(args[0]))
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true, Credential: as, Pdeathsig: syscall.SIGKILL}
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	assert.NilError(t, cmd.Start())
	var titles []string
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		_ = cmd.Wait() // as it was told to
		if t.Failed() {
			t.Logf("%q: %s", titles, &log)
		}
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		titles = nil
		table := New(nil) // nothing is remembered
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		assert.NilError(t, err)
		for _, pid := range append(strings.Fields(string(children)), strconv.Itoa(cmd.Process.Pid)) {
			n, err := strconv.Atoi(pid)
			assert.NilError(t, err)
			if who, err := table.Identity(n); err == nil {
				titles = append(titles, who.Title)
			}
		}
		if !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(titles, w) }) {
			return
		}
		assert.Assert(t, time.Now().Before(end), "%q, want %q", titles, want)
	}
}
