-- SPDX-License-Identifier: Apache-2.0
--
-- What the collector's ClickHouse exporter inserts into, and how that becomes rows of outliers.sql,
-- which must be loaded first. Needs ClickHouse 21.11 or later (Map, DateTime64, now64).
--
-- The table keeps nothing: rows are stored once, in tailcam_outliers. If you already have otel_logs
-- of the exporter, leave this table out and create the view FROM otel_logs.
CREATE TABLE IF NOT EXISTS tailcam_otel_logs
(
    Timestamp          DateTime64(9),
    TraceId            String,
    SpanId             String,
    TraceFlags         UInt8,
    SeverityText       LowCardinality(String),
    SeverityNumber     UInt8,
    ServiceName        LowCardinality(String),
    Body               String,
    ResourceSchemaUrl  LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    ScopeSchemaUrl     LowCardinality(String),
    ScopeName          String,
    ScopeVersion       LowCardinality(String),
    ScopeAttributes    Map(LowCardinality(String), String),
    LogAttributes      Map(LowCardinality(String), String),
    EventName          String
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS tailcam_outliers_view TO tailcam_outliers AS
SELECT
    toDateTime(Timestamp)                                    AS time,
    toUnixTimestamp64Nano(Timestamp)                         AS time_ns,
    toUnixTimestamp64Nano(now64(9))                          AS observed_ns,
    ResourceAttributes['host.name']                          AS host,
    LogAttributes['log.record.uid']                          AS uid,
    LogAttributes['tailcam.rule']                            AS rule,
    LogAttributes['tailcam.track']                           AS track,
    LogAttributes['tailcam.cause']                           AS trigger,
    toInt64OrZero(LogAttributes['tailcam.delay_ns'])         AS delay_ns,
    toInt64OrZero(LogAttributes['tailcam.threshold_ns'])     AS threshold_ns,
    toInt64OrZero(LogAttributes['tailcam.start_mono_ns'])    AS start_ns,
    toInt64OrZero(LogAttributes['thread.id'])                AS tid,
    LogAttributes['thread.name']                             AS task,
    LogAttributes['tailcam.explained.cause']                 AS cause,
    LogAttributes['tailcam.explained.by']                    AS culprit,
    LogAttributes['tailcam.explained.by_kind']               AS culprit_kind,
    toInt64OrZero(LogAttributes['tailcam.explained.ns'])     AS blamed_ns,
    Body                                                     AS summary,
    multiIf(LogAttributes['systemd.unit'] != '', LogAttributes['systemd.unit'],
            LogAttributes['tailcam.task.unit'] != '', LogAttributes['tailcam.task.unit'],
            extract(LogAttributes['process.linux.cgroup'], '.*/([^/]+\\.service)')) AS unit,
    LogAttributes['k8s.pod.name']                            AS pod,
    LogAttributes['k8s.namespace.name']                      AS namespace,
    multiIf(LogAttributes['container.name'] != '', LogAttributes['container.name'],
            LogAttributes['k8s.container.name'] != '', LogAttributes['k8s.container.name'],
            LogAttributes['container.id'])                   AS container,
    ResourceAttributes['service.version']                    AS version,
    ResourceAttributes['tailcam.kernel']                     AS kernel,
    ResourceAttributes['deployment.id']                      AS release,
    TraceId                                                  AS trace_id,
    LogAttributes['tailcam.activity.name']                   AS activity,
    LogAttributes['tailcam.snapshot']                        AS snapshot,
    LogAttributes['tailcam.snapshot_url']                    AS snapshot_url
FROM tailcam_otel_logs
WHERE LogAttributes['tailcam.rule'] != '';
