// Package c tests tailcam.h.
package c

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// clientDir has the client, once a test has compiled it.
var clientDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if clientDir != "" {
		os.RemoveAll(clientDir)
	}
	os.Exit(code)
}

// client compiles testdata/client.c, the first time.
func client(t testing.TB) string {
	t.Helper()
	if clientDir == "" {
		path := compile(t, "testdata/client.c")
		dir, err := os.MkdirTemp("", "tailcam-client-")
		assert.NilError(t, err)
		clientDir = dir
		assert.NilError(t, os.Rename(path, filepath.Join(dir, "client")))
	}
	return filepath.Join(clientDir, "client")
}

// compile builds a program with tailcam.h.
func compile(t testing.TB, source string, args ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to build a caller (apt install gcc libc6-dev)")
	}
	path := filepath.Join(t.TempDir(), "program")
	args = append(append(args, "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I.", "-o", path), source)
	out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return path
}

// run runs the client, and decodes what it prints.
func run(t *testing.T, program, socket string, args ...string) (printed []map[string]any, complaints string) {
	t.Helper()
	return runIn(t, nil, program, socket, args...)
}

// runIn is run in other namespaces.
func runIn(t *testing.T, attr *syscall.SysProcAttr, program, socket string, args ...string) (printed []map[string]any, complaints string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append([]string{socket}, args...)...)
	cmd.SysProcAttr = attr
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("client %v: %v\n%s", args, err, &errs)
	}
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

// TestLayout: the header has the structs and values of the kernel side.
func TestLayout(t *testing.T) {
	program := compile(t, "testdata/layout.c", "-I../../bpf", "-Wno-unused-function")
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	assert.Equal(t, strings.Count(string(out), "\n"), abi.ActivityValues)
	assert.Check(t, is.Contains(string(out), "runnable_stolen_ns\n"))
}

// TestCompilers: the header is for C and C++, and its spans for strict C, too. The example runs
// with a daemon, and without.
func TestCompilers(t *testing.T) {
	example := activitypeer.Example(t, "c", "example.c")
	for _, args := range [][]string{{"-std=c99", "-D_GNU_SOURCE"}, {"-x", "c++", "-std=c++17"}, {"-std=gnu11"}} {
		out, err := exec.CommandContext(t.Context(), compile(t, example, args...)).CombinedOutput()
		assert.Check(t, err == nil && is.Contains(string(out), " ms blocked\n")().Success(), "%v: %s", err, out)
	}
	compile(t, "testdata/spans.c", "-std=c99", "-pedantic")
}

// TestReplies: bad ones are refused, and a program goes on without a daemon.
func TestReplies(t *testing.T) {
	program := client(t)
	_, complaint := run(t, program, filepath.Join(t.TempDir(), "none"), "exact")
	assert.Check(t, is.Contains(complaint, `start it with "sudo tailcam run"`))
	reply := func(status, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
	upgrade := "HTTP/1.1 101 Switching Protocols\r\nTailcam-Abi: %d\r\nTailcam-Threads: %d\r\nTailcam-Tokens: %d\r\n\r\n"
	for reply, want := range map[string]string{
		reply("503 Service Unavailable", `{"error":"activities are \"off\""}`): `activities are "off"`,
		reply("404 Not Found", "404 page not found"):                           "is another program listening there",
		"SSH-2.0-OpenSSH_9.2\r\n":                                              "is another program listening there",
		fmt.Sprintf(upgrade, 99, 64, 64):                                       "version 99 of activities",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 64, 64):                          "makes no sense",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 65, 64):                          "makes no sense",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 64, 1<<30):                       "makes no sense",
		strings.Repeat("x", 1<<20):                                             "is another program listening there",
	} {
		p := activitypeer.Start(t, activitypeer.WithReply(reply))
		_, complaint := run(t, program, p.Path, "open")
		assert.Check(t, is.Contains(complaint, want))
	}
	p := activitypeer.Start(t, activitypeer.WithMaps(1))
	_, complaint = run(t, program, p.Path, "open")
	assert.Check(t, is.Contains(complaint, "makes no sense"))
}

// TestTrigger: a trigger asks for a snapshot, and has its id.
func TestTrigger(t *testing.T) {
	p := activitypeer.Start(t, activitypeer.WithReply("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"id\":\"42-api\"}"))
	for _, c := range []struct{ reason, more, want string }{
		{"it is \"slow\"\n", "", `{"no_wait":true,"reason":"it is \"slow\" ","self":true,"tid":%d,"last":"1000000000ns","after":"0ns"}`},
		{"slow", "800", `{"no_wait":true,"reason":"slow","self":true,"tid":%d,"last":"800000000ns","after":"800000000ns"}`},
		{strings.Repeat("\"", 5000), "", `{"no_wait":true,"reason":"` + strings.Repeat(`\"`, 1037) + `","self":true,"tid":%d,"last":"1000000000ns","after":"0ns"}`},
	} {
		cmd := exec.CommandContext(t.Context(), client(t), p.Path, "trigger", c.reason, c.more)
		out, err := cmd.Output()
		assert.NilError(t, err)
		assert.Check(t, is.Equal(string(out), "42-api\n"))
		assert.Check(t, is.Equal(<-p.Requests, "POST /v1/trigger "+fmt.Sprintf(c.want, cmd.ProcessState.Pid())))
	}
}

