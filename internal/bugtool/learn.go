package bugtool

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/rules"
)

// learn finds what is secret on this machine as far as tailcam can know it, so that it is
// removed wherever it occurs.
func learn(ctx context.Context, s *source, r *redact.Redactor, m *manifest) {
	environ(os.Environ(), r)
	found := item{name: "secrets", limit: slow, collect: func(context.Context, *source) ([]file, error) {
		all := &redact.Redactor{} // r stays as it is if this hangs
		environ(daemonStrings(s.pid, "environ"), all)
		arguments(daemonStrings(s.pid, "cmdline"), all)
		if c := s.report.Config; c != nil {
			for _, value := range c.OTLP.Headers {
				all.AddCredential(value)
			}
			for name, value := range c.OTLP.Resource {
				if redact.Sensitive(name) {
					all.AddCredential(value)
				}
			}
		}
		for _, path := range s.files() {
			if n, errs := rules.ReadDocument(path); len(errs) == 0 {
				all.Learn(n)
			} else {
				all.LearnText(word(path))
			}
		}
		return []file{{data: func(r *redact.Redactor) ([]byte, error) {
			r.Join(all)
			return nil, nil
		}}}, nil
	}}
	files, err := found.within(ctx, s)
	if err != nil {
		m.notes = append(m.notes, fmt.Sprintf("What the configuration files hold was not learned (%v): look twice.", err))
	}
	for _, f := range files {
		_, _ = f.data(r) // it has no error
	}
}

// files lists the files that may have secrets: those of the configuration, of the rules,
// and of the metrics' server.
func (s *source) files() []string {
	list := s.opts.Files()
	if c := s.report.Config; c != nil {
		if c.Metrics.WebConfig != "" {
			list = append(list, c.Metrics.WebConfig)
		}
		list = append(list, ruleFiles(c.Rules)...)
	}
	return list
}

// ruleFiles lists the rule files below paths.
func ruleFiles(paths []string) []string {
	var list []string
	for _, f := range rules.LoadSet(nil, paths, &rules.LocalMachine{}).Files {
		list = append(list, f.Path)
	}
	return list
}

// paths are variables that only look as if they held secrets.
var paths = []string{"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY"}

// environ makes secrets of variables whose names say so.
func environ(list []string, r *redact.Redactor) {
	for _, e := range list {
		if name, value, ok := strings.Cut(e, "="); ok && redact.Sensitive(name) && !slices.Contains(paths, name) {
			r.AddSetting(value)
		}
	}
}

// arguments does the same for the flags of a command line.
func arguments(args []string, r *redact.Redactor) {
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") || !redact.Sensitive(name) {
			continue
		}
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		r.AddSetting(value)
	}
}

// daemonStrings reads a file of /proc/PID whose strings end with NUL; nil: it cannot be read.
func daemonStrings(pid int, name string) []string {
	if pid == 0 {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
