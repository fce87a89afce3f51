package redacted

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/internal/redact"
)

// walk returns a decoded JSON document with its strings replaced by the keys that they
// stand at.
func (c *copier) walk(v any) any { return c.value(v, "", "") }

// value replaces what stands at a key of an object that stands at parent; elements of lists
// stand where the list does.
func (c *copier) value(v any, parent, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			name := k
			if k == "explained" {
				continue // written anew
			}
			if slices.Contains(free, key) {
				name = c.p.Name(redact.Labels, k)
			}
			out[name] = c.value(v[k], key, k)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = c.value(v[i], parent, key)
		}
		return out
	case string:
		return c.text(v, parent, key)
	case json.Number:
		return c.number(v, parent, key)
	}
	return v
}

// free are the objects whose keys and values programs and people chose.
var free = []string{"attributes", "labels", "workload"}

// kept are the keys of strings that name nobody: words of tailcam's, times, ids, rules.
// A key may have the one before it in front.
var kept = []string{
	"abi", "activities.token", "activity.token", "arch", "attach", "cause", "checksums", "confidence", "end", "flags", "from", "histogram.by", "host.kernel", "host.kernel_version", "id", "op", "on", "on_duplicate",
	"part", "phase", "policy", "rule", "rules.name", "rules.stacks", "runtime", "snapshot", "stage", "state", "syscall.name",
	"tailcam", "thread", "time", "to", "track", "trigger.source", "usual.of", "vector",
}

// texts are those of tailcam's sentences, in which names may stand, and of names that the
// kernel and its drivers chose.
var texts = []string{
	"activity.account", "block.device", "context", "irq.name", "notes", "origin", "queue", "stages.what", "user_missing", "work.queue",
}

// text replaces one string.
func (c *copier) text(s, parent, key string) string {
	is := func(list []string) bool { return slices.Contains(list, key) || slices.Contains(list, parent+"."+key) }
	switch {
	case parent == "settings", parent == "limits":
		return c.setting(s)
	case slices.Contains(free, parent) || parent == "span" && key == "key", (parent == "activity" || parent == "activities") && (key == "name" || key == "text"):
		return c.p.Name(redact.Labels, s)
	case parent == "devices", is(texts), key == "reason" && strings.HasPrefix(s, "outlier of rule "):
		return c.p.Text(s)
	case key == "reason":
		return c.p.Name(redact.Labels, s)
	case parent == "stacks" && key == "user", parent == "inlined" && key == "function":
		return c.frame(s)
	case parent == "stacks", parent == "progress" && key == "kernel", parent == "functions", parent == "work" && key == "function":
		return c.kernelSymbol(s)
	case parent == "host" && (key == "name" || key == "nodename"):
		return c.p.Name(redact.Hosts, s)
	case key == "boot_id":
		return c.boot(s)
	case is(kept):
		return s
	}
	return c.named(s, key)
}

// named replaces a string by its key alone.
func (c *copier) named(s, key string) string {
	switch strings.TrimPrefix(key, "not_") {
	case "comm":
		return c.command(s)
	case "cmdline":
		return c.commandLine(s)
	case "title":
		return c.title(s)
	case "cgroup", "cpu_cgroup", "memory_cgroup", "io_cgroup":
		return c.cgroup(s)
	case "container", "container_name", "image", "unit", "pod", "pod_uid", "namespace":
		return c.p.Name(redact.Places, s)
	case "local_address", "remote_address": // both ends have the same one
		return c.p.Name(redact.Addresses, s)
	case "file":
		return c.file(s)
	case "run":
		return c.p.Name(redact.Arguments, s)
	case "user": // of an action
		return c.p.Name(redact.Users, s)
	}
	return c.p.Name(redact.Others, s)
}

// keys are the numbers of an outlier's key that are no address of anybody.
var keys = []string{"tid", "pid", "cpu", "irq", "vec", "vector", "dev", "device", "sector", "rq", "work", "function"}

// number replaces the numbers of users, and those that only a rule's author understands.
func (c *copier) number(n json.Number, parent, key string) json.Number {
	kind := redact.Labels
	switch {
	case strings.TrimPrefix(key, "not_") == "uid":
		kind = redact.Users
	case parent == "activity" && key == "value", parent == "labels", parent == "key" && !slices.Contains(keys, key):
	default:
		return n
	}
	v, err := strconv.ParseUint(n.String(), 10, 64)
	if err != nil {
		v, kind = 1, redact.Others // negative, or a fraction
	}
	return json.Number(strconv.FormatUint(c.p.Number(kind, v), 10))
}
