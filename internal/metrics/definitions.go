package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const namespace = "tailcam_"

// definition is one metric of the daemon. Its name ends in its unit.
type definition struct {
	name   string
	kind   dto.MetricType
	labels []string
	desc   *prometheus.Desc
}

func define(kind dto.MetricType, name, help string, labels ...string) *definition {
	name = namespace + name
	return &definition{name, kind, labels, prometheus.NewDesc(name, help, labels, nil)}
}

func counter(name, help string, labels ...string) *definition {
	return define(dto.MetricType_COUNTER, name, help, labels...)
}

func gauge(name, help string, labels ...string) *definition {
	return define(dto.MetricType_GAUGE, name, help, labels...)
}

func distribution(name, help string, labels ...string) *definition {
	return define(dto.MetricType_HISTOGRAM, name, help, labels...)
}

// Metrics that a scrape computes; list has all of them. docs/metrics.md
// explains each.
var (
	buildInfo = gauge("build_info", "Version of the daemon; always 1.", "version", "goversion")

	delays     = distribution("delay_seconds", "All delays that a tracker measured, outliers or not.", "track")
	ruleDelays = distribution("rule_delay_seconds",
		"All delays that a rule with a histogram is about, outliers or not.", "rule", "class")

	activitySeconds = distribution("activity_seconds",
		"Time from begin to end of activities that programs mark by tokens.", "activity")

	outliers = counter("outliers_total",
		"Outliers reported, by the limit that they passed.", "rule", "cause")
	outlierSeconds = counter("outlier_seconds_total",
		"Delays of the reported outliers, added up.", "rule", "cause")
	blamed = counter("blamed_seconds_total",
		"Time that explanations of outliers blame on one cause, by the kind of culprit.", "rule", "cause", "culprit")

	ruleThreshold = gauge("rule_threshold_seconds", "Threshold of a rule now; absent if it has none.", "rule")
	ruleActive    = gauge("rule_active", "Whether the rule works on this kernel (1) or not (0).", "rule")
	rulePaused    = gauge("rule_paused",
		"Whether the rule is paused (1), by a user or because it fires too often.", "rule")
	ruleWorst = gauge("rule_worst_seconds",
		"Longest delay of a rule's outliers since the daemon started.", "rule")

	stuckWork = gauge("stuck_work",
		"Pending work that a rule's timeout has fired for and that has not ended yet.", "rule", "track")

	snapshots = counter("snapshots_total",
		"Snapshots by result: written, failed, skipped, limited.", "rule", "result")
	snapshotsStored  = gauge("snapshots_stored", "Snapshots on disk.")
	snapshotBytes    = gauge("snapshot_bytes", "Size of all snapshots on disk.")
	snapshotsPinned  = gauge("snapshots_pinned", "Snapshots on disk that are pinned.")
	snapshotsRemoved = counter("snapshots_removed_total",
		"Snapshots that retention removed, by the limit that they exceeded: age, count, bytes.", "limit")
	unremovable = gauge("snapshots_unremovable", "Snapshots on disk that retention cannot remove.")
	boosted     = gauge("snapshot_boosted", "Whether the daemon has a raised priority now (1), to write a snapshot.")
	boosts      = counter("snapshot_boosts_total",
		"Times that the daemon's priority was raised for snapshots by result: completed, expired, refused.", "result")
	boostSeconds = counter("snapshot_boost_cpu_seconds_total", "CPU time that the daemon took at a raised priority.")

	lost = counter("lost_total", "What could not be watched, reported or saved, by cause.", "cause", "rule")

	coverage = gauge("recorder_coverage_seconds",
		"History that the recorder holds of the CPU of which it holds least.")
	records     = counter("recorder_records_total", "Records written by all CPUs.")
	recordsLost = counter("recorder_lost_total",
		"Records that had no ring, or whose ring was busy, of all CPUs.")
	tableEntries  = gauge("table_entries", "Pending work in a table.", "table")
	tableCapacity = gauge("table_capacity", "Slots that a pending table has now.", "table")

	overhead = gauge("overhead_ratio",
		"CPU time that tailcam takes, of that of all CPUs, in the last 10 seconds.")
	budgetCPU = gauge("budget_ratio",
		"CPU time that tailcam may take, of that of all CPUs.")
	programSeconds = counter("program_seconds_total",
		"CPU time of a BPF program: its price times its runs, by whether the price was measured or assumed.",
		"program", "price")

	actions = counter("actions_total",
		"Actions by result: succeeded, failed, timed_out, over_limit, skipped, limited, unmatched, not_run.", "rule", "result")
	panics = counter("panics_total", "Panics that cost one piece of data, by what was being done.", "place")
	stuck  = gauge("helpers_stuck",
		"Helper processes blocked in the kernel by a file system that does not answer.")

	exports = counter("otlp_requests_total",
		"Requests to the OpenTelemetry collector by result: succeeded, failed, refused.", "signal", "result")
	exportQueue = gauge("otlp_outliers_waiting", "Outliers that wait to be sent to the OpenTelemetry collector.")
	exportSpool = gauge("otlp_spool_bytes", "Size of the outliers that wait on disk for the OpenTelemetry collector.")

	uploads = counter("uploads_total",
		"Uploads of snapshots by result: sent, existed (the target had it), failed (and repeated).", "result")
	uploadBytes = counter("upload_bytes_total", "Bytes of the snapshots sent.")
	uploadQueue = gauge("uploads_waiting", "Snapshots that wait to be sent.")
	spoolBytes  = gauge("upload_spool_bytes", "Size of the packed snapshots that wait to be sent.")

	reloads  = counter("reload_total", "Reloads of the rules by result: succeeded, failed.", "result")
	reloadOK = gauge("reload_last_successful",
		"Whether the last reload succeeded (1), or the start if there was none.")
	reloadLastTime = gauge("reload_last_success_timestamp_seconds",
		"When rules were last loaded, in Unix time.")
)

// list returns the definitions in the order of docs/metrics.md.
func list() []*definition {
	return []*definition{
		buildInfo,
		delays, ruleDelays, activitySeconds,
		outliers, outlierSeconds, blamed,
		ruleThreshold, ruleActive, rulePaused, ruleWorst, stuckWork,
		snapshots, snapshotsStored, snapshotBytes, snapshotsPinned, snapshotsRemoved, unremovable,
		boosted, boosts, boostSeconds,
		lost,
		coverage, records, recordsLost, tableEntries, tableCapacity,
		overhead, budgetCPU, programSeconds,
		actions, panics, stuck, exports, exportQueue, exportSpool,
		uploads, uploadBytes, uploadQueue, spoolBytes,
		reloads, reloadOK, reloadLastTime,
	}
}

// of returns the metric with a value and the values of its labels.
func (d *definition) of(value float64, labels ...string) prometheus.Metric {
	kind := prometheus.GaugeValue
	if d.kind == dto.MetricType_COUNTER {
		kind = prometheus.CounterValue
	}
	m, err := prometheus.NewConstMetric(d.desc, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(d.desc, err)
	}
	return m
}
