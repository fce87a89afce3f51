package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// perfetto is a session of Perfetto that is cloned at each outlier. It records what perf
// does, in rings as large as perf's.
type perfetto struct {
	dir      string
	log      *os.File
	programs []*exec.Cmd // in the order in which they were started
}

const perfettoSession = "bench-snapshot"

func (*perfetto) title() string { return "perfetto --clone-by-name" }

// perfettoInstalled says whether Perfetto is there; Debian 12 does not package it.
func perfettoInstalled() bool {
	for _, name := range []string{"traced", "traced_probes", "perfetto"} {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	return true
}

func (p *perfetto) config() string {
	var c strings.Builder
	perCPU := 2 << 10 // KiB, as perf's
	fmt.Fprintf(&c, "unique_session_name: %q\nbuffers { size_kb: %d fill_policy: RING_BUFFER }\n",
		perfettoSession, perCPU*runtime.NumCPU())
	fmt.Fprintf(&c, "data_sources { config { name: \"linux.ftrace\" ftrace_config {\n\tbuffer_size_kb: %d\n", perCPU)
	for _, e := range peerEvents {
		fmt.Fprintf(&c, "\tftrace_events: %q\n", strings.Replace(e, ":", "/", 1))
	}
	c.WriteString("} } }\n")
	return c.String()
}

func (p *perfetto) start(ctx context.Context, dir string) (err error) {
	p.dir = dir
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return err
	}
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte(p.config()), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"traced"}, {"traced_probes"}, {"perfetto", "--txt", "--config", config, "--out", filepath.Join(dir, "session")},
	} {
		c := p.command(ctx, args...)
		if err := c.Start(); err != nil {
			return errors.Join(err, p.stop())
		}
		p.programs = append(p.programs, c)
		time.Sleep(time.Second) // they say nothing when they have begun
	}
	return nil
}

func (p *perfetto) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), "PERFETTO_CONSUMER_SOCK_NAME="+filepath.Join(p.dir, "consumer"),
		"PERFETTO_PRODUCER_SOCK_NAME="+filepath.Join(p.dir, "producer"))
	c.Stdout, c.Stderr = p.log, p.log
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c
}

// saved counts no events: no program that Debian packages reads Perfetto's files.
func (p *perfetto) saved(ended uint64) (saved, error) {
	path := filepath.Join(p.dir, "clone")
	if err := p.command(context.Background(), "perfetto", "--clone-by-name", perfettoSession, "--out", path).Run(); err != nil {
		text, _ := os.ReadFile(p.log.Name())
		return saved{}, fmt.Errorf("perfetto --clone-by-name: %w; it says:\n%s", err, text)
	}
	s := saved{from: ended, until: linux.Monotonic(), bytes: size(path)}
	return s, os.Remove(path)
}

func (p *perfetto) stop() error {
	for i := len(p.programs) - 1; i >= 0; i-- { // the session first: it gives ftrace back
		c := p.programs[i]
		_ = c.Process.Signal(unix.SIGINT)
		late := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait() // its status says that it was interrupted
		late.Stop()
	}
	return p.log.Close()
}
