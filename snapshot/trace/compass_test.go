package trace

import (
	"strings"
	"testing"
)

// compassFields are what the kernel analyses of Trace Compass read of a trace
// of lttng-modules 2.9 or later (its Lttng29EventLayout, and the handlers of
// org.eclipse.tracecompass.analysis.os.linux.core): some of them end at an event
// without the field, or with one of another type. A $ marks text.
var compassFields = map[string]string{
	"sched_switch":                  "prev_comm$ prev_tid prev_state prev_prio next_comm$ next_tid next_prio",
	"sched_waking":                  "comm$ tid prio target_cpu",
	"sched_wakeup_new":              "comm$ tid prio target_cpu",
	"sched_migrate_task":            "tid prio dest_cpu",
	"sched_process_fork":            "parent_tid child_comm$ child_tid child_pid",
	"sched_process_exec":            "filename$ tid",
	"sched_process_exit":            "tid",
	"irq_handler_entry":             "irq name$",
	"irq_handler_exit":              "irq ret",
	"irq_softirq_entry":             "vec",
	"irq_softirq_exit":              "vec",
	"timer_hrtimer_expire_entry":    "hrtimer function now",
	"timer_hrtimer_expire_exit":     "hrtimer",
	"block_rq_insert":               "dev sector nr_sector rwbs",
	"block_rq_issue":                "dev sector nr_sector rwbs",
	"block_rq_complete":             "dev sector nr_sector rwbs",
	"power_cpu_frequency":           "cpu_id state",
	"syscall_entry_openat":          "filename$",
	"syscall_exit_openat":           "ret",
	"syscall_exit_read":             "ret",
	"lttng_statedump_process_state": "tid pid ppid status name$ cpu",
	"lttng_statedump_block_device":  "dev diskname$",
}

func TestTraceCompassFindsItsFields(t *testing.T) {
	names := syscallNames{ask: func(nr int) string { return []string{"read", "openat"}[nr] }}
	names.get(0)
	names.get(1)
	text := string(metadata(&Trace{}, [16]byte{}, names.known, 0))
	for _, want := range []string{
		"\tdomain = \"kernel\";\n", "\ttracer_name = \"lttng-modules\";\n", "\ttracer_major = 2;\n", "\ttracer_minor = 13;\n",
		"\tevent.context := struct {\n\t\tinteger { size = 32; align = 8; signed = true; base = 10; } _tid;\n", "\tuint32_t cpu_id;\n};",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the metadata", want)
		}
	}
	for event, fields := range compassFields {
		_, after, ok := strings.Cut(text, "\tname = \""+event+"\";\n")
		if !ok {
			t.Errorf("no event %s", event)
			continue
		}
		declared, _, _ := strings.Cut(after, "\n};")
		for field := range strings.FieldsSeq(fields) {
			name, isText := strings.CutSuffix(field, "$")
			found := false
			for line := range strings.Lines(declared) {
				before, rest, ok := strings.Cut(line, " _"+name)
				if !ok || rest != ";\n" && !strings.HasPrefix(rest, "[") {
					continue
				}
				found = true
				if got := strings.Contains(before, "encoding = UTF8"); got != isText {
					t.Errorf("%s: field %s: text %t, want %t", event, name, got, isText)
				}
			}
			if !found {
				t.Errorf("%s: no field %s", event, name)
			}
		}
	}
}
