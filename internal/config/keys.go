package config

import (
	"fmt"
	"math"
	"net"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/budget"
	"github.com/tailcam/tailcam/rules"
)

// key is one key of the configuration. Its values are strings until set parses
// them; only a list may have more than one.
type key struct {
	name    string // snapshots.min_free
	def     []string
	usage   string   // for flags; the word in `` names the value
	tags    []string // YAML types that it may have
	list    bool
	set     func(c *Config, v []string) (wrong string) // wrong continues a sentence that begins with the value
	allowed string
	unset   bool // may be empty
	secret  bool // no error has its value
}

func (k *key) env() string  { return "TAILCAM_" + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_")) }
func (k *key) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(k.name) }

// Who sets the size of the history and says nothing of its duration wants that size.
const sizeKey, coverKey = "recorder.size", "recorder.cover"

// keys lists all keys in the order of configs/tailcam.yaml.
func keys() []key {
	return slices.Concat([]key{
		texts("rules", strings.Join(rules.DefaultPaths, ","), "rule `files` and directories of rule files", "paths of files or directories",
			setRules),
		unset(text("host", "", "`name` of this host in what is sent and saved; empty: the machine's own",
			"at most 253 letters, digits, dots, hyphens and underscores, first a letter or digit", setHost)),
		boolean("reload.watch", "false", "reload when files change: `true or false`",
			func(c *Config) *bool { return &c.Reload.Watch }),
		text("pin", PinAuto, "`where` the kernel side is kept if the daemon dies: auto: by systemd, if its unit says so; "+
			"off: nowhere; or a directory of a BPF file system", "auto, off, or an absolute path", setPin),
		text("socket.path", "/run/tailcam/tailcam.sock", "`path` of the socket for the command line",
			"a path of at most 107 bytes", setSocket(func(c *Config) *string { return &c.Socket.Path })),
		text("socket.group", "tailcam", "`group` that may use the socket", "the name of a group",
			func(c *Config, s string) string { c.Socket.Group = s; return "" }),
		boolean("recorder.enabled", "true", "record a history of events: `true or false`",
			func(c *Config) *bool { return &c.Recorder.Enabled }),
		oneOf("recorder.backend", "mmap", "recorder `backend`, mmap or perf", []string{"mmap", "perf"},
			func(c *Config) *string { return &c.Recorder.Backend }),
		size(sizeKey, "2MiB", "`size` of the history of each CPU", 128<<10, 512<<20,
			func(c *Config, n int64) { c.Recorder.Size = int(n) }),
		optional(duration(coverKey, "5s",
			"`duration` of the history of each CPU, sized by measuring at start; 0s, or if only recorder.size is set: use that",
			100*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &c.Recorder.Cover })),
		byteCount("recorder.max_memory", "128MiB", "maximum `size` for recorder.cover, for all CPUs", 1<<20, 1<<40,
			func(c *Config) *int64 { return &c.Recorder.MaxMemory }),
		texts("recorder.events", "sched,irq,timer,block,workqueue,process,reclaim,lock,throttle,wait,run",
			"`groups` of events to record", strings.Join(EventGroups, ", "), setEvents),
		optional(duration("recorder.irq_floor", "10us",
			"`duration` from which on an interrupt or softirq is recorded by itself; 0s: each is",
			time.Microsecond, 100*time.Millisecond, func(c *Config) *time.Duration { return &c.Recorder.IRQFloor })),
		text("snapshots.dir", "/var/lib/tailcam/snapshots", "snapshot `directory`", "a path", setSnapshotDir),
		count("snapshots.keep.count", "100", "maximum `number` of snapshots", 1, 1000000,
			func(c *Config) *int { return &c.Snapshots.Keep.Count }),
		byteCount("snapshots.keep.bytes", "1GiB", "maximum `size` of all snapshots", 1<<20, 1<<50,
			func(c *Config) *int64 { return &c.Snapshots.Keep.Bytes }),
		duration("snapshots.keep.age", "168h", "maximum `age` of snapshots", time.Minute, 10*365*24*time.Hour,
			func(c *Config) *time.Duration { return &c.Snapshots.Keep.Age }),
		count("snapshots.keep.worst", "3", "`number` of the slowest snapshots of each rule, and of each culprit, to keep before newer ones",
			0, 1000, func(c *Config) *int { return &c.Snapshots.Keep.Worst }),
		byteCount("snapshots.min_free", "512MiB", "`size` to leave free on the file system", 0, 1<<50,
			func(c *Config) *int64 { return &c.Snapshots.MinFree }),
		oneOf("snapshots.compress", CompressZstd, "`how` traces of snapshots are compressed, zstd or none", []string{CompressZstd, CompressNone},
			func(c *Config) *string { return &c.Snapshots.Compress }),
		optional(duration("snapshots.boost", "500ms", "CPU `time` for which one snapshot may raise the daemon's priority; 0s: never",
			time.Millisecond, 2*time.Second, func(c *Config) *time.Duration { return &c.Snapshots.Boost })),
		count("snapshots.rt_priority", "0", "real-time `priority` of the threads that take snapshots, 1 to 99; 0: none",
			0, 99, func(c *Config) *int { return &c.Snapshots.RTPriority }),
		text("actions.user", "nobody", "`user` that actions run as", "an existing user", setActionUser),
		count("actions.concurrency", "2", "maximum `number` of running actions", 1, 64,
			func(c *Config) *int { return &c.Actions.Concurrency }),
		count("actions.queue", "16", "maximum `number` of waiting actions", 1, 10000,
			func(c *Config) *int { return &c.Actions.Queue }),
		optional(duration("actions.max_cpu", "10m", "maximum CPU `time` of one action, with all that it starts; 0s: no limit",
			time.Second, 24*time.Hour, func(c *Config) *time.Duration { return &c.Actions.MaxCPU })),
		byteCount("actions.max_memory", "1GiB", "maximum `size` of the memory of one action, with all that it starts",
			rules.MinActionMemory, rules.MaxActionBytes, func(c *Config) *int64 { return &c.Actions.MaxMemory }),
		percentage("actions.total_cpu", "off", "`share` of the time of all CPUs that all running actions may use together, such as 50%; off: no limit",
			0.001, 1, func(c *Config) *float64 { return &c.Actions.TotalCPU }),
		orOff(byteCount("actions.total_memory", "off", "maximum `size` of the memory of all running actions together; off: no limit",
			rules.MinActionMemory, rules.MaxActionBytes, func(c *Config) *int64 { return &c.Actions.TotalMemory })),
		byteCount("actions.max_output", "1MiB", "`size` of what is kept of the output of one action", 1, rules.MaxActionBytes,
			func(c *Config) *int64 { return &c.Actions.MaxOutput }),
		table("capacity.initial.tasks", "65536", "initial `slots` for tasks",
			func(c *Config) *int { return &c.Capacity.Initial.Tasks }),
		table("capacity.initial.syscalls", "16384", "initial `slots` for system calls in progress",
			func(c *Config) *int { return &c.Capacity.Initial.Syscalls }),
		table("capacity.initial.block", "16384", "initial `slots` for block requests in flight",
			func(c *Config) *int { return &c.Capacity.Initial.Block }),
		table("capacity.initial.workqueue", "16384", "initial `slots` for work items",
			func(c *Config) *int { return &c.Capacity.Initial.Workqueue }),
		table("capacity.max.tasks", "524288", "maximum `slots` for tasks",
			func(c *Config) *int { return &c.Capacity.Max.Tasks }),
		table("capacity.max.syscalls", "131072", "maximum `slots` for system calls in progress",
			func(c *Config) *int { return &c.Capacity.Max.Syscalls }),
		table("capacity.max.block", "131072", "maximum `slots` for block requests in flight",
			func(c *Config) *int { return &c.Capacity.Max.Block }),
		table("capacity.max.workqueue", "131072", "maximum `slots` for work items",
			func(c *Config) *int { return &c.Capacity.Max.Workqueue }),
		table("capacity.pairs", "16384", "`slots` for pending work of declared pairs",
			func(c *Config) *int { return &c.Capacity.Pairs }),
		table("capacity.chains", "4096", "`slots` for tasks that carry a chain",
			func(c *Config) *int { return &c.Capacity.Chains }),
		table("capacity.spans", "16384", "`slots` for pending spans", func(c *Config) *int { return &c.Capacity.Spans }),
		size("outliers.buffer", "4MiB", "`size` of the buffer of outliers", 64<<10, 256<<20,
			func(c *Config, n int64) { c.Outliers.Buffer = int(n) }),
		count("outliers.rate", "100", "maximum `number` of outliers per rule and second; 0: no limit", 0, 1000000,
			func(c *Config) *int { return &c.Outliers.Rate }),
		count("outliers.burst", "500", "maximum `number` of outliers per rule in a burst", 1, 1000000,
			func(c *Config) *int { return &c.Outliers.Burst }),
		boolean("histograms.enabled", "true", "count all delays, not only outliers: `true or false`",
			func(c *Config) *bool { return &c.Histograms.Enabled }),
		boolean("activities.enabled", "false", "read the trace and span that programs publish for their threads, and keep accounts of requests: `true or false`",
			func(c *Config) *bool { return &c.Activities.Enabled }),
		unset(texts("activities.attributes", "", "`attributes` that programs publish beside trace and span, and that outliers carry; empty: none",
			"keys of attributes", setAttributes)),
		texts("activities.groups", strings.Join(accounts.Default(), ","),
			"`groups` of accounts to keep", strings.Join(accounts.Names(), ", "), setGroups),
		byteCount("activities.user_memory", "96MiB", "maximum `size` of the tokens and accounts of one user's processes", 1<<20, 1<<36,
			func(c *Config) *int64 { return &c.Activities.UserMemory }),
		byteCount("activities.memory", "192MiB", "maximum `size` of all tokens and accounts", 1<<20, 1<<36,
			func(c *Config) *int64 { return &c.Activities.Memory }),
		unset(text("activities.socket", "", "`path` of a socket for everybody that serves only activities; empty: none",
			"a path of at most 107 bytes", setSocket(func(c *Config) *string { return &c.Activities.Socket }))),
		boolean("symbols.lines", "true", "read debug information for source lines and inlined functions: `true or false`",
			func(c *Config) *bool { return &c.Symbols.Lines }),
		byteCount("symbols.max_memory", "256MiB", "maximum memory `size` of each helper that reads symbols",
			160<<20, 1<<40, func(c *Config) *int64 { return &c.Symbols.MaxMemory }),
	}, containerKeys(), []key{
		percentage("budget.cpu", "1%", "`share` of the time of all CPUs that tailcam may use, such as 1%; off: no limit",
			0.0001, 1, func(c *Config) *float64 { return &c.Budget.CPU }),
		percentage("budget.softirqs", "0.1%", "`share` that the hooks of softirqs may use; off: no limit of their own",
			0.0001, 1, func(c *Config) *float64 { return &c.Budget.Softirqs }),
		percentage("budget.locks", "0.1%", "`share` that the hooks of contended locks of the kernel may use; off: no limit of their own",
			0.0001, 1, func(c *Config) *float64 { return &c.Budget.Locks }),
		orAuto(orOff(byteCount("budget.memory", "auto", "`size` of the memory that tailcam may use; auto: 256MiB, or more if the recorder needs it; off: no limit",
			64<<20, 1<<40, func(c *Config) *int64 { return &c.Budget.Memory })), func(c *Config) { c.Budget.Memory = budget.AutoMemory }),
		unset(text("metrics.listen", "", "`address` to serve Prometheus metrics on; empty: none",
			"HOST:PORT, or unix: and a path", setListen(func(c *Config) *string { return &c.Metrics.Listen }))),
		path("metrics.web_config", "web configuration `file` of Prometheus exporters, for TLS and basic authentication",
			func(c *Config) *string { return &c.Metrics.WebConfig }),
		unset(text("alerts.listen", "", "`address` to take Alertmanager's alerts on; empty: only socket.path",
			"HOST:PORT, or unix: and a path", setListen(func(c *Config) *string { return &c.Alerts.Listen }))),
		path("alerts.web_config", "web configuration `file` of Prometheus exporters, for TLS and basic authentication of alerts",
			func(c *Config) *string { return &c.Alerts.WebConfig }),
	}, peersKeys(), otlpKeys(), uploadKeys(), []key{
		oneOf("log.level", "info", "log `level`", []string{"debug", "info", "warn", "error"},
			func(c *Config) *string { return &c.Log.Level }),
		oneOf("log.format", "auto", "log `format`: auto, json or console", []string{"auto", "json", "console"},
			func(c *Config) *string { return &c.Log.Format }),
	})
}

