// Package bugtool collects what a bug report needs into one archive, without secrets and
// without what other processes are called. What cannot be collected is listed with the
// reason; nothing that hangs, not even the daemon, makes it wait for long.
package bugtool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/doctor"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/tracker"
)

// Options are what is collected from. All but Out and Progress are required.
type Options struct {
	Out     string // path of the archive; "": DefaultName in the current directory
	Version any    // of this program
	Release string // of this program, in words
	Examine func(context.Context) *doctor.Report
	Socket  string               // path of the daemon's socket; "": that of the configuration
	Files   func() []string      // of the configuration
	Default func() config.Config // without files, variables and flags
	Probes  func() ([]tracker.Probe, error)
	// Progress, if set, is called with what is collected next.
	Progress func(what string)
}

// Summary tells what Run wrote.
type Summary struct {
	Path   string
	Bytes  int64
	Files  int // collected
	Missed int // not collected
}

// DefaultName is the name of an archive made now.
func DefaultName(now time.Time) string {
	return "tailcam-bugtool-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
}

// source is what the collectors read from. It does not change while they run.
type source struct {
	opts   *Options
	report *doctor.Report
	socket string
	pid    int // of the daemon; 0: none, or not visible
}

// file is one file of the archive, before its secrets are removed.
type file struct {
	name string
	data func(*redact.Redactor) ([]byte, error)
	note string // for the manifest
}

// item is something to collect, within limit. A failure is one of its own files, or all.
type item struct {
	name    string // of its file, or of its directory
	what    string // for the manifest
	limit   time.Duration
	collect func(context.Context, *source) ([]file, error)
}

// items lists all, in the order of the manifest.
var items = []item{
	{"version.json", "this program, and how it was built", quick, collectVersion},
	{"machine.json", "kernel release, processors, memory, distribution", quick, collectMachine},
	{"kernel-config.txt", "kernel options about BPF, tracing and preemption", quick, collectKernelConfig},
	{"doctor.json", "tailcam doctor -o json", quick, collectDoctor},
	{"probes.json", "tailcam list probes -o json", quick, collectProbes},
	{"load.txt", "why the rules could not be loaded, with the verifier's log", quick, collectLoad},
	{"config.txt", "the configuration in effect for this command: files, variables and defaults", quick, collectConfig},
	{"config", "configuration files, without comments", slow, collectConfigFiles},
	{"rules", "rule files, without comments and without arguments of actions", slow, collectRuleFiles},
	{"environment.txt", "TAILCAM_ variables of this command and of the daemon", quick, collectEnvironment},
	{"status.json", "tailcam status -o json", quick, collectStatus},
	{"metrics.txt", "the daemon's metrics", slow, collectMetrics},
	{"process.txt", "the daemon's process: arguments, state, limits, where its threads wait", slow, collectProcess},
	{"programs.json", "the daemon's BPF programs, with run counts while BPF statistics are on", slow, collectPrograms},
	{"log.txt", "the last lines of the daemon's log, if that is a file; no lines about outliers", slow, collectLog},
	{"journal.txt", "the last lines of the unit in the journal; no lines about outliers", journalLimit, collectJournal},
}

// Limits of items.
const (
	quick        = 5 * time.Second
	slow         = 10 * time.Second
	journalLimit = 20 * time.Second
)

// errNothing is why there is no file, which is not a failure.
type errNothing struct{ why string }

// Error implements error.
func (e errNothing) Error() string { return e.why }

// Run collects everything and writes the archive. It fails if the file exists, or cannot
// be written; then nothing is left.
func Run(ctx context.Context, o *Options) (Summary, error) {
	now := time.Now()
	path := o.Out
	if path == "" {
		path = DefaultName(now)
	}
	out, err := create(path)
	if err != nil {
		return Summary{}, err
	}
	done := false
	defer func() {
		out.close()
		if !done {
			out.remove()
		}
	}()
	progress(o, "checking")
	s := &source{opts: o, report: o.Examine(ctx)}
	s.find()
	m := &manifest{now: now, release: o.Release, path: path}
	var r redact.Redactor
	learn(ctx, s, &r, m)
	for i := range items {
		if err := ctx.Err(); err != nil {
			return Summary{}, err
		}
		progress(o, items[i].name)
		files, err := items[i].within(ctx, s)
		m.take(&items[i], files, err, &r)
	}
	if err := ctx.Err(); err != nil {
		return Summary{}, err
	}
	size, err := m.write(out.file, &r)
	if err != nil {
		return Summary{}, fmt.Errorf("write %s: %w", path, err)
	}
	done = true
	return Summary{Path: path, Bytes: size, Files: len(m.entries), Missed: len(m.missed)}, nil
}

func progress(o *Options, what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

// find finds the daemon, also one that does not answer.
func (s *source) find() {
	s.socket = s.opts.Socket
	if s.socket == "" && s.report.Config != nil {
		s.socket = s.report.Config.Socket.Path
	}
	if s.socket == "" {
		s.socket = api.DefaultSocket
	}
	s.pid = api.Holder(s.socket)
	if s.pid == 0 && s.report.Daemon != nil {
		s.pid = s.report.Daemon.PID
	}
	// It may be the number of another process in this PID namespace.
	if args := daemonStrings(s.pid, "cmdline"); len(args) < 2 || args[1] != "run" {
		s.pid = 0
	}
}

// within runs a collector, and leaves behind one that hangs: nothing can end a read from
// what does not answer.
func (i *item) within(ctx context.Context, s *source) ([]file, error) {
	type answer struct {
		files []file
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, i.limit)
	defer cancel()
	got := make(chan answer, 1)
	go func() {
		var a answer
		a.files, a.err = i.collect(ctx, s)
		got <- a
	}()
	late := time.NewTimer(i.limit + time.Second) // it may end by itself when ctx does
	defer late.Stop()
	select {
	case a := <-got:
		if errors.Is(a.err, context.DeadlineExceeded) {
			a.err = fmt.Errorf("no answer within %s", i.limit)
		}
		return slices.DeleteFunc(a.files, func(f file) bool { return f.data == nil }), a.err
	case <-late.C:
		return nil, fmt.Errorf("no answer within %s; left behind", i.limit)
	}
}

// value is a file with a JSON value.
func value(name string, v any) []file {
	return []file{{name: name, data: func(r *redact.Redactor) ([]byte, error) { return r.JSON(v) }}}
}

// plain is a file with text that the kernel or tailcam has written.
func plain(name, text string) []file {
	return []file{{name: name, data: func(r *redact.Redactor) ([]byte, error) { return []byte(r.Plain(text)), nil }}}
}
