package redacted

import (
	"path"
	"regexp"
	"strings"

	"github.com/tailcam/tailcam/internal/redact"
)

// kernelThreads are names of kernel threads that may have exited before anybody asked what
// they are. Other programs can have them, too: they say nothing.
var kernelThreads = regexp.MustCompile(`^(?:swapper/\d+|kworker/u?\d+:\d+H?|ksoftirqd/\d+|migration/\d+|cpuhp/\d+|ktimers/\d+|` +
	`rcu_(?:preempt|sched|gp)|rcu[a-z]{2,4}/\d+|kswapd\d+|kcompactd\d+|kthreadd|khugepaged|loop\d+|jbd2/[a-z]{2,6}[-0-9a-z]{0,8}-\d+)$`)

// maxComm is the length of a task's name, in bytes.
const maxComm = 15

// command returns the pseudonym of a task's name. Kernel threads keep theirs.
func (c *copier) command(name string) string {
	if c.kernel[name] || kernelThreads.MatchString(name) {
		return name
	}
	return c.p.Name(redact.Commands, name)
}

// commandLine replaces the program as its task's name, and the arguments as one.
func (c *copier) commandLine(s string) string {
	program, arguments, more := strings.Cut(s, " ")
	switch name := path.Base(program); {
	case c.p.Replaces(redact.Commands):
		program = c.command(name[:min(len(name), maxComm)])
	case c.p.Replaces(redact.Files):
		program = c.p.Text(name)
	default:
		program = c.p.Text(program)
	}
	if more {
		program += " " + c.p.Name(redact.Arguments, arguments)
	}
	return program
}

// title replaces what a process calls itself.
func (c *copier) title(s string) string {
	if c.p.Replaces(redact.Commands) {
		return c.p.Name(redact.Commands, s)
	}
	program, arguments, more := strings.Cut(s, " ")
	if program = c.p.Text(program); more {
		program += " " + c.p.Name(redact.Arguments, arguments)
	}
	return program
}

var (
	// noFile are names of what is no file, and files that everybody has.
	noFile = regexp.MustCompile(`^(?:(?:socket|pipe|net|mnt|pid|user|uts|ipc|cgroup|time):\[\d+\]|anon_inode:\[?[a-z-]+\]?|` +
		`/dev/(?:null|zero|full|random|urandom|tty|ptmx|kmsg|pts/\d+))$`)
	// system are the libraries that every machine has.
	system = regexp.MustCompile(`^(?:\[[a-z_]+\]|ld-(?:linux|musl)[-.0-9a-z_]*|lib(?:c|m|dl|rt|pthread|gcc_s|stdc\+\+|crypto|ssl|z|resolv)[-.0-9]*\.so[.0-9]*)$`)
)

// file replaces a path as a whole.
func (c *copier) file(name string) string {
	if noFile.MatchString(name) {
		return name
	}
	with := c.p.Name(redact.Files, name)
	if strings.HasPrefix(name, "/") && c.p.Replaces(redact.Files) {
		with = "/" + strings.TrimPrefix(with, "/")
	}
	return with
}

// groups are cgroups that every machine has.
var groups = regexp.MustCompile(`^(?:|system\.slice|user\.slice|machine\.slice|init\.scope|kubepods(?:-burstable|-besteffort)?(?:\.slice)?)$`)

// cgroup replaces each part of a path, so that what is below what stays visible.
func (c *copier) cgroup(s string) string {
	parts := strings.Split(s, "/")
	for i, part := range parts {
		if !groups.MatchString(part) {
			parts[i] = c.p.Name(redact.Places, part)
		}
	}
	return strings.Join(parts, "/")
}

// boot keeps the form of a boot id.
func (c *copier) boot(id string) string {
	if id == "" || !c.p.Replaces(redact.Hosts) {
		return id
	}
	return "00000000-0000-0000-0000-000000000001"
}

var (
	kernelFrame = regexp.MustCompile(`^(?:\[unknown\]|[A-Za-z_.$][A-Za-z0-9_.$]*)(?:\+0x[0-9a-f]+| 0x[0-9a-f]+)?(?: \[[a-z0-9_]+\])?$`)
	// userFrame is SYMBOL+0xOFFSET (MODULE+0xOFFSET), each part but the first may be missing.
	userFrame = regexp.MustCompile(`^(.*?)(\+0x[0-9a-f]+)?(?: \(([^()]*?)(\+0x[0-9a-f]+)?\))?$`)
)

// kernelSymbol keeps what the kernel can have called a function.
func (c *copier) kernelSymbol(s string) string {
	if kernelFrame.MatchString(s) {
		return s
	}
	return c.p.Text(s)
}

// frame replaces the module of a frame of a program, and its function if asked to.
func (c *copier) frame(s string) string {
	m := userFrame.FindStringSubmatch(s)
	if m == nil {
		return c.p.Name(redact.Others, s)
	}
	symbol, offset, module, at := m[1], m[2], m[3], m[4]
	common := system.MatchString(module)
	switch {
	case strings.HasPrefix(symbol, "[unknown]"), common:
	case c.p.Replaces(redact.Functions):
		symbol = c.p.Name(redact.Functions, symbol)
	default:
		symbol = c.p.Symbol(symbol)
	}
	if module == "" {
		return symbol + offset
	}
	if !common {
		module = c.module(module)
	}
	return symbol + offset + " (" + module + at + ")"
}

// module is the program that a task is named after, or a file.
func (c *copier) module(name string) string {
	if with, ok := c.p.Known(redact.Commands, name[:min(len(name), maxComm)]); ok {
		return with
	}
	return c.file(name)
}

// value is a word of a setting of the kernel or of a cgroup that names nobody: a number, or one
// of the choices that kernels have.
var value = regexp.MustCompile(`^(?:-?\d+(?:[-,:]\d+)*|max|default|[rw](?:bps|iops)=(?:max|\d+)|` +
	`target=\d+|enable=[01]|ctrl=(?:auto|user)|(?:[rw](?:pct|lat)|min|max)=\d+(?:\.\d+)?|` +
	`\[?(?:always|madvise|never|defer|defer\+madvise|none|mq-deadline|kyber|bfq)\]?|` +
	`intel_idle|acpi_idle|haltpoll|performance|powersave|schedutil|ondemand|conservative|userspace)$`)

// setting keeps what names nobody.
func (c *copier) setting(s string) string {
	for word := range strings.FieldsSeq(s) {
		if !value.MatchString(word) {
			return c.p.Name(redact.Others, s)
		}
	}
	return s
}