func text(name, def, usage, allowed string, set func(*Config, string) string) key {
	return key{name: name, def: []string{def}, usage: usage, allowed: allowed, tags: []string{"!!str"},
		set: func(c *Config, v []string) string { return set(c, v[0]) }}
}

func texts(name, def, usage, allowed string, set func(*Config, []string) string) key {
	return key{name: name, def: strings.Split(def, ","), usage: usage, allowed: allowed, tags: []string{"!!str"},
		list: true, set: set}
}

func oneOf(name, def, usage string, words []string, field func(*Config) *string) key {
	return text(name, def, usage, strings.Join(words, ", "), func(c *Config, s string) string {
		if !slices.Contains(words, s) {
			return "is unknown"
		}
		*field(c) = s
		return ""
	})
}

func boolean(name, def, usage string, field func(*Config) *bool) key {
	k := text(name, def, usage, "true, false", func(c *Config, s string) string {
		if s != "true" && s != "false" {
			return "is not a boolean"
		}
		*field(c) = s == "true"
		return ""
	})
	k.tags = []string{"!!bool"}
	return k
}

func count(name, def, usage string, least, most int, field func(*Config) *int) key {
	k := text(name, def, usage, fmt.Sprintf("an integer from %d to %d", least, most), func(c *Config, s string) string {
		n, err := strconv.Atoi(s)
		switch {
		case err != nil:
			return "is not an integer"
		case n < least:
			return "is too small"
		case n > most:
			return "is too large"
		}
		*field(c) = n
		return ""
	})
	k.tags = []string{"!!int"}
	return k
}

