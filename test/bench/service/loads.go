package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// load is a service and its client, or a program that is both.
type load struct {
	name    string
	title   string
	request string            // what one is
	target  float64           // that tailcam's ratio is to stay at or below
	needs   map[string]string // programs, and their Debian packages
	asked   bool              // not measured unless it is asked for
	start   func(context.Context, *env) (client, error)
}

// postgresPattern finds PostgreSQL's server, which is not in the path.
const postgresPattern = "/usr/lib/postgresql/*/bin/postgres"

// needPostgres is what loads of PostgreSQL need.
var needPostgres = map[string]string{postgresPattern: "postgresql", "/usr/lib/postgresql/*/bin/pgbench": "postgresql"}

// targetP99 is that of every load whose client tells latencies.
const targetP99 = 1.03

// client lets a load run, each time alike.
type client interface {
	run(context.Context) (sample, error)
	stop() error
}

var loads = []load{
	{
		name: "redis", title: "redis GET, 20 clients", request: "request", target: 1.02, start: startRedis,
		needs: map[string]string{"redis-server": "redis-server", "redis-benchmark": "redis-tools"},
	},
	{
		name: "nginx", title: "nginx, wrk with 20 connections", request: "request", target: 1.02, start: startNginx,
		needs: map[string]string{"nginx": "nginx-light", "wrk": "wrk"},
	},
	{
		name: "pgbench", title: "pgbench -S, 4 clients", request: "transaction", target: 1.04, start: startPostgres,
		needs: needPostgres,
	},
	{
		name: "hackbench", title: "hackbench -g 4 -P", request: "run", target: 1.10, start: startHackbench,
		needs: map[string]string{"hackbench": "rt-tests"},
	},
	{
		name: "compile", title: "a compile, make -j", request: "file", target: 1.01, start: startCompile,
		needs: map[string]string{"gcc": "gcc", "make": "make"},
	},
	{
		name: "fio", title: "fio, 4k direct random reads", request: "read", target: 1.01, start: startFio,
		needs: map[string]string{"fio": "fio"},
	},
	{name: "getppid", title: "getppid()", request: "call", target: 1.02, start: startGetppid},
	{
		name: "paced", title: "pgbench -S, at a third of what it can", request: "transaction", target: targetP99, start: startPaced, asked: true,
		needs: needPostgres,
	},
	{
		name: "pipe", title: "perf bench sched pipe", request: "round trip", target: 1.10, start: startPipe, asked: true,
		needs: map[string]string{"perf": "linux-perf"},
	},
}

func loadNames() []string {
	var names []string
	for i := range loads {
		names = append(names, loads[i].name)
	}
	return names
}

// selectLoads finds loads by name, in the table's order, and what they need.
func selectLoads(only []string) ([]load, error) {
	for _, name := range only {
		if !slices.Contains(loadNames(), name) {
			return nil, fmt.Errorf("no load %q: there are %s", name, strings.Join(loadNames(), ", "))
		}
	}
	var list []load
	for _, l := range loads {
		if len(only) > 0 && !slices.Contains(only, l.name) || len(only) == 0 && l.asked {
			continue
		}
		for program, debian := range l.needs {
			if find(program) == "" {
				return nil, fmt.Errorf("%s is not installed (apt-get install %s), or leave out %s with -only",
					filepath.Base(program), debian, l.name)
			}
		}
		list = append(list, l)
	}
	return list, nil
}

// find finds a program in the path, or the newest that a pattern matches.
func find(program string) string {
	if !strings.Contains(program, "/") {
		path, err := exec.LookPath(program)
		if err != nil {
			return ""
		}
		return path
	}
	if paths, err := filepath.Glob(program); err == nil && len(paths) > 0 {
		return paths[len(paths)-1]
	}
	return ""
}

// count finds how much work takes so many seconds, with nothing attached.
func count(seconds float64, first int, run func(n int) (took float64, err error)) (int, error) {
	took, err := run(first) // warms up
	if err != nil {
		return 0, err
	}
	n := max(1, int(float64(first)*min(seconds/2/took, 20)))
	if took, err = run(n); err != nil {
		return 0, err
	}
	return max(1, int(float64(n)*seconds/took)), nil
}
