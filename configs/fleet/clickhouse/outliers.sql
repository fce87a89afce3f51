-- SPDX-License-Identifier: Apache-2.0
--
-- The table that `tailcam top --fleet` and `tailcam events --fleet` query. One row for each record
-- that a daemon has sent; docs/fleet.md says what rows of one outlier have in common. Works with
-- ClickHouse 18.16 and later:
--
--   clickhouse-client --multiquery < outliers.sql
--
-- Rows of 30 days and more are removed by (ClickHouse 19.6 and later)
--   ALTER TABLE tailcam_outliers MODIFY TTL time + INTERVAL 30 DAY;
-- and before 19.6 by ALTER TABLE tailcam_outliers DROP PARTITION 20261123;
CREATE TABLE IF NOT EXISTS tailcam_outliers
(
    time         DateTime,                -- end of the outlier
    time_ns      Int64,                   -- the same, in nanoseconds since 1970
    observed_ns  Int64,                   -- when the record was inserted
    host         String,                  -- host.name
    uid          String,                  -- log.record.uid
    rule         String,
    track        String,
    trigger      String,                  -- tailcam.cause: threshold, timeout, after_timeout
    delay_ns     Int64,
    threshold_ns Int64,
    start_ns     Int64,                   -- entry, CLOCK_MONOTONIC of the host
    tid          Int64,
    work         UInt64 MATERIALIZED cityHash64(host, rule, tid, start_ns), -- the same for records of one piece of work
    task         String,
    cause        String,                  -- of the largest part, if it is explained
    culprit      String,                  -- whose fault that was
    culprit_kind String,
    blamed_ns    Int64,                   -- that part of the delay
    summary      String,
    unit         String,                  -- systemd.unit, else tailcam.task.unit, else of the cgroup
    pod          String,                  -- k8s.pod.name
    namespace    String,                  -- k8s.namespace.name
    container    String,                  -- container.name, else k8s.container.name, else container.id
    version      String,                  -- service.version: of tailcam
    kernel       String,                  -- tailcam.kernel: release of the kernel
    release      String,                  -- deployment.id: set by the operator
    trace_id     String,
    activity     String,                  -- tailcam.activity.name
    snapshot     String,
    snapshot_url String                   -- tailcam.snapshot_url: where the host has sent it to
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (time, host);
