package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// Time that a guest gets beyond its tests': to boot, to print and to exit.
const bootTime = time.Minute

// commandLine is the kernels', beside that of the architecture. Any trouble ends
// the guest: with -no-reboot, QEMU exits when the kernel restarts. Without
// mitigations emulation is faster.
const commandLine = "quiet panic=-1 oops=panic mitigations=off net.ifnames=0"

// result is the outcome of one kernel.
type result struct {
	target  target
	release string
	logs    string // directory
	took    time.Duration
	counts  counts
	failure string   // empty: passed
	refused string   // skips that are not allowed, which matter once all tests passed
	said    []string // about what ran again
	span    disturbance.Span
	clock   *clock
	test    []byte // the logs
	kernel  []byte
}

// runAll runs the guests of all targets, at most opts.jobs at once.
func runAll(ctx context.Context, d dirs, p map[*arch]*payload, opts *options) []*result {
	results := make([]*result, len(opts.kernels))
	slots := make(chan struct{}, opts.jobs)
	var all sync.WaitGroup
	for i, t := range opts.kernels {
		r := &result{target: t, logs: filepath.Join(d.logs, t.name)}
		results[i] = r
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := r.prepareAndRun(ctx, d, p[t.arch], opts); err != nil {
				r.failure = err.Error()
			}
			if ctx.Err() == nil {
				fmt.Printf("vm: %s: %s\n", t.name, r.verdict())
			}
		})
	}
	all.Wait()
	return results
}

// prepareAndRun fetches the kernel, writes the initramfs and runs the guest.
func (r *result) prepareAndRun(ctx context.Context, d dirs, p *payload, opts *options) error {
	k, err := getKernel(ctx, d, r.target)
	if err != nil {
		return err
	}
	r.release = k.Release
	if err := os.MkdirAll(r.logs, 0o755); err != nil {
		return err
	}
	cfg := &boot.Config{
		Tests:   p.tests,
		Timeout: opts.timeout,
		Env: []string{
			"TAILCAM_GUEST=1",
			"TAILCAM_INJECT=" + injector,
			"TAILCAM_GUEST_KERNEL=" + r.target.name,
			"TAILCAM_GUEST_RELEASE=" + k.Release,
			"PATH=/bin", "HOME=/root", "TMPDIR=/tmp", "GOTRACEBACK=all",
		},
	}
	cfg.Tests = slices.Clone(cfg.Tests)
	for i := range cfg.Tests {
		run := r.target.run
		if r.target.share != nil && len(p.names[i]) > 0 {
			run = r.target.share.of(p.names[i])
		}
		if run != "" && opts.run == "" {
			cfg.Tests[i].Args = append(slices.Clip(cfg.Tests[i].Args), "-test.run="+run)
		}
	}
	for _, m := range k.Modules {
		m.Params = wanted(m.Name).params
		cfg.Modules = append(cfg.Modules, m)
	}
	initramfs := filepath.Join(d.build, "initramfs-"+r.target.name)
	if err := writeInitramfs(initramfs, k, p, cfg); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return r.boot(ctx, k.vmlinuz(), initramfs, opts)
}

// boot runs QEMU to its end and judges what came out.
func (r *result) boot(parent context.Context, vmlinuz, initramfs string, opts *options) error {
	runtime.LockOSThread() // see command
	defer runtime.UnlockOSThread()

	kernelLog, testLog := filepath.Join(r.logs, "kernel.log"), filepath.Join(r.logs, "test.log")
	ctx, cancel := context.WithTimeout(parent, opts.timeout+bootTime)
	defer cancel()
	a := r.target.arch
	args := slices.Concat([]string{
		"-accel", "tcg,thread=single,tb-size=256", // not KVM: nested, it may hang
		"-cpu", cmp.Or(r.target.cpu, a.cpu), "-smp", strconv.Itoa(cmp.Or(r.target.cpus, 2)), "-m", strconv.Itoa(opts.memory) + "M",
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
		"-kernel", vmlinuz, "-initrd", initramfs, "-append", a.console + " " + commandLine,
	}, a.machine, a.serial(kernelLog, testLog), r.target.qemu)
	cmd := command(ctx, r.logs, a.qemu.name, args...)
	var messages strings.Builder
	cmd.Stdout, cmd.Stderr = &messages, &messages
	r.clock = newClock()
	running, ended := context.WithCancel(parent)
	var follower sync.WaitGroup
	follower.Go(func() { r.clock.follow(running, testLog) })
	start := time.Now()
	err := cmd.Run()
	r.took = time.Since(start)
	r.span = disturbance.Span{From: start.Round(0), To: start.Add(r.took).Round(0)}
	ended()
	follower.Wait()
	if parent.Err() != nil {
		return parent.Err()
	}

	r.test, _ = os.ReadFile(testLog)
	r.kernel, _ = os.ReadFile(kernelLog)
	r.counts = count(r.test)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("hangs: killed after %s", r.took.Round(time.Second))
	case err != nil && !errors.As(err, &exit):
		return fmt.Errorf("start %s: %w", a.qemu.name, err)
	}
	r.failure = judge(cmd.ProcessState.ExitCode(), r.counts, r.kernel, messages.String())
	if refused := r.counts.refused(opts.skips, r.target.name, opts.packages); len(refused) > 0 {
		r.refused = fmt.Sprintf("skips that %s does not allow: %v", skipsFile, refused)
	}
	r.failure = cmp.Or(r.failure, r.refused)
	return nil
}

// wanted returns the module of that name; what another depends on has only its name.
func wanted(name string) module {
	for _, m := range modules {
		if m.name == name {
			return m
		}
	}
	return module{name: name}
}
