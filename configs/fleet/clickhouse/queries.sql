-- SPDX-License-Identifier: Apache-2.0
--
-- What one asks of tailcam_outliers, for dashboards and by hand. Work that several records tell of
-- counts once: GROUP BY work. Change 24 * 3600, and add conditions to WHERE, as needed.

-- Who caused most of the slow time in the last day?
SELECT culprit, cause, sum(part) / 1e9 AS seconds, count() AS outliers, uniqExact(machine) AS hosts
FROM (SELECT work, any(host) AS machine, max(blamed_ns) AS part, argMax(culprit, blamed_ns) AS culprit, argMax(cause, blamed_ns) AS cause
      FROM tailcam_outliers WHERE time > now() - 24 * 3600 GROUP BY work)
WHERE part > 0 GROUP BY culprit, cause ORDER BY seconds DESC LIMIT 20;

-- Slow time in each hour, by culprit: for a graph.
SELECT hour, culprit, sum(part) / 1e9 AS seconds
FROM (SELECT work, toStartOfHour(max(time)) AS hour, max(blamed_ns) AS part, argMax(culprit, blamed_ns) AS culprit
      FROM tailcam_outliers WHERE time > now() - 24 * 3600 GROUP BY work)
GROUP BY hour, culprit ORDER BY hour, seconds DESC LIMIT 5 BY hour;

-- The hosts that suffered most, and their worst outlier with a snapshot.
SELECT machine, sum(delay) / 1e9 AS seconds, count() AS outliers, argMax(snap, if(snap != '', delay, 0)) AS worst_snapshot,
       argMax(url, if(snap != '', delay, 0)) AS worst_snapshot_url
FROM (SELECT work, any(host) AS machine, max(delay_ns) AS delay, max(snapshot) AS snap, max(snapshot_url) AS url
      FROM tailcam_outliers WHERE time > now() - 24 * 3600 GROUP BY work)
GROUP BY machine ORDER BY seconds DESC LIMIT 20;

-- Slow time with each release, by culprit, and how many hours of how many hosts it was seen for: since
-- which release? (tailcam top --fleet URL --since-release answers that.)
SELECT culprit, version, sum(part) / 1e9 AS seconds, count() AS outliers
FROM (SELECT work, max(blamed_ns) AS part, argMax(culprit, blamed_ns) AS culprit, any(release) AS version
      FROM tailcam_outliers WHERE time > now() - 24 * 3600 GROUP BY work)
WHERE part > 0 GROUP BY culprit, version ORDER BY culprit, version LIMIT 1000;

SELECT version, count() AS hosts, sum(seconds) / 3600 AS hours, min(begin) AS first
FROM (SELECT release AS version, host, min(time) AS begin, toUInt32(max(time)) - toUInt32(min(time)) AS seconds
      FROM tailcam_outliers WHERE time > now() - 24 * 3600 GROUP BY version, host)
GROUP BY version ORDER BY first;

-- Quantiles of the delays of each rule.
SELECT name, quantilesExact(0.5, 0.99, 1)(delay) AS delay_ns, count() AS outliers
FROM (SELECT work, any(rule) AS name, max(delay_ns) AS delay
      FROM tailcam_outliers WHERE time > now() - 24 * 3600 GROUP BY work)
GROUP BY name ORDER BY outliers DESC;

-- The newest outliers of one culprit.
SELECT time, host, rule, delay_ns / 1e6 AS ms, summary, snapshot, snapshot_url
FROM tailcam_outliers WHERE time > now() - 24 * 3600 AND culprit = 'rt-hog' ORDER BY time_ns DESC LIMIT 20;
