package bugtool

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

func collectVersion(_ context.Context, s *source) ([]file, error) {
	v := struct {
		Version  any               `json:"version"`
		Settings map[string]string `json:"settings"`
		Modules  []string          `json:"modules"`
	}{Version: s.opts.Version, Settings: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			v.Settings[setting.Key] = setting.Value
		}
		for _, m := range info.Deps {
			v.Modules = append(v.Modules, m.Path+" "+m.Version)
		}
	}
	return value("version.json", v), nil
}

// machine is what matters of a machine; nothing that names it.
type machine struct {
	Release      string `json:"release"`
	Version      string `json:"version"` // of the kernel's build
	Arch         string `json:"arch"`
	CPUs         int    `json:"cpus"`   // that this process may use
	OnlineCPUs   string `json:"online"` // as the kernel lists them
	PossibleCPUs string `json:"possible"`
	MemoryBytes  uint64 `json:"memory_bytes"`
	UptimeS      int64  `json:"uptime_s"`
	OS           string `json:"os,omitempty"`
	Vendor       string `json:"vendor,omitempty"` // of the machine, or of its hypervisor
	ClockSource  string `json:"clock_source,omitempty"`
}

func collectMachine(context.Context, *source) ([]file, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	m := machine{
		Release: unix.ByteSliceToString(u.Release[:]), Version: unix.ByteSliceToString(u.Version[:]),
		Arch: unix.ByteSliceToString(u.Machine[:]), CPUs: runtime.NumCPU(),
		OnlineCPUs: word("/sys/devices/system/cpu/online"), PossibleCPUs: word("/sys/devices/system/cpu/possible"),
		MemoryBytes: info.Totalram * uint64(info.Unit), UptimeS: info.Uptime,
		Vendor:      word("/sys/class/dmi/id/sys_vendor"),
		ClockSource: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
	}
	for line := range strings.Lines(word("/etc/os-release")) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			m.OS = strings.Trim(strings.TrimSpace(name), `"'`)
		}
	}
	return value("machine.json", m), nil
}

// word reads a small file; "": it cannot be read.
func word(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

var kernelOptions = regexp.MustCompile(`^(?:# )?CONFIG_(?:` +
	`\w*(?:BPF|BTF|FTRACE|KPROBE|UPROBE|PREEMPT|TRACEPOINT|TRACER|CGROUP)\w*|` +
	`HZ\w*|NO_HZ\w*|SECURITY_LOCKDOWN\w*|PERF_EVENTS|KALLSYMS\w*)[= ]`)

func collectKernelConfig(context.Context, *source) ([]file, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	in, err := openKernelConfig(unix.ByteSliceToString(u.Release[:]))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var kept strings.Builder
	lines := bufio.NewScanner(io.LimitReader(in, 16<<20))
	for lines.Scan() {
		if kernelOptions.MatchString(lines.Text()) {
			kept.WriteString(lines.Text() + "\n")
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return plain("kernel-config.txt", kept.String()), nil
}

func openKernelConfig(release string) (io.ReadCloser, error) {
	f, err := os.Open("/proc/config.gz")
	if err != nil {
		f, err = os.Open("/boot/config-" + release)
		if err != nil {
			return nil, errNothing{"neither /proc/config.gz nor /boot/config-" + release + " can be read"}
		}
		return f, nil
	}
	zip, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{zip, f}, nil
}