// TestFull: more tokens and threads than there are is counted.
func TestFull(t *testing.T) {
	p := activitypeer.Start(t)
	lines, complaint := run(t, client(t), p.Path, "full")
	assert.Equal(t, complaint, "")
	assert.Check(t, is.Equal(lines[0]["tokens"], 128.0))
	assert.Check(t, is.Equal(lines[0]["tokens_full"], 2000-128.0))
	assert.Check(t, is.Equal(lines[0]["stale"], 1.0))
	assert.Check(t, is.Equal(lines[0]["attributes_full"], 1.0+10))
	assert.Check(t, lines[0]["threads_full"].(float64) >= 100-64)
}

// TestForks: only who inherits goes on with the handle.
func TestForks(t *testing.T) {
	p, program := activitypeer.Start(t), client(t)
	_, complaint := run(t, program, p.Path, "fork", "0")
	assert.Check(t, is.Equal(complaint, "child did not inherit"))
	_, complaint = run(t, program, p.Path, "fork", "1")
	assert.Check(t, is.Equal(complaint, "child inherited"))
}

// BenchmarkSwitch reports what a switch costs, and a token from begin to end, with few and with many
// live tokens, beside an empty call, a system call, calls with a uprobe, and a tracepoint of LTTng-UST.
func BenchmarkSwitch(b *testing.B) {
	program := client(b)
	p := activitypeer.StartKernel(b)
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	assert.NilError(b, err)
	defer empty.Close()
	file, err := link.OpenExecutable(program)
	assert.NilError(b, err)
	for _, function := range []string{"probed", "probed_nop"} {
		probe, err := file.Uprobe(function, empty, nil)
		assert.NilError(b, err)
		defer func() { assert.Check(b, probe.Close()) }()
	}
	report := func(b *testing.B, out []byte) {
		var costs map[string]float64
		assert.NilError(b, json.Unmarshal(out, &costs))
		for name, ns := range costs {
			b.ReportMetric(ns, name)
		}
	}
	for _, live := range []string{"10", "1000", "100000"} {
		b.Run(live, func(b *testing.B) {
			out, err := exec.CommandContext(b.Context(), program, p.Path, "cost", live).Output()
			assert.NilError(b, err)
			report(b, out)
		})
	}
	b.Run("lttng", func(b *testing.B) { report(b, lttng(b)) })
}

// lttng runs the program with LTTng's tracepoint in a session that overwrites its memory, and writes nothing.
func lttng(b *testing.B) []byte {
	b.Helper()
	sessions, err := exec.LookPath("lttng-sessiond")
	headers, _ := filepath.Glob("/usr/include/*/lttng/tracepoint-event.h") // the pattern is good
	if err != nil || len(headers) == 0 {
		b.Skip("needs LTTng-UST (apt install lttng-tools liblttng-ust-dev)")
	}
	program := compile(b, "testdata/lttng.c", "-Itestdata", "-Wl,--no-as-needed", "-llttng-ust", "-ldl")
	home := b.TempDir()
	run := func(name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(b.Context(), name, args...)
		cmd.Env = append(cmd.Environ(), "LTTNG_HOME="+home)
		return cmd.CombinedOutput()
	}
	daemon := exec.Command(sessions, "--no-kernel")
	daemon.Env = append(daemon.Environ(), "LTTNG_HOME="+home)
	assert.NilError(b, daemon.Start())
	defer func() {
		assert.Check(b, daemon.Process.Signal(syscall.SIGTERM))
		_ = daemon.Wait() // it was told to end
	}()
	create := []string{"--no-sessiond", "create", "tailcam-bench", "--snapshot", "--output=" + home}
	out, err := run("lttng", create...)
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, err = run("lttng", create...) // it is not up yet
	}
	assert.NilError(b, err, "%s", out)
	defer func() {
		out, err := run("lttng", "--no-sessiond", "destroy", "tailcam-bench")
		assert.Check(b, err, "%s", out)
	}()
	for _, args := range [][]string{{"enable-event", "--userspace", "tailcam_bench:switched"}, {"start"}} {
		out, err = run("lttng", append([]string{"--no-sessiond"}, args...)...)
		assert.NilError(b, err, "%s", out)
	}
	out, err = run(program)
	assert.NilError(b, err, "%s", out)
	return out
}
