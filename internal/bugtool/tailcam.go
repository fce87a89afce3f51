package bugtool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/rules"
)

func collectDoctor(_ context.Context, s *source) ([]file, error) {
	return value("doctor.json", s.report.Results), nil
}

func collectProbes(_ context.Context, s *source) ([]file, error) {
	probes, err := s.opts.Probes()
	if err != nil {
		return nil, err
	}
	return value("probes.json", probes), nil
}

func collectLoad(_ context.Context, s *source) ([]file, error) {
	if s.report.Load == nil {
		return nil, errNothing{"they could, or it was not tried: see doctor.json"}
	}
	return plain("load.txt", s.report.Load.Error()+"\n"), nil
}

// collectConfig lists all keys; a star marks those that are not the default.
func collectConfig(_ context.Context, s *source) ([]file, error) {
	if s.report.Config == nil {
		return nil, errNothing{"it has errors: see doctor.json"}
	}
	defaults := s.opts.Default()
	standard := config.Values(&defaults)
	return []file{{name: "config.txt", data: func(r *redact.Redactor) ([]byte, error) {
		var b strings.Builder
		for i, v := range config.Values(s.report.Config) {
			mark := " "
			if v.Value != standard[i].Value {
				mark = "*"
			}
			shown := r.Text(v.Value)
			if v.Key == "actions.user" && !slices.Contains([]string{"nobody", "root", "tailcam"}, shown) {
				shown = "<user>"
			}
			fmt.Fprintf(&b, "%s %s: %s\n", mark, v.Key, shown)
		}
		return []byte(b.String()), nil
	}}}, nil
}

func collectConfigFiles(_ context.Context, s *source) ([]file, error) {
	list := s.opts.Files()
	if len(list) == 0 {
		return nil, errNothing{"there are none"}
	}
	return documents("config", list), nil
}

func collectRuleFiles(_ context.Context, s *source) ([]file, error) {
	if s.report.Config == nil {
		return nil, errNothing{"the configuration has errors: see doctor.json"}
	}
	list := ruleFiles(s.report.Config.Rules)
	if len(list) == 0 {
		return nil, errNothing{"there are none below " + strings.Join(s.report.Config.Rules, ", ")}
	}
	return documents("rules", list), nil
}

// maxDocuments is how many files of a kind are collected.
const maxDocuments = 100

var oddName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// documents reads YAML files now, and redacts them later.
func documents(dir string, paths []string) []file {
	var list []file
	for i, path := range paths[:min(len(paths), maxDocuments)] {
		n, errs := rules.ReadDocument(path)
		name := fmt.Sprintf("%s/%02d-%s", dir, i+1, oddName.ReplaceAllString(filepath.Base(path), "_"))
		list = append(list, file{name: name, note: path, data: func(r *redact.Redactor) ([]byte, error) {
			if len(errs) > 0 {
				// Where it is wrong, and not what stands there.
				return nil, fmt.Errorf("line %d, column %d: not a document that tailcam reads: tailcam check says why",
					errs[0].Pos.Line, errs[0].Pos.Column)
			}
			return r.YAML(n)
		}})
	}
	return list
}

func collectEnvironment(_ context.Context, s *source) ([]file, error) {
	own, daemon := os.Environ(), daemonStrings(s.pid, "environ")
	return []file{{name: "environment.txt", data: func(r *redact.Redactor) ([]byte, error) {
		var b strings.Builder
		variables(&b, "this command", own, r)
		if daemon != nil {
			variables(&b, "the daemon", daemon, r)
		}
		return []byte(b.String()), nil
	}}}, nil
}

var runtimeVariables = []string{"GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GODEBUG"}

// variables lists those that tailcam and the Go runtime read.
func variables(b *strings.Builder, of string, list []string, r *redact.Redactor) {
	fmt.Fprintf(b, "%s:\n", of)
	for _, e := range slices.Sorted(slices.Values(list)) {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case !strings.HasPrefix(name, "TAILCAM_") && !slices.Contains(runtimeVariables, name):
			continue
		case redact.Sensitive(name):
			value = redact.Marker
		}
		fmt.Fprintf(b, "%s = %s\n", r.Plain(name), r.Text(value))
	}
}
