package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// rowsConfig is what the ClickHouse exporter has as well, but for the table.
type rowsConfig struct {
	exporterhelper.TimeoutConfig `mapstructure:",squash"`

	Endpoint string                                                   `mapstructure:"endpoint"` // http://host:8123
	Retry    configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
	Queue    configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
}

func newRowsFactory() exporter.Factory {
	return exporter.NewFactory(component.MustNewType("rows"), func() component.Config {
		return &rowsConfig{
			TimeoutConfig: exporterhelper.NewDefaultTimeoutConfig(), Retry: configretry.NewDefaultBackOffConfig(),
			Queue: configoptional.Some(exporterhelper.NewDefaultQueueConfig()),
		}
	}, exporter.WithLogs(func(ctx context.Context, set exporter.Settings, c component.Config) (exporter.Logs, error) {
		cfg := c.(*rowsConfig)
		return exporterhelper.NewLogs(ctx, set, cfg, cfg.push, exporterhelper.WithTimeout(cfg.TimeoutConfig),
			exporterhelper.WithRetry(cfg.Retry), exporterhelper.WithQueue(cfg.Queue))
	}, component.StabilityLevelDevelopment))
}

// push inserts the rows that tailcam_outliers_view makes of the same records; the test compares them.
func (c *rowsConfig) push(ctx context.Context, logs plog.Logs) error {
	var body bytes.Buffer
	rows := json.NewEncoder(&body)
	now := time.Now().UnixNano()
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if err := rows.Encode(row(resource.Resource().Attributes(), record, now)); err != nil {
					return consumererror.NewPermanent(err)
				}
			}
		}
	}
	u := c.Endpoint + "/?query=" + url.QueryEscape("INSERT INTO tailcam_outliers FORMAT JSONEachRow")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, &body)
	if err != nil {
		return consumererror.NewPermanent(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if why, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)); resp.StatusCode != http.StatusOK {
		return errors.New(string(why))
	}
	return nil
}

var service = regexp.MustCompile(`.*/([^/]+\.service)`)

func row(resource pcommon.Map, r plog.LogRecord, now int64) map[string]any {
	text := func(m pcommon.Map, name string) string {
		v, ok := m.Get(name)
		if !ok {
			return ""
		}
		return v.AsString()
	}
	number := func(name string) int64 {
		v, _ := r.Attributes().Get(name)
		return v.Int()
	}
	or := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	a := r.Attributes()
	unit := ""
	if m := service.FindStringSubmatch(text(a, "process.linux.cgroup")); m != nil {
		unit = m[1]
	}
	trace := ""
	if id := r.TraceID(); !id.IsEmpty() {
		trace = id.String()
	}
	return map[string]any{
		"time": r.Timestamp().AsTime().Unix(), "time_ns": int64(r.Timestamp()), "observed_ns": now,
		"host": text(resource, "host.name"), "uid": text(a, "log.record.uid"), "rule": text(a, "tailcam.rule"),
		"track": text(a, "tailcam.track"), "trigger": text(a, "tailcam.cause"), "delay_ns": number("tailcam.delay_ns"),
		"threshold_ns": number("tailcam.threshold_ns"), "start_ns": number("tailcam.start_mono_ns"), "tid": number("thread.id"),
		"task": text(a, "thread.name"), "cause": text(a, "tailcam.explained.cause"), "culprit": text(a, "tailcam.explained.by"),
		"culprit_kind": text(a, "tailcam.explained.by_kind"), "blamed_ns": number("tailcam.explained.ns"),
		"summary": r.Body().AsString(), "unit": or(text(a, "systemd.unit"), or(text(a, "tailcam.task.unit"), unit)), "pod": text(a, "k8s.pod.name"),
		"namespace": text(a, "k8s.namespace.name"), "container": or(text(a, "container.name"), or(text(a, "k8s.container.name"), text(a, "container.id"))),
		"version": text(resource, "service.version"), "kernel": text(resource, "tailcam.kernel"),
		"release": text(resource, "deployment.id"), "trace_id": trace, "activity": text(a, "tailcam.activity.name"), "snapshot": text(a, "tailcam.snapshot"),
		"snapshot_url": text(a, "tailcam.snapshot_url"),
	}
}

// Validate implements xconfmap.Validator.
func (c *rowsConfig) Validate() error {
	if c.Endpoint == "" {
		return fmt.Errorf("endpoint is missing")
	}
	return nil
}