// table is the size of a pending table: a power of two, as slots are found with a mask.
func table(name, def, usage string, field func(*Config) *int) key {
	k := count(name, def, usage, 64, 1<<22, field)
	k.allowed = "a power of two from 64 to 4194304"
	within := k.set
	k.set = func(c *Config, v []string) string {
		wrong := within(c, v)
		if n := *field(c); wrong == "" && n&(n-1) != 0 {
			return "is not a power of two"
		}
		return wrong
	}
	return k
}

func byteCount(name, def, usage string, least, most int64, field func(*Config) *int64) key {
	k := text(name, def, usage, fmt.Sprintf("a size from %s to %s, such as 64MiB", rules.FormatBytes(least), rules.FormatBytes(most)),
		func(c *Config, s string) string {
			n, ok := rules.ParseBytes(s)
			switch {
			case !ok:
				return "is not a size"
			case n < least:
				return "is too small"
			case n > most:
				return "is too large"
			}
			*field(c) = n
			return ""
		})
	k.tags = []string{"!!int", "!!str"}
	return k
}

// size is the size of a ring: a power of two, in whole pages.
func size(name, def, usage string, least, most int64, store func(*Config, int64)) key {
	var n int64
	k := byteCount(name, def, usage, least, most, func(*Config) *int64 { return &n })
	k.allowed = fmt.Sprintf("a power of two from %s to %s", rules.FormatBytes(least), rules.FormatBytes(most))
	within := k.set
	k.set = func(c *Config, v []string) string {
		wrong := within(c, v)
		if wrong == "" && n&(n-1) != 0 {
			return "is not a power of two"
		}
		store(c, n)
		return wrong
	}
	return k
}

