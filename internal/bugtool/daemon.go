package bugtool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/internal/redact"
)

// errNoDaemon is why nothing is collected of one.
var errNoDaemon = errNothing{"no daemon is running, or this user may not see it"}

func collectStatus(_ context.Context, s *source) ([]file, error) {
	if s.report.Daemon == nil {
		return nil, errNothing{"no daemon answered: see doctor.json"}
	}
	return value("status.json", s.report.Daemon), nil
}

// collectMetrics scrapes the daemon as Prometheus does.
func collectMetrics(ctx context.Context, s *source) ([]file, error) {
	c := s.report.Config
	switch {
	case s.report.Daemon == nil:
		return nil, errNothing{"no daemon answered: see doctor.json"}
	case c == nil || c.Metrics.Listen == "":
		return nil, errNothing{"metrics.listen is not set"}
	case c.Metrics.WebConfig != "":
		return nil, errNothing{"metrics.web_config protects them"}
	}
	network, address := "tcp", c.Metrics.Listen
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	} else if host, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("localhost", port)
		}
	}
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, network, address)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://tailcam/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", c.Metrics.Listen, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if err != nil {
		return nil, err
	}
	return plain("metrics.txt", string(body)), nil
}

// maxThreads is how many threads of the daemon are looked at.
const maxThreads = 256

// collectProcess reads what /proc tells of the daemon, above all where it hangs.
func collectProcess(_ context.Context, s *source) ([]file, error) {
	if s.pid == 0 {
		return nil, errNoDaemon
	}
	dir := fmt.Sprintf("/proc/%d", s.pid)
	var b strings.Builder
	for _, name := range []string{"status", "limits", "cgroup", "oom_score_adj"} {
		if text := word(filepath.Join(dir, name)); text != "" {
			fmt.Fprintf(&b, "%s:\n%s\n\n", name, text)
		}
	}
	if b.Len() == 0 {
		return nil, errNoDaemon
	}
	tasks, _ := filepath.Glob(filepath.Join(dir, "task/[0-9]*")) // the pattern is valid
	for _, task := range tasks[:min(len(tasks), maxThreads)] {
		fmt.Fprintf(&b, "thread %s, %s, waits in %s\n%s\n", filepath.Base(task), state(task),
			cmp.Or(word(filepath.Join(task, "wchan")), "?"), word(filepath.Join(task, "stack")))
	}
	args := daemonStrings(s.pid, "cmdline")
	return []file{{name: "process.txt", data: func(r *redact.Redactor) ([]byte, error) {
		return []byte("arguments:\n" + shown(args, r) + "\n\n" + r.Plain(b.String())), nil
	}}}, nil
}

func state(task string) string {
	for line := range strings.Lines(word(filepath.Join(task, "status"))) {
		if value, ok := strings.CutPrefix(line, "State:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "gone"
}

// shown are arguments without the values of flags that may hold secrets, one a line.
func shown(args []string, r *redact.Redactor) string {
	var list []string
	hide := false
	for _, arg := range args {
		name, _, ok := strings.Cut(arg, "=")
		switch {
		case hide:
			list, hide = append(list, redact.Marker), false
		case strings.HasPrefix(name, "-") && redact.Sensitive(name):
			list, hide = append(list, name), !ok
			if ok {
				list = append(list, redact.Marker)
			}
		default:
			list = append(list, r.Text(arg))
		}
	}
	return strings.Join(list, "\n")
}

// program is a BPF program of the daemon.
type program struct {
	ID        uint64 `json:"id"`
	Name      string `json:"name,omitempty"` // "": this needs CAP_SYS_ADMIN
	Hook      string `json:"hook,omitempty"`
	Type      uint64 `json:"type"` // enum bpf_prog_type
	Jited     bool   `json:"jited"`
	Tag       string `json:"tag"`
	Runs      uint64 `json:"runs"` // while kernel.bpf_stats_enabled
	RunTimeNS uint64 `json:"run_time_ns"`
	Missed    uint64 `json:"missed"`
	Verified  uint64 `json:"verified_instructions"`
	Locked    uint64 `json:"memory_bytes"`
}

// collectPrograms lists what the daemon holds, not what others have loaded.
func collectPrograms(_ context.Context, s *source) ([]file, error) {
	if s.pid == 0 {
		return nil, errNoDaemon
	}
	dir := fmt.Sprintf("/proc/%d/fdinfo", s.pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[uint64]*program{}
	for _, e := range entries {
		if p := fdProgram(word(filepath.Join(dir, e.Name()))); p != nil {
			found[p.ID] = p
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the daemon holds no BPF program, or this user may not see it")
	}
	hooks := map[string]string{}
	if s.report.Daemon != nil {
		for _, p := range s.report.Daemon.Programs {
			hooks[p.Name] = p.Hook
		}
	}
	list := make([]*program, 0, len(found))
	for _, p := range found {
		if loaded, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID)); err == nil {
			if info, err := loaded.Info(); err == nil {
				p.Name, p.Hook = info.Name, hooks[info.Name] // none for a name that the kernel has cut
			}
			_ = loaded.Close() // only looked at
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *program) int { return cmp.Compare(a.ID, b.ID) })
	return value("programs.json", list), nil
}

// fdProgram reads a program's lines of /proc/PID/fdinfo; nil: it is of something else.
func fdProgram(info string) *program {
	p := &program{}
	is := false
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(line, ":")
		text = strings.TrimSpace(text)
		n, err := strconv.ParseUint(text, 10, 64)
		switch {
		case name == "prog_tag":
			p.Tag = text
		case err != nil:
		case name == "prog_id":
			p.ID = n
		case name == "prog_type":
			p.Type, is = n, true
		case name == "prog_jited":
			p.Jited = n == 1
		case name == "run_cnt":
			p.Runs = n
		case name == "run_time_ns":
			p.RunTimeNS = n
		case name == "recursion_misses":
			p.Missed = n
		case name == "verified_insns":
			p.Verified = n
		case name == "memlock":
			p.Locked = n
		}
	}
	if !is { // links have prog_id, too
		return nil
	}
	return p
}
