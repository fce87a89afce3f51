package accuracy

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
)

// servedScenarios are waits for a server that waits for somebody else, and serves others
// meanwhile, who took no part.
func servedScenarios(shared *resources) []scenario {
	of := func(by, says string) want {
		return want{
			causes: []explain.Cause{explain.Task}, by: by, root: explain.Timer, rootBy: "timer", says: "waiting " + says, omits: "scn-chatter",
		}
	}
	return []scenario{
		{name: "nginx-proxy", rule: trackSyscall("read"), prepare: withProxy, want: of("nginx", "for scn-backend")},
		{ // until the proxy does not wait any longer for the backend
			name: "nginx-mute", rule: trackSyscall("read"), prepare: withImpatient,
			want: of("nginx", "until its own time limit for an answer of scn-backend"),
		},
		{name: "asyncio", rule: trackSyscall("read"), prepare: withAsyncio, want: of("served.py", "for scn-backend")},
		{name: "go-proxy", rule: trackSyscall("read"), prepare: withGo, want: of("goproxy", "for scn-backend")},
		{name: "go-lock", rule: trackSyscall("read"), prepare: withGo, want: want{
			causes: []explain.Cause{explain.Task}, by: "goproxy", root: explain.Timer, rootBy: "timer",
			says: "a lock of a file that scn-holder", omits: "scn-chatter", advice: "sleeps while it holds the lock",
		}},
		{name: "redis-pop", rule: trackSyscall("read"), prepare: withRedis, want: of("redis-server", "for scn-pusher")},
		{ // when its own time is over, or as somebody else asks just then: that one took no part
			name: "redis-wait", rule: trackSyscall("read"), prepare: withRedis,
			want: want{causes: []explain.Cause{explain.Task}, by: "redis-server", omits: "scn-chatter"},
		},
		{
			name: "nginx-limit", rule: trackSyscall("read"), prepare: withLimit,
			want: want{causes: []explain.Cause{explain.Task}, by: "nginx", root: explain.Timer, rootBy: "timer", says: "its own time limit", omits: "scn-chatter"},
		},
		{name: "row-chain", rule: trackSyscall("read"), prepare: shared.withPostgresOnly, want: of("postgres", "for scn-idler")},
		{name: "slow-load", rule: trackSyscall("read"), prepare: shared.withPostgresOnly, want: of("postgres", "for scn-loader")},
		{
			name: "notified", rule: trackSyscall("read"), prepare: shared.withPostgresOnly,
			want: want{causes: []explain.Cause{explain.Task}, by: "postgres", root: explain.Running, rootBy: "scn-notifier", advice: "CPU time of scn-notifier"},
		},
		{name: "pgbouncer", rule: trackSyscall("read"), prepare: shared.withPool, want: of("pgbouncer", "for postgres")},
	}
}

// withProxy hands the program the socket of an nginx that asks the program for some pages.
func withProxy(t *testing.T, r *round) { serveProxy(t, r, "") }

// withImpatient does so with one that waits 40 ms for them.
func withImpatient(t *testing.T, r *round) { serveProxy(t, r, "proxy_read_timeout 40ms;") }

func serveProxy(t *testing.T, r *round, settings string) {
	serveNginx(t, r, settings, func(socket string) string {
		return fmt.Sprintf("location /fast { return 200 x; } location /slow { proxy_pass http://unix:%sb; }", socket)
	})
}

// withLimit hands the program the socket of an nginx that lets some pages be asked for 25 times a second.
func withLimit(t *testing.T, r *round) {
	serveNginx(t, r, "limit_req_zone $uri zone=scenario:1m rate=25r/s;", func(string) string {
		return "location /fast { return 200 x; } location /limited { limit_req zone=scenario burst=5; empty_gif; }"
	})
}

//go:embed src/served.py
var servedPy []byte

// withAsyncio does so with a program of Python.
func withAsyncio(t *testing.T, r *round) {
	dir := t.TempDir()
	program, socket := filepath.Join(dir, "served.py"), filepath.Join(dir, "s")
	assert.NilError(t, os.WriteFile(program, servedPy, 0o600))
	serve(t, r, socket, "/usr/bin/python3", program, socket)
}

// withGo does so with a program of Go, of which any thread may be the one that answers.
func withGo(t *testing.T, r *round) {
	dir := t.TempDir()
	program, socket := filepath.Join(dir, "goproxy"), filepath.Join(dir, "s")
	out, err := exec.Command("go", "build", "-o", program, "./src/goproxy").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	serve(t, r, socket, program, socket)
	r.complete = nil
}

// withPool hands the program the socket of a PgBouncer with one connection to PostgreSQL for
// each of two databases.
func (s *resources) withPool(t *testing.T, r *round) {
	s.withPostgresOnly(t, r)
	dir, err := os.MkdirTemp("", "tailcam-scenario-") // its user may go there
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	uid, gid := postgresUser(t)
	assert.NilError(t, os.Chown(dir, uid, gid))
	config := filepath.Join(dir, "pgbouncer.ini")
	const database = "host=%[1]s port=5432 dbname=postgres user=postgres pool_size=1\n"
	text := "[databases]\npostgres = " + database + "other = " + database +
		"[pgbouncer]\nlisten_addr =\nunix_socket_dir = %[2]s\nauth_type = any\npool_mode = transaction\n"
	assert.NilError(t, os.WriteFile(config, fmt.Appendf(nil, text, filepath.Dir(r.argument), dir), 0o644))
	serve(t, r, filepath.Join(dir, ".s.PGSQL.6432"),
		"setpriv", fmt.Sprint("--reuid=", uid), fmt.Sprint("--regid=", gid), "--clear-groups", "--", "pgbouncer", config)
}