func duration(name, def, usage string, least, most time.Duration, field func(*Config) *time.Duration) key {
	k := text(name, def, usage, rules.DurationRange(least, most), func(c *Config, s string) string {
		d, err := rules.ParseDuration(s, least, most)
		if err != nil {
			return strings.TrimPrefix(strings.TrimPrefix(err.Error(), s+" "), strconv.Quote(s)+" ")
		}
		*field(c) = d
		return ""
	})
	k.tags = []string{"!!str", "!!int", "!!float"}
	return k
}

// optional also allows 0s, which disables it.
func optional(k key) key {
	within := k.set
	k.allowed = "0s, or " + k.allowed
	k.set = func(c *Config, v []string) string {
		if v[0] == "0s" || v[0] == "0" {
			return ""
		}
		return within(c, v)
	}
	return k
}

// percentage is a share of a whole. It may be off.
func percentage(name, def, usage string, least, most float64, field func(*Config) *float64) key {
	percent := func(share float64) string { return strconv.FormatFloat(100*share, 'g', 6, 64) + "%" }
	allowed := fmt.Sprintf("a percentage from %s to %s, such as 1%%", percent(least), percent(most))
	k := text(name, def, usage, allowed, func(c *Config, s string) string {
		number, ok := strings.CutSuffix(s, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch {
		case err != nil || math.IsNaN(v):
			return "is not a percentage"
		case !ok:
			return "has no %"
		case v < 100*least:
			return "is too small"
		case v > 100*most:
			return "is too large"
		}
		*field(c) = v / 100
		return ""
	})
	k.tags = []string{"!!str", "!!int", "!!float"}
	return orOff(k)
}

// orOff also allows off and 0, which leave the field zero.
func orOff(k key) key {
	within := k.set
	k.allowed = "off, or " + k.allowed
	k.set = func(c *Config, v []string) string {
		if v[0] == "off" || v[0] == "0" {
			return ""
		}
		return within(c, v)
	}
	return k
}

// orAuto also allows auto.
func orAuto(k key, choose func(*Config)) key {
	within := k.set
	k.allowed = "auto, " + k.allowed
	k.set = func(c *Config, v []string) string {
		if v[0] == "auto" {
			choose(c)
			return ""
		}
		return within(c, v)
	}
	return k
}

// unset also allows an empty value, which disables it.
func unset(k key) key {
	within := k.set
	k.unset = true
	k.set = func(c *Config, v []string) string {
		if v[0] == "" {
			return ""
		}
		return within(c, v)
	}
	return k
}

func setRules(c *Config, v []string) string {
	c.Rules = nil
	for _, path := range v {
		abs, err := filepath.Abs(path)
		if path == "" || err != nil {
			return "is not a path"
		}
		c.Rules = append(c.Rules, abs)
	}
	return ""
}

// hostName matches what paths and URLs have as it is.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

func setHost(c *Config, s string) string {
	if !hostName.MatchString(s) {
		return "is not the name of a host"
	}
	c.Host = s
	return ""
}

func setPin(c *Config, s string) string {
	if s != PinAuto && s != PinOff && !filepath.IsAbs(s) {
		return "is not an absolute path"
	}
	c.Pin = s
	return ""
}

// setSocket reads the path of a socket.
func setSocket(field func(*Config) *string) func(*Config, string) string {
	return func(c *Config, s string) string {
		abs, err := filepath.Abs(s)
		if err != nil {
			return "is not a path"
		}
		if len(abs) > maxSocketPath {
			return "is too long for a socket"
		}
		*field(c) = abs
		return ""
	}
}

// maxSocketPath is what sun_path of struct sockaddr_un holds, less its final zero.
const maxSocketPath = 107

// setListen reads where to listen.
func setListen(field func(*Config) *string) func(*Config, string) string {
	return func(c *Config, s string) string {
		if path, ok := strings.CutPrefix(s, "unix:"); ok {
			abs, err := filepath.Abs(path)
			switch {
			case err != nil || path == "":
				return "has no path"
			case len(abs) > maxSocketPath:
				return "is too long for a socket"
			}
			*field(c) = "unix:" + abs
			return ""
		}
		_, port, err := net.SplitHostPort(s)
		if err != nil {
			return "is not an address"
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "has no port from 0 to 65535"
		}
		*field(c) = s
		return ""
	}
}

func setSnapshotDir(c *Config, s string) string {
	abs, err := filepath.Abs(s)
	if err != nil {
		return "is not a path"
	}
	c.Snapshots.Dir = abs
	return ""
}

func setEvents(c *Config, v []string) string { return setList(&c.Recorder.Events, v, EventGroups) }

func setGroups(c *Config, v []string) string {
	return setList(&c.Activities.Groups, v, accounts.Names())
}

// Limits of activities.attributes.
const (
	maxAttributes   = 16
	maxAttributeKey = 128 // bytes
)

func setAttributes(c *Config, v []string) string {
	if len(v) > maxAttributes {
		return fmt.Sprintf("has more than %d attributes", maxAttributes)
	}
	c.Activities.Attributes = nil
	for _, key := range v {
		switch {
		case key == "" || len(key) > maxAttributeKey:
			return fmt.Sprintf("has a key that is empty, or longer than %d bytes", maxAttributeKey)
		case !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }):
			return fmt.Sprintf("has the key %q with characters that are not printable", key)
		case slices.Contains(c.Activities.Attributes, key):
			return fmt.Sprintf("lists %s twice", key)
		}
		c.Activities.Attributes = append(c.Activities.Attributes, key)
	}
	return ""
}

func setList(to *[]string, v, known []string) string {
	*to = nil
	for _, group := range v {
		switch {
		case !slices.Contains(known, group):
			return fmt.Sprintf("has the unknown group %q", group)
		case slices.Contains(*to, group):
			return fmt.Sprintf("lists %s twice", group)
		}
		*to = append(*to, group)
	}
	return ""
}

func setActionUser(c *Config, s string) string {
	if _, err := user.Lookup(s); err != nil {
		return "does not exist"
	}
	c.Actions.User = s
	return ""
}
