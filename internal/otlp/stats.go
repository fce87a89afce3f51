package otlp

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
)

// Counts are what became of requests and outliers. They may be shared by exporters, one
// after the other.
type Counts struct {
	dropped, rejected ruleCounts
	results           [2][3]atomic.Uint64 // by signal and result
}

// Result is what became of requests of one signal.
type Result struct {
	Signal string // logs, metrics
	Result string // succeeded; failed: it may be repeated; refused: for good
	Count  uint64
}

// Results counts requests, also those that never were. A nil Exporter has none.
func (e *Exporter) Results() []Result {
	if e == nil {
		return nil
	}
	var list []Result
	for s, name := range []string{logsSignal.name, metricsSignal.name} {
		for r, result := range []string{"succeeded", "failed", "refused"} {
			list = append(list, Result{name, result, e.counts.results[s][r].Load()})
		}
	}
	return list
}

// Target is where the exporter sends to. A nil Exporter has none.
func (e *Exporter) Target() (endpoint, protocol string) {
	if e == nil {
		return "", ""
	}
	return e.opts.Endpoint, e.opts.Protocol
}

// Waiting is how many outliers wait for their explanation or for the collector, how much room
// they take on disk, and why they wait in memory alone; empty: they do not, or shall.
func (e *Exporter) Waiting() (outliers int, spooled int64, spoolErr string) {
	outliers = e.hold.len() + e.queue.len()
	if s := e.spool.Load(); s != nil {
		n, bytes := s.size()
		outliers, spooled = outliers+n, bytes
	}
	if why := e.spoolErr.Load(); why != nil {
		spoolErr = *why
	}
	return outliers, spooled, spoolErr
}

// count counts a request.
func (e *Exporter) count(s signal, err error) {
	i, result := 0, 0
	if s == metricsSignal {
		i = 1
	}
	var refused *refusedError
	if err != nil {
		result = 2
		if errors.As(err, &refused) && refused.retry {
			result = 1
		}
	}
	e.counts.results[i][result].Add(1)
}

// Losses are the outliers that were not sent, by rule: dropped while the collector
// did not take them, and rejected by it. Of those that it rejected out of a request
// the rule is unknown, and empty. A nil Exporter has none.
func (e *Exporter) Losses() (dropped, rejected map[string]uint64) {
	if e == nil {
		return nil, nil
	}
	return e.counts.dropped.all(), e.counts.rejected.all()
}

// ruleCounts counts by rule.
type ruleCounts struct {
	mu sync.Mutex
	by map[string]uint64
}

func (c *ruleCounts) add(rule string, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]uint64{}
	}
	c.by[rule] += n
}

func (c *ruleCounts) all() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by)
}
