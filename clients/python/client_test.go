// Package python tests tailcam.py.
package python

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// run runs the client, and decodes what it prints, and what it complains about.
func run(t *testing.T, socket string, args ...string) (printed []map[string]any, complaint string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3 (apt install python3)")
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-B", "testdata/client.py", socket}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // what is not printed then is missed
	for dec := json.NewDecoder(&out); ; {
		var line map[string]any
		if err := dec.Decode(&line); err == io.EOF {
			return printed, strings.TrimSpace(errs.String())
		} else if err != nil {
			t.Fatalf("client %v: %v", args, err)
		}
		printed = append(printed, line)
	}
}

// TestReplies: bad ones are refused, and a program goes on without a daemon.
func TestReplies(t *testing.T) {
	lines, complaint := run(t, filepath.Join(t.TempDir(), "none"), "null")
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Contains(lines[0]["error"], `start it with "sudo tailcam run"`))
	upgrade := "HTTP/1.1 101 Switching Protocols\r\nTailcam-Abi: %d\r\nTailcam-Threads: %d\r\nTailcam-Tokens: %d\r\n\r\n"
	refusal := `{"error":"activities are \"off\""}`
	for reply, want := range map[string]string{
		fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s", len(refusal), refusal): `tailcam.Error: activities are "off"`,
		"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n":                                              "tailcam.Error: unexpected reply: 404",
		"SSH-2.0-OpenSSH_9.2\r\n":                        "is another program listening there",
		fmt.Sprintf(upgrade, 99, 64, 64):                 "version 99 of activities",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 64, 64):    "makes no sense",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 65, 64):    "makes no sense",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 64, 1<<30): "makes no sense",
		strings.Repeat("x", 1<<20):                       "is another program listening there",
	} {
		p := activitypeer.Start(t, activitypeer.WithReply(reply))
		_, complaint := run(t, p.Path, "open")
		assert.Check(t, is.Contains(complaint, want))
	}
}

// TestTrigger: a trigger asks for a snapshot, and has its id.
func TestTrigger(t *testing.T) {
	p := activitypeer.Start(t, activitypeer.WithReply("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"id\":\"42-api\"}"))
	lines, complaint := run(t, p.Path, "trigger")
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Equal(lines[0]["id"], "42-api"))
	want := fmt.Sprintf(`{"reason": "it is \"slow\"", "no_wait": true, "self": true, "tid": %.0f`, lines[0]["tid"])
	assert.Check(t, is.Equal(<-p.Requests, "POST /v1/trigger "+want+"}"))
	assert.Check(t, is.Equal(<-p.Requests, "POST /v1/trigger "+want+`, "last": "0.800000000s", "after": "1.000000000s"}`))
}

// TestExample: the one of the documentation runs with a daemon, and without.
func TestExample(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "python3", "-B", activitypeer.Example(t, "python", "example.py"))
	cmd.Env = append(cmd.Environ(), "PYTHONPATH=.")
	out, err := cmd.CombinedOutput()
	assert.Check(t, err)
	assert.Check(t, is.Contains(string(out), "ms, of which blocked"))
}

// TestFull: tokens are used again with another generation; full is counted; what is attached
// to a token comes back with its account.
func TestFull(t *testing.T) {
	lines, complaint := run(t, activitypeer.Start(t).Path, "full")
	assert.Equal(t, complaint, "")
	a := lines[0]
	assert.Check(t, is.Equal(a["tokens"], 128.0))
	assert.Check(t, is.DeepEqual(a["stats"], map[string]any{
		"tokens_full": 300.0 - 128, "threads_full": 0.0, "stale": 5.0, "untold": 0.0, "attributes_full": 1.0 + 10,
	}))
	assert.Check(t, is.Equal(a["text"], "a customer of t"))
	assert.Check(t, is.Equal(a["trace_id"], "00000000000000000000000000000001"))
	assert.Check(t, is.Equal(a["span_id"], "0000000000000002"))
}

// near is how exact accounts are: 1 %, or 50 us.
func near(got, want float64) bool { return between(got, want, want) }

func between(got, least, most float64) bool {
	return got >= least-max(0.01*least, 50_000) && got <= most+max(0.01*most, 50_000)
}

// whole checks that an account's parts are its wall time.
func whole(t *testing.T, a map[string]any) {
	t.Helper()
	parts := a["cpu_ns"].(float64) + a["runnable_ns"].(float64) + a["blocked_ns"].(float64) + a["unexplained_ns"].(float64)
	assert.Check(t, near(parts, a["wall_ns"].(float64)), "%v", a)
}

// attempts is how often what is not exact is measured again: a machine may take the CPU at any
// time, also in a slice in which the token was not the only one.
const attempts = 10

// TestExact: what a thread does and waits for is in its token's account.
func TestExact(t *testing.T) {
	p := activitypeer.StartKernel(t)
	wrong := "not measured"
	for n := 0; wrong != "" && n < attempts; n++ {
		lines, complaint := run(t, p.Path, "exact")
		assert.Equal(t, complaint, "")
		assert.Assert(t, is.Len(lines, 4))
		wrong = ""
		for i, part := range []string{"cpu_ns", "blocked_timer_ns", "blocked_lock_ns", "blocked_task_ns"} {
			wrong = cmp.Or(wrong, exactPart(lines[i], part))
		}
	}
	assert.Equal(t, wrong, "")
}

// exactPart tells what is wrong with an account of which that part is the most.
func exactPart(a map[string]any, part string) (wrong string) {
	ns := func(name string) float64 { return a[name].(float64) }
	parts := ns("cpu_ns") + ns("runnable_ns") + ns("blocked_ns") + ns("unexplained_ns")
	cpu := ns("cpu_ns")
	ran := func(got float64) bool { return between(got, ns("least_cpu_ns"), ns("most_cpu_ns")) }
	switch {
	case !near(parts, ns("wall_ns")):
		wrong = "parts are not the whole"
	case !between(ns("wall_ns"), ns("least_wall_ns"), ns("most_wall_ns")):
		wrong = "wall"
	case !ran(cpu) && !ran(cpu+ns("unexplained_ns")):
		wrong = "cpu"
	case part != "cpu_ns" && !near(ns(part)+ns("runnable_ns")+ns("unexplained_ns")+cpu, ns("wall_ns")):
		wrong = part
	default:
		return ""
	}
	return fmt.Sprintf("%s: %v", wrong, a)
}

// TestThreads: tokens that go through a queue, between threads that also switch for the
// interpreter's lock.
func TestThreads(t *testing.T) {
	lines, complaint := run(t, activitypeer.StartKernel(t).Path, "threads")
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Len(lines, 16))
	for _, a := range lines {
		whole(t, a)
		assert.Check(t, a["cpu_ns"].(float64) >= 25*100_000, "%v", a)
		assert.Check(t, a["blocked_timer_ns"].(float64) > 0, "%v", a)
	}
}

// TestReopen: a child that ends takes nothing from its parent, which may close and open again at
// once.
func TestReopen(t *testing.T) {
	p := activitypeer.StartKernel(t)
	lines, complaint := run(t, p.Path, "reopen")
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Equal(lines[0]["alive"], true))
	assert.Check(t, is.Equal(p.Counts().Opened, uint64(21)))
	assert.Check(t, is.Equal(p.Counts().Refused, uint64(0)))
}

// TestFork: what a child does is in the account, if it inherits.
func TestFork(t *testing.T) {
	p := activitypeer.StartKernel(t)
	cpu := [2]float64{}
	for inherit := range 2 {
		lines, complaint := run(t, p.Path, "fork", fmt.Sprint(inherit))
		assert.Equal(t, complaint, "")
		assert.Check(t, is.Equal(lines[0]["inherited"], float64(inherit)))
		whole(t, lines[0])
		cpu[inherit] = lines[0]["cpu_ns"].(float64)
	}
	assert.Check(t, cpu[1]-cpu[0] > 18e6, "%v", cpu)
}

// TestShared: what was done for the process, and not for which of its tokens, is its own: the
// writeback of a file that two have written to, and what came for one that had ended.
func TestShared(t *testing.T) {
	lines, complaint := run(t, activitypeer.StartKernel(t).Path, "shared", t.TempDir())
	assert.Equal(t, complaint, "")
	assert.Assert(t, is.Len(lines, 1))
	assert.Check(t, lines[0]["writeback_bytes"].(float64) >= 2<<20, "%v", lines[0])
	assert.Check(t, lines[0]["late"].(float64) >= 1, "%v", lines[0])
	assert.Check(t, is.Equal(lines[0]["cpu_ns"], 0.0))
}
